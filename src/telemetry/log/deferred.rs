//! The lines of requests that wait to be made: a thread does that, so that no answer waits for it.
//!
//! The line of a hit takes a fifth of the time of the hit. A request only leaves its story here;
//! with many processors, the answers keep theirs. A thread that falls behind leaves the work to the
//! requests, as without it, and no line is lost. Left out: the line (`mod.rs`).

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::machine_micros;
use crate::telemetry::controls::LevelControl;
use crate::telemetry::recent::Story;

/// Longest wait of a line for others: half of the time that the specification gives a line.
const GATHERED_FOR: Duration = Duration::from_millis(10);
/// Most stories that wait: some MiB, and the hits of a worker in a twentieth of a second.
const WAITING_MAX: usize = 4_096;
/// Longest wait for the last lines at an orderly end; the same as for spans.
const END_MAX: Duration = Duration::from_secs(3);

static OF_PROCESS: OnceLock<DeferredLines> = OnceLock::new();

/// See the module. Clones share the stories.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct DeferredLines {
    level: LevelControl,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the thread.
    wanted: Condvar,
    /// Notified when the thread has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Waiting>,
    is_ending: bool,
    has_ended: bool,
}

/// A story, and the microseconds since the epoch at its end.
type Waiting = (u64, Arc<Story>);

/// The thread; dropping it makes the lines that wait.
#[derive(Debug)]
pub(in crate::telemetry) struct LineThread {
    lines: DeferredLines,
    thread: Option<JoinHandle<()>>,
}

impl DeferredLines {
    /// Starts the thread, which makes lines by `make`, each with the microseconds since the epoch
    /// at the end of its request.
    pub(in crate::telemetry) fn start(
        level: LevelControl,
        make: impl FnMut(&Arc<Story>, u64) + Send + 'static,
    ) -> io::Result<LineThread> {
        let lines = Self { level, shared: Arc::default() };
        let shared = Arc::clone(&lines.shared);
        let thread = thread::Builder::new()
            .name("weir-lines".into())
            .spawn(move || shared.make_all(make))?;
        Ok(LineThread { lines, thread: Some(thread) })
    }

    pub(super) fn of_process() -> Option<&'static Self> {
        OF_PROCESS.get()
    }

    /// Leaves a request's line to the thread. False: the thread is behind or has ended, and the
    /// caller makes the line.
    pub(super) fn push(&self, story: &Arc<Story>) -> bool {
        if !self.level.get().shows(super::level_of(&story.outcome)) {
            return true;
        }
        let waiting = (machine_micros(), Arc::clone(story));
        let mut queue = self.shared.queue.lock();
        if queue.is_ending || queue.waiting.len() >= WAITING_MAX {
            return false;
        }
        let is_first = queue.waiting.is_empty();
        queue.waiting.push(waiting);
        drop(queue);
        if is_first {
            self.shared.wanted.notify_one();
        }
        true
    }
}

impl LineThread {
    /// Makes the lines of this process there.
    pub(in crate::telemetry) fn become_that_of_process(&self) {
        // Telemetry starts once in a process.
        let _ = OF_PROCESS.set(self.lines.clone());
    }
}

impl Shared {
    fn make_all(&self, mut make: impl FnMut(&Arc<Story>, u64)) {
        let mut making = Vec::new();
        loop {
            {
                let mut queue = self.queue.lock();
                while queue.waiting.is_empty() && !queue.is_ending {
                    self.wanted.wait(&mut queue);
                }
                if !queue.is_ending {
                    // Only the end comes meanwhile.
                    self.wanted.wait_for(&mut queue, GATHERED_FOR);
                }
                std::mem::swap(&mut queue.waiting, &mut making);
                if making.is_empty() && queue.is_ending {
                    queue.has_ended = true;
                    self.ended.notify_all();
                    return;
                }
            }
            for (micros, story) in making.drain(..) {
                make(&story, micros);
            }
        }
    }
}

impl Drop for LineThread {
    fn drop(&mut self) {
        let shared = &self.lines.shared;
        let mut queue = shared.queue.lock();
        queue.is_ending = true;
        shared.wanted.notify_one();
        if !queue.has_ended {
            shared.ended.wait_for(&mut queue, END_MAX);
        }
        let has_ended = queue.has_ended;
        drop(queue);
        // A thread that is stuck is left behind.
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::clock::Timestamp;
    use crate::telemetry::init::LogLevel;
    use crate::telemetry::outcome::{LogText, Outcome};

    fn story(status: u16, id: &str) -> Arc<Story> {
        let outcome = Outcome { status, ..Outcome::new(&http::Method::GET, "/a", id) };
        Arc::new(Story { number: 0, finished_at: Timestamp::EPOCH, outcome, steps: Vec::new() })
    }

    fn level(name: &str) -> LevelControl {
        LevelControl::new(LogLevel::parse(name).unwrap())
    }

    /// A thread that names each request, and then waits until it may go on.
    fn gated() -> (LineThread, Receiver<LogText>, Sender<()>) {
        let (made, ids) = channel();
        let (go, gate) = channel();
        let write = move |story: &Arc<Story>, _| {
            made.send(story.outcome.request_id.clone()).unwrap();
            // Once the sender is gone, nothing waits.
            let _ = gate.recv();
        };
        (DeferredLines::start(level("info"), write).unwrap(), ids, go)
    }

    #[test]
    fn an_orderly_end_makes_every_line_in_order() {
        let (thread, ids, go) = gated();
        let left: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert!(left.iter().all(|id| thread.lines.push(&story(200, id))));
        drop(go);
        let lines = thread.lines.clone();
        drop(thread);
        let made: Vec<String> = ids.iter().map(|id| id.as_str().to_owned()).collect();
        assert_eq!(made, left);
        assert!(!lines.push(&story(200, "late")), "the caller makes it");
    }

    #[test]
    fn a_thread_that_is_behind_leaves_lines_to_the_requests() {
        let (thread, ids, go) = gated();
        assert!(thread.lines.push(&story(200, "held")));
        assert_eq!(ids.recv().unwrap().as_str(), "held");
        let taken = (0..WAITING_MAX + 10).filter(|_| thread.lines.push(&story(200, "more")));
        assert_eq!(taken.count(), WAITING_MAX);
        drop(go);
        drop(thread);
        assert_eq!(ids.iter().count(), WAITING_MAX);
    }

    #[test]
    fn a_line_has_the_time_of_its_request() {
        let (made, micros_of) = channel();
        let write = move |_: &Arc<Story>, micros| made.send(micros).unwrap();
        let thread = DeferredLines::start(level("info"), write).unwrap();
        let before = machine_micros();
        thread.lines.push(&story(200, "a"));
        let after = machine_micros();
        assert!((before..=after).contains(&micros_of.recv().unwrap()));
    }

    #[test]
    fn a_line_below_the_level_is_not_made() {
        let (made, ids) = channel();
        let write = move |story: &Arc<Story>, _| made.send(story.outcome.status).unwrap();
        let thread = DeferredLines::start(level("warn"), write).unwrap();
        assert!([200, 502].iter().all(|status| thread.lines.push(&story(*status, "a"))));
        drop(thread);
        assert_eq!(ids.iter().collect::<Vec<_>>(), [502]);
    }
}
