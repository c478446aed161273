//! What every long-running command shares: its runtime, and the signals that end it.

use std::io;
use std::num::NonZeroUsize;

use rustix::process::Signal as Number;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Bad usage or a bad config.
pub const BAD_CONFIG: u8 = 2;
/// It failed while running.
pub const FAILED: u8 = 1;

/// A runtime with this many worker threads; as many as the machine has cores when not said.
pub fn runtime(threads: Option<NonZeroUsize>) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads.get());
    }
    builder.thread_name("weir").enable_all().build()
}

/// What an operator asks of a running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessSignal {
    /// SIGTERM or Ctrl-C: drain and end.
    End,
    /// SIGHUP: reload the config.
    Reload,
}

/// The signals of CONTRACT §1, and one that must not end a command.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// Of no interest, but taken over: by default a write beyond the limit on the size of files
    /// ends the process. So it fails like one on a full disk.
    _too_large: Signal,
}

impl Signals {
    /// Takes the signals over from their default actions. To be called on a runtime.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            _too_large: signal(SignalKind::from_raw(Number::XFSZ.as_raw()))?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            _ = self.terminate.recv() => ProcessSignal::End,
            _ = self.interrupt.recv() => ProcessSignal::End,
            _ = self.hangup.recv() => ProcessSignal::Reload,
        }
    }
}
