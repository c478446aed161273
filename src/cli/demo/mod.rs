//! `weir demo`: the gateway in front of the embedded emulator, driven by sample bots.
//!
//! The gateway has a config, listeners and an upstream client as in production; the bots speak HTTP
//! to it. The figures come from the bots (the clients' view) and from the emulator (what really
//! arrived).

mod bots;
mod report;
mod stage;

use std::fmt::Display;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::process::{Failure, ProcessSignal, Signals, runtime};
use crate::config::parse_duration;
use crate::gateway::Listening;
use crate::telemetry::{self, LogFormat, LogLevel, TelemetrySettings};
use bots::Bots;
use report::Report;
use stage::Stage;

#[derive(Args)]
pub struct Demo {
    /// How many sample bots; 0 only serves
    #[arg(long, default_value_t = 20, value_name = "N")]
    bots: u32,
    /// How long, such as 30s; without it until Ctrl-C
    #[arg(long = "for", value_parser = parse_duration, value_name = "DURATION")]
    run_for: Option<Duration>,
    /// Where the gateway listens
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDR")]
    listen: SocketAddr,
}

impl Demo {
    /// Runs until the time is over or Ctrl-C, then prints the summary.
    pub fn run(self) -> ExitCode {
        // Only warnings are logged beside the table.
        let level = match LogLevel::from_environment(LogLevel::WARN) {
            Ok(level) => level,
            Err(unknown) => return Failure::bad_config(unknown).report(),
        };
        let settings =
            TelemetrySettings { log: LogFormat::Text, level, ..TelemetrySettings::default() };
        let guard = match telemetry::init(&settings) {
            Ok(guard) => guard,
            Err(fault) => return failure(&fault).report(),
        };
        let shown = runtime(None).map_err(|fault| failure(&fault)).and_then(|runtime| {
            let shown = runtime.block_on(self.show());
            runtime.shutdown_background();
            shown
        });
        let code = shown.unwrap_or_else(Failure::report);
        drop(guard);
        code
    }

    async fn show(self) -> Result<ExitCode, Failure> {
        let mut signals = Signals::install().map_err(|fault| failure(&fault))?;
        let stage = Stage::build(self.listen, self.bots).await.map_err(|fault| failure(&fault))?;
        let listening = Listening::open(&stage.current).map_err(|fault| {
            failure(&format_args!("{fault}; another address can be given with --listen"))
        })?;
        let address = listening.addresses.first().copied().unwrap_or(self.listen);
        println!("{}", stage.welcome(address));
        let bots = Arc::new(Bots::new(address, &stage));
        let running = bots.start();
        let mut report = Report::new(&stage, Arc::clone(&bots), self.bots > 0);
        let over = async {
            match self.run_for {
                Some(run_for) => sleep(run_for).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = ticks.tick() => report.line(),
                () = &mut over => break,
                // There is no config file to reload.
                signal = signals.next() => if signal == ProcessSignal::End { break },
            }
        }
        // Bots finish their current requests, so that every write has an outcome. A second Ctrl-C
        // skips the wait.
        bots.stop();
        println!("\nending: the bots finish what they are at");
        tokio::select! {
            () = running.finished() => {}
            () = signals.end() => {}
        }
        report.close();
        let exit_code = report.summary(&bots.truth(&stage));
        listening.drain(Duration::from_secs(5)).await;
        stage.close().await;
        Ok(exit_code)
    }
}

fn failure(problem: &dyn Display) -> Failure {
    Failure::running(format_args!("weir demo: {problem}"))
}
