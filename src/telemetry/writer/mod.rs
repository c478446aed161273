//! Buffered log output: lines are collected for some milliseconds and written together by a thread.
//!
//! A line costs a copy and no system call. A slow reader of the log delays no request: beyond
//! [`WAITING_BYTES_MAX`] lines are dropped and counted, and the log reports the count as soon as it
//! is read again. An orderly end writes everything; a killed process loses the lines of its last
//! [`WRITTEN_AFTER`]. Left out: the format of a line (`format`).
//!
//! `tracing-appender` does not serve: it allocates and queues each line by itself, bounds lines
//! instead of bytes, and writes each with a system call.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use super::log;

/// Longest wait of a line for others: half of the time that the specification gives a line. At high
/// rates the buffer fills sooner.
const WRITTEN_AFTER: Duration = Duration::from_millis(10);
/// Amount that is written at once: two writes to a pipe of the usual 64 KiB.
const WRITTEN_FROM_BYTES: usize = 128 * 1024;
/// Most bytes that wait for a reader: some ten thousand lines.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest wait for a reader at an orderly end; the same as for spans.
const END_MAX: Duration = Duration::from_secs(3);

/// Lines dropped since the process began, of all logs.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines of the log that were dropped since the process began.
pub(super) fn lines_dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// The shared buffer; clones share it.
#[derive(Clone, Default)]
pub(super) struct LogWriter(Arc<Shared>);

#[derive(Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    /// Wakes the writing thread.
    wanted: Condvar,
    /// Notified when the writing thread has made progress.
    done: Condvar,
}

#[derive(Default)]
struct Buffer {
    waiting: Vec<u8>,
    /// The waiting lines are to be written at once.
    is_urgent: bool,
    is_ending: bool,
    has_ended: bool,
    /// Lines dropped since the log last reported them.
    left_out: u64,
}

/// The writing thread; dropping it writes what is waiting.
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
    /// Starts the thread that writes to the result of `open`. The thread calls `report` with the
    /// number of dropped lines once it can write again.
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
            DROPPED.fetch_add(1, Ordering::Relaxed);
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
            // A failing log has nowhere to be reported.
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
        LineWriter { lines: self, is_urgent: is_urgent(*metadata.level(), metadata.target()) }
    }
}

/// Returns true for a line to be written at once. The lines of refused requests are none, because
/// clients choose their number, and each would be a system call.
fn is_urgent(level: Level, target: &str) -> bool {
    level <= Level::WARN && target != log::TARGET
}

impl Write for LineWriter<'_> {
    /// The library passes a whole line at once.
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
