//! Tokens of the seed world, independent of the seed: every kind, many with one right and without
//! its neighbour.

use std::collections::BTreeSet;
use std::time::Duration;

use super::DAY;
use super::enterprise_cloud::{BLUEPRINTS, granted_to_initech_app};
use super::people::{
    ACME, ACME_INSTALLATION, ADA, APP, BEN, BUILD_BOT, CLEO, DAN, FINN, GLOBEX,
    GLOBEX_INSTALLATION, GWEN, HUGO, INITECH_APP, INITECH_INSTALLATION, INITECH_LABS,
    INITECH_OAUTH_APP, IRIS, IVAN, OAUTH_APP, SCAN_BOT, TRIAGE_BOT, WIDGETS,
};
use crate::api::TokenKind;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Level, Permissions, Token, TokenStatus};
use crate::emulator::world::World;

/// All documented scopes.
const ALL_SCOPES: &[&str] = &[
    "repo",
    "notifications",
    "admin:org",
    "read:org",
    "admin:org_hook",
    "admin:enterprise",
    "read:enterprise",
];
/// Every scope that a token may have: the documented ones, and others that clients ask for.
pub const SCOPES: &[&str] = &[
    "repo",
    "notifications",
    "admin:org",
    "read:org",
    "admin:org_hook",
    "admin:enterprise",
    "read:enterprise",
    "delete_repo",
    "gist",
    "public_repo",
    "read:user",
    "user:email",
    "workflow",
];
const ORGANIZATION_SCOPES: &[&str] = &["admin:org", "admin:enterprise"];
/// The documented lifetime of a workflow token (SPECIFICATION, "Credentials").
const WORKFLOW_STEP: Duration = Duration::from_mins(60);

pub fn add(world: &mut World, now: Timestamp) {
    let groups = [of_acme(now), of_teams(), of_initech(), ended(now), of_properties()];
    for token in groups.into_iter().flatten() {
        world.add_token(token);
    }
}

/// Returns a token without scopes and permissions.
fn token(value: &str, kind: TokenKind, account: AccountId) -> Token {
    Token {
        value: value.to_owned(),
        kind,
        account,
        user: if let AccountId::User(user) = account { Some(user) } else { None },
        scopes: Vec::new(),
        permissions: Permissions::NotApplicable,
        installed_on: None,
        workflow_of: None,
        oauth_app: None,
        app: None,
        repositories: None,
        status: TokenStatus::Valid,
        note: "",
    }
}

