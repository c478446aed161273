//! Tests the download of a migration's archive and its content (SPECIFICATION, "User migrations").

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::{GzDecoder, ZlibDecoder};
use serde_json::{Value, json};
use tar::Archive;

use crate::emulator::tests::*;

/// Path and content of every file of an archive; directories have no content and end in a slash.
pub type Files = BTreeMap<String, Vec<u8>>;

fn address(upstream: &mut Upstream, body: &Value) -> String {
    let started = upstream.post(ADA, "/user/migrations", body).assert_status(201);
    upstream.pass(10);
    let redirect = upstream
        .get(ADA, &format!("/user/migrations/{}/archive", started.body["id"]))
        .assert_status(302);
    redirect
        .header("location")
        .strip_prefix("http://upstream.test")
        .expect("our own address")
        .to_owned()
}

fn unpack(archive: &[u8]) -> Files {
    let mut archive = Archive::new(GzDecoder::new(archive));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry: tar::Entry<'_, GzDecoder<&[u8]>> = entry.expect("an entry");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("its content");
        (entry.path().expect("a path").to_string_lossy().into_owned(), content)
    };
    archive.entries().expect("a tar").map(read).collect()
}

pub fn archive_of(upstream: &mut Upstream, body: &Value) -> Files {
    let address = address(upstream, body);
    unpack(&upstream.get(NOBODY, &address).assert_status(200).bytes)
}

pub fn records(files: &Files, name: &str) -> Vec<Value> {
    serde_json::from_slice(
        files.get(name).unwrap_or_else(|| panic!("{name} in {:?}", files.keys())),
    )
    .expect("records")
}

pub fn object(files: &Files, repository: &str, id: &str) -> (String, Vec<u8>) {
    let packed =
        &files[&format!("repositories/{repository}.git/objects/{}/{}", &id[..2], &id[2..])];
    let mut raw = Vec::new();
    ZlibDecoder::new(packed.as_slice()).read_to_end(&mut raw).expect("zlib");
    let end = raw.iter().position(|byte| *byte == 0).expect("a header");
    let header = String::from_utf8(raw[..end].to_vec()).expect("text");
    let (kind, length) = header.split_once(' ').expect("kind and length");
    assert_eq!(length, (raw.len() - end - 1).to_string());
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &raw);
    assert_eq!(
        crate::emulator::http::validators::hex(digest.as_ref()),
        id,
        "an object's name is the SHA-1 of its content"
    );
    (kind.to_owned(), raw[end + 1..].to_vec())
}

#[test]
fn an_archive_download_needs_no_credential() {
    let mut upstream = Upstream::new();
    let address = address(&mut upstream, &json!({ "repositories": ["ada/dotfiles"] }));
    assert!(address.starts_with("/_archives/"));
    let archive = upstream.get(NOBODY, &address).assert_status(200);
    assert_eq!(archive.header("content-type"), "application/gzip");
    assert!(archive.header("content-disposition").ends_with(".tar.gz\""));
    assert!(archive.bytes.starts_with(&[0x1f, 0x8b]), "it is gzip");
    upstream.get(ADA, &address).assert_status(200);
    assert_eq!(archive.remaining(), 60, "it costs nothing");
    let again = upstream
        .get_with(NOBODY, &address, &[("if-none-match", archive.header("etag"))])
        .assert_status(304);
    assert!(again.bytes.is_empty());
    let head = upstream
        .send(&request(Method::HEAD, NOBODY, &address, &[], &Value::Null))
        .assert_status(200);
    assert_eq!(head.header("content-length"), archive.bytes.len().to_string());
}

