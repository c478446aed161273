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
pub(super) struct LogWriter(Arc<Shared>);

#[derive(Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    /// The writing thread has something to do.
    wanted: Condvar,
    /// It has done something.
    done: Condvar,
}

#[derive(Default)]
struct Buffer {
    waiting: Vec<u8>,
    /// What is waiting is wanted at once.
    is_urgent: bool,
    is_ending: bool,
    has_ended: bool,
    /// LogWriter left out since the log last said so.
    left_out: u64,
}

/// The writing thread; writes what is waiting when it is dropped.
#[derive(Debug)]
pub(super) struct WriterThread {
    lines: LogWriter,
    thread: Option<JoinHandle<()>>,
}

/// Takes one event's line.
pub(super) struct LineWriter<'l> {
    lines: &'l LogWriter,
    is_urgent: bool,
}

impl LogWriter {
    /// Starts the thread that writes to what `open` gives it. `report` is called on it with the
    /// number of lines that were left out, when they could be written again.
    pub(super) fn start<W: Write>(
        open: impl FnOnce() -> W + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, WriterThread)> {
        let lines = Self::default();
        let shared = Arc::clone(&lines.0);
        let thread = thread::Builder::new()
            .name("weir-log".into())
            .spawn(move || shared.write_all(open(), report))?;
        Ok((lines.clone(), WriterThread { lines, thread: Some(thread) }))
    }

    fn put(&self, line: &[u8], is_urgent: bool) {
        let mut buffer = self.0.buffer.lock();
        if buffer.waiting.len() + line.len() > WAITING_BYTES_MAX {
            buffer.left_out += 1;
            return;
        }
        let before = buffer.waiting.len();
        buffer.waiting.extend_from_slice(line);
        buffer.is_urgent |= is_urgent;
        let is_wanted = before == 0
            || is_urgent
            || before < WRITTEN_FROM_BYTES && buffer.waiting.len() >= WRITTEN_FROM_BYTES;
        drop(buffer);
        if is_wanted {
            self.0.wanted.notify_one();
        }
    }
}

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

impl Shared {
    fn write_all(&self, mut to: impl Write, report: impl Fn(u64)) {
        let mut writing = Vec::new();
        loop {
            let left_out = {
                let mut buffer = self.buffer.lock();
                while buffer.waiting.is_empty() && !buffer.is_ending {
                    self.wanted.wait(&mut buffer);
                }
                while buffer.waiting.len() < WRITTEN_FROM_BYTES
                    && !buffer.is_urgent
                    && !buffer.is_ending
                {
                    if self.wanted.wait_for(&mut buffer, WRITTEN_AFTER).timed_out() {
                        break;
                    }
                }
                if buffer.waiting.is_empty() {
                    buffer.has_ended = true;
                    self.done.notify_all();
                    return;
                }
                buffer.is_urgent = false;
                std::mem::swap(&mut buffer.waiting, &mut writing);
                std::mem::take(&mut buffer.left_out)
            };
            // There is nowhere to say that the log cannot be written.
            let _ = to.write_all(&writing).and_then(|()| to.flush());
            writing.clear();
            writing.shrink_to(2 * WRITTEN_FROM_BYTES);
            if left_out > 0 {
                report(left_out);
            }
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        let shared = &self.lines.0;
        let mut buffer = shared.buffer.lock();
        buffer.is_ending = true;
        shared.wanted.notify_one();
        if !buffer.has_ended {
            shared.done.wait_for(&mut buffer, END_MAX);
        }
        let has_ended = buffer.has_ended;
        drop(buffer);
        // A thread that is stuck in a write is left behind.
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            let _ = thread.join();
        }
    }
}

impl<'l> MakeWriter<'l> for LogWriter {
    type Writer = LineWriter<'l>;

    fn make_writer(&'l self) -> LineWriter<'l> {
        LineWriter { lines: self, is_urgent: false }
    }

    fn make_writer_for(&'l self, metadata: &Metadata<'_>) -> LineWriter<'l> {
        LineWriter { lines: self, is_urgent: *metadata.level() <= Level::WARN }
    }
}

impl Write for LineWriter<'_> {
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
