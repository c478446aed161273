//! The thread that owns the database: it commits waiting changes together, and continues after a
//! disk failure.
//!
//! redb refuses everything after a failed read or write, so the database is reopened then, with the
//! checks of a start. New writes give way: they are refused, and changes of existing writes are
//! tried once more without them. Left out: the callers (`file`).

use std::fmt::Display;
use std::io;
use std::mem::discriminant;

use redb::StorageBackend;

use super::database::WritesDatabase;
use super::deferred::Failure;
use super::{Request, Shared};
use crate::writes::outage::Outage;
use crate::writes::{Change, StoreError, Stored};

/// Space kept free beside the file for progress, answers and removals, which need a few pages of 4
/// KiB each. Our choice.
pub(super) const RESERVE_BYTES: u64 = 8 * 1024 * 1024;
/// Space of a new write relative to its bytes: its pages are copied, and pages are at least half
/// full.
pub(super) const PAGES_PER_BYTE: u64 = 2;

/// The location of the file. Tests have others than the real one.
pub(super) trait Disk: Send {
    /// Opens the file separately each time: locks belong to an open file.
    fn open(&self) -> io::Result<Box<dyn StorageBackend>>;
    /// Returns the free bytes there; `None` when unknown.
    fn room(&self) -> Option<u64>;
    /// Returns the length of the file; 0 when unknown.
    fn length(&self) -> u64;
    /// Returns its name for people.
    fn path(&self) -> String;
}

pub(super) struct Worker {
    disk: Box<dyn Disk>,
    /// `None` after a failure, until the file can be opened again.
    database: Option<WritesDatabase>,
    /// Writes that were refused after a commit that may be on the disk all the same. They are
    /// removed before anything else, because their clients may send them again.
    possibly_stored: Vec<u64>,
    /// True if a sync has failed since the file was opened.
    rewrite: bool,
    /// The last reported failure, while new writes are refused.
    failing: Option<StoreError>,
    /// New writes refused since.
    outage: Outage,
}

impl Worker {
    pub(super) fn new(disk: Box<dyn Disk>, database: WritesDatabase) -> Self {
        Self {
            disk,
            database: Some(database),
            possibly_stored: Vec::new(),
            rewrite: false,
            failing: None,
            outage: Outage::default(),
        }
    }

    /// Serves requests until the store is dropped.
    pub(super) fn run(mut self, shared: &Shared) {
        while let Some(batch) = shared.next_batch() {
            let brings = batch.iter().any(|request| request.insert_bytes().is_some());
            self.serve(batch);
            if brings {
                shared.note(&*self.disk);
            }
        }
        let closed = self.database.map_or(Ok(()), WritesDatabase::close);
        if let Err(problem) = closed {
            tracing::warn!(
                path = self.disk.path(),
                problem,
                "the file of writes was not closed well; nothing is lost, and the next start checks it"
            );
        }
    }

    fn serve(&mut self, batch: Vec<Request>) {
        let (mut changes, mut answers, mut loads) = (Vec::new(), Vec::new(), Vec::new());
        for request in batch {
            match request {
                Request::Change(change, answer) => {
                    changes.push(change);
                    answers.push(answer);
                }
                Request::Load(number, answer) => loads.push((number, answer)),
            }
        }
        if !changes.is_empty() {
            // A caller that dropped its end needs no answer.
            for (outcome, answer) in self.make(&changes).into_iter().zip(answers) {
                let _ = answer.send(outcome);
            }
        }
        for (number, answer) in loads {
            let _ = answer.send(self.load(number));
        }
    }

    fn make(&mut self, changes: &[Change]) -> Vec<Result<(), StoreError>> {
        let inserts = || changes.iter().filter(|change| is_insert(change)).map(size);
        let refusal = match self.lack_of_room(changes) {
            Some(full) => full,
            None => match self.commit(changes.iter()) {
                Ok(()) => {
                    self.report_success(inserts().max());
                    return changes.iter().map(|_| Ok(())).collect();
                }
                Err(refusal) => {
                    self.possibly_stored.extend(changes.iter().filter_map(inserted));
                    refusal
                }
            },
        };
        for size in inserts() {
            self.outage.refused(size);
        }
        self.report_failure(&refusal);
        let rest = self.commit(changes.iter().filter(|change| !is_insert(change)));
        if let Err(problem) = &rest {
            self.report_failure(problem);
        }
        // Writes that are certainly not stored may be reported as such; the others are unknown
        // until the file can be opened again.
        let refusal = if self.possibly_stored.is_empty() {
            refusal
        } else {
            StoreError::Failed(text(&refusal))
        };
        changes
            .iter()
            .map(|change| if is_insert(change) { Err(refusal.clone()) } else { rest.clone() })
            .collect()
    }

