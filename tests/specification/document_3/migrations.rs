//! User migrations: their endpoints, states and archive.

use serde_json::{Value, json};

use crate::kit::{ANONYMOUS, Answer, TestRequest, Upstream};
use crate::recorder::observe;
use crate::rows::document_3::migrations::USER_MIGRATION;
use crate::shape::{assert_shape, assert_shapes};

pub const MIGRATIONS: &str = "/user/migrations";
pub const MACHINE: &str = "User migration";
const DAY_SECS: u64 = 86_400;
/// Longer than an export takes.
const EXPORT_SECS: u64 = 3_600;

/// Starts a migration of ada's dotfiles.
pub fn start(upstream: &mut Upstream, body: &Value) -> Answer {
    let ada = upstream.classic("ada");
    upstream.post(&ada, MIGRATIONS, body).expect_status(201)
}

pub fn of_dotfiles() -> Value {
    json!({ "repositories": ["ada/dotfiles"] })
}

/// Starts a migration, waits until it is exported, and returns its path.
pub fn exported(upstream: &mut Upstream, body: &Value) -> String {
    let path = format!("{MIGRATIONS}/{}", start(upstream, body).body["id"]);
    let ada = upstream.classic("ada");
    upstream.pass(EXPORT_SECS);
    assert_eq!(upstream.get(&ada, &path).expect_status(200).body["state"], "exported");
    path
}

/// The URL of an archive.
pub fn address(upstream: &mut Upstream, path: &str) -> String {
    let ada = upstream.classic("ada");
    let found = upstream.get(&ada, &format!("{path}/archive")).expect_status(302);
    found.header("location").to_owned()
}

/// Fetches an archive at the URL of its redirect, without a credential.
pub fn fetch(upstream: &mut Upstream, address: &str) -> Answer {
    let path =
        address.splitn(4, '/').nth(3).map(|rest| format!("/{rest}")).expect("an absolute address");
    upstream.send(&TestRequest::new("GET", &path).by(ANONYMOUS))
}

/// The ids of ada's migrations in this state.
fn in_state(upstream: &mut Upstream, state: &str) -> Vec<u64> {
    let ada = upstream.classic("ada");
    let list = upstream.get(&ada, &format!("{MIGRATIONS}?per_page=100")).expect_status(200);
    list.items()
        .iter()
        .filter(|one| one["state"] == state)
        .filter_map(|one| one["id"].as_u64())
        .collect()
}

#[test]
pub fn migrations_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    start(&mut upstream, &of_dotfiles());
    let list = upstream.get(&ada, MIGRATIONS).expect_status(200);
    assert_shapes(&list.body, &USER_MIGRATION);
    assert_eq!(upstream.get(&ada, &format!("{MIGRATIONS}?per_page=1")).items().len(), 1);
    assert_unchanged_is_304(&mut upstream, MIGRATIONS);
    assert_refused(&mut upstream, "GET", MIGRATIONS);
}

/// Asserts that a repeated read with the validator is a 304.
fn assert_unchanged_is_304(upstream: &mut Upstream, path: &str) {
    let ada = upstream.classic("ada");
    let first = upstream.get(&ada, path);
    let tag = first.header("etag").to_owned();
    assert!(!tag.is_empty(), "{path}: {} has no validator", first.status);
    upstream
        .send(&TestRequest::new("GET", path).by(&ada).header("if-none-match", &tag))
        .expect_status(304);
}

fn assert_refused(upstream: &mut Upstream, method: &str, path: &str) {
    upstream.send(&TestRequest::new(method, path).by(ANONYMOUS)).expect_status(401);
    let fine = upstream.token("fine-grained", "ada");
    upstream.send(&TestRequest::new(method, path).by(&fine)).expect_status(403);
}

