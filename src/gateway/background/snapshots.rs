//! Writes snapshots of the cache (SPECIFICATION D24): every few minutes, after a purge, and at the
//! end of the drain. `cache/snapshot/` has the file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::machine_instant;
use crate::gateway::cache::invalidation::snapshot_mark::Level;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::snapshot::{Identity, Unusable, folder_problem, obstacle};

/// The least distance of two snapshots. Chosen here: an operator's script may purge path by path.
const DISTANCE_MIN: Duration = Duration::from_secs(1);

/// The snapshots of one process.
pub struct Snapshots {
    path: PathBuf,
    /// Held while one is written.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file at the start, if nothing of it could be used.
    unusable: Option<Identity>,
    /// The problem of the last attempt, which is logged once.
    problem: Option<String>,
}

impl Snapshots {
    /// Takes over the snapshot of an earlier process, or that of a predecessor that lives,
    /// before the first request. `None` without `cache.snapshot`.
    pub fn begin(cache: &ReadCache, handover: Option<&Path>) -> Option<Arc<Self>> {
        let Some((path, _)) = cache.snapshot_settings() else {
            if let Some(Err(unusable)) = handover.map(|handover| cache.read_handover(handover)) {
                tracing::warn!(problem = %unusable, "the snapshot of the predecessor is of no use");
            }
            return None;
        };
        let path = path.to_owned();
        let mut state = State::default();
        let began = machine_instant();
        let read = match handover {
            Some(handover) => cache.read_handover(handover),
            None => cache.read_snapshot(&path),
        };
        match read {
            Ok(None) => {
                if let Some(error) = folder_problem(&path) {
                    warn_unwritable(&path, &error);
                    state.problem = Some(error.to_string());
                }
                tracing::info!(path = %path.display(), "there is no snapshot of the cache yet");
            }
            Ok(Some(read)) => {
                cache.snapshot_is_of(read.written_at);
                tracing::info!(
                    path = %path.display(),
                    answers = read.answers,
                    bytes = read.body_bytes,
                    of_other_views = read.of_other_views,
                    without_room = read.without_room,
                    purged = read.void,
                    is_last = read.is_last,
                    written_at = read.written_at.rfc3339_past(),
                    duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                    "the cache was restored; each answer is confirmed before it is served"
                );
            }
            Err(unusable) => {
                state.unusable = Identity::at(&path).filter(|_| handover.is_none());
                warn(handover.unwrap_or(&path), &unusable);
                state.problem = Some(unusable.to_string());
            }
        }
        Some(Arc::new(Self { path, state: Mutex::new(state) }))
    }

    /// Writes one. Waits while another is written. Returns true if it was.
    fn write(&self, cache: &ReadCache, least: Level) -> bool {
        let mut state = self.state.lock();
        let began = machine_instant();
        let problem = match obstacle(&self.path, state.unusable) {
            Err(unusable) => {
                if state.problem.as_deref() != Some(&unusable.to_string()) {
                    warn(&self.path, &unusable);
                }
                unusable.to_string()
            }
            Ok(()) => match cache.write_snapshot(&self.path, least) {
                Ok(written) => {
                    tracing::info!(
                        path = %self.path.display(),
                        answers = written.answers,
                        bytes = written.bytes,
                        left_out = written.left_out,
                        duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                        "a snapshot of the cache was written"
                    );
                    (state.problem, state.unusable) = (None, None);
                    return true;
                }
                Err(error) => {
                    let problem = error.to_string();
                    if state.problem.as_ref() != Some(&problem) {
                        warn_unwritable(&self.path, &error);
                    }
                    problem
                }
            },
        };
        state.problem = Some(problem);
        false
    }

    /// Writes one on a thread of its own, and waits for its end. Returns true if it was written.
    async fn write_apart(self: &Arc<Self>, cache: Arc<ReadCache>, least: Level) -> bool {
        let (ended, end) = oneshot::channel();
        let snapshots = Arc::clone(self);
        let thread = std::thread::Builder::new().name("weir-snapshot".to_owned());
        let spawned = thread.spawn(move || {
            // Nobody waits any more at the end of the process.
            let _ = ended.send(snapshots.write(&cache, least));
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread can be started for a snapshot of the cache");
            return false;
        }
        end.await.unwrap_or(false)
    }

    /// Writes one now. Returns true if it was written.
    pub async fn write_now(self: &Arc<Self>, cache: Arc<ReadCache>) -> bool {
        let now = cache.snapshot_sources().0.now();
        let is_written = self.write_apart(Arc::clone(&cache), Level::Unchanged).await;
        if is_written {
            cache.snapshot_is_of(now);
        }
        is_written
    }

    /// Writes the last one of this process: after it no request begins.
    pub async fn end(self: &Arc<Self>, cache: Arc<ReadCache>, least: Level) {
        self.write_apart(cache, least).await;
    }

    /// Writes one every `cache.snapshot_interval`, and soon after a purge, while the gateway lives.
    pub async fn keep_writing(
        self: Arc<Self>,
        current: impl Fn() -> Option<Arc<ReadCache>> + Send,
    ) {
        let Some((clock, mark)) = current().map(|cache| cache.snapshot_sources()) else { return };
        let mut last = clock.now();
        loop {
            let Some(cache) = current() else { return };
            let Some((_, interval)) = cache.snapshot_settings() else { return };
            drop(cache);
            tokio::select! {
                () = clock.reach(last + interval) => {}
                () = mark.voided() => clock.reach(last + DISTANCE_MIN).await,
            }
            let Some(cache) = current() else { return };
            last = clock.now();
            if cache.is_draining() {
                return;
            }
            self.write_now(cache).await;
        }
    }
}

fn warn_unwritable(path: &Path, error: &io::Error) {
    tracing::warn!(path = %path.display(), %error, "no snapshot of the cache can be written");
}

fn warn(path: &Path, unusable: &Unusable) {
    tracing::warn!(
        path = %path.display(),
        problem = %unusable,
        "the snapshot of the cache is left alone, and none is written: move the file away, or \
         name another one in `cache.snapshot`"
    );
}
