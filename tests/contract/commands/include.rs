//! `include`: a config of several files.

use std::path::Path;

use serde_json::{Value, json};

use super::check::{SMALL, checked_in};

const TOKEN: [(&str, &str); 1] = [("BOT_TOKEN", "env-token")];

fn written(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Checks `SMALL` with this line in front of it, beside these files.
fn checked(include: &str, files: &[(&str, &str)], arguments: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), &[("weir.toml", &format!("{include}\n{SMALL}"))]);
    written(folder.path(), files);
    checked_in(folder.path(), arguments, &TOKEN)
}

fn client(name: &str, digit: char) -> String {
    let hash: String = std::iter::repeat_n(digit, 64).collect();
    format!("[[clients]]\nname = \"{name}\"\nkey_sha256 = \"{hash}\"\n")
}

#[test]
fn lists_of_tables_are_appended_in_the_order_of_the_names() {
    let files = [
        ("clients/b.toml", client("b", 'b')),
        ("clients/a.toml", client("a1", '1') + &client("a2", '2')),
        ("clients/.hidden.toml", client("hidden", '3')),
        ("clients/notes", "no TOML".to_owned()),
        ("limits.toml", "[limits]\nconcurrency = 7\n[upstream]\ntotal_timeout = \"2m\"".to_owned()),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let include = "include = [\"limits.toml\", \"clients/*.toml\", \"clients/a.toml\"]";
    let (code, out, err) = checked(include, &files, &["--json"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        report["files"],
        json!(["weir.toml", "limits.toml", "clients/a.toml", "clients/b.toml"])
    );
    let names: Vec<_> =
        report["config"]["clients"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["ci", "a1", "a2", "b"]);
    assert_eq!(report["config"]["limits"]["concurrency"], 7);
    assert_eq!(report["config"]["upstream"]["total_timeout"], "2m");
    assert_eq!(report["config"]["upstream"]["url"], "http://code.corp");
}

#[test]
fn faults_name_the_included_file_and_its_line() {
    let bad = client("a", '1') + "weight = \"heavy\"\n";
    let (code, _, err) = checked(
        "include = [\"clients/*.toml\"]",
        &[("clients/a.toml", &bad), ("clients/b.toml", "[[clients]\n")],
        &[],
    );
    assert_eq!(code, 2);
    let lines: Vec<_> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(lines[0].starts_with("clients/a.toml:4: clients[1].weight: wrong type"), "{err}");
    assert!(lines[1].starts_with("clients/b.toml:1: not TOML"), "{err}");
}

#[test]
fn a_key_in_two_files_is_a_fault_that_names_both() {
    for (text, expected) in [
        ("[upstream]\nurl = \"http://b\"", "a.toml:2: upstream.url: already set in weir.toml:3"),
        ("[accounts]\nname = \"a\"", "a.toml:1: accounts: already set in weir.toml:4"),
        ("accounts = [3]", "a.toml:1: accounts: already set in weir.toml:4"),
    ] {
        let (code, _, err) = checked("include = [\"a.toml\"]", &[("a.toml", text)], &[]);
        assert_eq!(code, 2);
        assert!(err.contains(expected), "{expected}: {err}");
    }
}

#[test]
fn an_included_file_includes_none() {
    let (code, _, err) =
        checked("include = [\"a.toml\"]", &[("a.toml", "\ninclude = [\"b.toml\"]")], &[]);
    assert_eq!(code, 2);
    assert!(err.contains("a.toml:2: include: not in a file that weir.toml includes"), "{err}");
}

#[test]
fn a_missing_file_is_a_fault_and_an_empty_pattern_a_warning() {
    let (code, _, err) = checked("include = [\"no-such.toml\"]", &[], &[]);
    assert_eq!(code, 2);
    assert!(
        err.contains("weir.toml:1: include[0]: no-such.toml: cannot be read: No such"),
        "{err}"
    );
    let (code, _, err) = checked("include = [\"clients/*.toml\"]", &[], &[]);
    assert_eq!(code, 0);
    assert!(err.contains("warning: weir.toml:1: include[0]: no file matches"), "{err}");
}

#[test]
fn patterns_that_mean_nothing_or_too_much_are_refused() {
    for (include, expected) in [
        ("include = \"a.toml\"", "include: wrong type: a string"),
        ("include = [3]", "include[0]: wrong type: an integer"),
        ("include = [\"\"]", "include[0]: bad path"),
        ("include = [\"/**/a.toml\"]", "include[0]: bad path"),
        ("include = [\"a[.toml\"]", "include[0]: bad pattern"),
        ("include = [\"*.toml\"]", "include[0]: the config file includes itself"),
        ("include = [\".\"]", "include[0]: .: is not a regular file"),
        ("include = [\"${UNSET_HERE}\"]", "include[0]: environment variable UNSET_HERE is not"),
    ] {
        let (code, _, err) = checked(include, &[], &[]);
        assert_eq!(code, 2, "{include}");
        assert!(err.contains(&format!("weir.toml:1: {expected}")), "{expected}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[test]
fn relative_paths_start_at_the_file_that_names_them() {
    let webhooks = "[webhooks]\nsecret = { file = \"secret\" }\n";
    let files =
        [("parts/webhooks.toml", webhooks), ("parts/secret", "a"), ("secret", "not\tthis one")];
    let (code, out, err) = checked("include = [\"parts/*.toml\"]", &files, &[]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("secret = { file = \"parts/secret\" }"), "{out}");
}

#[test]
fn a_check_without_secrets_needs_no_file_of_a_variable() {
    let folder = tempfile::tempdir().unwrap();
    let (accounts, rest) = SMALL.split_once("[[clients]]").unwrap();
    let clients = format!("[[clients]]{rest}");
    let text = format!("include = [\"${{TEAM}}/*.toml\"]\n{accounts}");
    written(folder.path(), &[("weir.toml", &text), ("core/clients.toml", &clients)]);
    let (code, out, err) = checked_in(folder.path(), &["--no-secrets"], &[]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let note = "note: weir.toml: include[0]: not checked: environment variable TEAM is not set\n";
    assert!(err.contains(note), "{err}");
    // Entries may refer to what is in the files, and sections may be in them.
    let (listed, _) = accounts.split_once("[[accounts]]").unwrap();
    for (code, text) in [
        (
            0,
            format!(
                "{text}[[clients]]\nname = \"a\"\nkey_sha256 = \"{}\"\nwrites = \"extra\"\nreads = \"pool\"\n",
                "1".repeat(64)
            ),
        ),
        (0, format!("include = [\"${{TEAM}}/*.toml\"]\n{listed}")),
        (0, "include = [\"${TEAM}/*.toml\"]\n[writes]\nstore = \"redis\"\n".to_owned()),
        (2, format!("{text}[[clients]]\nname = \"a\"\nkey = \"x\"\n")),
        // An inline table is complete where it is.
        (2, format!("{text}[listen]\nhttps = {{ address = \"127.0.0.1:1\" }}\n")),
    ] {
        written(folder.path(), &[("weir.toml", &text)]);
        let (found, _, err) = checked_in(folder.path(), &["--no-secrets"], &[]);
        assert_eq!(found, code, "{text}: {err}");
    }
    let (code, _, err) = checked_in(folder.path(), &[], &TOKEN);
    assert!(code == 2 && err.contains("include[0]: environment variable TEAM is not set"), "{err}");
}
