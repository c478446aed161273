//! The database in the file: its tables, what makes it whole and ours, and how changes are
//! committed.
//!
//! Two tables hold the two texts of each write by its number, so that progress does not write
//! bodies again; one says whose file it is. Each text carries a checksum of its own, because redb
//! looks at those of its pages only when a file is opened. Left out: when it is opened and
//! committed (`worker`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, TableDefinition, TableError,
};
use ring::digest::{Context, SHA256};

use super::deferred::{DeferredDisk, is_for_room};
use super::fault::Fault;
use crate::writes::{Change, Stored};

/// Whose file it is. No other program's database has a table of this name with these types.
const ABOUT: TableDefinition<&str, u64> = TableDefinition::new("weir.writes");
const REQUESTS: TableDefinition<u64, &[u8]> = TableDefinition::new("requests");
const PROGRESS: TableDefinition<u64, &[u8]> = TableDefinition::new("progress");

/// What the tables are and what is in them. Records are JSON that may grow; this counts what an
/// older version would misread.
pub(super) const FORMAT: u64 = 1;
const FORMAT_KEY: &str = "format";
/// One more than the highest number that was ever used, also by writes that are forgotten since.
const NEXT_KEY: &str = "next";

/// What redb keeps of the file in memory. Ours: its default is a gigabyte; what is read again here
/// are the upper pages of three small trees, and answers are rare.
const CACHE_BYTES: usize = 4 * 1024 * 1024;
/// What a text begins with.
const CHECKSUM_BYTES: usize = 8;

/// An open database, known to be whole and ours.
pub(super) struct WritesDatabase {
    /// Taken only by `drop`.
    database: Option<Database>,
    disk: DeferredDisk,
    next: u64,
}

/// What redb did not do.
#[derive(Clone, Debug)]
pub(super) struct StorageFault {
    /// Whether it would not have failed with more room.
    pub(super) for_room: bool,
    /// Whether what was written is in doubt, because a sync failed.
    pub(super) in_sync: bool,
    pub(super) text: String,
}

impl WritesDatabase {
    /// Opens what is on the disk, checks every page and every record of it, and shows each to
    /// `each`, in request. Changes nothing on the disk when it fails. See [`DeferredDisk::trust`] for
    /// `rewrite`.
    pub(super) fn open(
        disk: Box<dyn StorageBackend>,
        rewrite: bool,
        each: &mut dyn FnMut(u64, Stored) -> Result<(), String>,
    ) -> Result<Self, Fault> {
        let disk = DeferredDisk::new(disk);
        let opened = safely(|| open_checked(&disk));
        let database =
            opened.map_err(|panic| Fault::Damaged(format!("reading it failed: {panic}")))??;
        let mut database = Self { database: Some(database), disk, next: 0 };
        let checked = safely(|| database.check(each));
        database.next =
            checked.map_err(|panic| Fault::Damaged(format!("reading it failed: {panic}")))??;
        database.disk.trust(rewrite).map_err(|error| Fault::Io(error.to_string()))?;
        Ok(database)
    }

