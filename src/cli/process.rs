//! Exit codes, runtime and signals of the long-running commands.

use std::io;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use rustix::process::Signal as Number;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of bad usage or a bad config.
pub const BAD_CONFIG: u8 = 2;
/// Exit code of a failure while running.
pub const FAILED: u8 = 1;

/// Tasks that a worker runs before it looks for requests that have arrived. Chosen here: the
/// runtime's own number lets a request wait a millisecond behind a burst of new connections.
const TASKS_OF_A_LOOK: u32 = 16;
/// Variable that names the config where `--config` does not (SPECIFICATION, "Commands").
pub const CONFIG_VARIABLE: &str = "WEIR_CONFIG";
/// The config where neither `--config` nor [`CONFIG_VARIABLE`] names one.
pub const DEFAULT_CONFIG: &str = "weir.toml";

/// Reason for the early end of a command.
pub struct Failure {
    code: u8,
    problem: String,
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass an error on")]
impl Failure {
    /// Creates the failure of bad usage or a bad config.
    pub fn bad_config(problem: impl ToString) -> Self {
        Self { code: BAD_CONFIG, problem: problem.to_string() }
    }

    /// Creates a failure while running.
    pub fn running(problem: impl ToString) -> Self {
        Self { code: FAILED, problem: problem.to_string() }
    }

    /// Reports the problem on standard error, and returns the exit code.
    pub fn report(self) -> ExitCode {
        eprintln!("{}", self.problem);
        self.code.into()
    }
}

/// Builds a runtime; without a number it has one worker thread per core.
pub fn runtime(threads: Option<NonZeroUsize>) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads.get());
    }
    builder.event_interval(TASKS_OF_A_LOOK).thread_name("weir").enable_all().build()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessSignal {
    /// SIGTERM, SIGQUIT or Ctrl-C: drain and end.
    End,
    /// SIGHUP: reload the config.
    Reload,
    /// SIGUSR2: start a successor.
    Succeed,
    /// SIGUSR1. Nothing happens: by default it would end the process.
    Unused,
}

/// The handled signals (SPECIFICATION, "Commands").
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    /// SIGXFSZ by default ends a process that writes beyond the file size limit. Handled, the write
    /// fails like one on a full disk.
    _too_large: Signal,
}

impl Signals {
    /// Replaces the signals' default actions. Requires a runtime.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            _too_large: signal(SignalKind::from_raw(Number::XFSZ.as_raw()))?,
        })
    }

    pub async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            _ = self.terminate.recv() => ProcessSignal::End,
            _ = self.interrupt.recv() => ProcessSignal::End,
            _ = self.quit.recv() => ProcessSignal::End,
            _ = self.hangup.recv() => ProcessSignal::Reload,
            _ = self.user1.recv() => ProcessSignal::Unused,
            _ = self.user2.recv() => ProcessSignal::Succeed,
        }
    }

    /// Waits for a signal that ends the process. Others are kept for [`Self::next`].
    pub async fn ended(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}
