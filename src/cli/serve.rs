//! `weir serve`: runs the gateway.

use std::fmt::Display;
use std::future::pending;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::future::OptionFuture;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::handover::predecessor::{AwaitedStore, Following, Predecessor};
use super::handover::successor::{Successor, Takeover, start_successor};
use super::notify::ServiceManager;
use super::otlp::telemetry_settings;
use super::process::{
    CONFIG_VARIABLE, DEFAULT_CONFIG, FAILED, Failure, ProcessSignal, Signals, runtime,
};
use super::stored_writes::with_stored_writes;
use crate::admin::{Admin, figures, unready};
use crate::clock::{Clock, Timestamp};
use crate::config::{self, Config, Listen, WriteStore};
use crate::gateway::{
    Current, Drained, Inherited, Leaving, Listening, Recovery, Sockets, log_warnings,
    raise_descriptor_limit,
};
use crate::state::redis::{Examined, RedisHome};
use crate::telemetry::{self, LogLevel, Metrics};
use crate::writes::Store;
use crate::writes::file::FileStore;
use crate::writes::handed::HandedStore;
use crate::writes::memory::MemoryStore;

/// The longest wait for running tasks at the exit. Chosen here: a task yields within milliseconds,
/// and a thread that reads a file or resolves a name may not delay the exit.
const TASKS_DROPPED_WITHIN: Duration = Duration::from_secs(1);
/// The longest wait of a successor for the first look at its tokens. Chosen here: longer than an
/// upstream that hangs is waited for.
const LOOK_WITHIN: Duration = Duration::from_secs(60);
/// The pause between two looks at the readiness of a successor, and their number. Chosen here:
/// Redis is connected within a second, and an operator waits for the reason.
const READY_PAUSE: Duration = Duration::from_millis(100);
const READY_LOOKS: u32 = 50;
/// The largest usual difference between two clocks. Chosen here: machines that keep their clocks
/// differ by milliseconds, and the answer of Redis may take a second.
const CLOCKS_DIFFER_BY_MAX: Duration = Duration::from_secs(5);

#[derive(Args)]
pub struct Serve {
    /// The config file
    #[arg(long, env = CONFIG_VARIABLE, hide_env_values = true, default_value = DEFAULT_CONFIG, value_name = "FILE")]
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
        // Before the first thread, because it changes the environment.
        let inherited = Inherited::from_environment().map_err(Failure::bad_config)?;
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
        let mut guard = telemetry::init(&telemetry_settings(&config, level))
            .map_err(|fault| Failure::bad_config(format_args!("telemetry: {fault}")))?;
        let served = runtime.block_on(serve(config, self.config, signals, inherited, &mut guard));
        // Detached fetches have had their time. The tasks of requests that were cut off are dropped
        // here, which logs them.
        runtime.shutdown_timeout(TASKS_DROPPED_WITHIN);
        drop(guard);
        Ok(served.map_or_else(|Logged| FAILED.into(), |()| ExitCode::SUCCESS))
    }
}

/// An error that is in the log already.
struct Logged;

/// The parts of a process that takes over, until its predecessor has ended.
struct Begun {
    current: Arc<Current>,
    /// The file of writes, once it is open.
    store: Option<Arc<HandedStore>>,
    awaited: Option<AwaitedStore>,
}

/// A process that is ready to serve.
struct Ready {
    begun: Begun,
    sockets: Sockets,
    takeover: Option<Takeover>,
    predecessor: Option<Predecessor>,
}