#[test]
pub fn a_migration_is_started() {
    let mut upstream = Upstream::new();
    let begun = start(&mut upstream, &of_dotfiles());
    assert_shape(&begun.body, &USER_MIGRATION);
    assert_eq!(begun.body["state"], "pending");
    assert_eq!(begun.body["repositories"][0]["full_name"], "ada/dotfiles");
    let ada = upstream.classic("ada");
    upstream.post(&ada, MIGRATIONS, &json!({})).assert_names_field("repositories");
    upstream
        .post(&ada, MIGRATIONS, &json!({ "repositories": "ada/dotfiles" }))
        .assert_names_field("repositories");
    upstream
        .post(&ada, MIGRATIONS, &json!({ "repositories": ["ada/nothing"] }))
        .assert_names_field("repositories");
    assert_refused(&mut upstream, "POST", MIGRATIONS);
}

#[test]
pub fn a_migrations_status_is_read() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = exported(&mut upstream, &of_dotfiles());
    assert_shape(&upstream.get(&ada, &path).expect_status(200).body, &USER_MIGRATION);
    upstream.get(&ada, &format!("{MIGRATIONS}/999999999")).expect_status(404);
    assert_unchanged_is_304(&mut upstream, &path);
    assert_refused(&mut upstream, "GET", &path);
}

#[test]
pub fn an_archive_is_downloaded_once_exported() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = format!("{MIGRATIONS}/{}", start(&mut upstream, &of_dotfiles()).body["id"]);
    let early = upstream.get(&ada, &format!("{path}/archive"));
    assert_ne!(early.status, 302, "it is not exported yet");
    upstream.pass(EXPORT_SECS);
    let address = address(&mut upstream, &path);
    let archive = fetch(&mut upstream, &address).expect_status(200);
    // RFC 1952 §2.3.1.
    assert_eq!(archive.bytes.get(..2), Some([0x1f, 0x8b].as_slice()));
    assert_refused(&mut upstream, "GET", &format!("{path}/archive"));
}

#[test]
pub fn an_archive_is_deleted_and_the_metadata_remains() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = exported(&mut upstream, &of_dotfiles());
    let address = address(&mut upstream, &path);
    upstream.delete(&ada, &format!("{path}/archive")).expect_status(204);
    assert_ne!(upstream.get(&ada, &format!("{path}/archive")).status, 302);
    assert_ne!(fetch(&mut upstream, &address).status, 200);
    upstream.get(&ada, &path).expect_status(200);
    let id = path.rsplit('/').next().and_then(|id| id.parse().ok()).expect("an id");
    assert!(in_state(&mut upstream, "exported").contains(&id), "it is still listed");
}

#[test]
pub fn a_migration_begins_pending_and_is_exported() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let unknown = upstream.get(&ada, &format!("{MIGRATIONS}/999999999")).status;
    observe(MACHINE, if unknown == 404 { "(none)" } else { "unexpected" });
    let begun = start(&mut upstream, &of_dotfiles());
    let path = format!("{MIGRATIONS}/{}", begun.body["id"]);
    let seen = upstream.get(&ada, &path).expect_status(200);
    observe(MACHINE, seen.body["state"].as_str().unwrap_or_default());
}

#[test]
pub fn an_archive_is_deleted_after_7_days_and_the_state_stays() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = exported(&mut upstream, &of_dotfiles());
    upstream.pass(6 * DAY_SECS);
    let there = upstream.get(&ada, &format!("{path}/archive")).status == 302;
    observe(MACHINE, state(&mut upstream, &path, there));
    upstream.pass(7 * DAY_SECS);
    let there = upstream.get(&ada, &format!("{path}/archive")).status == 302;
    observe(MACHINE, state(&mut upstream, &path, there));
}

/// Asserts the existence of the archive and returns the state.
fn state(upstream: &mut Upstream, path: &str, has_archive: bool) -> String {
    let ada = upstream.classic("ada");
    let state = upstream.get(&ada, path).expect_status(200).body["state"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if has_archive { state } else { format!("{state} (archive deleted)") }
}

#[test]
pub fn the_world_has_a_migration_in_each_state() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for state in ["pending", "exporting", "exported", "failed"] {
        let ids = in_state(&mut upstream, state);
        let id = ids.first().unwrap_or_else(|| panic!("none is {state}"));
        assert_shape(
            &upstream.get(&ada, &format!("{MIGRATIONS}/{id}")).expect_status(200).body,
            &USER_MIGRATION,
        );
    }
}
