//! Users, organisations, apps and tokens of the seed world. They are independent of the seed, so
//! that tests can name them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::api::TokenKind;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Level, Permissions, Token, TokenStatus};
use crate::emulator::auth::jwt;
use crate::emulator::world::{App, OauthApp, Organization, Owner, People, User, World};

pub const ADA: u64 = 101;
pub const BEN: u64 = 102;
pub const CLEO: u64 = 103;
pub const DAN: u64 = 104;
pub const BUILD_BOT: u64 = 111;
pub const SCAN_BOT: u64 = 112;
pub const TRIAGE_BOT: u64 = 113;
const MACHINE: u64 = 120;
pub const ACME: u64 = 201;
pub const GLOBEX: u64 = 202;
pub const APP: u64 = 301;
pub const ACME_INSTALLATION: u64 = 311;
const GLOBEX_INSTALLATION: u64 = 312;
pub const OAUTH_APP: u64 = 321;
/// The id of acme/widgets, the workflow of which has a token.
pub const WIDGETS: u64 = 1_001;

/// All documented scopes.
pub const ALL_SCOPES: &[&str] = &[
    "repo",
    "notifications",
    "admin:org",
    "read:org",
    "admin:org_hook",
    "admin:enterprise",
    "read:enterprise",
];
const DAY: Duration = Duration::from_hours(24);

pub fn add(world: &mut World, now: Timestamp) {
    let joined = now - DAY * 400;
    let users = [
        (ADA, "ada", "Ada, owner of acme"),
        (BEN, "ben", "Ben, maintainer of platform"),
        (CLEO, "cleo", "Cleo, member of acme"),
        (DAN, "dan", "Dan, owner of globex"),
        (BUILD_BOT, "build-bot", "Build bot"),
        (SCAN_BOT, "scan-bot", "Scan bot"),
        (TRIAGE_BOT, "triage-bot", "Triage bot"),
        (MACHINE, "acme-app[bot]", "The app acting for itself"),
    ];
    for (id, login, name) in users {
        world.add_user(User {
            id,
            login: login.to_owned(),
            name: name.to_owned(),
            created_at: joined,
            updated_at: joined + DAY,
            watching: BTreeSet::new(),
        });
    }
    world.machine_user = MACHINE;
    world.add_organization(acme(joined));
    world.add_organization(globex(joined));
    world.apps.push(App {
        id: APP,
        slug: "acme-app".to_owned(),
        owner: Owner::Organization(ACME),
        private_key: crate::emulator::seed::APP_KEY,
        public_key: jwt::public_key(crate::emulator::seed::APP_KEY),
        installations: vec![(ACME_INSTALLATION, ACME), (GLOBEX_INSTALLATION, GLOBEX)],
    });
    world.oauth_apps.push(OauthApp {
        id: OAUTH_APP,
        client_id: "emu_client_id".to_owned(),
        client_secret: "emu_client_secret".to_owned(),
        owner: Owner::User(DAN),
    });
    for token in user_tokens(now).into_iter().chain(app_tokens()) {
        world.add_token(token);
    }
    world.raise_ids_above(5_000);
}

fn acme(created_at: Timestamp) -> Organization {
    let members = BTreeSet::from([ADA, BEN, CLEO, BUILD_BOT, SCAN_BOT, TRIAGE_BOT]);
    Organization {
        id: ACME,
        login: "acme".to_owned(),
        description: "Makers of everything".to_owned(),
        created_at,
        updated_at: created_at,
        owners: BTreeSet::from([ADA]),
        members,
        teams: BTreeMap::new(),
        people: People::default(),
        roles: BTreeMap::new(),
        hooks: BTreeMap::new(),
    }
}

fn globex(created_at: Timestamp) -> Organization {
    Organization {
        id: GLOBEX,
        login: "globex".to_owned(),
        description: "Its teams are synchronised".to_owned(),
        created_at,
        updated_at: created_at,
        owners: BTreeSet::from([DAN]),
        members: BTreeSet::from([DAN]),
        teams: BTreeMap::new(),
        people: People::default(),
        roles: BTreeMap::new(),
        hooks: BTreeMap::new(),
    }
}

