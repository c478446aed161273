//! User migrations: permissions, bodies, archives and locks.

use std::collections::BTreeSet;
use std::io::Read as _;

use serde_json::{Value, json};

use crate::document_3::migrations::{MIGRATIONS, address, exported, fetch, of_dotfiles, start};
use crate::kit::{TestRequest, Upstream};

/// The files of an archive by their paths.
fn unpacked(upstream: &mut Upstream, path: &str) -> Vec<(String, Vec<u8>)> {
    let address = address(upstream, path);
    let bytes = fetch(upstream, &address).expect_status(200).bytes;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_ref()));
    let entries = archive.entries().expect("a tar file").map(|entry| entry.expect("an entry"));
    let read = entries.map(|mut entry| {
        let name = entry.path().expect("a path").to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("its content");
        (name.trim_start_matches("./").to_owned(), content)
    });
    read.collect()
}

/// The resources with JSON files: `issues_000001.json` belongs to `issues`.
fn resources(files: &[(String, Vec<u8>)]) -> BTreeSet<String> {
    let json = files.iter().filter_map(|(name, content)| {
        let stem = name.strip_suffix(".json").filter(|stem| !stem.contains('/'))?;
        serde_json::from_slice::<Value>(content).expect("JSON");
        Some(stem.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_').to_owned())
    });
    json.collect()
}

#[test]
pub fn only_classic_credentials_of_the_owner_are_accepted() {
    let mut upstream = Upstream::new();
    let (uat, iat) = (upstream.token("app-user", "ben"), upstream.installation("acme"));
    let fine = upstream.token("fine-grained", "ada");
    for token in [uat, iat, fine] {
        upstream.get(&token, MIGRATIONS).expect_status(403);
        upstream.post(&token, MIGRATIONS, &of_dotfiles()).expect_status(403);
    }
    let ada = upstream.classic("ada");
    upstream.get(&ada, MIGRATIONS).expect_status(200);
}

#[test]
pub fn a_migration_is_its_owners_alone() {
    let mut upstream = Upstream::new();
    let id = start(&mut upstream, &of_dotfiles()).body["id"].clone();
    let ben = upstream.classic("ben");
    upstream.get(&ben, &format!("{MIGRATIONS}/{id}")).expect_status(404);
}

#[test]
pub fn every_flag_of_the_body_is_a_boolean_and_kept() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for flag in [
        "lock_repositories",
        "exclude_metadata",
        "exclude_git_data",
        "exclude_attachments",
        "exclude_releases",
        "exclude_owner_projects",
        "org_metadata_only",
    ] {
        upstream
            .post(&ada, MIGRATIONS, &json!({ "repositories": ["ada/dotfiles"], flag: "yes" }))
            .assert_names_field(flag);
    }
    let body = json!({ "repositories": ["ada/dotfiles"], "exclude_attachments": true, "exclude_releases": true, "exclude_owner_projects": true });
    let begun = start(&mut upstream, &body).body;
    for flag in ["exclude_attachments", "exclude_releases", "exclude_owner_projects"] {
        assert_eq!(begun[flag], true, "{flag}");
    }
    assert_eq!(
        (&begun["org_metadata_only"], &begun["lock_repositories"]),
        (&json!(false), &json!(false))
    );
}

#[test]
pub fn organization_metadata_alone_needs_no_repositories() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let begun = upstream
        .post(&ada, MIGRATIONS, &json!({ "repositories": [], "org_metadata_only": true }))
        .expect_status(201)
        .body;
    assert_eq!((&begun["org_metadata_only"], &begun["repositories"]), (&json!(true), &json!([])));
    let body = json!({ "repositories": ["ada/dotfiles"], "org_metadata_only": true });
    upstream.post(&ada, MIGRATIONS, &body).assert_names_field("repositories");
}

#[test]
pub fn exclude_names_repositories_and_nothing_else() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream
        .post(
            &ada,
            MIGRATIONS,
            &json!({ "repositories": ["ada/dotfiles"], "exclude": ["repositories"] }),
        )
        .expect_status(201);
    upstream
        .post(&ada, MIGRATIONS, &json!({ "repositories": ["ada/dotfiles"], "exclude": ["issues"] }))
        .assert_names_field("exclude");
    let path = exported(&mut upstream, &of_dotfiles());
    let without =
        upstream.get(&ada, &format!("{path}?exclude=repositories")).expect_status(200).body;
    assert!(without["repositories"].as_array().is_none_or(Vec::is_empty), "{without}");
}

