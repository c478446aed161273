//! Users, organisations and apps of the seed world. They are independent of the seed, so that tests
//! can name them.

use super::{APP_KEY, DAY, INITECH_APP_KEY};
use crate::clock::Timestamp;
use crate::emulator::auth::jwt;
use crate::emulator::world::{App, OauthApp, Organization, Owner, User, World};

pub const ADA: u64 = 101;
pub const BEN: u64 = 102;
pub const CLEO: u64 = 103;
pub const DAN: u64 = 104;
pub const BUILD_BOT: u64 = 111;
pub const SCAN_BOT: u64 = 112;
pub const TRIAGE_BOT: u64 = 113;
const MACHINE: u64 = 120;
/// An outsider to acme, globex and initech; owner of vandelay.
pub const FINN: u64 = 131;
/// An outside collaborator of acme and a member of globex.
pub const GWEN: u64 = 132;
/// Invited to acme, into platform.
pub const HUGO: u64 = 133;
pub const IRIS: u64 = 151;
pub const IVAN: u64 = 152;

pub const ACME: u64 = 201;
pub const GLOBEX: u64 = 202;
const VANDELAY: u64 = 231;
pub const INITECH_LABS: u64 = 251;

pub const APP: u64 = 301;
pub const ACME_INSTALLATION: u64 = 311;
pub const GLOBEX_INSTALLATION: u64 = 312;
pub const OAUTH_APP: u64 = 321;
pub const INITECH_APP: u64 = 351;
pub const INITECH_INSTALLATION: u64 = 361;
pub const INITECH_OAUTH_APP: u64 = 371;

/// The id of acme/widgets, the workflow of which has a token.
pub const WIDGETS: u64 = 1_001;

/// Id, login, name and the days since the account was created.
const USERS: [(u64, &str, &str, u32); 13] = [
    (ADA, "ada", "Ada, owner of acme", 400),
    (BEN, "ben", "Ben, maintainer of platform", 400),
    (CLEO, "cleo", "Cleo, member of acme", 400),
    (DAN, "dan", "Dan, owner of globex", 400),
    (BUILD_BOT, "build-bot", "Build bot", 400),
    (SCAN_BOT, "scan-bot", "Scan bot", 400),
    (TRIAGE_BOT, "triage-bot", "Triage bot", 400),
    (MACHINE, "acme-app[bot]", "The app acting for itself", 400),
    (FINN, "finn", "Finn, owner of vandelay", 390),
    (GWEN, "gwen", "Gwen, from outside", 390),
    (HUGO, "hugo", "Hugo, invited", 390),
    (IRIS, "iris", "Iris, owner of initech-labs", 350),
    (IVAN, "ivan", "Ivan, member of initech-labs", 350),
];

/// Members of acme, its owner first.
pub const ACME_PEOPLE: &[u64] = &[ADA, BEN, CLEO, BUILD_BOT, SCAN_BOT, TRIAGE_BOT];

/// Id, login, description, members with the owner first, and the days since it was created.
const ORGANIZATIONS: [(u64, &str, &str, &[u64], u32); 4] = [
    (ACME, "acme", "Makers of everything", ACME_PEOPLE, 400),
    (GLOBEX, "globex", "Its teams are synchronised", &[DAN, GWEN], 400),
    (VANDELAY, "vandelay", "In no enterprise", &[FINN], 390),
    (INITECH_LABS, "initech-labs", "On the enterprise cloud", &[IRIS, IVAN], 350),
];

pub fn add(world: &mut World, now: Timestamp) {
    for (id, login, name, days) in USERS {
        let joined = now - DAY * days;
        let user = User::new(id, login.to_owned(), name.to_owned(), joined);
        world.add_user(User { updated_at: joined + DAY, ..user });
    }
    world.machine_user = MACHINE;
    for (id, login, description, members, days) in ORGANIZATIONS {
        let created_at = now - DAY * days;
        world.add_organization(Organization {
            id,
            login: login.to_owned(),
            description: description.to_owned(),
            created_at,
            updated_at: created_at,
            owners: members.iter().copied().take(1).collect(),
            members: members.iter().copied().collect(),
            ..Organization::default()
        });
    }
    world.enterprise_cloud.insert(INITECH_LABS);
    add_apps(world);
    world.raise_ids_above(5_000);
}

fn add_apps(world: &mut World) {
    let app = |id, slug: &str, owner, private_key, installations| App {
        id,
        slug: slug.to_owned(),
        owner: Owner::Organization(owner),
        private_key,
        public_key: jwt::public_key(private_key),
        installations,
    };
    let of_acme = vec![(ACME_INSTALLATION, ACME), (GLOBEX_INSTALLATION, GLOBEX)];
    world.apps.push(app(APP, "acme-app", ACME, APP_KEY, of_acme));
    let of_initech = vec![(INITECH_INSTALLATION, INITECH_LABS)];
    world.apps.push(app(INITECH_APP, "initech-app", INITECH_LABS, INITECH_APP_KEY, of_initech));
    world.oauth_apps.push(OauthApp {
        id: OAUTH_APP,
        client_id: "emu_client_id".to_owned(),
        client_secret: "emu_client_secret".to_owned(),
        owner: Owner::User(DAN),
    });
    world.oauth_apps.push(OauthApp {
        id: INITECH_OAUTH_APP,
        client_id: "emu_initech_client_id".to_owned(),
        client_secret: "emu_initech_client_secret".to_owned(),
        owner: Owner::Organization(INITECH_LABS),
    });
}
