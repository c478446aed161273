//! The database in the file: its tables, its checks, and the commit of changes.
//!
//! Two tables hold the two texts of each write by its number, so that progress does not rewrite
//! bodies; a third identifies the file. Each text carries a checksum of its own, because redb
//! verifies those of its pages only when it opens a file. Left out: the time of opening and
//! committing (`worker`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, TableDefinition, TableError,
};
use ring::digest::{Context, SHA256};

use super::deferred::{DeferredDisk, Failure, is_for_room};
use super::fault::Fault;
use crate::writes::{Change, Stored};

/// Identifies the file: no other program's database has a table of this name with these types.
const ABOUT: TableDefinition<&str, u64> = TableDefinition::new("weir.writes");
const REQUESTS: TableDefinition<u64, &[u8]> = TableDefinition::new("requests");
const PROGRESS: TableDefinition<u64, &[u8]> = TableDefinition::new("progress");

/// Version of the tables and their contents. Records are JSON that may grow; this number changes
/// when an older version would misread them.
pub(super) const FORMAT: u64 = 1;
const FORMAT_KEY: &str = "format";
/// One more than the highest number ever used, by forgotten writes too.
const NEXT_KEY: &str = "next";

/// Size of redb's cache. Our choice: its default is a gigabyte; only the upper pages of three small
/// trees are read again.
const CACHE_BYTES: usize = 4 * 1024 * 1024;
/// Length of the checksum before each text.
const CHECKSUM_BYTES: usize = 8;

/// An open database that passed all checks.
pub(super) struct WritesDatabase {
    /// `None` only in `drop`.
    database: Option<Database>,
    disk: DeferredDisk,
    next: u64,
}

