//! An organisation on the enterprise cloud with an app, an OAuth app and a workflow, which covers
//! every caller with a higher primary limit. Also expired, revoked and soon expiring tokens.
//! Independent of the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::people::{ACME, ACME_INSTALLATION, ALL_SCOPES, APP, BEN, DAN, WIDGETS, personal};
use crate::api::TokenKind;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Level, Permissions, Token, TokenStatus};
use crate::emulator::auth::jwt;
use crate::emulator::world::{
    App, FEATURES, InstallationGrant, Issue, OauthApp, Organization, Owner, People, Repository,
    User, Visibility, World,
};

const IRIS: u64 = 151;
const IVAN: u64 = 152;
const INITECH_LABS: u64 = 251;
const INITECH_APP: u64 = 351;
const INITECH_INSTALLATION: u64 = 361;
const INITECH_OAUTH_APP: u64 = 371;
/// Above the ids of all other seeded repositories, so that those keep their positions in lists.
const STAPLERS: u64 = 3_000_001;
const BLUEPRINTS: u64 = 3_000_002;
const VAULT: u64 = 3_000_003;

/// Made for this file; it opens only an emulator.
pub const INITECH_APP_KEY: &str = include_str!("initech_app_key.pem");

const DAY: Duration = Duration::from_hours(24);
/// The documented lifetime of a workflow token (SPECIFICATION, "Credentials").
const WORKFLOW_STEP: Duration = Duration::from_mins(60);

/// A file that Git LFS stores for acme/widgets.
pub const LFS_OBJECT: &[u8] = b"a large file, for a seed world\n";

pub fn add(world: &mut World, now: Timestamp) {
    let joined = now - DAY * 350;
    for (id, login, name) in [
        (IRIS, "iris", "Iris, owner of initech-labs"),
        (IVAN, "ivan", "Ivan, member of initech-labs"),
    ] {
        let (login, name) = (login.to_owned(), name.to_owned());
        world.add_user(User {
            id,
            login,
            name,
            created_at: joined,
            updated_at: joined + DAY,
            watching: BTreeSet::new(),
        });
    }
    world.add_organization(organization(joined));
    world.enterprise_cloud.insert(INITECH_LABS);
    for repository in repositories(joined) {
        world.add_repository(repository);
    }
    world.raise_ids_above(VAULT);
    let owner = Owner::Organization(INITECH_LABS);
    world.apps.push(App {
        id: INITECH_APP,
        slug: "initech-app".to_owned(),
        owner,
        private_key: INITECH_APP_KEY,
        public_key: jwt::public_key(INITECH_APP_KEY),
        installations: vec![(INITECH_INSTALLATION, INITECH_LABS)],
    });
    // The vault is not among the chosen repositories.
    let installation_grant = InstallationGrant {
        permissions: granted(),
        repositories: Some(BTreeSet::from([STAPLERS, BLUEPRINTS])),
    };
    world.installation_grants.insert(INITECH_INSTALLATION, installation_grant);
    world.oauth_apps.push(OauthApp {
        id: INITECH_OAUTH_APP,
        client_id: "emu_initech_client_id".to_owned(),
        client_secret: "emu_initech_client_secret".to_owned(),
        owner,
    });
    for token in initech_tokens().into_iter().chain(ended_tokens(now)) {
        world.add_token(token);
    }
    // An empty storage has room.
    let _ = world.lfs.put(WIDGETS, bytes::Bytes::from_static(LFS_OBJECT));
}

fn organization(created_at: Timestamp) -> Organization {
    Organization {
        id: INITECH_LABS,
        login: "initech-labs".to_owned(),
        description: "On the enterprise cloud".to_owned(),
        created_at,
        updated_at: created_at,
        owners: BTreeSet::from([IRIS]),
        members: BTreeSet::from([IRIS, IVAN]),
        teams: BTreeMap::new(),
        people: People::default(),
        roles: BTreeMap::new(),
        hooks: BTreeMap::new(),
    }
}

