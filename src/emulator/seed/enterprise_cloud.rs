//! Repositories of an organisation on the enterprise cloud, which covers every caller with a higher
//! primary limit, and the grant of its app. Independent of the seed.

use std::collections::{BTreeMap, BTreeSet};

use super::DAY;
use super::people::{BEN, INITECH_INSTALLATION, INITECH_LABS, IVAN, WIDGETS};
use crate::clock::Timestamp;
use crate::emulator::accounts::{Level, Permissions};
use crate::emulator::world::{
    InstallationGrant, Issue, Owner, Repository, RepositoryRole, Visibility, World,
};

/// Above the ids of all other seeded repositories, so that those keep their positions in lists.
const STAPLERS: u64 = 3_000_001;
pub const BLUEPRINTS: u64 = 3_000_002;
const VAULT: u64 = 3_000_003;

/// A file that Git LFS stores for acme/widgets.
const LFS_OBJECT: &[u8] = b"a large file, for a seed world\n";

/// Adds one public repository, one private that Ben may push to, one private that the app was not
/// granted.
pub fn add(world: &mut World, now: Timestamp) {
    let created_at = now - DAY * 350;
    for (id, name, visibility, collaborators) in [
        (STAPLERS, "staplers", Visibility::Public, None),
        (BLUEPRINTS, "blueprints", Visibility::Private, Some(BEN)),
        (VAULT, "vault", Visibility::Private, None),
    ] {
        let issue = Issue::new(id + 100, 1, format!("Finish the {name}"), IVAN, created_at);
        let owner = Owner::Organization(INITECH_LABS);
        world.add_repository(Repository {
            description: format!("All about {name}"),
            language: Some("Rust"),
            pushed_at: created_at + DAY,
            updated_at: created_at + DAY,
            collaborators: collaborators
                .map(|user| (user, RepositoryRole::Push))
                .into_iter()
                .collect(),
            issues: BTreeMap::from([(1, issue)]),
            ..Repository::new(id, owner, name.to_owned(), visibility, created_at)
        });
    }
    world.raise_ids_above(VAULT);
    let repositories = Some(BTreeSet::from([STAPLERS, BLUEPRINTS]));
    let grant = InstallationGrant { permissions: granted_to_initech_app(), repositories };
    world.installation_grants.insert(INITECH_INSTALLATION, grant);
    // An empty storage has room.
    let _ = world.lfs.put(WIDGETS, bytes::Bytes::from_static(LFS_OBJECT));
}

pub fn granted_to_initech_app() -> Permissions {
    Permissions::Only(BTreeMap::from([
        ("contents", Level::Write),
        ("issues", Level::Write),
        ("members", Level::Read),
        ("metadata", Level::Read),
    ]))
}
