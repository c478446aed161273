//! Records the commit of the sources for `weir --version`, in builds with the profile `release` or
//! one that inherits from it.
//!
//! Builds for development record none: each commit would compile everything again. The variable
//! `WEIR_COMMIT` names the commit where there is no repository, such as in a container.

use std::env;
use std::path::Path;
use std::process::Command;

/// Digits of a commit's id that are shown. A prefix of this length is unique in any repository.
const DIGITS: usize = 12;
/// The sources of a build.
const SOURCES: [&str; 4] = ["src", "build.rs", "Cargo.toml", "Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    let given = env::var("WEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = match given {
        Some(commit) => Some(shortened(&commit).expect("WEIR_COMMIT is a commit's id")),
        None if env::var("PROFILE").is_ok_and(|profile| profile == "release") => {
            let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
            commit_of(Path::new(&folder))
        }
        None => None,
    };
    if let Some(commit) = commit {
        println!("cargo::rustc-env=WEIR_BUILD_COMMIT={commit}");
    }
}

/// Returns the commit of the repository whose root is `folder`, marked if its sources differ from
/// it. `None` without a repository, such as in an unpacked archive, or without git.
pub fn commit_of(folder: &Path) -> Option<String> {
    // An archive may be unpacked in the repository of something else.
    let root = git(folder, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&root).canonicalize().ok()? != folder.canonicalize().ok()? {
        return None;
    }
    // The log of HEAD grows with each commit, checkout and reset.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(folder, &["rev-parse", "--git-path", file])?;
        println!("cargo::rerun-if-changed={}", folder.join(path).display());
    }
    for path in SOURCES {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = shortened(&git(folder, &["rev-parse", "HEAD"])?)?;
    let changed = git(folder, &[&["status", "--porcelain", "--"][..], &SOURCES].concat())?;
    Some(if changed.is_empty() { commit } else { format!("{commit}, modified") })
}

/// Returns the first digits of a commit's id; `None` for any other text.
pub fn shortened(commit: &str) -> Option<String> {
    let is_id = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| commit.chars().take(DIGITS).collect())
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