/// One public, one private that Ben may push to, one private that the app was not granted.
fn repositories(created_at: Timestamp) -> Vec<Repository> {
    let repository = |id: u64, name: &str, visibility, collaborators: &[u64]| Repository {
        id,
        owner: Owner::Organization(INITECH_LABS),
        name: name.to_owned(),
        visibility,
        description: format!("All about {name}"),
        homepage: None,
        language: Some("Rust"),
        topics: Vec::new(),
        features: FEATURES.iter().copied().collect(),
        default_branch: "main".to_owned(),
        created_at,
        pushed_at: created_at + DAY,
        updated_at: created_at + DAY,
        collaborators: collaborators.iter().copied().collect(),
        stars: BTreeMap::new(),
        fork_of: None,
        forks: BTreeSet::new(),
        readme: format!("# {name}\n"),
        labels: BTreeMap::new(),
        milestones: BTreeMap::new(),
        issues: BTreeMap::from([(
            1,
            Issue::new(id + 100, 1, format!("Finish the {name}"), IVAN, created_at),
        )]),
        comments: BTreeMap::new(),
        releases: BTreeMap::new(),
    };
    vec![
        repository(STAPLERS, "staplers", Visibility::Public, &[]),
        repository(BLUEPRINTS, "blueprints", Visibility::Private, &[BEN]),
        repository(VAULT, "vault", Visibility::Private, &[]),
    ]
}

fn granted() -> Permissions {
    Permissions::Only(BTreeMap::from([
        ("contents", Level::Write),
        ("issues", Level::Write),
        ("members", Level::Read),
        ("metadata", Level::Read),
    ]))
}

fn initech_tokens() -> Vec<Token> {
    let classic = |value, user, note| {
        personal(value, TokenKind::Classic, user, ALL_SCOPES, Permissions::NotApplicable, note)
    };
    let by_app = |value, user, note| Token {
        app: Some(INITECH_APP),
        ..personal(value, TokenKind::AppUser, user, &[], granted(), note)
    };
    let by_oauth = |value, user, note| Token {
        oauth_app: Some(INITECH_OAUTH_APP),
        ..personal(
            value,
            TokenKind::Oauth,
            user,
            &["repo", "read:org"],
            Permissions::NotApplicable,
            note,
        )
    };
    vec![
        classic(
            "emu_classic_iris",
            IRIS,
            "owner of initech-labs; what the apps do for her is spent from her budget too",
        ),
        classic("emu_classic_ivan", IVAN, "member of initech-labs"),
        by_app(
            "emu_app_user_iris",
            IRIS,
            "member of initech-labs through its app: the higher limit",
        ),
        by_app(
            "emu_app_user_dan",
            DAN,
            "a stranger to initech-labs through its app: the usual limit",
        ),
        by_oauth(
            "emu_oauth_iris",
            IRIS,
            "member of initech-labs through its OAuth app: the higher limit",
        ),
        Token {
            account: AccountId::Installation(INITECH_INSTALLATION),
            user: None,
            installed_on: Some(INITECH_LABS),
            app: Some(INITECH_APP),
            ..personal(
                "emu_installation_initech",
                TokenKind::Installation,
                IRIS,
                &[],
                granted(),
                "the app on initech-labs, two repositories",
            )
        },
        Token {
            account: AccountId::Workflow(BLUEPRINTS),
            user: None,
            workflow_of: Some(BLUEPRINTS),
            ..personal(
                "emu_workflow_blueprints",
                TokenKind::Workflow,
                IRIS,
                &[],
                granted(),
                "a workflow run of initech-labs/blueprints: the higher limit",
            )
        },
    ]
}

/// One revoked token, and one that a workflow step made just now.
fn ended_tokens(now: Timestamp) -> Vec<Token> {
    let revoked = personal(
        "emu_classic_revoked",
        TokenKind::Classic,
        BEN,
        ALL_SCOPES,
        Permissions::NotApplicable,
        "taken back",
    );
    let step = Token {
        account: AccountId::Installation(ACME_INSTALLATION),
        user: None,
        installed_on: Some(ACME),
        app: Some(APP),
        repositories: Some(BTreeSet::from([WIDGETS])),
        status: TokenStatus::ValidUntil(now + WORKFLOW_STEP),
        ..personal(
            "emu_installation_workflow_step",
            TokenKind::Installation,
            BEN,
            &[],
            Permissions::All,
            "made in a workflow step of acme/widgets: expires an hour after the beginning",
        )
    };
    vec![Token { status: TokenStatus::Revoked, ..revoked }, step]
}