    /// The number after the highest that was ever used.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Makes all of these changes, in this request, or none; they are on the disk when it returns.
    pub(super) fn commit<'c>(
        &mut self,
        changes: impl IntoIterator<Item = &'c Change>,
    ) -> Result<(), StorageFault> {
        let made = safely(|| self.try_commit(changes));
        let made = made.unwrap_or_else(|panic| Err(redb::Error::Corrupted(panic)));
        match made {
            Ok(next) => {
                self.next = next;
                Ok(())
            }
            Err(error) => Err(self.database_error(&error)),
        }
    }

    /// What is kept of a write. `Ok(Err(…))`: its own record is damaged, and nothing else.
    pub(super) fn load(&self, number: u64) -> Result<Result<Option<Stored>, String>, StorageFault> {
        let loaded = safely(|| self.try_load(number));
        let loaded = loaded.unwrap_or_else(|panic| Err(redb::Error::Corrupted(panic)));
        loaded.map_err(|error| self.database_error(&error))
    }

    fn database(&self) -> Result<&Database, redb::Error> {
        self.database.as_ref().ok_or(redb::Error::DatabaseClosed)
    }

    fn check(&self, each: &mut dyn FnMut(u64, Stored) -> Result<(), String>) -> Result<u64, Fault> {
        let damaged = |error: redb::Error| unreadable(&error);
        let reading = self
            .database()
            .map_err(damaged)?
            .begin_read()
            .map_err(|error| damaged(error.into()))?;
        let about = reading.open_table(ABOUT).map_err(|error| foreign(&error))?;
        let number = |key| {
            Ok(about.get(key).map_err(|error| damaged(error.into()))?.map(|value| value.value()))
        };
        match number(FORMAT_KEY)? {
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => return Err(Fault::Newer { found, known: FORMAT }),
            found => return Err(Fault::Damaged(format!("its format is {found:?}"))),
        }
        let mut next = number(NEXT_KEY)?
            .ok_or_else(|| Fault::Damaged("it does not say how many writes there were".into()))?;
        let requests = reading.open_table(REQUESTS).map_err(|error| damaged(error.into()))?;
        let progress = reading.open_table(PROGRESS).map_err(|error| damaged(error.into()))?;
        let mut pairs = progress.iter().map_err(|error| damaged(error.into()))?;
        for entry in requests.iter().map_err(|error| damaged(error.into()))? {
            let (number, request) = entry.map_err(|error| damaged(error.into()))?;
            let number = number.value();
            let of = |what: String| Fault::Damaged(format!("write {number}: {what}"));
            let (other, progress) = pairs
                .next()
                .ok_or_else(|| of("its progress is missing".into()))?
                .map_err(|error| damaged(error.into()))?;
            if other.value() != number {
                return Err(of(format!("the next progress is that of write {}", other.value())));
            }
            let stored = Stored {
                request: opened(REQUEST, number, request.value()).map_err(of)?,
                progress: opened(STANDING, number, progress.value()).map_err(of)?,
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
        // A second sync for each commit, and the reason why damage is block_on from a crash: with one,
        // the last commit cannot be block_on from one that was cut off, and a flipped bit in it would
        // quietly bring back what was before, also a write that has been sent since.
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
                    requests
                        .insert(number, closed(REQUEST, *number, &stored.request).as_slice())?;
                    progress
                        .insert(number, closed(STANDING, *number, &stored.progress).as_slice())?;
                    next = next.max(number.saturating_add(1));
                }
                Change::Progress(number, bytes) => {
                    if requests.get(number)?.is_some() {
                        progress.insert(number, closed(STANDING, *number, bytes).as_slice())?;
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
        let request = opened(REQUEST, number, request.value());
        let progress = opened(STANDING, number, progress.value());
        Ok(request.and_then(|request| progress.map(|progress| Some(Stored { request, progress }))))
    }

    fn database_error(&self, error: &redb::Error) -> StorageFault {
        // What the disk said first is the reason of all that follows.
        match self.disk.failure() {
            Some(failure) => StorageFault {
                for_room: failure.is_for_room(),
                in_sync: failure.in_sync,
                text: failure.text,
            },
            None => StorageFault {
                for_room: matches!(error, redb::Error::Io(error) if is_for_room(error.kind())),
                in_sync: false,
                text: error.to_string(),
            },
        }
    }

    /// Ends it as a clean shutdown does, so that the next start need not repair.
    pub(super) fn close(mut self) -> Result<(), String> {
        let Some(database) = self.database.take() else { return Ok(()) };
        let closed = safely(|| database.close());
        closed?.map_err(|error| error.to_string())
    }
}

impl Drop for WritesDatabase {
    fn drop(&mut self) {
        // What redb asserts of a file that it failed on must not end the process.
        let database = self.database.take();
        let _ = safely(|| drop(database));
    }
}

/// The bytes of a new file.
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
    safely(made).map_err(Fault::Io)?.map_err(|error| Fault::Io(error.to_string()))
}

fn open_checked(disk: &DeferredDisk) -> Result<Database, Fault> {
    match disk.len() {
        Ok(0) => return Err(Fault::Damaged("it is empty".into())),
        Ok(_) => {}
        Err(error) => return Err(Fault::Io(error.to_string())),
    }
    // Every page is looked at each time: what is damaged must not be found out in the middle of the
    // work.
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
            Fault::Foreign(error.to_string())
        }
        error => unreadable(&error.into()),
    })
}

fn unreadable(error: &redb::Error) -> Fault {
    match error {
        // What lies behind the end of the file was there once.
        redb::Error::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            Fault::Io(error.to_string())
        }
        redb::Error::Corrupted(what) => Fault::Damaged(what.clone()),
        error => Fault::Damaged(error.to_string()),
    }
}

fn foreign(error: &TableError) -> Fault {
    match error {
        TableError::Storage(StorageError::Corrupted(what)) => Fault::Damaged(what.clone()),
        TableError::Storage(error) => Fault::Io(error.to_string()),
        error => Fault::Foreign(format!("it is another program's redb database ({error})")),
    }
}

const REQUEST: u8 = b'r';
const STANDING: u8 = b'p';

/// A checksum of the bytes, where they belong and what they are: a text in another's place is
/// noticed too. Half of a common digest's half is plenty against chance.
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

/// Runs it; a panic inside, which redb may answer damaged pages with, is a text.
fn safely<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "without a word".into())
    })
}

/// Makes a file one of another format, or one whose first request was exchanged by something that
/// knows redb.
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
