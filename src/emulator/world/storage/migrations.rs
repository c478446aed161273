//! User migrations and their archives.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::clock::Timestamp;
use crate::emulator::limits::Limits;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum MigrationState {
    Pending,
    Exporting,
    /// Succeeded; the archive can be downloaded until it is deleted.
    Exported,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Moving,
    /// Pinned: migrations of the seed, and those that a test has set.
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Flag {
    LockRepositories,
    ExcludeMetadata,
    ExcludeGitData,
    ExcludeAttachments,
    ExcludeReleases,
    ExcludeOwnerProjects,
    OrgMetadataOnly,
}

#[derive(Debug)]
pub struct Migration {
    pub id: u64,
    pub owner: u64,
    pub guid: String,
    pub state: MigrationState,
    pub since: Timestamp,
    pub pace: Pace,
    pub flags: BTreeSet<Flag>,
    pub repositories: Vec<u64>,
    /// The repositories that it still locks.
    pub locked: BTreeSet<u64>,
    /// The tar.gz, from the export until it is deleted.
    pub archive: Option<Bytes>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Migration {
    /// Creates a pending migration. With that option, its repositories are locked from the start.
    pub fn new(
        id: u64,
        guid: String,
        owner: u64,
        repositories: Vec<u64>,
        flags: BTreeSet<Flag>,
        at: Timestamp,
    ) -> Self {
        let locks = flags.contains(&Flag::LockRepositories);
        Self {
            id,
            owner,
            guid,
            state: MigrationState::Pending,
            since: at,
            pace: Pace::Moving,
            flags,
            locked: repositories.iter().copied().filter(|_| locks).collect(),
            repositories,
            archive: None,
            created_at: at,
            updated_at: at,
        }
    }

    pub fn wants(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    pub fn enter(&mut self, state: MigrationState, at: Timestamp) {
        self.state = state;
        self.since = at;
        self.updated_at = at;
    }
}

#[derive(Debug, Default)]
pub struct Migrations {
    pub all: BTreeMap<u64, Migration>,
    /// Migrations with a future transition: by state, then by due time.
    pub moving: BTreeSet<(MigrationState, Timestamp, u64)>,
    /// The number of migrations that lock a repository; every write looks it up.
    pub locks: BTreeMap<u64, usize>,
    pub kept_bytes: usize,
}

impl Migrations {
    pub fn add(&mut self, migration: Migration) {
        for repository in &migration.locked {
            *self.locks.entry(*repository).or_default() += 1;
        }
        if migration.pace == Pace::Moving {
            self.moving.insert((migration.state, migration.since, migration.id));
        }
        self.all.insert(migration.id, migration);
    }

    pub fn get(&self, id: u64) -> Option<&Migration> {
        self.all.get(&id)
    }

    pub fn by_guid(&self, guid: &str) -> Option<&Migration> {
        self.all.values().find(|migration| migration.guid == guid)
    }

    /// Lists the migrations of one user, newest first.
    pub fn of(&self, owner: u64) -> impl Iterator<Item = &Migration> {
        self.all.values().rev().filter(move |migration| migration.owner == owner)
    }

    pub fn is_locked(&self, repository: u64) -> bool {
        self.locks.contains_key(&repository)
    }

    /// Removes one migration's lock of a repository; false when it has none.
    pub fn unlock(&mut self, id: u64, repository: u64, at: Timestamp) -> bool {
        let Some(migration) = self.all.get_mut(&id) else { return false };
        if !migration.locked.remove(&repository) {
            return false;
        }
        migration.updated_at = at;
        if let Some(count) = self.locks.get_mut(&repository) {
            *count -= 1;
            if *count == 0 {
                self.locks.remove(&repository);
            }
        }
        true
    }

    /// Deletes the archive and keeps the metadata; false when there is no archive.
    pub fn delete_archive(&mut self, id: u64) -> bool {
        let Some(migration) = self.all.get_mut(&id) else { return false };
        let Some(archive) = migration.archive.take() else { return false };
        self.kept_bytes = self.kept_bytes.saturating_sub(archive.len());
        self.moving.remove(&(migration.state, migration.since, id));
        true
    }

    /// False without such a migration. A failed one has no further transition.
    pub fn enter(&mut self, id: u64, state: MigrationState, pace: Pace, at: Timestamp) -> bool {
        let Some(migration) = self.all.get_mut(&id) else { return false };
        self.moving.remove(&(migration.state, migration.since, id));
        migration.pace = pace;
        migration.enter(state, at);
        if pace == Pace::Moving && state != MigrationState::Failed {
            self.moving.insert((state, at, id));
        }
        true
    }

    /// Returns the migration in this state that is due first, and when.
    pub fn first_due(
        &self,
        state: MigrationState,
        limits: &Limits,
    ) -> Option<(Timestamp, (MigrationState, Timestamp, u64))> {
        let stay = match state {
            MigrationState::Pending => limits.duration("migrations.pending"),
            MigrationState::Exporting => limits.duration("migrations.exporting"),
            // An archive is deleted at an age of 7 days.
            MigrationState::Exported => limits.duration("migrations.archive"),
            MigrationState::Failed => return None,
        };
        let first = self.moving.range((state, Timestamp::EPOCH, 0)..).next()?;
        (first.0 == state).then(|| (first.1 + stay, *first))
    }

    /// Stores an archive and evicts the oldest ones beyond the total size.
    pub fn keep(&mut self, id: u64, archive: Bytes, kept_bytes_max: usize) {
        while self.kept_bytes.saturating_add(archive.len()) > kept_bytes_max {
            let kept = self.all.values().filter(|migration| migration.archive.is_some());
            let oldest = kept.map(|migration| (migration.since, migration.id)).min();
            let Some((_, oldest)) = oldest else { break };
            self.delete_archive(oldest);
        }
        if let Some(migration) = self.all.get_mut(&id) {
            self.kept_bytes = self.kept_bytes.saturating_add(archive.len());
            migration.archive = Some(archive);
        }
    }
}
