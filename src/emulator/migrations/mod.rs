//! User migrations (SPECIFICATION, "User migrations"): their states, timing and repository locks.
//!
//! The upstream does not document the transitions between states. Here the limits `migrations.…`
//! time them: pending, then exporting, then exported with an archive of that moment. A migration
//! fails when a repository was deleted or the archive is too large. `resources::migrations` has the
//! routes.

mod archive;
pub mod download;
mod git;
mod records;
mod reviewed;

use bytes::Bytes;
use serde_json::{Value, json};
use strum::VariantArray;

use crate::clock::Timestamp;
use crate::emulator::http::iso;
use crate::emulator::limits::Limits;
use crate::emulator::world::storage::migrations::Pace;
use crate::emulator::world::{Migration, MigrationState, World};

/// The most migrations of one account, which bounds the memory. Undocumented.
pub const PER_ACCOUNT_MAX: usize = 1_000;

/// The most repositories exported during one request.
const EXPORTED_AT_ONCE: usize = 20;

/// Earliest first. The current request waits for a few small exports or one large one; later
/// requests do the rest.
pub fn advance(world: &mut World, limits: &Limits, now: Timestamp) {
    let mut states = MigrationState::VARIANTS.to_vec();
    let mut exported: usize = 0;
    loop {
        let due = states.iter().filter_map(|state| world.migrations.first_due(*state, limits));
        let Some((at, entry)) = due.min().filter(|(at, _)| *at <= now) else { return };
        let (state, _, id) = entry;
        world.migrations.moving.remove(&entry);
        match state {
            MigrationState::Pending => {
                world.migrations.enter(id, MigrationState::Exporting, Pace::Moving, at);
            }
            MigrationState::Exporting => {
                // A migration without repositories is work too.
                let migration = world.migrations.get(id);
                exported += 1 + migration.map_or(0, |found| found.repositories.len());
                export(world, limits, id, at);
                if exported > EXPORTED_AT_ONCE {
                    states.retain(|state| *state != MigrationState::Exporting);
                }
            }
            MigrationState::Exported | MigrationState::Failed => {
                world.migrations.delete_archive(id);
            }
        }
    }
}

pub fn export(world: &mut World, limits: &Limits, id: u64, at: Timestamp) {
    let bytes = |name| usize::try_from(limits.get(name)).unwrap_or(usize::MAX);
    let kept_bytes_max = bytes("migrations.kept-bytes");
    let migration = world.migrations.get(id);
    let pace = migration.map_or(Pace::Held, |migration| migration.pace);
    let archive = migration
        .and_then(|found| archive::make(world, found, at, bytes("migrations.archive-bytes")))
        .filter(|archive| archive.len() <= kept_bytes_max);
    let state = if archive.is_some() { MigrationState::Exported } else { MigrationState::Failed };
    world.migrations.enter(id, state, pace, at);
    if let Some(archive) = archive {
        world.migrations.keep(id, archive, kept_bytes_max);
    }
}

/// For tests. An exported migration keeps its archive for the usual time.
pub fn put(
    world: &mut World,
    limits: &Limits,
    now: Timestamp,
    id: u64,
    state: MigrationState,
) -> bool {
    world.migrations.delete_archive(id);
    if state != MigrationState::Exported {
        return world.migrations.enter(id, state, Pace::Held, now);
    }
    let is_there = world.migrations.enter(id, MigrationState::Exporting, Pace::Moving, now);
    export(world, limits, id, now);
    is_there
}

pub fn views(world: &World) -> Vec<Value> {
    let name = |id: &u64| world.repositories.get(id).map(|repository| world.full_name(repository));
    let view = |migration: &Migration| {
        json!({
            "id": migration.id,
            "guid": migration.guid,
            "user": world.login(migration.owner),
            "state": migration.state.into_str(),
            "since": iso(migration.since),
            "held": migration.pace == Pace::Held,
            "archive_bytes": migration.archive.as_ref().map(Bytes::len),
            "repositories": migration.repositories.iter().filter_map(name).collect::<Vec<_>>(),
            "locked": migration.locked.iter().filter_map(name).collect::<Vec<_>>(),
        })
    };
    world.migrations.all.values().map(view).collect()
}
