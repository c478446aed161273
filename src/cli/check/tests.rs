//! `weir check` as an operator sees it: what it prints, where, and how it ends.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::*;
use crate::config::fixture;

const UPSTREAM: &str = "[upstream]\nurl = \"http://127.0.0.1:9\"\n";

fn checked_in(folder: &Path, text: &str, online: bool) -> (Outcome, String, String) {
    let config = folder.join("weir.toml");
    std::fs::write(&config, text).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let outcome = Check { config, online, no_secrets: false, json: false, schema: false }
        .check(&mut out, &mut err);
    (outcome, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn checked(text: &str) -> (Outcome, String, String) {
    checked_in(tempfile::tempdir().unwrap().path(), text, false)
}

/// The faults of a config with these further sections, in a folder of its own.
fn faults(folder: &Path, sections: &str, online: bool) -> String {
    let text = fixture::text(&format!("{UPSTREAM}{sections}"));
    let (outcome, out, err) = checked_in(folder, &text, online);
    assert_eq!((outcome, out.as_str()), (Outcome::Faulty, ""), "{err}");
    err
}

#[test]
fn a_valid_config_is_printed_with_warnings() {
    let sections = "[upstream]\nurl = \"http://code.corp\"\n[cache]\npredicted_etags = true\n";
    let (outcome, out, err) = checked(&fixture::text(sections));
    assert_eq!(outcome, Outcome::Valid);
    assert!(out.starts_with("[listen]\n") && !out.contains("s3cret"), "{out}");
    assert!(
        err.contains("warning: ")
            && err.contains("cache.predicted_etags: is used with `dialect = \"github\"` only"),
        "{err}"
    );
    assert!(
        err.contains("warning: ") && err.contains("upstream.url: http://code.corp is plain HTTP"),
        "{err}"
    );
}

#[test]
fn a_key_that_ends_within_a_week_is_named() {
    let now = Clock::system().now();
    let day = |days: u64| (now + Duration::from_hours(24 * days)).rfc3339();
    let keys = format!(
        "keys = [{{ sha256 = \"{:064}\", expires = \"2020-01-31\" }}, {{ sha256 = \"{:064}\", expires = \"{}\" }}, {{ sha256 = \"{:064}\", expires = \"{}\" }}]",
        1,
        2,
        day(6),
        3,
        day(8)
    );
    let text = fixture::text(UPSTREAM).replace(&format!("key_sha256 = \"{:064}\"", 0), &keys);
    let (outcome, out, err) = checked(&text);
    assert_eq!(outcome, Outcome::Valid, "{err}");
    let expired = "clients[0].keys[0]: a key of client `ci` has expired at 2020-02-01T00:00:00Z";
    assert!(err.contains(expired), "{err}");
    assert!(err.contains("clients[0].keys[1]: a key of client `ci` expires at "), "{err}");
    assert!(!err.contains("keys[2]"), "{err}");
    assert!(out.contains("expires = \"2020-02-01T00:00:00Z\" }, {"), "{out}");
}

#[test]
fn a_warning_has_the_file_and_the_line_of_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let keys = format!("[{{ sha256 = \"{:064}\", expires = \"2020-01-31\" }}]", 1);
    let included = format!("# Of another team.\n[[clients]]\nname = \"nightly\"\nkeys = {keys}\n");
    std::fs::write(folder.path().join("nightly.toml"), included).unwrap();
    let sections = "[upstream]\nurl = \"http://code.corp\"\n";
    let text =
        "include = [\"nightly.toml\", \"gone/*.toml\"]\n".to_owned() + &fixture::text(sections);
    let (outcome, _, err) = checked_in(folder.path(), &text, false);
    assert_eq!(outcome, Outcome::Valid, "{err}");
    let line_of = |wanted: &str| 1 + text.lines().position(|line| line == wanted).unwrap();
    for expected in [
        "nightly.toml:4: clients[1].keys[0]: a key of client `nightly` has expired".to_owned(),
        "weir.toml:1: include[1]: no file matches".to_owned(),
        format!("weir.toml:{}: upstream.url: ", line_of("url = \"http://code.corp\"")),
    ] {
        assert!(err.contains(&expected), "{expected} is not in {err}");
    }
}

#[test]
fn a_faulty_config_prints_only_its_faults() {
    let (outcome, out, err) = checked("[upstream]\nurl = 3\ncolour = 1\n");
    assert_eq!((outcome, out.as_str()), (Outcome::Faulty, ""));
    assert!(
        err.contains("weir.toml:2: upstream.url: ")
            && err.contains("weir.toml:3: upstream.colour: unknown key"),
        "{err}"
    );
}

#[test]
fn a_store_that_a_start_could_not_open_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes"), "not a file of writes").unwrap();
    for (path, expected) in [
        ("missing/weir.redb", "there is no directory"),
        ("notes", "this is not a file of writes, and it was not changed"),
        (".", "cannot be read and written: Is a directory"),
        ("/proc/weir.redb", "/proc/weir.redb: it cannot be read and written: "),
    ] {
        let store = format!("[writes]\nstore = {{ path = \"{path}\" }}\n");
        let err = faults(folder.path(), &store, false);
        assert!(err.contains("writes.store: ") && err.contains(expected), "{path}: {err}");
    }
    assert_eq!(std::fs::read(folder.path().join("notes")).unwrap(), b"not a file of writes");
}