impl WritesDatabase {
    /// Opens the file, verifies every page and every record, and passes each record to `each` in
    /// order. Changes nothing on the disk when it fails. See [`DeferredDisk::trust`] for `rewrite`.
    pub(super) fn open(
        disk: Box<dyn StorageBackend>,
        rewrite: bool,
        each: &mut dyn FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<Self, Fault> {
        let database = Self::open_deferred(disk, each)?;
        database.disk.trust(rewrite)?;
        Ok(database)
    }

    /// Makes the checks of [`WritesDatabase::open`] and changes nothing on the disk.
    pub(super) fn verify(
        disk: Box<dyn StorageBackend>,
        each: &mut dyn FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<(), Fault> {
        Self::open_deferred(disk, each).map(drop)
    }

    /// Opens and checks the file; its changes stay in memory.
    fn open_deferred(
        disk: Box<dyn StorageBackend>,
        each: &mut dyn FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<Self, Fault> {
        let disk = DeferredDisk::new(disk);
        let damaged = |panic: String| Fault::Damaged(format!("reading it failed: {panic}"));
        let opened = safely(|| open_checked(&disk)).map_err(damaged)??;
        let mut database = Self { database: Some(opened), disk, next: 0 };
        database.next = safely(|| database.check(each)).map_err(damaged)??;
        Ok(database)
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Makes all of these changes in this order, or none; they are on the disk when it returns.
    pub(super) fn commit<'c>(
        &mut self,
        changes: impl IntoIterator<Item = &'c Change>,
    ) -> Result<(), Failure> {
        self.next = self.attempt(|| self.try_commit(changes))?;
        Ok(())
    }

    /// Loads a write. `Ok(Err(…))`: its own record is damaged, and nothing else.
    pub(super) fn load(&self, number: u64) -> Result<Result<Option<Stored>, String>, Failure> {
        self.attempt(|| self.try_load(number))
    }

    fn attempt<T>(&self, run: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, Failure> {
        safely(run).unwrap_or_else(|panic| Err(redb::Error::Corrupted(panic))).map_err(|error| {
            // The disk's first failure is the cause of all later ones.
            self.disk.failure().unwrap_or_else(|| Failure {
                for_room: matches!(&error, redb::Error::Io(error) if is_for_room(error.kind())),
                in_sync: false,
                text: error.to_string(),
            })
        })
    }

    fn database(&self) -> Result<&Database, redb::Error> {
        self.database.as_ref().ok_or(redb::Error::DatabaseClosed)
    }

    fn check(&self, each: &mut dyn FnMut(u64, Stored) -> Result<(), String>) -> Result<u64, Fault> {
        let reading = self.database().map_err(unreadable)?.begin_read().map_err(unreadable)?;
        let about = reading.open_table(ABOUT).map_err(|error| foreign(&error))?;
        let number =
            |key| about.get(key).map(|value| value.map(|value| value.value())).map_err(unreadable);
        match number(FORMAT_KEY)? {
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => return Err(Fault::Newer { found, known: FORMAT }),
            found => return Err(Fault::Damaged(format!("its format is {found:?}"))),
        }
        let mut next = number(NEXT_KEY)?
            .ok_or_else(|| Fault::Damaged("it does not say how many writes there were".into()))?;
        let requests = reading.open_table(REQUESTS).map_err(unreadable)?;
        let progress = reading.open_table(PROGRESS).map_err(unreadable)?;
        let mut pairs = progress.iter().map_err(unreadable)?;
        for entry in requests.iter().map_err(unreadable)? {
            let (number, request) = entry.map_err(unreadable)?;
            let number = number.value();
            let of = |detail: String| Fault::Damaged(format!("write {number}: {detail}"));
            let (other, progress) = pairs
                .next()
                .ok_or_else(|| of("its progress is missing".into()))?
                .map_err(unreadable)?;
            if other.value() != number {
                return Err(of(format!("the next progress is that of write {}", other.value())));
            }
            let stored = Stored {
                request: opened(REQUEST_KIND, number, request.value()).map_err(of)?,
                progress: opened(PROGRESS_KIND, number, progress.value()).map_err(of)?,
            };
            each(number, stored).map_err(of)?;
            next = next.max(number.saturating_add(1));
        }
        match pairs.next() {
            None => Ok(next),
            Some(_) => Err(Fault::Damaged("there is progress of a write that is not there".into())),
        }
    }

    fn try_commit<'c>(
        &self,
        changes: impl IntoIterator<Item = &'c Change>,
    ) -> Result<u64, redb::Error> {
        let mut writing = self.database()?.begin_write()?;
        writing.set_durability(Durability::Immediate)?;
        // The second sync of each commit distinguishes damage from a crash. With a single one, a
        // flipped bit in the last commit would look like a commit cut off, and would silently
        // restore the state before: a write that was sent since could be sent again.
        writing.set_two_phase_commit(true);
        let next = self.make(&writing, changes)?;
        writing.commit()?;
        Ok(next)
    }

    fn make<'c>(
        &self,
        writing: &redb::WriteTransaction,
        changes: impl IntoIterator<Item = &'c Change>,
    ) -> Result<u64, redb::Error> {
        let mut requests = writing.open_table(REQUESTS)?;
        let mut progress = writing.open_table(PROGRESS)?;
        let mut next = self.next;
        for change in changes {
            match change {
                Change::Insert(number, stored) => {
                    let request = closed(REQUEST_KIND, *number, &stored.request);
                    requests.insert(number, request.as_slice())?;
                    let framed = closed(PROGRESS_KIND, *number, &stored.progress);
                    progress.insert(number, framed.as_slice())?;
                    next = next.max(number.saturating_add(1));
                }
                Change::Progress(number, bytes) => {
                    if requests.get(number)?.is_some() {
                        progress
                            .insert(number, closed(PROGRESS_KIND, *number, bytes).as_slice())?;
                    }
                }
                Change::Remove(numbers) => {
                    for number in numbers {
                        requests.remove(number)?;
                        progress.remove(number)?;
                    }
                }
            }
        }
        if next > self.next {
            writing.open_table(ABOUT)?.insert(NEXT_KEY, next)?;
        }
        Ok(next)
    }

    fn try_load(&self, number: u64) -> Result<Result<Option<Stored>, String>, redb::Error> {
        let reading = self.database()?.begin_read()?;
        let (requests, progress) = (reading.open_table(REQUESTS)?, reading.open_table(PROGRESS)?);
        let (Some(request), Some(progress)) = (requests.get(number)?, progress.get(number)?) else {
            return Ok(Ok(None));
        };
        let request = opened(REQUEST_KIND, number, request.value());
        let progress = opened(PROGRESS_KIND, number, progress.value());
        Ok(request.and_then(|request| progress.map(|progress| Some(Stored { request, progress }))))
    }

    /// Closes the file cleanly, so that the next start needs no repair.
    pub(super) fn close(mut self) -> Result<(), String> {
        let Some(database) = self.database.take() else { return Ok(()) };
        let closed = safely(|| database.close());
        closed?.map_err(|error| error.to_string())
    }
}

impl Drop for WritesDatabase {
    fn drop(&mut self) {
        // An assertion of redb about a failed file must not end the process.
        let database = self.database.take();
        let _ = safely(|| drop(database));
    }
}

/// Writes the bytes of a new file.
pub(super) fn blank(disk: Box<dyn StorageBackend>) -> Result<(), Fault> {
    let made = || -> Result<(), redb::Error> {
        let database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(DeferredDisk::trusted(disk))?;
        let mut writing = database.begin_write()?;
        writing.set_two_phase_commit(true);
        {
            let mut about = writing.open_table(ABOUT)?;
            about.insert(FORMAT_KEY, FORMAT)?;
            about.insert(NEXT_KEY, 0)?;
            writing.open_table(REQUESTS)?;
            writing.open_table(PROGRESS)?;
        }
        writing.commit()?;
        Ok(database.close()?)
    };
    safely(made).map_err(Fault::Io)?.map_err(|error| match error {
        redb::Error::Io(error) => Fault::from(error),
        error => Fault::Io(error.to_string()),
    })
}

fn open_checked(disk: &DeferredDisk) -> Result<Database, Fault> {
    if disk.len()? == 0 {
        return Err(Fault::Damaged("it is empty".into()));
    }
    // Every page is verified at each start: damage must not surface during operation.
    let opened = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .create_with_backend(disk.clone());
    opened.map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => Fault::InUse,
        DatabaseError::UpgradeRequired(version) => {
            Fault::Foreign(format!("it is a redb database of the old format {version}"))
        }
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == std::io::ErrorKind::InvalidData =>
        {
            Fault::Foreign("it is a file of another kind".into())
        }
        error => unreadable(error),
    })
}

