//! `weir --version`, and the commit that the build script finds.

use std::path::Path;
use std::process::Command;

use super::build_script::{commit_of, shortened};
use super::{out, weir};

fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let done = Command::new("git").arg("-C").arg(folder).args(identity).args(arguments).output();
    assert!(done.unwrap().status.success(), "git {arguments:?}");
}

/// A repository with one commit of one source.
fn repository(folder: &Path) {
    std::fs::create_dir(folder.join("src")).unwrap();
    std::fs::write(folder.join("src/main.rs"), "fn main() {}").unwrap();
    git(folder, &["init", "--quiet"]);
    git(folder, &["add", "."]);
    git(folder, &["commit", "--quiet", "--message", "a"]);
}

#[test]
fn the_version_names_a_commit_or_says_that_there_is_none() {
    let printed = out(&weir(Path::new("."), &["--version"], &[]));
    let version = printed.strip_prefix(concat!("weir ", env!("CARGO_PKG_VERSION"), " (")).unwrap();
    assert!(version.starts_with("commit ") || version == "no commit recorded)\n", "{printed}");
}

#[test]
fn a_build_knows_the_commit_of_its_repository() {
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let commit = commit_of(folder.path()).unwrap();
    assert!(commit.len() == 12 && shortened(&commit).as_ref() == Some(&commit), "{commit}");
    std::fs::write(folder.path().join("notes"), "beside the sources").unwrap();
    assert_eq!(commit_of(folder.path()).as_ref(), Some(&commit));
    std::fs::write(folder.path().join("src/main.rs"), "fn main() { loop {} }").unwrap();
    assert_eq!(commit_of(folder.path()), Some(format!("{commit}, modified")));
}

#[test]
fn a_build_from_an_archive_knows_no_commit() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(commit_of(folder.path()), None);
    // The repository around it is another one's.
    repository(folder.path());
    let archive = folder.path().join("src");
    assert_eq!(commit_of(&archive), None);
}

#[test]
fn a_commit_is_hexadecimal() {
    for text in ["", "main", "v1.0.0", "012345", "0123456\nx"] {
        assert_eq!(shortened(text), None, "{text}");
    }
}
