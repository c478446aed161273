//! The file of a stored answer: the whole body, and its readers.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::gateway::spool::file::{Spool, warn_of_fault};
use crate::gateway::spool::space::Evictable;

/// A whole body in a file, until it has to make room.
pub struct StoredFile {
    /// `None`: it was removed. Its readers keep it open.
    spool: Mutex<Option<Arc<Spool>>>,
    bytes: u64,
    /// The number of its last use.
    last_use: AtomicU64,
}

/// A reader of a stored file, at its own pace.
pub struct FileReader {
    file: Arc<StoredFile>,
    spool: Option<Arc<Spool>>,
    left: Range<u64>,
}

/// The file cannot be read, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl fmt::Debug for StoredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredFile").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl StoredFile {
    /// Keeps a spool that has a whole body of this length.
    pub fn new(spool: Arc<Spool>, bytes: u64) -> Arc<Self> {
        let space = spool.space();
        let last_use = space.as_ref().map_or(0, |space| space.next_use()).into();
        let file = Arc::new(Self { spool: Mutex::new(Some(spool)), bytes, last_use });
        if let Some(space) = space {
            let file: Arc<dyn Evictable> = Arc::<Self>::clone(&file);
            space.list(&file);
        }
        file
    }

    /// The length of the body.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn reader(self: &Arc<Self>) -> FileReader {
        FileReader { spool: self.open(), file: Arc::clone(self), left: 0..self.bytes }
    }

    /// Ends it, apart from readers that it has. False if that was done before.
    pub fn remove(&self) -> bool {
        self.spool.lock().take().is_some()
    }

    pub fn is_removed(&self) -> bool {
        self.spool.lock().is_none()
    }

    pub(super) fn open(&self) -> Option<Arc<Spool>> {
        let spool = self.spool.lock().clone()?;
        if let Some(space) = spool.space() {
            self.last_use.store(space.next_use(), Ordering::Relaxed);
        }
        Some(spool)
    }
}

impl Evictable for StoredFile {
    fn is_idle(&self) -> bool {
        self.spool.lock().as_ref().is_some_and(|spool| Arc::strong_count(spool) == 1)
    }

    fn last_use(&self) -> u64 {
        self.last_use.load(Ordering::Relaxed)
    }

    fn evict(&self) -> bool {
        self.remove()
    }

    fn is_gone(&self) -> bool {
        self.is_removed()
    }
}

impl FileReader {
    /// Only this part of the body, of which nothing was read yet.
    #[must_use]
    pub fn part(mut self, range: &RangeInclusive<usize>) -> Self {
        let (first, last) = (*range.start() as u64, *range.end() as u64);
        self.left = first..last.saturating_add(1).min(self.file.bytes);
        self
    }

    /// The bytes that are left.
    pub fn len(&self) -> u64 {
        self.left.end.saturating_sub(self.left.start)
    }

    /// Returns the next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Unreadable> {
        if self.len() == 0 {
            return Ok(None);
        }
        let spool = self.spool.as_ref().ok_or(Unreadable)?;
        let piece = spool.read(self.left.clone()).await.map_err(|error| {
            warn_of_fault(&error);
            // The next request fetches the answer again.
            self.file.remove();
            Unreadable
        })?;
        self.left.start += piece.len() as u64;
        Ok(Some(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::spool::space::SpoolSpace;
    use crate::telemetry::Metrics;

    const MIB: u64 = 1024 * 1024;

    /// Takes MiB as long as it may, and counts them.
    fn fill(spool: &Spool) -> u64 {
        (1..2_000).take_while(|mib| spool.make_room(&(0..mib * MIB))).count() as u64
    }

    #[tokio::test]
    async fn unused_kept_files_make_room_first() {
        let metrics = Arc::new(Metrics::new());
        let space = SpoolSpace::new(10 * MIB, None, &metrics);
        let keep = || {
            let spool = Spool::of_client(&space, 0);
            assert!(spool.make_room(&(0..2 * MIB)));
            StoredFile::new(spool, 2 * MIB)
        };
        let [first, second, third] = [keep(), keep(), keep()];
        let reading = first.open();
        drop(second.open());
        let other = Spool::of_client(&space, 1);
        assert_eq!(fill(&other), 7, "what is read stays");
        assert!(!first.is_removed() && second.is_removed() && third.is_removed());
        assert_eq!((space.figures().kept_files, metrics.spool_evictions()), (1, 2));
        drop(reading);
        assert!(other.make_room(&(0..8 * MIB)) && first.is_removed());
        assert!(first.open().is_none());
    }
}