#[test]
fn a_download_address_is_signed_and_expires() {
    let mut upstream = Upstream::new();
    let address = address(&mut upstream, &json!({ "repositories": ["ada/dotfiles"] }));
    let (path, query) = address.split_once('?').expect("a query");
    for wrong in [
        path.to_owned(),
        format!("{path}?expires=99999999999&{}", query.split('&').next_back().unwrap_or("")),
        format!("{address}0"),
    ] {
        upstream.get(NOBODY, &wrong).assert_status(403);
    }
    upstream.get(NOBODY, &format!("{path}?expires=x&signature=y")).assert_status(403);
    upstream.get(NOBODY, &format!("/_archives/other.tar.gz?{query}")).assert_status(403);
    upstream.get(NOBODY, "/_archives/other.zip").assert_status(404);
    upstream.pass(299);
    upstream.get(NOBODY, &address).assert_status(200);
    upstream.pass(1);
    upstream.get(NOBODY, &address).assert_status(403);
}

#[test]
fn a_self_hosted_caller_downloads_under_its_own_base_path() {
    let mut upstream = Upstream::new();
    let redirect = upstream.get(ADA, "/api/v3/user/migrations/703/archive").assert_status(302);
    let address = redirect
        .header("location")
        .strip_prefix("http://upstream.test")
        .expect("our address")
        .to_owned();
    assert!(address.starts_with("/api/v3/_archives/"));
    upstream.get(NOBODY, &address).assert_status(200);
}

#[test]
fn an_archive_redirect_is_304_for_a_current_validator() {
    let mut upstream = Upstream::new();
    let path = "/user/migrations/703/archive";
    let redirect = upstream.get(ADA, path).assert_status(302);
    let remaining = redirect.remaining();
    let unchanged = upstream
        .get_with(ADA, path, &[("if-none-match", redirect.header("etag"))])
        .assert_status(304);
    assert_eq!(unchanged.remaining(), remaining);
    upstream
        .get_with(ADA, path, &[("if-modified-since", redirect.header("last-modified"))])
        .assert_status(304);
    upstream
        .get_with(
            ADA,
            path,
            &[("if-none-match", "\"x\""), ("if-modified-since", redirect.header("last-modified"))],
        )
        .assert_status(302);
    upstream
        .get_with(ADA, path, &[("if-modified-since", "Tue, 19 Jul 2022 04:37:49 GMT")])
        .assert_status(302);
}

#[test]
fn an_archive_has_a_json_file_for_each_kind_of_record() {
    let mut upstream = Upstream::new();
    let files = archive_of(&mut upstream, &json!({ "repositories": ["acme/widgets"] }));
    assert_eq!(
        serde_json::from_slice::<Value>(&files["schema.json"]).expect("JSON")["version"],
        "1.2.0"
    );
    for name in [
        "issue_comments",
        "issues",
        "milestones",
        "organizations",
        "pull_requests",
        "releases",
        "repositories",
        "users",
    ] {
        let records = records(&files, &format!("{name}_000001.json"));
        assert!(
            !records.is_empty()
                && records
                    .iter()
                    .all(|record| record["type"].is_string() && record["url"].is_string()),
            "{name}"
        );
    }
    let issues = records(&files, "issues_000001.json");
    assert_eq!(issues.len(), 75);
    assert_eq!(issues[0]["url"], "https://git.example.com/acme/widgets/issues/1");
    assert_eq!(issues[0]["milestone"], records(&files, "milestones_000001.json")[0]["url"]);
    let comments = records(&files, "issue_comments_000001.json");
    assert_eq!((comments.len(), &comments[0]["issue"]), (45, &issues[0]["url"]));
    let users: Vec<Value> =
        records(&files, "users_000001.json").iter().map(|user| user["url"].clone()).collect();
    assert!(
        issues.iter().chain(&comments).all(|record| users.contains(&record["user"])),
        "everyone named is there"
    );
    assert!(files.contains_key("attachments/") && files.contains_key("repositories/"));
}

#[test]
fn a_record_file_has_at_most_100_records() {
    let mut upstream = Upstream::new();
    upstream.set_limit("content.minute", 1_000);
    for number in 0..30 {
        upstream
            .post(
                ADA,
                "/repos/acme/widgets/issues",
                &json!({ "title": format!("Number {number}") }),
            )
            .assert_status(201);
    }
    let files = archive_of(&mut upstream, &json!({ "repositories": ["acme/widgets"] }));
    assert_eq!(
        (records(&files, "issues_000001.json").len(), records(&files, "issues_000002.json").len()),
        (100, 5)
    );
}

