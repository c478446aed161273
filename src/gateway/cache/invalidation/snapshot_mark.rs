//! The mark of the snapshot on the disk: what happened since it was written. The first change and
//! the first purge after it write a byte, so that even a crash leaves a file that says so.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The place of the mark in the file: behind the name and the version of the format.
pub const MARK_AT: u64 = 12;

/// The state of a snapshot, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The gateway stopped in order after it: the budgets in it are the last ones.
    Last,
    /// Nothing has been invalidated since.
    Unchanged,
    /// A write or an event has invalidated answers since.
    Changed,
    /// Answers were purged since, or have another owner: none of them may return.
    Void,
}

impl Level {
    const ALL: [Self; 4] = [Self::Last, Self::Unchanged, Self::Changed, Self::Void];

    pub fn byte(self) -> u8 {
        match self {
            Self::Last => b'L',
            Self::Unchanged => b'U',
            Self::Changed => b'C',
            Self::Void => b'V',
        }
    }

    pub fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.byte() == byte)
    }
}

/// The mark of the current snapshot.
#[derive(Debug)]
pub struct SnapshotMark {
    /// The worst level since the content of the latest snapshot was read. Without a snapshot there
    /// is nothing to mark.
    level: AtomicU8,
    /// Writes on their way upstream. The process may end before they do.
    writes: AtomicU32,
    /// The snapshot on the disk, and its mark.
    file: Mutex<Option<(File, Level)>>,
    voided: Notify,
}

impl Default for SnapshotMark {
    fn default() -> Self {
        let level = AtomicU8::new(Level::Void as u8);
        Self { level, writes: AtomicU32::new(0), file: Mutex::default(), voided: Notify::new() }
    }
}

impl SnapshotMark {
    /// Notes a change. Only the first one after a snapshot takes longer than a load.
    pub fn note(&self, level: Level) {
        let is_news = self.level.load(Ordering::Acquire) < level as u8
            && self.level.fetch_max(level as u8, Ordering::AcqRel) < level as u8;
        if !is_news {
            return;
        }
        if level == Level::Void {
            self.voided.notify_one();
        }
        if let Some((file, marked)) = &mut *self.file.lock()
            && *marked < level
        {
            *marked = level;
            // It matters after a crash before the next snapshot alone.
            if let Err(error) = write(file, level) {
                tracing::warn!(%error, "the snapshot of the cache cannot be marked");
            }
        }
    }

    /// Notes that a write begins: what it changes is unknown until it ends.
    pub fn write_begins(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
        self.note(Level::Changed);
    }

    pub fn write_ended(&self) {
        self.writes.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until a snapshot holds what must not return.
    pub async fn voided(&self) {
        self.voided.notified().await;
    }

    /// Begins a snapshot: from now on changes count as later ones.
    pub fn begin(&self) {
        self.level.store(Level::Unchanged as u8, Ordering::Release);
        if self.writes.load(Ordering::Acquire) > 0 {
            self.level.fetch_max(Level::Changed as u8, Ordering::AcqRel);
        }
    }

    /// Ends a snapshot: marks the new file, and lets `replace` put it into its place. No change in
    /// between is lost. `least` is its level without a change.
    pub fn end(
        &self,
        file: &File,
        least: Level,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let kept = file.try_clone()?;
        let so_far = self.level_from(least);
        write(file, so_far)?;
        file.sync_data()?;
        // Changes wait for this lock, so nothing slow happens under it.
        let mut current = self.file.lock();
        let level = self.level_from(least);
        if level != so_far {
            write(file, level)?;
        }
        replace()?;
        *current = Some((kept, level));
        Ok(())
    }

    /// Begins a snapshot for a successor, which is none of this process. The snapshot on the
    /// disk loses its worth with it: changes may be made by either process.
    pub fn begin_handover(&self) {
        self.note(Level::Changed);
        self.begin();
    }

    /// The worst level since the latest snapshot, or handover, were begun.
    pub fn level(&self) -> Level {
        self.level_from(Level::Unchanged)
    }

    fn level_from(&self, least: Level) -> Level {
        match self.level.load(Ordering::Acquire) {
            level if level == Level::Void as u8 => Level::Void,
            level if level == Level::Changed as u8 => Level::Changed,
            _ => least,
        }
    }

    /// Takes over the snapshot of an earlier process: its budgets are no longer the last ones.
    /// Fails if it cannot be marked.
    pub fn resume(&self, file: File, level: Level) -> io::Result<()> {
        let level = level.max(Level::Unchanged);
        self.level.store(level as u8, Ordering::Release);
        write(&file, level)?;
        file.sync_data()?;
        *self.file.lock() = Some((file, level));
        Ok(())
    }
}

fn write(file: &File, level: Level) -> io::Result<()> {
    file.write_all_at(&[level.byte()], MARK_AT)
}