async fn serve(
    config: Arc<Config>,
    path: PathBuf,
    mut signals: Signals,
    activated: Vec<Inherited>,
    telemetry: &mut telemetry::Guard,
) -> Result<(), Logged> {
    let ready = tokio::select! {
        ready = get_ready(config, path, activated) => ready?,
        () = signals.ended() => {
            info!("a signal ends this process before it serves");
            return Ok(());
        }
    };
    // Not given up from here on: the predecessor drains.
    let Ready { begun, mut sockets, takeover, predecessor } = ready;
    let Begun { current, store, awaited } = begun;
    let following = match predecessor {
        None => None,
        Some(predecessor) => {
            Some(succeed(predecessor, &current, &sockets, awaited.as_ref()).await?)
        }
    };
    let failed = logged("cannot open a listener");
    let admin = Admin::open_on(&current, &mut sockets).map_err(&failed)?;
    // Last, so that no client is served by a gateway whose start then fails.
    let listening = Listening::open_on(&current, &mut sockets).map_err(&failed)?;
    log_addresses(&listening, &admin);
    let manager = ServiceManager::from_environment();
    manager.ready();
    let read_from = Arc::downgrade(&current);
    let read = move || read_from.upgrade().map(|current| figures(&current.gateway()));
    let metrics = telemetry.export_metrics(read);
    tokio::spawn(Arc::clone(&manager).keep_alive());
    let following = following.map(|it| tokio::spawn(it.follow(Arc::clone(&current), awaited)));
    let successor = async {
        match &takeover {
            Some(takeover) => takeover.successor(&current, OptionFuture::from(following)).await,
            None => pending().await,
        }
    };
    let until_drain = async {
        serve_until_end(&mut signals, &current, &manager).await;
        delay_drain(&mut signals, &current, &manager).await;
    };
    let ended = tokio::select! {
        () = until_drain => None,
        successor = successor => Some(successor),
    };
    if let Some(successor) = ended {
        drop(takeover);
        admin.hand_over();
        hand_over(&current, listening, &successor, store.as_deref()).await;
    } else {
        // A process that has the sockets goes on with them when this one ends.
        let passed = takeover.as_ref().and_then(Takeover::passed);
        drop(takeover);
        let leaving = passed.map_or(Leaving::Ending, Leaving::HandedOver);
        drain(&current, listening, &leaving).await;
        log_left_writes(&current);
    }
    if let Some(metrics) = metrics {
        metrics.finish().await;
    }
    Ok(())
}

/// Makes everything ready to serve. Without an end, it leaves a predecessor as it was.
async fn get_ready(
    config: Arc<Config>,
    path: PathBuf,
    activated: Vec<Inherited>,
) -> Result<Ready, Logged> {
    log_warnings(&config);
    examine_state(&config).await?;
    let mut predecessor = match &config.listen.takeover {
        Some(at) => Predecessor::find(at).await.map_err(logged("cannot take over"))?,
        None => None,
    };
    let (passed, at_predecessor) =
        predecessor.as_mut().map(Predecessor::take_sockets).unwrap_or_default();
    let sockets = match predecessor {
        Some(_) => open_beside(&config.listen, passed)?,
        None => open_sockets(&config.listen, activated)?,
    };
    let takeover = config.listen.takeover.as_ref();
    let takeover = takeover.map(|at| Takeover::open(at, at_predecessor, &sockets)).transpose();
    let takeover = takeover.map_err(logged("cannot open the takeover socket"))?;
    let begun = begin(config, predecessor.as_mut()).await?;
    begun.current.read_from(path);
    begun.current.begin_look();
    if let Some(predecessor) = &mut predecessor
        && let Err(reason) = until_ready(&begun.current).await
        && !predecessor.has_ended()
    {
        // Readiness must not end with the predecessor.
        return Err(logged("this process does not get ready; the predecessor goes on")(reason));
    }
    Ok(Ready { begun, sockets, takeover, predecessor })
}

/// Waits until `/readyz` would say that this process is ready. Fails with the reason.
async fn until_ready(current: &Current) -> Result<(), String> {
    let gateway = current.gateway();
    gateway.dispatcher.looked(LOOK_WITHIN).await;
    for _ in 0..READY_LOOKS {
        if unready(&gateway).is_none() {
            return Ok(());
        }
        sleep(READY_PAUSE).await;
    }
    unready(&gateway).map_or(Ok(()), Err)
}

/// Takes over from a predecessor, which drains from then on.
async fn succeed(
    predecessor: Predecessor,
    current: &Arc<Current>,
    sockets: &Sockets,
    awaited: Option<&AwaitedStore>,
) -> Result<Following, Logged> {
    let followed = predecessor.succeed(sockets.inherited()).await;
    let following = followed.map_err(logged("cannot take over"))?;
    let is_in_redis = current.gateway().env.config.writes.store == WriteStore::Redis;
    if awaited.is_none() && !is_in_redis && !following.clients.is_empty() {
        warn!("queued writes of the predecessor do not go on: writes.store is \"memory\"");
    }
    current.hold_writes_of(&following.clients);
    let gateway = current.gateway();
    gateway.dispatcher.add_spent(&following.spent);
    for issuer in gateway.issuers() {
        issuer.take_keys(&following.issuer_keys);
    }
    Ok(following)
}

