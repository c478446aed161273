//! Tests user migrations: access, requests and responses, states, locks (SPECIFICATION, "User
//! migrations").

use http::Method;
use serde_json::{Value, json};

use crate::emulator::routing::Need;
use crate::emulator::tests::*;

const PATH: &str = "/user/migrations";
/// Every documented field of a migration.
const FIELDS: [&str; 13] = [
    "id",
    "node_id",
    "owner",
    "guid",
    "state",
    "lock_repositories",
    "exclude_attachments",
    "exclude_releases",
    "exclude_owner_projects",
    "org_metadata_only",
    "repositories",
    "url",
    "created_at",
];

fn start(upstream: &mut Upstream, body: &Value) -> String {
    let started = upstream.post(ADA, PATH, body).assert_status(201);
    format!("{PATH}/{}", started.body["id"])
}

fn of_widgets() -> Value {
    json!({ "repositories": ["acme/widgets"] })
}

fn state(upstream: &mut Upstream, path: &str) -> String {
    upstream.get(ADA, path).assert_status(200).body["state"].as_str().unwrap_or("").to_owned()
}

#[test]
fn a_new_migration_is_pending_and_has_every_field() {
    let mut upstream = Upstream::new();
    let body =
        json!({ "repositories": ["acme/widgets", "ada/diary"], "exclude_attachments": true });
    let started = upstream.post(ADA, PATH, &body).assert_status(201);
    for field in FIELDS.iter().chain(["updated_at"].iter()) {
        assert!(started.body.get(*field).is_some(), "{field} in {}", started.body);
    }
    assert_eq!(
        (&started.body["state"], &started.body["owner"]["login"]),
        (&json!("pending"), &json!("ada"))
    );
    assert_eq!(
        (&started.body["exclude_attachments"], &started.body["exclude_releases"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        (&started.body["lock_repositories"], &started.body["org_metadata_only"]),
        (&json!(false), &json!(false))
    );
    let names: Vec<_> = started.body["repositories"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["full_name"])
        .collect();
    assert_eq!(names, ["acme/widgets", "ada/diary"]);
    assert!(
        started.body["repositories"][0]["archive_url"].is_string(),
        "they are whole repository objects"
    );
    assert_eq!(started.header("location"), started.body["url"]);
    let path = format!("{PATH}/{}", started.body["id"]);
    assert_eq!(upstream.get(ADA, &path).assert_status(200).body, started.body);
    assert_eq!(upstream.get(ADA, PATH).items()[0], started.body, "the newest is the first");
}

#[test]
fn a_classic_credential_is_needed_and_others_are_rejected() {
    let mut upstream = Upstream::new();
    let rejected = ["emu_app_user_ben", INSTALLATION, ADA_FINE, ADA_NO_PERMISSIONS, WORKFLOW];
    let paths = [
        (Method::GET, ""),
        (Method::POST, ""),
        (Method::GET, "/703"),
        (Method::GET, "/703/archive"),
        (Method::DELETE, "/703/archive"),
        (Method::GET, "/703/repositories"),
        (Method::DELETE, "/703/repos/diary/lock"),
    ];
    for (method, rest) in paths {
        let path = format!("{PATH}{rest}");
        for token in rejected {
            upstream
                .send(&request(method.clone(), token, &path, &[], &of_widgets()))
                .assert_status(403);
        }
        upstream
            .send(&request(method.clone(), NOBODY, &path, &[], &of_widgets()))
            .assert_status(401);
        upstream.send(&request(method, "wrong", &path, &[], &of_widgets())).assert_status(401);
    }
    for token in [ADA, ADA_NO_SCOPES, OAUTH] {
        upstream.post(token, PATH, &of_widgets()).assert_status(201);
        upstream.get(token, PATH).assert_status(200);
    }
    assert_eq!(
        Need::ClassicCredential.accepted_permissions(),
        "",
        "no permission opens these routes"
    );
}

#[test]
fn a_migration_belongs_to_the_account_that_started_it() {
    let mut upstream = Upstream::new();
    let path = start(&mut upstream, &of_widgets());
    for rest in ["", "/archive", "/repositories"] {
        upstream.get(BEN, &format!("{path}{rest}")).assert_status(404);
    }
    upstream.delete(BEN, &format!("{path}/archive")).assert_status(404);
    upstream.delete(BEN, &format!("{path}/repos/widgets/lock")).assert_status(404);
    assert!(upstream.get(BEN, PATH).items().is_empty());
    for id in ["0", "999999", "x", "-1", "18446744073709551616", "%F0%9F%A6%80"] {
        upstream.get(ADA, &format!("{PATH}/{id}")).assert_status(404);
    }
}

#[test]
fn a_token_without_the_scope_sees_no_private_repositories() {
    let mut upstream = Upstream::new();
    upstream
        .post(ADA_NO_SCOPES, PATH, &json!({ "repositories": ["ada/diary"] }))
        .assert_names_field("repositories");
    let path = start(&mut upstream, &json!({ "repositories": ["ada/diary", "ada/dotfiles"] }));
    let names =
        |answer: Answer| answer.items().iter().map(|one| one["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(upstream.get(ADA_NO_SCOPES, &format!("{path}/repositories"))), ["dotfiles"]);
    assert_eq!(names(upstream.get(ADA, &format!("{path}/repositories"))), ["diary", "dotfiles"]);
    assert_eq!(
        upstream.get(ADA_NO_SCOPES, &path).body["repositories"].as_array().map(Vec::len),
        Some(1)
    );
    upstream.pass(10);
    upstream.get(ADA_NO_SCOPES, &format!("{path}/archive")).assert_status(403);
    upstream.get(ADA, &format!("{path}/archive")).assert_status(302);
}

#[test]
fn every_wrong_field_of_a_migration_is_named() {
    let mut upstream = Upstream::new();
    let wrong = json!({
        "repositories": "acme/widgets", "lock_repositories": "yes", "exclude_metadata": 1, "exclude_git_data": null, "exclude_attachments": [],
        "exclude_releases": {}, "exclude_owner_projects": "", "org_metadata_only": "false", "exclude": ["releases"],
    });
    let answer = upstream.post(ADA, PATH, &wrong).assert_status(422);
    let named: Vec<&str> = answer.body["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .filter_map(|error| error["field"].as_str())
        .collect();
    for field in wrong.as_object().expect("an object").keys() {
        assert!(named.contains(&field.as_str()), "{field} in {named:?}");
    }
    for repositories in [
        json!(null),
        json!([]),
        json!([1]),
        json!([["acme/widgets"]]),
        json!(["acme"]),
        json!(["acme/"]),
        json!(["/widgets"]),
        json!(["acme/widgets/x"]),
        json!(["acme/none"]),
        json!(["acme/widgets", "globex/portal"]),
        json!(["acme/🦀"]),
        json!(["x".repeat(100_000)]),
        json!(vec!["acme/widgets"; 1_001]),
    ] {
        let answer = upstream.post(ADA, PATH, &json!({ "repositories": repositories }));
        assert!(answer.bytes.len() < 10_000, "a refusal is not a mirror");
        answer.assert_names_field("repositories");
    }
    upstream.post(ADA, PATH, &json!({})).assert_names_field("repositories");
    upstream.post(ADA, PATH, &Value::Null).assert_names_field("repositories");
    for exclude in [json!("repositories"), json!([1]), json!(["repositories", "x"]), json!({})] {
        upstream
            .post(ADA, PATH, &json!({ "repositories": ["acme/widgets"], "exclude": exclude }))
            .assert_names_field("exclude");
    }
    assert_eq!(upstream.get(ADA, PATH).items().len(), 5, "nothing was made of them");
}

#[test]
fn a_malformed_body_is_400() {
    let mut upstream = Upstream::new();
    for body in ["{", "[]", "null", "\"x\"", "{\"repositories\": [}"] {
        let request = http::Request::post(PATH)
            .header("authorization", format!("Bearer {ADA}"))
            .body(Bytes::from(body))
            .expect("well formed");
        upstream.send(&request).assert_status(400);
    }
}

#[test]
fn a_repository_named_twice_is_migrated_once() {
    let mut upstream = Upstream::new();
    let body =
        json!({ "repositories": ["acme/widgets", "Acme/WIDGETS", "acme/cogs", "acme/sprockets"] });
    let started = upstream.post(ADA, PATH, &body).assert_status(201);
    let names: Vec<_> = started.body["repositories"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["widgets", "sprockets"]);
}

#[test]
fn org_metadata_only_needs_an_empty_list_and_ignores_flags() {
    let mut upstream = Upstream::new();
    upstream
        .post(ADA, PATH, &json!({ "org_metadata_only": true, "repositories": ["acme/widgets"] }))
        .assert_names_field("repositories");
    upstream
        .post(ADA, PATH, &json!({ "org_metadata_only": true }))
        .assert_names_field("repositories");
    let body = json!({ "org_metadata_only": true, "repositories": [], "lock_repositories": true, "exclude_releases": true });
    let started = upstream.post(ADA, PATH, &body).assert_status(201);
    assert_eq!(
        (&started.body["org_metadata_only"], &started.body["repositories"]),
        (&json!(true), &json!([]))
    );
    assert_eq!(
        (&started.body["lock_repositories"], &started.body["exclude_releases"]),
        (&json!(false), &json!(false))
    );
}

#[test]
fn the_exclude_parameter_omits_repositories_from_the_answer() {
    let mut upstream = Upstream::new();
    let started = upstream
        .post(ADA, PATH, &json!({ "repositories": ["acme/widgets"], "exclude": ["repositories"] }))
        .assert_status(201);
    assert!(started.body.get("repositories").is_none());
    let path = format!("{PATH}/{}", started.body["id"]);
    assert!(
        upstream.get(ADA, &path).body["repositories"].is_array(),
        "each request has its own `exclude`"
    );
    for query in [
        "exclude=repositories",
        "exclude[]=repositories",
        "exclude%5B%5D=repositories",
        "exclude=x&exclude=repositories",
        "exclude=x,repositories",
    ] {
        assert!(
            upstream
                .get(ADA, &format!("{path}?{query}"))
                .assert_status(200)
                .body
                .get("repositories")
                .is_none(),
            "{query}"
        );
    }
    assert!(
        upstream.get(ADA, &format!("{path}?exclude=x")).assert_status(200).body["repositories"]
            .is_array()
    );
}

#[test]
fn time_moves_a_migration_from_pending_to_exporting_to_exported() {
    let mut upstream = Upstream::new();
    upstream.set_limit("migrations.pending", 60);
    upstream.set_limit("migrations.exporting", 600);
    let path = start(&mut upstream, &of_widgets());
    upstream.pass(59);
    assert_eq!(state(&mut upstream, &path), "pending");
    upstream.get(ADA, &format!("{path}/archive")).assert_status(403);
    upstream.pass(1);
    assert_eq!(state(&mut upstream, &path), "exporting");
    upstream.get(ADA, &format!("{path}/archive")).assert_status(403);
    upstream.pass(600);
    let exported = upstream.get(ADA, &path);
    assert_eq!(exported.body["state"], "exported");
    assert_eq!(exported.body["updated_at"], crate::emulator::http::timestamps::iso(upstream.now));
    upstream.get(ADA, &format!("{path}/archive")).assert_status(302);
}

#[test]
fn a_migration_of_a_deleted_repository_fails() {
    let mut upstream = Upstream::new();
    let path = start(&mut upstream, &of_widgets());
    upstream.pass(2);
    assert_eq!(state(&mut upstream, &path), "exporting");
    upstream.emulator.state.world.repositories.remove(&1_001);
    upstream.pass(5);
    assert_eq!(state(&mut upstream, &path), "failed");
    upstream.get(ADA, &format!("{path}/archive")).assert_status(403);
    assert_eq!(upstream.get(ADA, &path).body["repositories"], json!([]));
}

#[test]
fn a_migration_that_would_be_too_large_fails() {
    let mut upstream = Upstream::new();
    upstream.set_limit("migrations.archive-bytes", 10_000);
    let path = start(&mut upstream, &of_widgets());
    upstream.pass(10);
    assert_eq!(state(&mut upstream, &path), "failed");
}

#[test]
fn a_request_waits_for_a_bounded_number_of_exports() {
    let mut upstream = Upstream::new();
    let paths: Vec<String> = (0..30).map(|_| start(&mut upstream, &of_widgets())).collect();
    upstream.pass(2);
    upstream.get(ADA, "/user");
    upstream.pass(100);
    for exported in [11, 22, 30, 30] {
        let listed = upstream.get(ADA, &format!("{PATH}?per_page=100"));
        let done = listed.items().iter().take(30).filter(|one| one["state"] == "exported").count();
        assert_eq!(done, exported);
    }
    let times: Vec<Value> =
        paths.iter().map(|path| upstream.get(ADA, path).body["updated_at"].clone()).collect();
    assert!(times.iter().all(|time| *time == times[0]), "each when it was due");
}

#[test]
fn an_archive_is_deleted_after_7_days_and_its_migration_stays() {
    let mut upstream = Upstream::new();
    let path = start(&mut upstream, &of_widgets());
    upstream.pass(7 + 7 * 24 * 3_600 - 1);
    upstream.get(ADA, &format!("{path}/archive")).assert_status(302);
    upstream.pass(1);
    upstream.get(ADA, &format!("{path}/archive")).assert_status(404);
    assert_eq!(state(&mut upstream, &path), "exported");
    assert!(
        upstream.get(ADA, PATH).items().iter().any(|one| path.ends_with(&one["id"].to_string()))
    );
}

#[test]
fn an_archive_can_be_deleted_once_and_its_migration_stays() {
    let mut upstream = Upstream::new();
    let path = start(&mut upstream, &of_widgets());
    upstream.delete(ADA, &format!("{path}/archive")).assert_status(404);
    upstream.pass(10);
    let address = upstream.get(ADA, &format!("{path}/archive")).header("location").to_owned();
    upstream.delete(ADA, &format!("{path}/archive")).assert_status(204);
    upstream.delete(ADA, &format!("{path}/archive")).assert_status(404);
    upstream.get(ADA, &format!("{path}/archive")).assert_status(404);
    upstream
        .get(NOBODY, address.strip_prefix("http://upstream.test").expect("our address"))
        .assert_status(404);
    assert_eq!(state(&mut upstream, &path), "exported");
}

#[test]
fn lock_repositories_locks_at_once_and_only_writes_are_refused() {
    let mut upstream = Upstream::new();
    let issue = json!({ "title": "x" });
    let path = start(
        &mut upstream,
        &json!({ "repositories": ["acme/widgets", "ada/diary"], "lock_repositories": true }),
    );
    for token in [ADA, BEN, INSTALLATION] {
        let refused = upstream.post(token, "/repos/acme/widgets/issues", &issue).assert_status(403);
        assert_eq!(refused.body["message"], "Repository has been locked for migration.");
    }
    upstream.patch(ADA, "/repos/acme/widgets/issues/1", &issue).assert_status(403);
    upstream.patch(ADA, "/repos/acme/widgets", &json!({ "name": "other" })).assert_status(403);
    upstream.get(ADA, "/repos/acme/widgets/issues/1").assert_status(200);
    upstream.post(ADA, "/repos/acme/gadgets/issues", &issue).assert_status(201);
    upstream.delete(ADA, &format!("{path}/repos/widgets/lock")).assert_status(403);
    upstream.pass(10);
    upstream.post(ADA, "/repos/acme/widgets/issues", &issue).assert_status(403);
    upstream.delete(ADA, &format!("{path}/repos/Widgets/lock")).assert_status(204);
    upstream.delete(ADA, &format!("{path}/repos/widgets/lock")).assert_status(404);
    upstream.delete(ADA, &format!("{path}/repos/none/lock")).assert_status(404);
    upstream.post(ADA, "/repos/acme/widgets/issues", &issue).assert_status(201);
    upstream.post(ADA, "/repos/ada/diary/issues", &issue).assert_status(403);
}

#[test]
fn a_repository_stays_locked_until_both_migrations_unlock_it() {
    let mut upstream = Upstream::new();
    let body = json!({ "repositories": ["acme/widgets"], "lock_repositories": true });
    let (one, two) = (start(&mut upstream, &body), start(&mut upstream, &body));
    upstream.pass(10);
    upstream.delete(ADA, &format!("{one}/repos/widgets/lock")).assert_status(204);
    upstream.post(ADA, "/repos/acme/widgets/issues", &json!({ "title": "x" })).assert_status(403);
    upstream.delete(ADA, &format!("{two}/repos/widgets/lock")).assert_status(204);
    upstream.post(ADA, "/repos/acme/widgets/issues", &json!({ "title": "x" })).assert_status(201);
}

#[test]
fn only_an_administrator_locks_a_repository() {
    let mut upstream = Upstream::new();
    upstream
        .post(BEN, PATH, &json!({ "repositories": ["acme/widgets"], "lock_repositories": true }))
        .assert_names_field("repositories");
    upstream.post(BEN, PATH, &of_widgets()).assert_status(201);
}

#[test]
fn a_migration_and_the_list_are_not_modified_until_they_change() {
    let mut upstream = Upstream::new();
    upstream.set_limit("migrations.pending", 100);
    let path = start(&mut upstream, &of_widgets());
    upstream.pass(1);
    for path in
        [PATH, &path, &format!("{path}/repositories"), &format!("{path}?exclude=repositories")]
    {
        let etag = upstream.get(ADA, path).header("etag").to_owned();
        upstream.get_with(ADA, path, &[("if-none-match", &etag)]).assert_status(304);
    }
    let date = upstream.get(ADA, &path).header("last-modified").to_owned();
    upstream.get_with(ADA, &path, &[("if-modified-since", &date)]).assert_status(304);
    upstream.patch(ADA, "/repos/acme/widgets", &json!({ "description": "new" })).assert_status(200);
    let later = upstream.get_with(ADA, &path, &[("if-modified-since", &date)]).assert_status(200);
    assert_eq!(
        later.body["repositories"][0]["description"], "new",
        "its repositories are part of it"
    );
    upstream.pass(1);
    let date = upstream.get(ADA, &path).header("last-modified").to_owned();
    upstream.pass(100);
    assert_eq!(
        upstream.get_with(ADA, &path, &[("if-modified-since", &date)]).body["state"],
        "exporting"
    );
}

#[test]
fn migrations_are_listed_in_pages() {
    let mut upstream = Upstream::new();
    for _ in 0..30 {
        start(&mut upstream, &of_widgets());
    }
    let first = upstream.get(ADA, PATH);
    assert_eq!(first.items().len(), 30);
    assert_eq!(first.link("next").as_deref(), Some("http://upstream.test/user/migrations?page=2"));
    assert_eq!(upstream.get(ADA, &format!("{PATH}?page=2")).items().len(), 5);
    assert_eq!(upstream.get(ADA, &format!("{PATH}?per_page=100")).items().len(), 35);
    assert!(upstream.get(ADA, &format!("{PATH}?page=99")).items().is_empty());
}

#[test]
fn an_account_has_a_maximum_number_of_migrations() {
    let mut upstream = Upstream::new();
    for name in ["core", "points.rest"] {
        upstream.set_limit(name, 1_000_000);
    }
    let body =
        json!({ "org_metadata_only": true, "repositories": [], "exclude": ["repositories"] });
    for _ in 5..1_000 {
        start(&mut upstream, &body);
    }
    upstream.post(ADA, PATH, &body).assert_names_field("base");
    upstream.post(BEN, PATH, &body).assert_status(201);
}

#[test]
fn the_seed_has_a_migration_in_each_state_at_any_time() {
    let mut upstream = Upstream::new();
    for _ in 0..2 {
        let world = upstream.get(NOBODY, "/_emulator/world").body["migrations"].clone();
        let states: Vec<&str> = world
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["state"].as_str())
            .collect();
        assert_eq!(states, ["pending", "exporting", "exported", "failed", "exported"]);
        assert_eq!(world[4]["archive_bytes"], Value::Null, "exported more than 7 days ago");
        upstream.get(ADA, &format!("{PATH}/705/archive")).assert_status(404);
        upstream.pass(24 * 3_600);
    }
    upstream.get(ADA, &format!("{PATH}/703/archive")).assert_status(302);
    upstream.pass(7 * 24 * 3_600);
    upstream.get(ADA, &format!("{PATH}/703/archive")).assert_status(404);
}

#[test]
fn the_control_plane_sets_the_state_of_a_migration() {
    let mut upstream = Upstream::new();
    let path = start(&mut upstream, &of_widgets());
    let control = format!("/_emulator/migrations/{}", path.rsplit('/').next().unwrap_or(""));
    for name in ["failed", "exporting", "pending"] {
        upstream.post(NOBODY, &control, &json!({ "state": name })).assert_status(204);
        upstream.pass(1_000);
        assert_eq!(state(&mut upstream, &path), name);
    }
    upstream.post(NOBODY, &control, &json!({ "state": "exported" })).assert_status(204);
    upstream.get(ADA, &format!("{path}/archive")).assert_status(302);
    upstream.pass(7 * 24 * 3_600);
    upstream.get(ADA, &format!("{path}/archive")).assert_status(404);
    upstream.post(NOBODY, &control, &json!({ "state": "done" })).assert_status(422);
    upstream
        .post(NOBODY, "/_emulator/migrations/x", &json!({ "state": "failed" }))
        .assert_status(404);
}
