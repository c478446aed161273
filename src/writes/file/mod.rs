//! Writes in a file, which survive the process and a power failure.
//!
//! One thread owns a redb database (`worker`). It commits together what arrived during the previous
//! commit, so that many callers share a sync of the disk. A file that is damaged, newer or foreign
//! is neither opened nor changed (`database`, `deferred`). The file is never compacted, which would
//! block every change: pages of forgotten writes are reused, so its size follows the most writes at
//! once. Left out: the contents of a write ([`crate::writes::record`]).

mod database;
mod deferred;
mod fault;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use parking_lot::{Condvar, Mutex};
use redb::StorageBackend;
use redb::backends::FileBackend;
use tokio::sync::oneshot;

use self::database::WritesDatabase;
pub use self::fault::{Fault, OpenError};
use self::worker::{Disk, PAGES_PER_BYTE, RESERVE_BYTES, Worker, size};
use super::{Change, Store, StoreError, Stored};

/// Most new writes that wait for the thread, and their bytes. Our choice: a second's work of a slow
/// disk, and several of the largest bodies.
const INSERTS_WAITING_MAX: usize = 4096;
const INSERT_BYTES_WAITING_MAX: usize = 64 * 1024 * 1024;
/// Bounds of one commit, which redb holds in memory until it is synced. Our choice.
const BATCH_CHANGES_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Writes in a file. Dropping it waits until all submitted changes are on the disk.
pub struct FileStore {
    shared: Arc<Shared>,
    first_number: u64,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<RequestQueue>,
    submitted: Condvar,
}

#[derive(Default)]
struct RequestQueue {
    waiting: VecDeque<Request>,
    inserts: usize,
    insert_bytes: usize,
    /// Free bytes on the disk and the length of the file at the thread's last check.
    room: Option<u64>,
    length: u64,
    ending: bool,
    /// The thread accepts no more requests.
    ended: bool,
}

enum Request {
    Change(Change, oneshot::Sender<Result<(), StoreError>>),
    Load(u64, oneshot::Sender<Result<Option<Stored>, StoreError>>),
}

impl FileStore {
    /// Opens the file, or creates it, readable to its owner alone. Passes each stored write to
    /// `each`, one at a time in the order of their numbers; an error from `each` counts as damage.
    /// On failure the file is unchanged.
    pub fn open(
        path: &Path,
        mut each: impl FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<Self, OpenError> {
        make_if_missing(path).map_err(|fault| fault.at(path))?;
        Self::open_on(Box::new(DiskFile(path.to_owned())), &mut each)
            .map_err(|fault| fault.at(path))
    }

    /// Checks that [`FileStore::open`] would succeed, without a change of the disk: an existing
    /// file as a whole, else its directory. A file that another process has open passes: that
    /// process has checked it.
    pub fn verify(
        path: &Path,
        mut each: impl FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<(), OpenError> {
        let verified = directory_of(path).and_then(|directory| {
            if std::fs::symlink_metadata(path).is_err() {
                // An anonymous file, gone at once.
                return Ok(tempfile::tempfile_in(directory).map(drop)?);
            }
            WritesDatabase::verify(DiskFile(path.to_owned()).open()?, &mut each)
        });
        match verified {
            Ok(()) | Err(Fault::InUse) => Ok(()),
            Err(fault) => Err(fault.at(path)),
        }
    }

    fn open_on(
        disk: Box<dyn Disk>,
        each: &mut dyn FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<Self, Fault> {
        let file = disk.open()?;
        let database = WritesDatabase::open(file, false, each)?;
        let first_number = database.next();
        let shared = Arc::new(Shared { queue: Mutex::default(), submitted: Condvar::new() });
        shared.note(&*disk);
        let worker = Worker::new(disk, database);
        let thread = std::thread::Builder::new().name("weir-writes".into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                // No caller waits for the thread after its end, for any reason of the end.
                let _ended = EndGuard(&shared);
                worker.run(&shared);
            }
        });
        let fault = |error| Fault::Io(format!("no thread could be started for it: {error}"));
        Ok(Self { shared, first_number, thread: Some(thread.map_err(fault)?) })
    }

    /// Returns the first number for new writes, higher than any number in this file or forgotten by
    /// it.
    pub fn first_number(&self) -> u64 {
        self.first_number
    }

    /// Submits a request, and returns its answer.
    fn submitted<T: Send + 'static>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let (answer, answered) = oneshot::channel();
        match self.shared.submit(request(answer)) {
            Ok(()) => answered.map(|outcome| outcome.unwrap_or_else(|_| Err(ended()))).boxed(),
            Err(error) => ready(Err(error)).boxed(),
        }
    }
}