fn classic(value: &str, user: u64, scopes: &[&'static str]) -> Token {
    Token { scopes: scopes.to_vec(), ..token(value, TokenKind::Classic, AccountId::User(user)) }
}

/// Returns a user's token of this kind, without scopes and permissions.
pub fn of_user(value: &str, kind: TokenKind, user: u64) -> Token {
    token(value, kind, AccountId::User(user))
}

/// Returns a classic token of all scopes.
pub fn all_scopes(value: &str, user: u64) -> Token {
    classic(value, user, ALL_SCOPES)
}

fn fine_grained(value: &str, user: u64, permissions: Permissions) -> Token {
    Token { permissions, ..token(value, TokenKind::FineGrained, AccountId::User(user)) }
}

fn oauth(value: &str, user: u64, app: u64, scopes: &[&'static str]) -> Token {
    Token { kind: TokenKind::Oauth, oauth_app: Some(app), ..classic(value, user, scopes) }
}

fn by_app(value: &str, user: u64, app: u64, permissions: Permissions) -> Token {
    let token = token(value, TokenKind::AppUser, AccountId::User(user));
    Token { app: Some(app), permissions, ..token }
}

fn installation(value: &str, app: u64, (id, organization): (u64, u64)) -> Token {
    Token {
        installed_on: Some(organization),
        app: Some(app),
        permissions: Permissions::All,
        ..token(value, TokenKind::Installation, AccountId::Installation(id))
    }
}

fn workflow(value: &str, repository: u64, permissions: Permissions) -> Token {
    let token = token(value, TokenKind::Workflow, AccountId::Workflow(repository));
    Token { workflow_of: Some(repository), permissions, ..token }
}

fn only(granted: &[(&'static str, Level)]) -> Permissions {
    Permissions::Only(granted.iter().copied().collect())
}

fn of_acme(now: Timestamp) -> Vec<Token> {
    let by_acme_app = only(&[
        ("metadata", Level::Read),
        ("contents", Level::Read),
        ("issues", Level::Write),
        ("pull_requests", Level::Read),
    ]);
    let in_workflow = only(&[
        ("metadata", Level::Read),
        ("contents", Level::Write),
        ("issues", Level::Write),
        ("pull_requests", Level::Write),
    ]);
    let of_oauth_app = ["repo", "notifications", "read:org", "admin:org_hook"];
    let expired = TokenStatus::ValidUntil(now - DAY);
    vec![
        all_scopes("emu_classic_ada_all_scopes", ADA).noted("owner of acme, all scopes"),
        classic("emu_classic_ada_no_scopes", ADA, &[])
            .noted("owner of acme, no scopes; the same budget"),
        all_scopes("emu_classic_ben_all_scopes", BEN).noted("maintainer and member of acme"),
        all_scopes("emu_classic_cleo_all_scopes", CLEO).noted("member of acme"),
        all_scopes("emu_classic_build_bot", BUILD_BOT).noted("one of three for a pool"),
        all_scopes("emu_classic_scan_bot", SCAN_BOT).noted("one of three for a pool"),
        all_scopes("emu_classic_triage_bot", TRIAGE_BOT).noted("one of three for a pool"),
        all_scopes("emu_classic_dan_all_scopes", DAN).noted("owner of globex, a stranger to acme"),
        Token { status: expired, ..all_scopes("emu_classic_expired", BEN) }
            .noted("expired yesterday"),
        fine_grained("emu_fine_grained_ada_all_permissions", ADA, Permissions::All)
            .noted("owner of acme, every permission"),
        fine_grained("emu_fine_grained_ada_no_permissions", ADA, only(&[]))
            .noted("owner of acme, no permission"),
        oauth("emu_oauth_ada", ADA, OAUTH_APP, &of_oauth_app)
            .noted("owner of acme through the OAuth app"),
        by_app("emu_app_user_ben", BEN, APP, by_acme_app).noted("member of acme through the app"),
        installation("emu_installation_acme", APP, (ACME_INSTALLATION, ACME))
            .noted("the app where it is installed"),
        installation("emu_installation_globex", APP, (GLOBEX_INSTALLATION, GLOBEX))
            .noted("the app where it is installed"),
        workflow("emu_workflow_widgets", WIDGETS, in_workflow)
            .noted("a workflow run of acme/widgets"),
    ]
}

fn of_teams() -> Vec<Token> {
    let members = |level| only(&[("metadata", Level::Read), ("members", level)]);
    vec![
        classic("emu_classic_finn_org_scopes", FINN, ORGANIZATION_SCOPES)
            .noted("a stranger to acme and initech"),
        classic("emu_classic_hugo_org_scopes", HUGO, ORGANIZATION_SCOPES).noted("invited to acme"),
        oauth("emu_oauth_ada_org_scopes", ADA, OAUTH_APP, ORGANIZATION_SCOPES)
            .noted("owner of acme and initech through the OAuth app"),
        fine_grained("emu_fine_grained_gwen", GWEN, Permissions::All)
            .noted("outside collaborator of acme, member of globex"),
        classic("emu_classic_ada_read_only", ADA, &["read:org", "read:enterprise"])
            .noted("owner of acme and initech, reading scopes only"),
        by_app("emu_app_user_ada_members", ADA, APP, members(Level::Write))
            .noted("owner of acme through the app, permission Members"),
        by_app("emu_app_user_ben_members_read", BEN, APP, members(Level::Read))
            .noted("member of acme through the app, permission Members to read"),
        by_app("emu_app_user_hugo_members", HUGO, APP, members(Level::Write))
            .noted("invited to acme, through the app, permission Members"),
    ]
}

fn of_initech() -> Vec<Token> {
    let granted = granted_to_initech_app;
    let installed = (INITECH_INSTALLATION, INITECH_LABS);
    let of_app = installation("emu_installation_initech", INITECH_APP, installed);
    vec![
        all_scopes("emu_classic_iris", IRIS)
            .noted("owner of initech-labs; what the apps do for her is spent from her budget too"),
        all_scopes("emu_classic_ivan", IVAN).noted("member of initech-labs"),
        by_app("emu_app_user_iris", IRIS, INITECH_APP, granted())
            .noted("member of initech-labs through its app: the higher limit"),
        by_app("emu_app_user_dan", DAN, INITECH_APP, granted())
            .noted("a stranger to initech-labs through its app: the usual limit"),
        oauth("emu_oauth_iris", IRIS, INITECH_OAUTH_APP, &["repo", "read:org"])
            .noted("member of initech-labs through its OAuth app: the higher limit"),
        Token { permissions: granted(), ..of_app }
            .noted("the app on initech-labs, two repositories"),
        workflow("emu_workflow_blueprints", BLUEPRINTS, granted())
            .noted("a workflow run of initech-labs/blueprints: the higher limit"),
    ]
}

/// One revoked token, and one that a workflow step made just now.
fn ended(now: Timestamp) -> Vec<Token> {
    let revoked = all_scopes("emu_classic_revoked", BEN).noted("taken back");
    let step = installation("emu_installation_workflow_step", APP, (ACME_INSTALLATION, ACME))
        .noted("made in a workflow step of acme/widgets: expires an hour after the beginning");
    vec![
        Token { status: TokenStatus::Revoked, ..revoked },
        Token {
            repositories: Some(BTreeSet::from([WIDGETS])),
            status: TokenStatus::ValidUntil(now + WORKFLOW_STEP),
            ..step
        },
    ]
}

/// Tokens that permit one operation on properties and not its neighbour.
fn of_properties() -> Vec<Token> {
    let permissions = |level| {
        only(&[
            ("metadata", Level::Read),
            ("organization_custom_properties", level),
            ("issue_fields", level),
        ])
    };
    vec![
        classic("emu_classic_ada_notifications", ADA, &["notifications"])
            .noted("owner of acme, notifications only: no private threads"),
        classic("emu_classic_ada_repo", ADA, &["repo"])
            .noted("owner of acme, repositories and what is in them"),
        classic("emu_classic_ada_read_org", ADA, &["read:org"])
            .noted("owner of acme, reads organisations"),
        fine_grained("emu_fine_grained_ada_reads_properties", ADA, permissions(Level::Read))
            .noted("owner of acme, reads properties and issue fields"),
        by_app("emu_app_user_ada_writes_properties", ADA, APP, permissions(Level::Write))
            .noted("owner of acme, writes values and issue fields"),
    ]
}
