//! The space of all spools of answers: bytes, which clients and bodies share fairly, and open
//! files. Answers that are kept on disk make room for those under way.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::decision::scheduler::shared_capacity::Holder;
use crate::gateway::shared_space::{Share, SharedSpace};
use crate::telemetry::Metrics;

/// The unit of the space: about a read.
const UNIT_BYTES: u64 = 64 * 1024;
/// The most files at once. Chosen here: few beside the connections that a gateway may have.
const FILES_MAX: usize = 1024;

pub struct SpoolSpace {
    bytes: Arc<SharedSpace>,
    bytes_max: AtomicU64,
    files: Arc<Semaphore>,
    folder: Mutex<Option<PathBuf>>,
    /// Files of stored answers.
    kept: Mutex<Vec<Weak<dyn Evictable>>>,
    /// Numbers of spools, and of uses of kept files.
    spools: AtomicU64,
    uses: AtomicU64,
    metrics: Arc<Metrics>,
}

/// A kept file that may have to make room.
pub(super) trait Evictable: Send + Sync {
    /// True if it takes room that nobody needs at the moment.
    fn is_idle(&self) -> bool;
    /// The number of its last use.
    fn last_use(&self) -> u64;
    /// Drops it; false if that was done before.
    fn evict(&self) -> bool;
    fn is_gone(&self) -> bool;
}

/// Guard: the space of one file.
pub struct Room {
    space: Arc<SpoolSpace>,
    bytes: Share,
    file: Option<OwnedSemaphorePermit>,
}

/// The size of all spools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolFigures {
    pub files: u64,
    pub bytes: u64,
    pub bytes_max: u64,
    pub kept_files: u64,
}

impl SpoolSpace {
    /// Space of `bytes_max`, in files of this folder; `None`: the system's for temporary files.
    pub fn new(bytes_max: u64, folder: Option<PathBuf>, metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            bytes: SharedSpace::new(bytes_max, UNIT_BYTES),
            bytes_max: bytes_max.into(),
            files: Arc::new(Semaphore::new(FILES_MAX)),
            folder: Mutex::new(folder),
            kept: Mutex::default(),
            spools: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            metrics: Arc::clone(metrics),
        })
    }

    /// The same space with another size, and another folder for new files.
    pub fn changed(before: &Arc<Self>, bytes_max: u64, folder: Option<PathBuf>) -> Arc<Self> {
        SharedSpace::resized(&before.bytes, bytes_max);
        before.bytes_max.store(bytes_max, Ordering::Relaxed);
        *before.folder.lock() = folder;
        Arc::clone(before)
    }

    #[cfg(test)]
    pub fn of_mib(mib: u64) -> Arc<Self> {
        Self::new(mib * 1024 * 1024, None, &Arc::new(Metrics::new()))
    }

    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.folder.lock().clone()
    }

    pub(super) fn room(self: &Arc<Self>, client: u32) -> Room {
        let connection = self.spools.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.share(Holder { client, connection });
        Room { space: Arc::clone(self), bytes, file: None }
    }

    /// The number of the next use of a kept file.
    pub(super) fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// False if not even an empty space has room for a body of this length: one body may have 88 %
    /// of it (`decision/scheduler/fair_share.rs`).
    pub fn may_hold(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max.load(Ordering::Relaxed) / 8 * 7
    }

    /// Lists a kept file among those that make room.
    pub(super) fn list(&self, file: &Arc<dyn Evictable>) {
        let mut kept = self.kept.lock();
        kept.retain(|kept| kept.strong_count() > 0);
        kept.push(Arc::downgrade(file));
    }

    /// Drops the kept file that was not used for longest. False if there is none that nobody reads:
    /// the others would make no room yet.
    fn evict(&self) -> bool {
        let kept = self.kept.lock();
        let idle = kept.iter().filter_map(Weak::upgrade).filter(|file| file.is_idle());
        let evicted = idle.min_by_key(|file| file.last_use()).is_some_and(|file| file.evict());
        if evicted {
            self.metrics.spool_evicted();
        }
        evicted
    }

    pub fn figures(&self) -> SpoolFigures {
        let kept = self.kept.lock();
        let kept = kept.iter().filter_map(Weak::upgrade).filter(|file| !file.is_gone());
        SpoolFigures {
            files: (FILES_MAX - self.files.available_permits()) as u64,
            bytes: self.bytes.taken() * UNIT_BYTES,
            bytes_max: self.bytes_max.load(Ordering::Relaxed),
            kept_files: kept.count() as u64,
        }
    }
}

impl Room {
    /// Has `bytes` from now on; false if the file may not have that much.
    pub(super) fn resize(&mut self, bytes: u64) -> bool {
        while self.file.is_none() {
            self.file = Arc::clone(&self.space.files).try_acquire_owned().ok();
            if self.file.is_none() && !self.space.evict() {
                return false;
            }
        }
        while !self.bytes.grow(bytes) {
            if !self.space.evict() {
                return false;
            }
        }
        self.bytes.shrink(bytes);
        true
    }

    pub(super) fn space(&self) -> &Arc<SpoolSpace> {
        &self.space
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::spool::file::Spool;

    const MIB: u64 = 1024 * 1024;

    /// Takes MiB as long as it may, and counts them.
    fn fill(spool: &Spool) -> u64 {
        (1..2_000).take_while(|mib| spool.make_room(&(0..mib * MIB))).count() as u64
    }

    #[test]
    fn all_spools_together_have_a_bound() {
        let space = SpoolSpace::of_mib(100);
        let one = Spool::of_client(&space, 0);
        let (many, few) = (fill(&one), fill(&Spool::of_client(&space, 1)));
        assert!((80..100).contains(&many) && (1..=100 - many).contains(&few), "{many} {few}");
        drop(one);
        assert_eq!(space.figures().bytes, 0);
        assert!(fill(&Spool::of_client(&space, 1)) > 80, "its space is free again");
        assert_eq!(fill(&Spool::of_client(&SpoolSpace::of_mib(0), 0)), 0);
    }

    #[test]
    fn a_client_at_its_share_leaves_room_to_others() {
        let space = SpoolSpace::of_mib(1024);
        // Many bodies, each as long as it may be.
        let greedy: Vec<_> = (0..50).map(|_| Spool::of_client(&space, 0)).collect();
        for spool in &greedy {
            fill(spool);
        }
        assert!(fill(&Spool::of_client(&space, 1)) >= 32, "the share of another client");
    }

    #[test]
    fn files_at_once_have_a_bound() {
        let space = SpoolSpace::of_mib(1024);
        let mut spools: Vec<_> = (0..=FILES_MAX).map(|_| Spool::of_client(&space, 0)).collect();
        let open = spools.iter().filter(|spool| spool.make_room(&(0..1))).count();
        assert_eq!((open, space.figures().files), (FILES_MAX, FILES_MAX as u64));
        spools.remove(0);
        assert!(spools.last().is_some_and(|spool| spool.make_room(&(0..1))));
    }
}
