//! The file as redb sees it: changes are deferred until the file has passed its checks.
//!
//! Opening a database changes it: an in-use flag, the repair after a crash. A file that turns out
//! to be damaged, newer or foreign must stay unchanged. So changes before [`DeferredDisk::trust`]
//! are kept in memory in their order, and read from there. Left out: the checks (`database`).

use std::io;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend};

/// Bytes copied at once when a file is rewritten. Our choice.
const REWRITE_BYTES: usize = 1024 * 1024;

/// A disk whose changes are deferred until it is trusted. Cheap to share: redb owns one handle,
/// `database` the other.
#[derive(Clone, Debug)]
pub(super) struct DeferredDisk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: Box<dyn StorageBackend>,
    state: Mutex<Deferral>,
}

#[derive(Debug, Default)]
struct Deferral {
    /// `None`: changes go to the disk.
    deferred: Option<Vec<Op>>,
    /// The first failure, which redb does not report for later operations.
    failure: Option<Failure>,
}

#[derive(Debug)]
enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

/// A failed operation of the disk or of redb.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// True if more room would have prevented it.
    pub(super) for_room: bool,
    /// True if a sync failed: earlier writes may be in the system's memory only, although the
    /// system believes them on the disk.
    pub(super) in_sync: bool,
    pub(super) text: String,
}

impl DeferredDisk {
    pub(super) fn new(disk: Box<dyn StorageBackend>) -> Self {
        Self(Arc::new(Inner {
            disk,
            state: Mutex::new(Deferral { deferred: Some(Vec::new()), failure: None }),
        }))
    }

    /// Creates a disk that defers nothing.
    pub(super) fn trusted(disk: Box<dyn StorageBackend>) -> Self {
        Self(Arc::new(Inner { disk, state: Mutex::default() }))
    }

    /// Makes the deferred changes, and all further ones at once. `rewrite` first writes the whole
    /// file again: after a failed sync the system serves what it could not write from memory, and
    /// never retries it.
    pub(super) fn trust(&self, rewrite: bool) -> io::Result<()> {
        let state = &mut *self.0.state.lock();
        let disk = self.0.disk.as_ref();
        if rewrite {
            self::rewrite(disk)?;
        }
        for op in state.deferred.take().unwrap_or_default() {
            let made = op.make(disk);
            made.inspect_err(|error| {
                state.failure = Some(Failure::new(error, matches!(op, Op::Sync)));
            })?;
        }
        Ok(())
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.0.state.lock().failure.clone()
    }

    fn change(
        &self,
        operation: impl FnOnce() -> Op,
        make: impl FnOnce(&dyn StorageBackend) -> io::Result<()>,
        in_sync: bool,
    ) -> io::Result<()> {
        let state = &mut *self.0.state.lock();
        if let Some(deferred) = &mut state.deferred {
            deferred.push(operation());
            return Ok(());
        }
        // After a failure nothing more is written, even if redb requests it.
        if state.failure.is_some() {
            return Err(io::Error::other("an earlier change of the file failed"));
        }
        make(self.0.disk.as_ref())
            .inspect_err(|error| state.failure = Some(Failure::new(error, in_sync)))
    }
}

impl Failure {
    fn new(error: &io::Error, in_sync: bool) -> Self {
        Self { for_room: is_for_room(error.kind()), in_sync, text: error.to_string() }
    }
}

/// Returns true if more room would have prevented an error of this kind.
pub(super) fn is_for_room(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

impl Op {
    fn make(&self, disk: &dyn StorageBackend) -> io::Result<()> {
        match self {
            Self::Write(offset, bytes) => disk.write(*offset, bytes),
            Self::SetLen(len) => disk.set_len(*len),
            Self::Sync => disk.sync_data(),
        }
    }

    fn len_after(&self, len: u64) -> u64 {
        match self {
            Self::Write(offset, bytes) => len.max(offset.saturating_add(bytes.len() as u64)),
            Self::SetLen(to) => *to,
            Self::Sync => len,
        }
    }

    /// Applies the operation to bytes that were read at `start`.
    fn show(&self, start: u64, out: &mut [u8]) {
        let index = |offset: u64| saturated(offset.saturating_sub(start)).min(out.len());
        match self {
            Self::Write(offset, bytes) => {
                let from = index(*offset);
                let to = index(offset.saturating_add(bytes.len() as u64));
                let skipped = saturated(start.saturating_sub(*offset));
                if let (Some(out), Some(bytes)) = (out.get_mut(from..to), bytes.get(skipped..))
                    && let Some(bytes) = bytes.get(..out.len())
                {
                    out.copy_from_slice(bytes);
                }
            }
            // Bytes that were cut off read as zeros after a later growth.
            Self::SetLen(len) => {
                let from = index(*len);
                if let Some(out) = out.get_mut(from..) {
                    out.fill(0);
                }
            }
            Self::Sync => {}
        }
    }
}

fn saturated(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn rewrite(disk: &dyn StorageBackend) -> io::Result<()> {
    let (mut at, end) = (0, disk.len()?);
    let mut bytes = vec![0; REWRITE_BYTES];
    while at < end {
        let part = &mut bytes[..saturated(end - at).min(REWRITE_BYTES)];
        disk.read(at, part)?;
        disk.write(at, part)?;
        at += part.len() as u64;
    }
    disk.sync_data()
}

impl StorageBackend for DeferredDisk {
    fn len(&self) -> io::Result<u64> {
        let state = self.0.state.lock();
        let len = self.0.disk.len()?;
        Ok(state.deferred.iter().flatten().fold(len, |len, op| op.len_after(len)))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.0.state.lock();
        let Some(deferred) = &state.deferred else {
            let read = self.0.disk.read(offset, out);
            return read.inspect_err(|error| state.failure = Some(Failure::new(error, false)));
        };
        let len = self.0.disk.len()?;
        let end = offset.saturating_add(out.len() as u64);
        if end > deferred.iter().fold(len, |len, op| op.len_after(len)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let there = saturated(len.saturating_sub(offset)).min(out.len());
        let (before, behind) = out.split_at_mut(there);
        behind.fill(0);
        if !before.is_empty() {
            self.0.disk.read(offset, before)?;
        }
        for op in deferred {
            op.show(offset, out);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|| Op::SetLen(len), |disk| disk.set_len(len), false)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(|| Op::Sync, StorageBackend::sync_data, true)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(|| Op::Write(offset, data.to_vec()), |disk| disk.write(offset, data), false)
    }

    fn close(&self) -> io::Result<()> {
        self.0.disk.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.disk.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.disk.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.disk.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.disk.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.disk.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.disk.query_lock_range(start, end)
    }
}