#[test]
fn git_data_is_a_bare_repository_with_real_objects() {
    let mut upstream = Upstream::new();
    let files = archive_of(&mut upstream, &json!({ "repositories": ["acme/widgets"] }));
    let path = |name: &str| format!("repositories/acme/widgets.git/{name}");
    assert_eq!(files[&path("HEAD")], b"ref: refs/heads/main\n");
    for directory in ["objects/", "refs/heads/", "refs/tags/"] {
        assert!(files.contains_key(&path(directory)), "{directory}");
    }
    let packed = String::from_utf8(files[&path("packed-refs")].clone()).expect("text");
    let refs: BTreeMap<&str, &str> = packed
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(' '))
        .map(|(id, name)| (name, id))
        .collect();
    assert!(refs.keys().is_sorted() && refs.contains_key("refs/tags/v1.0.0"));
    let (kind, commit) = object(&files, "acme/widgets", refs["refs/heads/main"]);
    let commit = String::from_utf8(commit).expect("text");
    assert_eq!(kind, "commit");
    let (kind, tree) = object(
        &files,
        "acme/widgets",
        commit.lines().next().and_then(|line| line.strip_prefix("tree ")).expect("a tree"),
    );
    assert_eq!((kind.as_str(), tree.starts_with(b"100644 README.md\0")), ("tree", true));
    let (kind, readme) = object(
        &files,
        "acme/widgets",
        &crate::emulator::http::validators::hex(&tree[tree.len() - 20..]),
    );
    assert_eq!((kind.as_str(), readme.starts_with(b"# widgets")), ("blob", true));
    let sha = upstream.get(ADA, "/repos/acme/widgets/contents/README.md").body["sha"].clone();
    assert_eq!(
        sha,
        crate::emulator::http::validators::hex(&tree[tree.len() - 20..]),
        "the API names the file as git does"
    );

    let pull = &records(&files, "pull_requests_000001.json")[0];
    assert_eq!(pull["base"]["sha"], refs["refs/heads/main"]);
    let head =
        refs[format!("refs/heads/{}", pull["head"]["ref"].as_str().expect("a branch")).as_str()];
    assert_eq!(pull["head"]["sha"], head);
    let parent = format!("parent {}\n", refs["refs/heads/main"]);
    assert!(
        String::from_utf8(object(&files, "acme/widgets", head).1).expect("text").contains(&parent)
    );
}

#[test]
fn each_exclude_flag_omits_its_part() {
    let mut upstream = Upstream::new();
    let mut with = |flag: &str| {
        archive_of(&mut upstream, &json!({ "repositories": ["acme/widgets"], flag: true }))
    };
    let has = |files: &Files, start: &str| files.keys().any(|name| name.starts_with(start));
    let all = with("exclude_owner_projects");
    assert!(
        !has(&all, "projects")
            && has(&all, "releases_")
            && has(&all, "attachments/")
            && has(&all, "repositories/")
    );
    let only_git = with("exclude_metadata");
    assert!(
        only_git.keys().all(|name| name.starts_with("repositories/"))
            && has(&only_git, "repositories/acme/widgets.git/objects/")
    );
    let no_git = with("exclude_git_data");
    assert!(!has(&no_git, "repositories/") && has(&no_git, "repositories_"));
    assert!(!has(&with("exclude_attachments"), "attachments"));
    assert!(!has(&with("exclude_releases"), "releases"));
}

#[test]
fn org_metadata_only_has_the_organisations_and_their_people() {
    let mut upstream = Upstream::new();
    let files =
        archive_of(&mut upstream, &json!({ "org_metadata_only": true, "repositories": [] }));
    let organizations = records(&files, "organizations_000001.json");
    assert_eq!((organizations.len(), &organizations[0]["login"]), (1, &json!("acme")));
    assert_eq!(
        records(&files, "users_000001.json").len(),
        organizations[0]["members"].as_array().map_or(0, Vec::len)
    );
    assert!(!files.contains_key("issues_000001.json"));
}