/// Drains beside a successor, which gets the file of writes as soon as possible.
async fn hand_over(
    current: &Arc<Current>,
    listening: Listening,
    successor: &Successor,
    store: Option<&HandedStore>,
) {
    info!("a successor is ready");
    let leaving = Leaving::HandedOver(successor.kept.clone());
    let pass_on = async {
        successor.pass_on_store(current, store).await;
        pending::<()>().await;
    };
    tokio::select! {
        () = drain(current, listening, &leaving) => {}
        // Both end with the drain.
        () = pass_on => {}
        _ = successor.keep_telling(current) => {}
    }
    successor.end(current).await;
}

/// Builds the gateway, alone or beside a predecessor.
async fn begin(
    config: Arc<Config>,
    predecessor: Option<&mut Predecessor>,
) -> Result<Begun, Logged> {
    let (clock, metrics) = (Clock::system(), Arc::new(Metrics::new()));
    let file = match &config.writes.store {
        WriteStore::File(path) => Some((path.clone(), Arc::new(HandedStore::default()))),
        WriteStore::Memory | WriteStore::Redis => None,
    };
    let store = file.as_ref().map(|(_, store)| Arc::clone(store));
    let all: Arc<dyn Store> = match &store {
        Some(store) => Arc::clone(store) as _,
        None => Arc::new(MemoryStore::default()),
    };
    if let Some(predecessor) = predecessor {
        if let Some((path, _)) = file.clone() {
            verify_store(path).await?;
        }
        let handover = predecessor.snapshot().await;
        let current = Current::beside(config, clock, metrics, all, handover.as_deref());
        if store.is_none() {
            current.open_writes(Recovery::default());
        }
        let awaited = file.map(|(path, store)| AwaitedStore { path, store });
        return Ok(Begun { current, store, awaited });
    }
    // Beside the rest of the start: a file of many writes takes as long.
    let opening = file.map(|(path, store)| {
        let opened =
            std::thread::spawn(move || with_stored_writes(|each| FileStore::open(&path, each)));
        (opened, store)
    });
    let recover = || {
        let Some((opened, store)) = opening else { return Ok(Recovery::default()) };
        let opened = opened.join().unwrap_or_else(|_| Err("reading them failed".into()));
        let (file, mut recovery) = opened?;
        recovery.next_number = file.first_number();
        store.open(Arc::new(file));
        Ok(recovery)
    };
    let current = Current::with_writes_from(config, clock, metrics, all, recover);
    let current = current.map_err(logged::<String>("cannot keep writes"))?;
    Ok(Begun { current, store, awaited: None })
}

/// Checks that the file of writes can be opened once a predecessor lets go of it.
async fn verify_store(path: PathBuf) -> Result<(), Logged> {
    let verify = move || with_stored_writes(|each| FileStore::verify(&path, each));
    let verified = tokio::task::spawn_blocking(verify).await;
    let verified = verified.unwrap_or_else(|_| Err("reading them failed".into()));
    verified.map(drop).map_err(logged("cannot keep writes"))
}

/// Checks the Redis of all replicas. One that is away is waited for beside the requests; one that
/// cannot be used ends the start.
async fn examine_state(config: &Config) -> Result<(), Logged> {
    let Some(redis) = &config.state.redis else { return Ok(()) };
    match RedisHome::examine(redis).await {
        Ok(its_time) => {
            if let Some(fault) = clock_fault(Clock::system().now(), its_time) {
                warn!("{fault}: keys, tokens and sessions may end too early or too late here");
            }
            Ok(())
        }
        Err(Examined::Away(reason)) => {
            warn!(%reason, "Redis is out of reach: this replica is not ready before it is there");
            Ok(())
        }
        Err(Examined::Unsuitable(fault)) => Err(logged("Redis cannot be used")(fault)),
    }
}

/// The difference of this machine's clock from that of Redis, if it is a fault. The limits of
/// replicas keep to the clock of Redis alone.
fn clock_fault(own: Timestamp, of_redis: Timestamp) -> Option<String> {
    let (ahead, behind) = (own.since(of_redis), of_redis.since(own));
    let (by, side) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    (by > CLOCKS_DIFFER_BY_MAX)
        .then(|| format!("this machine's clock is {} s {side} that of Redis", by.as_secs()))
}