pub fn personal(
    value: &str,
    kind: TokenKind,
    user: u64,
    scopes: &[&'static str],
    permissions: Permissions,
    note: &'static str,
) -> Token {
    Token {
        value: value.to_owned(),
        kind,
        account: AccountId::User(user),
        user: Some(user),
        scopes: scopes.to_vec(),
        permissions,
        installed_on: None,
        workflow_of: None,
        oauth_app: None,
        app: None,
        repositories: None,
        status: TokenStatus::Valid,
        note,
    }
}

fn user_tokens(now: Timestamp) -> Vec<Token> {
    let classic = |value, user, scopes, note| {
        personal(value, TokenKind::Classic, user, scopes, Permissions::NotApplicable, note)
    };
    let fine = |value, permissions, note| {
        personal(value, TokenKind::FineGrained, ADA, &[], permissions, note)
    };
    let none = || Permissions::Only(BTreeMap::new());
    let some = || {
        Permissions::Only(BTreeMap::from([
            ("metadata", Level::Read),
            ("contents", Level::Read),
            ("issues", Level::Write),
            ("pull_requests", Level::Read),
        ]))
    };
    vec![
        classic("emu_classic_ada_all_scopes", ADA, ALL_SCOPES, "owner of acme, all scopes"),
        classic("emu_classic_ada_no_scopes", ADA, &[], "owner of acme, no scopes; the same budget"),
        classic("emu_classic_ben_all_scopes", BEN, ALL_SCOPES, "maintainer and member of acme"),
        classic("emu_classic_cleo_all_scopes", CLEO, ALL_SCOPES, "member of acme"),
        classic("emu_classic_build_bot", BUILD_BOT, ALL_SCOPES, "one of three for a pool"),
        classic("emu_classic_scan_bot", SCAN_BOT, ALL_SCOPES, "one of three for a pool"),
        classic("emu_classic_triage_bot", TRIAGE_BOT, ALL_SCOPES, "one of three for a pool"),
        classic(
            "emu_classic_dan_all_scopes",
            DAN,
            ALL_SCOPES,
            "owner of globex, a stranger to acme",
        ),
        Token {
            status: TokenStatus::ValidUntil(now - DAY),
            ..classic("emu_classic_expired", BEN, ALL_SCOPES, "expired yesterday")
        },
        fine(
            "emu_fine_grained_ada_all_permissions",
            Permissions::All,
            "owner of acme, every permission",
        ),
        fine("emu_fine_grained_ada_no_permissions", none(), "owner of acme, no permission"),
        Token {
            oauth_app: Some(OAUTH_APP),
            ..personal(
                "emu_oauth_ada",
                TokenKind::Oauth,
                ADA,
                &["repo", "notifications", "read:org", "admin:org_hook"],
                Permissions::NotApplicable,
                "owner of acme through the OAuth app",
            )
        },
        Token {
            app: Some(APP),
            ..personal(
                "emu_app_user_ben",
                TokenKind::AppUser,
                BEN,
                &[],
                some(),
                "member of acme through the app",
            )
        },
    ]
}

fn app_tokens() -> Vec<Token> {
    let installation = |value: &str, id, organization| Token {
        account: AccountId::Installation(id),
        user: None,
        installed_on: Some(organization),
        app: Some(APP),
        ..personal(
            value,
            TokenKind::Installation,
            MACHINE,
            &[],
            Permissions::All,
            "the app where it is installed",
        )
    };
    let workflow = BTreeMap::from([
        ("metadata", Level::Read),
        ("contents", Level::Write),
        ("issues", Level::Write),
        ("pull_requests", Level::Write),
    ]);
    vec![
        installation("emu_installation_acme", ACME_INSTALLATION, ACME),
        installation("emu_installation_globex", GLOBEX_INSTALLATION, GLOBEX),
        Token {
            account: AccountId::Workflow(WIDGETS),
            user: None,
            workflow_of: Some(WIDGETS),
            ..personal(
                "emu_workflow_widgets",
                TokenKind::Workflow,
                MACHINE,
                &[],
                Permissions::Only(workflow),
                "a workflow run of acme/widgets",
            )
        },
    ]
}