#[test]
fn an_archive_keeps_the_state_at_its_export() {
    let mut upstream = Upstream::new();
    let address = address(&mut upstream, &json!({ "repositories": ["acme/widgets"] }));
    let before = upstream.get(NOBODY, &address).assert_status(200).bytes;
    upstream
        .post(ADA, "/repos/acme/widgets/issues", &json!({ "title": "Too late" }))
        .assert_status(201);
    upstream.emulator.state.world.repositories.remove(&1_001);
    assert_eq!(upstream.get(NOBODY, &address).assert_status(200).bytes, before);
}

#[test]
fn the_same_world_makes_the_same_archive_to_the_byte() {
    let archive = || {
        let mut upstream = Upstream::new();
        let address =
            address(&mut upstream, &json!({ "repositories": ["acme/widgets", "ada/diary"] }));
        upstream.get(NOBODY, &address).assert_status(200).bytes
    };
    let bytes = archive();
    assert_eq!(bytes, archive());
    let mut entries = Archive::new(GzDecoder::new(bytes.as_ref()));
    let exported = START.as_secs() + 10 + 7;
    assert!(
        entries.entries().expect("a tar").all(|entry| entry
            .expect("an entry")
            .header()
            .mtime()
            .ok()
            == Some(exported))
    );
}

#[test]
fn names_that_callers_chose_cannot_leave_the_archive() {
    let mut upstream = Upstream::new();
    upstream
        .patch(ADA, "/repos/ada/dotfiles", &json!({ "default_branch": "../../escape" }))
        .assert_status(200);
    for tag in [
        "../../../etc/passwd",
        "/etc/passwd",
        "a b",
        "ok",
        "ok/below",
        "🦀",
        "x\ny",
        &"l".repeat(5_000),
    ] {
        upstream
            .post(ADA, "/repos/ada/dotfiles/releases", &json!({ "tag_name": tag }))
            .assert_status(201);
    }
    let files = archive_of(&mut upstream, &json!({ "repositories": ["ada/dotfiles"] }));
    assert!(
        files.keys().all(|name| !name.contains("..") && !name.starts_with('/') && name.len() < 200),
        "{:?}",
        files.keys()
    );
    assert_eq!(files["repositories/ada/dotfiles.git/HEAD"], b"ref: refs/heads/main\n");
    let packed = String::from_utf8(files["repositories/ada/dotfiles.git/packed-refs"].clone())
        .expect("text");
    let names: Vec<&str> =
        packed.lines().skip(1).filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    assert_eq!(names, ["refs/heads/main", "refs/tags/ok", "refs/tags/🦀"]);
    assert_eq!(records(&files, "releases_000001.json").len(), 8);
}

#[test]
fn the_oldest_archive_is_evicted_when_all_exceed_their_bound() {
    let mut upstream = Upstream::new();
    let first = address(&mut upstream, &json!({ "repositories": ["acme/widgets"] }));
    let size = upstream.get(NOBODY, &first).assert_status(200).bytes.len() as u64;
    upstream.set_limit("migrations.kept-bytes", size * 5 / 2);
    let second = address(&mut upstream, &json!({ "repositories": ["acme/widgets"] }));
    upstream.get(NOBODY, &first).assert_status(200);
    let third = address(&mut upstream, &json!({ "repositories": ["acme/widgets"] }));
    upstream.get(NOBODY, &first).assert_status(404);
    upstream.get(NOBODY, &second).assert_status(200);
    upstream.get(NOBODY, &third).assert_status(200);
    upstream.set_limit("migrations.kept-bytes", 10);
    let started = upstream
        .post(ADA, "/user/migrations", &json!({ "repositories": ["acme/widgets"] }))
        .body["id"]
        .clone();
    upstream.pass(10);
    assert_eq!(upstream.get(ADA, &format!("/user/migrations/{started}")).body["state"], "failed");
}
