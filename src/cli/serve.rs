//! `weir serve`: runs the gateway.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::process::{FAILED, Failure, ProcessSignal, Signals, runtime};
use crate::admin::Admin;
use crate::clock::Clock;
use crate::config::{self, Config, WriteStore};
use crate::gateway::{Current, Drained, Listening, Recovery, log_warnings, raise_descriptor_limit};
use crate::telemetry::{self, LogFormat, LogLevel, Metrics, TelemetrySettings};
use crate::writes::file::{FileStore, OpenError};
use crate::writes::memory::MemoryStore;
use crate::writes::{Store, Stored};

/// The longest wait for running tasks at the exit. Chosen here: a task yields within milliseconds,
/// and a thread that reads a file or resolves a name may not delay the exit.
const TASKS_DROPPED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct Serve {
    /// The config file
    #[arg(long, default_value = "weir.toml", value_name = "FILE")]
    config: PathBuf,
    /// Worker threads; default: one a core
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

impl Serve {
    /// Serves until SIGTERM or Ctrl-C.
    pub fn run(self) -> ExitCode {
        self.start().unwrap_or_else(Failure::report)
    }

    fn start(self) -> Result<ExitCode, Failure> {
        raise_descriptor_limit();
        let runtime = runtime(self.threads).map_err(|fault| {
            Failure::running(format_args!("cannot start worker threads: {fault}"))
        })?;
        // First, so that a signal during the reading of the config does not kill the process.
        let signals = runtime.block_on(async { Signals::install() }).map_err(|fault| {
            Failure::running(format_args!("cannot listen for signals: {fault}"))
        })?;
        let config = Arc::new(config::load(&self.config).map_err(Failure::bad_config)?);
        let level = LogLevel::from_environment(LogLevel::default()).map_err(Failure::bad_config)?;
        let guard = telemetry::init(&telemetry_settings(&config, level))
            .map_err(|fault| Failure::bad_config(format_args!("telemetry: {fault}")))?;
        let served = runtime.block_on(serve(config, self.config, signals));
        // Detached fetches have had their time. The tasks of requests that were cut off are dropped
        // here, which logs them.
        runtime.shutdown_timeout(TASKS_DROPPED_WITHIN);
        drop(guard);
        Ok(served.map_or_else(|Logged| FAILED.into(), |()| ExitCode::SUCCESS))
    }
}

/// An error that is in the log already.
struct Logged;

async fn serve(config: Arc<Config>, path: PathBuf, mut signals: Signals) -> Result<(), Logged> {
    log_warnings(&config);
    let (store, recovery) = open_writes(&config.writes.store).map_err(|fault| {
        error!(error = %fault, "cannot keep writes");
        Logged
    })?;
    let current = Current::with_writes(
        config,
        Clock::system(),
        Arc::new(Metrics::new()),
        Arc::clone(&store),
        recovery,
    );
    current.read_from(path);
    current.begin_look();
    let admin = Admin::open(&current).await.map_err(|fault| {
        error!(error = %fault, "cannot open the admin listener");
        Logged
    })?;
    let listening = Listening::open(&current).map_err(|fault| {
        error!(error = %fault, "cannot open a listener");
        Logged
    })?;
    for address in &listening.addresses {
        info!(address = %address, "listening");
    }
    if let Some(address) = listening.https {
        info!(address = %address, "listening for TLS");
    }
    if let Some(address) = admin.address() {
        info!(address = %address, "admin listening");
    }
    serve_until_end(&mut signals, &current).await;
    let gateway = current.gateway();
    gateway.env.active.leave();
    let delay = gateway.env.config.listen.drain_delay;
    if !delay.is_zero() {
        info!(seconds = delay.as_secs_f64(), "not ready any more; the drain begins later");
        // A second signal begins it at once.
        let _ = timeout(delay, serve_until_end(&mut signals, &current)).await;
    }
    let gateway = current.gateway();
    info!(in_flight = gateway.env.active.count(), "draining");
    match listening.drain(gateway.env.config.listen.drain).await {
        Drained::Completely => info!("drained"),
        Drained::CutOff(requests) => {
            warn!(requests, "the drain time is over, requests were cut off");
        }
    }
    let left = gateway.writes.queue().unfinished();
    if left > 0 && store.is_durable() {
        info!(writes = left, "queued writes are kept and go on at the next start");
    } else if left > 0 {
        warn!(writes = left, "queued writes are lost: writes.store is \"memory\"");
    }
    Ok(())
}

/// Serves until a signal ends it.
async fn serve_until_end(signals: &mut Signals, current: &Arc<Current>) {
    loop {
        match signals.next().await {
            ProcessSignal::End => return,
            ProcessSignal::Unused(name) => info!(signal = name, "this signal has no meaning here"),
            ProcessSignal::Reload => {
                let current = Arc::clone(current);
                // Not awaited: reading files may take long, and signals must be handled meanwhile.
                // The result is logged.
                drop(tokio::task::spawn_blocking(move || current.reload()));
            }
        }
    }
}

/// Opens the store of queued writes, and reads those of an earlier run.
fn open_writes(wanted: &WriteStore) -> Result<(Arc<dyn Store>, Recovery), String> {
    let WriteStore::File(path) = wanted else {
        return Ok((Arc::new(MemoryStore::default()), Recovery::default()));
    };
    let (store, mut recovery) = with_stored_writes(|each| FileStore::open(path, each))?;
    recovery.next_number = store.first_number();
    Ok((Arc::new(store), recovery))
}

/// Runs `read`, which passes each stored write to its argument, and collects the writes.
pub(super) fn with_stored_writes<T>(
    read: impl FnOnce(&mut dyn FnMut(u64, Stored) -> Result<(), String>) -> Result<T, OpenError>,
) -> Result<(T, Recovery), String> {
    let mut recovery = Recovery::default();
    let mut each =
        |number, stored: Stored| recovery.take(number, &stored).map_err(|fault| fault.to_string());
    let done = read(&mut each).map_err(|fault| fault.to_string())?;
    Ok((done, recovery))
}

fn telemetry_settings(config: &Config, level: LogLevel) -> TelemetrySettings {
    let telemetry = &config.telemetry;
    TelemetrySettings {
        log: match telemetry.log {
            config::LogFormat::Json => LogFormat::Json,
            config::LogFormat::Text => LogFormat::Text,
        },
        level,
        otlp_endpoint: telemetry.otlp_endpoint.as_ref().map(ToString::to_string),
        service_name: telemetry.service_name.to_string(),
        sample_ratio: telemetry.sample_ratio,
    }
}