#[test]
fn a_check_changes_no_store_and_accepts_one_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.redb");
    let text = fixture::text(&format!("{UPSTREAM}[writes]\nstore = {{ path = \"weir.redb\" }}\n"));
    let check = || checked_in(folder.path(), &text, false).0;
    assert_eq!(check(), Outcome::Valid);
    assert!(!path.exists(), "a check creates no file");
    let store = FileStore::open(&path, |_, _| Ok(())).unwrap();
    assert_eq!(check(), Outcome::Valid);
    drop(store);
    let before = std::fs::read(&path).unwrap();
    assert_eq!(check(), Outcome::Valid);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// An upstream that accepts the token `s3cret` alone, for as many requests as are given.
fn upstream(requests: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for _ in 0..requests {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let (status, body) = if head.contains("bearer s3cret\r\n") {
                ("200 OK", "{\"resources\":{}}")
            } else {
                ("401 Unauthorized", "{\"message\":\"Bad credentials\"}")
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn an_online_check_names_tokens_that_the_upstream_rejects() {
    let folder = tempfile::tempdir().unwrap();
    let section =
        |url| format!("[listen]\nhttp = [\"127.0.0.1:0\"]\n[upstream]\nurl = \"{url}\"\n");
    let good = fixture::text(&section(upstream(1)));
    let (outcome, _, err) = checked_in(folder.path(), &good, true);
    assert_eq!(outcome, Outcome::Valid, "{err}");
    assert!(err.contains("token 0 of account ") && err.contains("accepted"), "{err}");
    let dead = fixture::text(&section(upstream(1))).replace("s3cret", "revoked");
    let (outcome, out, err) = checked_in(folder.path(), &dead, true);
    assert_eq!((outcome, out.as_str()), (Outcome::Faulty, ""), "{err}");
    assert!(err.contains("the upstream rejects it: 401 Bad credentials"), "{err}");
    assert!(!err.contains("revoked"), "{err}");
    let gone = fixture::text(&section("http://127.0.0.1:9".to_owned()));
    let (outcome, _, err) = checked_in(folder.path(), &gone, true);
    assert_eq!(outcome, Outcome::Faulty, "{err}");
    assert!(err.contains("no token could be checked") && err.contains("refused"), "{err}");
}

#[test]
fn an_online_check_finds_addresses_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
    let (http, admin) = (one.as_ref().unwrap().local_addr(), two.as_ref().unwrap().local_addr());
    let (http, admin) = (http.unwrap(), admin.unwrap());
    let _socket = UnixListener::bind(folder.path().join("weir.sock")).unwrap();
    let listen =
        format!("[listen]\nhttp = [\"{http}\"]\nadmin = \"{admin}\"\nunix = \"weir.sock\"\n");
    let err = faults(folder.path(), &listen, true);
    for expected in [
        format!("listen.http: cannot listen on {http}: Address already in use"),
        format!("listen.admin: cannot listen on {admin}: Address already in use"),
        "weir.sock: another process listens on it".to_owned(),
    ] {
        assert!(err.contains(&expected), "{expected}: {err}");
    }
    let text = fixture::text(&format!("{UPSTREAM}{listen}"));
    assert_eq!(checked_in(folder.path(), &text, false).0, Outcome::Valid);
}