#[test]
pub fn repositories_are_locked_at_the_start_and_unlocked_later() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let change = json!({ "title": "while it is locked" });
    let begun = start(
        &mut upstream,
        &json!({ "repositories": ["ada/dotfiles"], "lock_repositories": true }),
    )
    .body;
    assert_eq!(begun["lock_repositories"], true);
    let refused = upstream.post(&ada, "/repos/ada/dotfiles/issues", &change);
    assert!((400..500).contains(&refused.status), "{} {}", refused.status, refused.body);
    upstream.pass(3_600);
    upstream
        .delete(&ada, &format!("{MIGRATIONS}/{}/repos/dotfiles/lock", begun["id"]))
        .expect_status(204);
    upstream.post(&ada, "/repos/ada/dotfiles/issues", &change).expect_status(201);
}

#[test]
pub fn the_archive_has_json_files_of_the_resources_that_exist() {
    let mut upstream = Upstream::new();
    let path = exported(&mut upstream, &json!({ "repositories": ["acme/widgets"] }));
    let files = unpacked(&mut upstream, &path);
    let found = resources(&files);
    for resource in [
        "issues",
        "issue_comments",
        "milestones",
        "pull_requests",
        "releases",
        "repositories",
        "schema",
        "users",
    ] {
        assert!(found.contains(resource), "{resource} is not in {found:?}");
    }
    let known = [
        "attachments",
        "bases",
        "commit_comments",
        "issue_comments",
        "issue_events",
        "issues",
        "milestones",
        "organizations",
        "projects",
        "protected_branches",
        "pull_request_reviews",
        "pull_requests",
        "releases",
        "repositories",
        "review_comments",
        "schema",
        "users",
    ];
    assert!(found.iter().all(|resource| known.contains(&resource.as_str())), "{found:?}");
    let issues: usize = files
        .iter()
        .filter(|(file, _)| {
            file.strip_suffix(".json").is_some_and(|stem| stem.starts_with("issues_"))
        })
        .map(|(_, content)| {
            serde_json::from_slice::<Value>(content).expect("JSON").as_array().map_or(0, Vec::len)
        })
        .sum();
    assert!(issues > 30, "every issue, not a page of them: {issues}");
}

#[test]
pub fn the_archive_has_git_data_unless_it_is_excluded() {
    let mut upstream = Upstream::new();
    let path = exported(&mut upstream, &of_dotfiles());
    let files = unpacked(&mut upstream, &path);
    assert!(files.iter().any(|(name, _)| name.starts_with("repositories/")), "Git data");
    let path = exported(
        &mut upstream,
        &json!({ "repositories": ["ada/dotfiles"], "exclude_git_data": true }),
    );
    let files = unpacked(&mut upstream, &path);
    assert!(
        !files
            .iter()
            .any(|(name, content)| name.starts_with("repositories/") && !content.is_empty())
    );
}

#[test]
pub fn an_export_without_metadata_has_only_git_data() {
    let mut upstream = Upstream::new();
    let path = exported(
        &mut upstream,
        &json!({ "repositories": ["ada/dotfiles"], "exclude_metadata": true }),
    );
    let files = unpacked(&mut upstream, &path);
    assert!(!resources(&files).contains("issues"), "{:?}", resources(&files));
    assert!(files.iter().any(|(name, _)| name.starts_with("repositories/")));
}

#[test]
pub fn excluded_releases_are_not_in_the_archive() {
    let mut upstream = Upstream::new();
    let path = exported(
        &mut upstream,
        &json!({ "repositories": ["acme/widgets"], "exclude_releases": true }),
    );
    let files = unpacked(&mut upstream, &path);
    assert!(!resources(&files).contains("releases"));
}

#[test]
pub fn a_migration_id_is_an_integer() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream
        .send(&TestRequest::new("GET", &format!("{MIGRATIONS}/first")).by(&ada))
        .expect_status(404);
}