/// Logs an error.
fn logged<E: Display>(message: &'static str) -> impl Fn(E) -> Logged {
    move |fault| {
        error!(error = %fault, "{message}");
        Logged
    }
}

/// Opens the sockets of the listeners, apart from those that systemd passed.
fn open_sockets(listen: &Listen, activated: Vec<Inherited>) -> Result<Sockets, Logged> {
    let opened = Sockets::open(listen, activated);
    let (sockets, without_listener) = opened.map_err(logged("cannot open a listener"))?;
    for socket in &without_listener {
        error!(
            socket = socket.socket.place(),
            name = socket.name,
            "no listener of the config has the address and the name of this socket of systemd"
        );
    }
    if without_listener.is_empty() { Ok(sockets) } else { Err(Logged) }
}

/// The same with the sockets of a predecessor. It closes those that this config lacks.
fn open_beside(listen: &Listen, passed: Vec<Inherited>) -> Result<Sockets, Logged> {
    let opened = Sockets::open(listen, passed);
    let (sockets, without_listener) = opened.map_err(logged("cannot open a listener"))?;
    for socket in without_listener {
        let socket = socket.socket.place();
        info!(socket, "the config has no listener for this socket of the predecessor");
    }
    Ok(sockets)
}

fn log_addresses(listening: &Listening, admin: &Admin) {
    for address in &listening.addresses {
        info!(address = %address, "listening");
    }
    if let Some(address) = listening.https {
        info!(address = %address, "listening for TLS");
    }
    if let Some(address) = admin.address() {
        info!(address = %address, "admin listening");
    }
}

/// Ends readiness, and goes on for `listen.drain_delay`.
async fn delay_drain(signals: &mut Signals, current: &Arc<Current>, manager: &Arc<ServiceManager>) {
    let gateway = current.gateway();
    gateway.env.active.leave();
    manager.stopping(gateway.env.active.count());
    let delay = gateway.env.config.listen.drain_delay;
    if !delay.is_zero() {
        info!(seconds = delay.as_secs_f64(), "not ready any more; the drain begins later");
        // A second signal begins it at once.
        let _ = timeout(delay, serve_until_end(signals, current, manager)).await;
    }
}

async fn drain(current: &Current, listening: Listening, leaving: &Leaving) {
    let gateway = current.gateway();
    info!(in_flight = gateway.env.active.count(), "draining");
    match listening.drain_as(gateway.env.config.listen.drain, leaving).await {
        Drained::Completely => info!("drained"),
        Drained::CutOff(requests) => {
            warn!(requests, "the drain time is over, requests were cut off");
        }
    }
    current.leave_replicas().await;
}

fn log_left_writes(current: &Current) {
    let gateway = current.gateway();
    let left = gateway.writes.queue().unfinished();
    if left > 0 && gateway.writes.queue().is_durable() {
        info!(writes = left, "queued writes are kept and go on at the next start");
    } else if left > 0 {
        warn!(writes = left, "queued writes are lost: writes.store is \"memory\"");
    }
}

/// Serves until a signal ends it.
async fn serve_until_end(
    signals: &mut Signals,
    current: &Arc<Current>,
    manager: &Arc<ServiceManager>,
) {
    loop {
        match signals.next().await {
            ProcessSignal::End => return,
            ProcessSignal::Unused => info!("SIGUSR1 does nothing"),
            ProcessSignal::Succeed => {
                if current.gateway().env.config.listen.takeover.is_some() {
                    start_successor();
                } else {
                    warn!("SIGUSR2 does nothing without listen.takeover");
                }
            }
            ProcessSignal::Reload => {
                let (current, manager) = (Arc::clone(current), Arc::clone(manager));
                // Not awaited: reading files may take long, and signals must be handled meanwhile.
                // The result is logged.
                drop(tokio::task::spawn_blocking(move || {
                    manager.reloading();
                    // A config with faults leaves the old one in force.
                    let _ = current.reload();
                    manager.ready();
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_are_a_fault() {
        let of_redis = Timestamp::from_secs(1_000);
        for (own, fault) in [
            (995, None),
            (1_005, None),
            (1_006, Some("this machine's clock is 6 s ahead of that of Redis")),
            (940, Some("this machine's clock is 60 s behind that of Redis")),
        ] {
            assert_eq!(clock_fault(Timestamp::from_secs(own), of_redis).as_deref(), fault);
        }
    }
}
