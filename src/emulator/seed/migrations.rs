//! Ada's migrations, one in each state, with constant ids. The pending and the exporting one are
//! pinned, so that tests find them at any time.

use std::collections::BTreeSet;

use super::HOUR;
use super::people::{ADA, WIDGETS};
use crate::clock::Timestamp;
use crate::emulator::limits::Limits;
use crate::emulator::migrations;
use crate::emulator::world::storage::migrations::Pace;
use crate::emulator::world::{Flag, Migration, MigrationState, World, guid};

const PENDING: u64 = 701;
const EXPORTING: u64 = 702;
const EXPORTED: u64 = 703;
const FAILED: u64 = 704;
/// Exported so long ago that its archive is deleted.
const EXPIRED: u64 = 705;
/// ada/dotfiles and ada/diary.
const REPOSITORIES: [u64; 2] = [WIDGETS + 3, WIDGETS + 4];

pub fn add(world: &mut World, now: Timestamp) {
    let cases = [
        (PENDING, MigrationState::Pending, now - HOUR),
        (EXPORTING, MigrationState::Exporting, now - HOUR),
        (FAILED, MigrationState::Failed, now - HOUR * 48),
        (EXPIRED, MigrationState::Exported, now - HOUR * 240),
    ];
    for (id, state, since) in cases {
        let mut migration = migration(id, since);
        migration.pace = Pace::Held;
        migration.enter(state, since);
        world.migrations.add(migration);
    }
    world.migrations.add(migration(EXPORTED, now - HOUR));
    migrations::export(world, &Limits::default(), EXPORTED, now - HOUR);
}

fn migration(id: u64, ended: Timestamp) -> Migration {
    let flags = BTreeSet::from([Flag::ExcludeOwnerProjects]);
    Migration::new(id, guid(id), ADA, REPOSITORIES.to_vec(), flags, ended - HOUR)
}
