//! Log lines on their way out: kept for some milliseconds and written together, by a thread of
//! their own.
//!
//! A line costs a copy and no system call, and whoever reads the log too slowly, or not at all,
//! holds up nobody: past [`WAITING_BYTES_MAX`] further lines are left out and counted, and the log
//! says how many as soon as it is read again. An orderly end writes everything; a process that is
//! killed takes the lines of its last [`WRITTEN_AFTER`] with it. Left out: what a line looks like
//! (`line`).

use std::io::{self, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long a line waits for others. Short enough to watch a log by eye; at the highest rates the
/// buffer is full before.
const WRITTEN_AFTER: Duration = Duration::from_millis(20);
/// What is not kept waiting any longer: two writes to a pipe of the usual 64 KiB.
const WRITTEN_FROM_BYTES: usize = 128 * 1024;
/// What may wait while nobody reads: some ten thousand lines.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long an orderly end waits for a reader; as long as for the spans.
const END_MAX: Duration = Duration::from_secs(3);

/// Where lines are put, by everyone. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The writing thread has something to do.
    wanted: Condvar,
    /// It has done something.
    done: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// What is waiting is wanted at once.
    is_urgent: bool,
    is_ending: bool,
    has_ended: bool,
    /// Lines left out since the log last said so.
    left_out: u64,
}

/// The writing thread; writes what is waiting when it is dropped.
#[derive(Debug)]
pub(super) struct Writing {
    lines: Lines,
    thread: Option<JoinHandle<()>>,
}

/// Takes one event's line.
pub(super) struct Line<'l> {
    lines: &'l Lines,
    is_urgent: bool,
}

impl Lines {
    /// Starts the thread that writes to what `open` gives it. `tell` is called on it with the
    /// number of lines that were left out, when they could be written again.
    pub(super) fn start<W: Write>(
        open: impl FnOnce() -> W + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Writing)> {
        let lines = Self::default();
        let shared = Arc::clone(&lines.0);
        let thread = thread::Builder::new()
            .name("weir-log".into())
            .spawn(move || shared.write_all(open(), tell))?;
        Ok((lines.clone(), Writing { lines, thread: Some(thread) }))
    }

    fn put(&self, line: &[u8], is_urgent: bool) {
        let mut state = self.0.state.lock();
        if state.waiting.len() + line.len() > WAITING_BYTES_MAX {
            state.left_out += 1;
            return;
        }
        let before = state.waiting.len();
        state.waiting.extend_from_slice(line);
        state.is_urgent |= is_urgent;
        let is_wanted = before == 0
            || is_urgent
            || before < WRITTEN_FROM_BYTES && state.waiting.len() >= WRITTEN_FROM_BYTES;
        drop(state);
        if is_wanted {
            self.0.wanted.notify_one();
        }
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

impl Shared {
    fn write_all(&self, mut to: impl Write, tell: impl Fn(u64)) {
        let mut writing = Vec::new();
        loop {
            let left_out = {
                let mut state = self.state.lock();
                while state.waiting.is_empty() && !state.is_ending {
                    self.wanted.wait(&mut state);
                }
                while state.waiting.len() < WRITTEN_FROM_BYTES
                    && !state.is_urgent
                    && !state.is_ending
                {
                    if self.wanted.wait_for(&mut state, WRITTEN_AFTER).timed_out() {
                        break;
                    }
                }
                if state.waiting.is_empty() {
                    state.has_ended = true;
                    self.done.notify_all();
                    return;
                }
                state.is_urgent = false;
                std::mem::swap(&mut state.waiting, &mut writing);
                std::mem::take(&mut state.left_out)
            };
            // There is nowhere to say that the log cannot be written.
            let _ = to.write_all(&writing).and_then(|()| to.flush());
            writing.clear();
            writing.shrink_to(2 * WRITTEN_FROM_BYTES);
            if left_out > 0 {
                tell(left_out);
            }
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let shared = &self.lines.0;
        let mut state = shared.state.lock();
        state.is_ending = true;
        shared.wanted.notify_one();
        if !state.has_ended {
            shared.done.wait_for(&mut state, END_MAX);
        }
        let has_ended = state.has_ended;
        drop(state);
        // A thread that is stuck in a write is left behind.
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            let _ = thread.join();
        }
    }
}

impl<'l> MakeWriter<'l> for Lines {
    type Writer = Line<'l>;

    fn make_writer(&'l self) -> Line<'l> {
        Line { lines: self, is_urgent: false }
    }

    fn make_writer_for(&'l self, metadata: &Metadata<'_>) -> Line<'l> {
        Line { lines: self, is_urgent: *metadata.level() <= Level::WARN }
    }
}

impl Write for Line<'_> {
    /// The library hands over a whole line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.put(line, self.is_urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
