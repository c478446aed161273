//! `weir demo`: the gateway, or several that share a Redis, in front of the embedded emulator,
//! driven by sample bots.
//!
//! A gateway has a config, listeners and an upstream client as in production; the bots speak HTTP
//! to it. The figures come from the bots (the clients' view) and from the emulator (what really
//! arrived).

mod bots;
mod parts;
mod redis_server;
mod report;
mod stage;

use std::fmt::Display;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::process::{Failure, ProcessSignal, Signals, runtime};
use crate::config::parse_duration;
use crate::gateway::Listening;
use crate::telemetry::{self, LogFormat, LogLevel, TelemetrySettings};
use bots::Bots;
use report::Report;
use stage::Stage;

/// Longest wait for the visitor's open requests at the end.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Args)]
pub struct Demo {
    /// How many sample bots; 0 only serves
    #[arg(long, default_value_t = 20, value_name = "N")]
    bots: u32,
    /// How long, such as 30s; without it until Ctrl-C
    #[arg(long = "for", value_parser = parse_duration, value_name = "DURATION")]
    run_for: Option<Duration>,
    /// How many gateways, 1 to 10; several share a redis-server that the demo starts
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=10))]
    replicas: u16,
    /// Where the gateway listens; further ones listen on the following ports
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
        let addresses = self.addresses()?;
        let stage = Stage::build(&addresses, self.bots).await.map_err(|fault| failure(&fault))?;
        let mut listening = Vec::new();
        for staged in &stage.gateways {
            listening.push(Listening::open(&staged.current).map_err(|fault| {
                failure(&format_args!("{fault}; another address can be given with --listen"))
            })?);
        }
        let addresses: Vec<_> = listening.iter().flat_map(|one| one.addresses.clone()).collect();
        println!("{}", stage.welcome(&addresses));
        let bots = Arc::new(Bots::new(&addresses, &stage));
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
                _ = ticks.tick() => report.line().await,
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
            () = signals.ended() => {}
        }
        report.close();
        let exit_code = report.summary(&bots.truth(&stage)).await;
        join_all(listening.into_iter().map(|one| one.drain(DRAIN))).await;
        stage.close().await;
        Ok(exit_code)
    }

    /// The address of each gateway.
    fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        let address = |index| match self.listen.port() {
            0 => Some(self.listen),
            port => Some(SocketAddr::new(self.listen.ip(), port.checked_add(index)?)),
        };
        let addresses: Option<Vec<_>> = (0..self.replicas).map(address).collect();
        addresses.ok_or_else(|| {
            Failure::bad_config(format_args!(
                "weir demo: {} gateways from {} on need ports above {}; a lower port is accepted, or 0",
                self.replicas,
                self.listen,
                u16::MAX
            ))
        })
    }
}

fn failure(problem: &dyn Display) -> Failure {
    Failure::running(format_args!("weir demo: {problem}"))
}