impl Store for FileStore {
    fn apply(&self, change: Change) -> BoxFuture<'static, Result<(), StoreError>> {
        self.submitted(|answer| Request::Change(change, answer))
    }

    fn load(&self, number: u64) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        self.submitted(|answer| Request::Load(number, answer))
    }

    fn room(&self, kept: u64) -> Option<u64> {
        let queue = self.shared.queue.lock();
        // Unused pages of the file are reused.
        let unused = queue.length.saturating_sub(kept.saturating_mul(PAGES_PER_BYTE));
        queue
            .room
            .map(|room| room.saturating_sub(RESERVE_BYTES).saturating_add(unused) / PAGES_PER_BYTE)
    }

    fn is_durable(&self) -> bool {
        true
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.shared.queue.lock().ending = true;
        self.shared.submitted.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread catches panics and has logged its failures.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn submit(&self, request: Request) -> Result<(), StoreError> {
        let mut queue = self.queue.lock();
        if queue.ended {
            return Err(ended());
        }
        if let Some(bytes) = request.insert_bytes() {
            let full = queue.inserts >= INSERTS_WAITING_MAX
                || (queue.inserts > 0 && queue.insert_bytes + bytes > INSERT_BYTES_WAITING_MAX);
            if full {
                return Err(StoreError::Full(format!(
                    "{} others wait for the disk already",
                    queue.inserts
                )));
            }
            queue.inserts += 1;
            queue.insert_bytes += bytes;
        }
        queue.waiting.push_back(request);
        drop(queue);
        self.submitted.notify_one();
        Ok(())
    }

    fn note(&self, disk: &dyn Disk) {
        let (room, length) = (disk.room(), disk.length());
        let mut queue = self.queue.lock();
        (queue.room, queue.length) = (room, length);
    }

    /// Waits for requests and takes a batch of them; `None` once the store is dropped.
    fn next_batch(&self) -> Option<Vec<Request>> {
        let mut queue = self.queue.lock();
        while queue.waiting.is_empty() {
            if queue.ending {
                return None;
            }
            self.submitted.wait(&mut queue);
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_CHANGES_MAX && bytes < BATCH_BYTES_MAX {
            let Some(request) = queue.waiting.pop_front() else { break };
            if let Some(bytes) = request.insert_bytes() {
                queue.inserts -= 1;
                queue.insert_bytes -= bytes;
            }
            if let Request::Change(change, _) = &request {
                bytes += size(change);
            }
            batch.push(request);
        }
        Some(batch)
    }
}

impl Request {
    /// Returns the size of a request that may be refused for room.
    fn insert_bytes(&self) -> Option<usize> {
        match self {
            Self::Change(change @ Change::Insert(..), _) => Some(size(change)),
            Self::Change(..) | Self::Load(..) => None,
        }
    }
}

/// Fails all waiting callers when the thread ends: their senders are dropped with the queue.
struct EndGuard<'s>(&'s Shared);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.ended = true;
        queue.waiting.clear();
    }
}

fn ended() -> StoreError {
    StoreError::Failed("the thread that writes it has ended".into())
}

struct DiskFile(PathBuf);

impl Disk for DiskFile {
    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        let file = OpenOptions::new().read(true).write(true).open(&self.0)?;
        Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?))
    }

    fn room(&self) -> Option<u64> {
        let system = rustix::fs::statvfs(&self.0).ok()?;
        Some(system.f_bavail.saturating_mul(system.f_frsize))
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.0).map_or(0, |file| file.len())
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

/// Creates a missing file atomically and never replaces one, so that an incomplete file always
/// means damage.
fn make_if_missing(path: &Path) -> Result<(), Fault> {
    let directory = directory_of(path)?;
    if std::fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    // Temporary files are readable to the owner alone from the start.
    let blank = tempfile::NamedTempFile::new_in(directory)?;
    let backend = FileBackend::new(blank.reopen()?).map_err(io::Error::other)?;
    database::blank(Box::new(backend))?;
    blank.as_file().sync_all()?;
    match blank.persist_noclobber(path) {
        Ok(_) => Ok(File::open(directory)?.sync_all()?),
        // Another process created it meanwhile; opening it reports the conflict.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.error.into()),
    }
}

/// Returns the directory of a file, which must exist.
fn directory_of(path: &Path) -> Result<&Path, Fault> {
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(Fault::Foreign("it is a directory".into())),
    };
    if directory.is_dir() {
        Ok(directory)
    } else {
        Err(Fault::NoDirectory(directory.display().to_string()))
    }
}