    /// Returns the error for new writes among `changes` when the disk has no room for them.
    fn lack_of_room(&self, changes: &[Change]) -> Option<StoreError> {
        let inserts = changes.iter().filter(|change| is_insert(change));
        let bytes = inserts.map(|change| size(change) as u64).sum::<u64>();
        let room = self.disk.room().filter(|_| bytes > 0)?;
        let needed = RESERVE_BYTES.saturating_add(bytes.saturating_mul(PAGES_PER_BYTE));
        (room < needed).then(|| {
            let mib = |bytes: u64| bytes / (1024 * 1024);
            StoreError::Full(format!(
                "{} MiB are free on the disk of {}, and {} are left for writes that are kept already",
                mib(room),
                self.disk.path(),
                mib(RESERVE_BYTES)
            ))
        })
    }

    fn commit<'c>(&mut self, changes: impl Iterator<Item = &'c Change>) -> Result<(), StoreError> {
        let mut changes = changes.peekable();
        let removal = Change::Remove(self.possibly_stored.clone());
        let is_clean = self.possibly_stored.is_empty();
        let database = self.database()?;
        let mut committed = if is_clean { Ok(()) } else { database.commit([&removal]) };
        if committed.is_ok() && changes.peek().is_some() {
            committed = database.commit(changes);
        }
        match committed {
            Ok(()) => {
                self.possibly_stored.clear();
                Ok(())
            }
            Err(failure) => {
                let text = self.lose(&failure);
                let kind = if failure.for_room { StoreError::Full } else { StoreError::Failed };
                Err(kind(text))
            }
        }
    }

    fn load(&mut self, number: u64) -> Result<Option<Stored>, StoreError> {
        let path = self.disk.path();
        match self.database()?.load(number) {
            Ok(Ok(stored)) => Ok(stored),
            Ok(Err(damage)) => {
                tracing::error!(
                    path,
                    number,
                    damage,
                    "a write that is kept cannot be read; the disk or the memory of this machine is not to be trusted"
                );
                Err(StoreError::Failed(format!("{path}: write {number}: {damage}")))
            }
            Err(failure) => {
                let error = StoreError::Failed(self.lose(&failure));
                self.report_failure(&error);
                Err(error)
            }
        }
    }

    /// Returns the database, reopened if it was lost.
    fn database(&mut self) -> Result<&mut WritesDatabase, StoreError> {
        if let Some(database) = self.database.take() {
            return Ok(self.database.insert(database));
        }
        let fault =
            |fault: &dyn Display| StoreError::Failed(format!("{}: {fault}", self.disk.path()));
        let disk = self.disk.open().map_err(|error| fault(&error))?;
        let database = WritesDatabase::open(disk, self.rewrite, &mut |_, _| Ok(()))
            .map_err(|error| fault(&error))?;
        self.rewrite = false;
        Ok(self.database.insert(database))
    }

    /// Drops the failed database; returns the failure for people.
    fn lose(&mut self, failure: &Failure) -> String {
        self.rewrite |= failure.in_sync;
        self.database = None;
        format!("{}: {}", self.disk.path(), failure.text)
    }

    /// Logs a failure once, not with each refused write.
    fn report_failure(&mut self, problem: &StoreError) {
        if self.failing.as_ref().map(discriminant) != Some(discriminant(problem)) {
            let path = self.disk.path();
            let why = text(problem);
            if matches!(problem, StoreError::Full(_)) {
                tracing::error!(
                    path,
                    why,
                    "no new writes are accepted, because there is no room for them; none that was accepted is lost. Make room: they are accepted again then"
                );
            } else {
                tracing::error!(
                    path,
                    why,
                    "the file of writes cannot be read or written: none that was accepted is lost, no new ones are accepted. Look at the disk; it is tried again with each change"
                );
            }
        }
        self.failing = Some(problem.clone());
    }

    fn report_success(&mut self, largest_insert: Option<usize>) {
        let over = match &self.failing {
            // Changes other than new writes may succeed on a full disk.
            Some(StoreError::Full(_)) => {
                largest_insert.is_some_and(|size| self.outage.is_over_with(size))
            }
            Some(_) => true,
            None => false,
        };
        if over {
            self.failing = None;
            tracing::info!(
                path = self.disk.path(),
                refused = self.outage.end(),
                "writes are kept again"
            );
        }
    }
}

fn inserted(change: &Change) -> Option<u64> {
    match change {
        Change::Insert(number, _) => Some(*number),
        Change::Progress(..) | Change::Remove(_) => None,
    }
}

fn is_insert(change: &Change) -> bool {
    inserted(change).is_some()
}

pub(super) fn size(change: &Change) -> usize {
    match change {
        Change::Insert(_, stored) => stored.request.len() + stored.progress.len(),
        Change::Progress(_, bytes) => bytes.len(),
        Change::Remove(numbers) => numbers.len() * size_of::<u64>(),
    }
}

fn text(error: &StoreError) -> String {
    match error {
        StoreError::Full(text) | StoreError::Failed(text) => text.clone(),
        of_replicas => of_replicas.to_string(),
    }
}
