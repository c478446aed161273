//! Files that are no config at all.

use super::*;

#[test]
fn a_file_that_is_not_toml_is_refused_with_a_line() {
    for (text, line, part) in [
        ("{\n  \"listen\": {}\n}", 1, "if this is JSON"),
        ("[\n  {\"listen\": 1}\n]", 2, "if this is JSON"),
        ("# comment\nlisten:\n  http: 1\n", 2, "if this is YAML"),
        ("[upstream]\nurl = \"https://s3cret\n", 2, "not TOML: "),
        ("[upstream]\nurl = \"a\"\nurl = \"s3cret\"\n", 3, "duplicate key"),
        ("[upstream\nurl = 1\n", 1, "(column 10)"),
    ] {
        let faults = parsed(text).unwrap_err();
        assert_eq!(faults.0[0].line, Some(line), "{text}: {faults}");
        assert!(
            faults.0[0].problem.starts_with("not TOML: ") && faults.to_string().contains(part),
            "{text}: {faults}"
        );
        assert!(!faults.to_string().contains("s3cret"), "{faults}");
    }
}

#[test]
fn a_file_too_large_or_too_deep_is_refused() {
    let large = parsed(&"# comment\n".repeat(110_000)).unwrap_err();
    assert!(large.to_string().contains("larger than 1048576 bytes"), "{large}");
    let deep = parsed(&format!("a = {}", "[".repeat(100_000))).unwrap_err();
    assert!(deep.to_string().starts_with("weir.toml:1: not TOML"), "{deep}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let missing = load(&folder.path().join("weir.toml")).unwrap_err();
    assert!(
        missing
            .to_string()
            .ends_with("weir.toml: cannot be read: No such file or directory (os error 2)"),
        "{missing}"
    );
    assert!(load(folder.path()).is_err());
    let binary = folder.path().join("binary");
    std::fs::write(&binary, b"[listen]\n\xff\xfe").unwrap();
    let binary = load(&binary).unwrap_err();
    assert_eq!(binary.0[0].line, Some(2), "{binary}");
}
