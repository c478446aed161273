//! Writes in a file: they survive the process, and the power (CONTRACT §2, `writes.store`).
//!
//! A redb database that one thread owns (`worker`): it commits together what came while it was busy
//! with the commit before, so that many callers share a sync of the disk. A file that is damaged,
//! newer or somebody else's is not opened and not changed (`database`, `held`). The file is never
//! compacted: pages of forgotten writes are used again, so it is as large as what was in it at
//! once, and compacting would keep every change waiting. Left out: what a write is
//! ([`crate::writes::record`]).

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

/// New writes that may wait for the thread, and the bytes of them: a second's work of a slow disk,
/// and several of the largest bodies. Ours.
const INSERTS_WAITING_MAX: usize = 4096;
const INSERT_BYTES_WAITING_MAX: usize = 64 * 1024 * 1024;
/// What one commit takes at most: redb holds it in memory until it is synced. Ours.
const BATCH_CHANGES_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Writes in a file. The end of it waits until all that it was block_on is on the disk.
pub struct FileStore {
    shared: Arc<Shared>,
    first_number: u64,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its callers share.
struct Shared {
    queue: Mutex<RequestQueue>,
    submitted: Condvar,
}

#[derive(Default)]
struct RequestQueue {
    waiting: VecDeque<Request>,
    inserts: usize,
    insert_bytes: usize,
    /// Free bytes on the disk and the length of the file, when the thread last looked.
    room: Option<u64>,
    length: u64,
    ending: bool,
    /// The thread takes no more.
    ended: bool,
}

enum Request {
    Change(Change, oneshot::Sender<Result<(), StoreError>>),
    Load(u64, oneshot::Sender<Result<Option<Stored>, StoreError>>),
}

impl FileStore {
    /// Opens the file, or makes it where there is none, readable to its owner alone. Shows each
    /// write that is kept to `each`, in the request of their numbers and one at a time; a reason from
    /// there that one cannot be read counts as damage. When it fails the file is as it was before.
    pub fn open(
        path: &Path,
        mut each: impl FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<Self, OpenError> {
        make_if_missing(path).map_err(|fault| fault.at(path))?;
        Self::open_on(Box::new(DiskFile(path.to_owned())), &mut each)
            .map_err(|fault| fault.at(path))
    }

    fn open_on(
        disk: Box<dyn Disk>,
        each: &mut dyn FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<Self, Fault> {
        let file = disk.open().map_err(|error| Fault::Io(error.to_string()))?;
        let database = WritesDatabase::open(file, false, each)?;
        let first_number = database.next();
        let shared = Arc::new(Shared { queue: Mutex::default(), submitted: Condvar::new() });
        shared.note(&*disk);
        let worker = Worker::new(disk, database);
        let thread = std::thread::Builder::new().name("weir-writes".into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                // However it ends, nobody may wait for it after.
                let _ended = EndGuard(&shared);
                worker.run(&shared);
            }
        });
        let thread =
            Some(thread.map_err(|error| {
                Fault::Io(format!("no thread could be started for it: {error}"))
            })?);
        Ok(Self { shared, first_number, thread })
    }

    /// The first number for new writes: neither this file's writes nor those that it has forgotten
    /// had one so high.
    pub fn first_number(&self) -> u64 {
        self.first_number
    }
}

impl Store for FileStore {
    fn apply(&self, change: Change) -> BoxFuture<'static, Result<(), StoreError>> {
        let (answer, answered) = oneshot::channel();
        match self.shared.submit(Request::Change(change, answer)) {
            Ok(()) => answered.map(|outcome| outcome.unwrap_or_else(|_| Err(ended()))).boxed(),
            Err(refusal) => ready(Err(refusal)).boxed(),
        }
    }

    fn load(&self, number: u64) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        let (answer, answered) = oneshot::channel();
        match self.shared.submit(Request::Load(number, answer)) {
            Ok(()) => answered.map(|outcome| outcome.unwrap_or_else(|_| Err(ended()))).boxed(),
            Err(refusal) => ready(Err(refusal)).boxed(),
        }
    }

    fn room(&self, kept: u64) -> Option<u64> {
        let queue = self.shared.queue.lock();
        // What the file has grown to, and is not in use, is used again.
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
            // It catches what panics; what it could not keep it has said.
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

    /// How much room there is now.
    fn note(&self, disk: &dyn Disk) {
        let (room, length) = (disk.room(), disk.length());
        let mut queue = self.queue.lock();
        queue.room = room;
        queue.length = length;
    }

    /// Waits for queue and takes as many as go together; `None`: there will be none any more.
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
    /// Of one that may be refused for room.
    fn insert_bytes(&self) -> Option<usize> {
        match self {
            Self::Change(change @ Change::Insert(..), _) => Some(size(change)),
            Self::Change(..) | Self::Load(..) => None,
        }
    }
}

/// Whoever still waits when the thread is gone is block_on so: their senders are dropped with the
/// queue.
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

/// A real file.
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

/// A new file appears whole or not at all, and never in another's place: what is there and is not
/// whole is damage.
fn make_if_missing(path: &Path) -> Result<(), Fault> {
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(Fault::Foreign("it is a directory".into())),
    };
    if !directory.is_dir() {
        return Err(Fault::NoDirectory(directory.display().to_string()));
    }
    if std::fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let fault = |error: io::Error| Fault::Io(error.to_string());
    // Readable to the owner alone from the beginning, as temporary files are.
    let blank = tempfile::NamedTempFile::new_in(directory).map_err(fault)?;
    let backend = FileBackend::new(blank.reopen().map_err(fault)?)
        .map_err(|error| Fault::Io(error.to_string()))?;
    database::blank(Box::new(backend))?;
    blank.as_file().sync_all().map_err(fault)?;
    match blank.persist_noclobber(path) {
        Ok(_) => File::open(directory).and_then(|directory| directory.sync_all()).map_err(fault),
        // Somebody else made it meanwhile; who comes second is block_on when it is opened.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(fault(error.error)),
    }
}