fn unreadable(error: impl Into<redb::Error>) -> Fault {
    match error.into() {
        // A read behind the end means that the file was cut off.
        redb::Error::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            Fault::Io(error.to_string())
        }
        redb::Error::Corrupted(detail) => Fault::Damaged(detail),
        error => Fault::Damaged(error.to_string()),
    }
}

fn foreign(error: &TableError) -> Fault {
    match error {
        TableError::Storage(StorageError::Corrupted(detail)) => Fault::Damaged(detail.clone()),
        TableError::Storage(StorageError::Io(error)) => Fault::Io(error.to_string()),
        TableError::Storage(error) => Fault::Io(error.to_string()),
        error => Fault::Foreign(format!("it is another program's redb database ({error})")),
    }
}

const REQUEST_KIND: u8 = b'r';
const PROGRESS_KIND: u8 = b'p';

/// Checksum of the bytes, their number and their kind, so that a misplaced text is noticed too.
/// Eight bytes suffice against chance.
fn checksum(kind: u8, number: u64, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut context = Context::new(&SHA256);
    context.update(&[kind]);
    context.update(&number.to_le_bytes());
    context.update(bytes);
    let digest = context.finish();
    digest.as_ref().first_chunk().copied().unwrap_or_default()
}

fn closed(kind: u8, number: u64, bytes: &[u8]) -> Vec<u8> {
    [checksum(kind, number, bytes).as_slice(), bytes].concat()
}

fn opened(kind: u8, number: u64, kept: &[u8]) -> Result<Bytes, String> {
    match kept.split_first_chunk() {
        Some((sum, bytes)) if *sum == checksum(kind, number, bytes) => {
            Ok(Bytes::copy_from_slice(bytes))
        }
        _ => Err("its checksum is wrong".into()),
    }
}

/// Runs a closure and turns a panic into a text: redb may panic on damaged pages.
fn safely<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "without a word".into())
    })
}

/// Gives a file another format, or replaces the first request as an editor of redb files could.
#[cfg(test)]
pub(super) fn spoil(disk: Box<dyn StorageBackend>, format: u64, request: Option<&[u8]>) {
    let database = Builder::new().create_with_backend(DeferredDisk::trusted(disk)).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(ABOUT).unwrap().insert(FORMAT_KEY, format).unwrap();
    if let Some(request) = request {
        writing.open_table(REQUESTS).unwrap().insert(0, request).unwrap();
    }
    writing.commit().unwrap();
}
