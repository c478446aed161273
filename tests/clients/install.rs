//! Installs the client libraries and the cache suite below the build directory, once for each set
//! of versions.
//!
//! The lock file and the requirements name the versions, and other versions get another directory.
//! The configuration of npm and pip chooses the registry.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::driver::Library;

/// The folder of the drivers' sources.
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");
/// Written last: a directory without it is the remains of an interrupted installation.
const COMPLETE: &str = "complete";

/// The files that fix the versions of a Node package.
const NODE_FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

/// The directory of a library, which is installed first if necessary.
pub fn installed(library: Library) -> PathBuf {
    match library {
        Library::Octokit => installed_for_node("octokit", &["scenarios.mjs", "driver.mjs"]),
        Library::PyGithub => installed_for_python("pygithub"),
    }
}

/// A directory with the packages of `name` and its own scripts.
pub fn installed_for_node(name: &str, scripts: &[&str]) -> PathBuf {
    let directory = installed_as(name, &NODE_FILES, &[], install_for_node);
    // Node resolves imports from the script's directory. Each script is renamed into place, because
    // another test's Node may read it, and half a script ends silently.
    for script in scripts {
        let fresh = directory.join(format!("{script}.{:?}", std::thread::current().id()));
        fs::copy(Path::new(SOURCES).join(name).join(script), &fresh).expect("the driver is copied");
        fs::rename(fresh, directory.join(script)).expect("the driver takes its place");
    }
    directory
}

/// A virtual environment with the packages of `name`.
pub fn installed_for_python(name: &str) -> PathBuf {
    installed_as(name, &["requirements.txt"], &python_version(), install_for_python)
}

/// The program of `octocrab/`, which is built first if necessary.
pub fn built_octocrab() -> PathBuf {
    let files = ["Cargo.toml", "Cargo.lock", "main.rs"];
    installed_as("octocrab", &files, &[], build_with_cargo).join("target/debug/octocrab-client")
}

fn installed_as(name: &str, files: &[&str], also: &[u8], install: fn(&Path)) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    fs::create_dir_all(&root).expect("the build directory can be written to");
    // Tests in other threads and processes may install the same.
    let lock = File::create(root.join(format!("{name}.lock"))).expect("a lock file");
    lock.lock().expect("the lock");
    let sources = Path::new(SOURCES).join(name);
    let directory = root.join(format!("{name}-{}", versions(&sources, files, also)));
    if !directory.join(COMPLETE).exists() {
        // Replaces the remains of an interrupted installation, if any.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory for the client library");
        for file in files {
            copy(&sources, &directory, file);
        }
        install(&directory);
        File::create(directory.join(COMPLETE)).expect("the mark of a complete installation");
    }
    directory
}

/// The driver's script.
pub fn script(library: Library, directory: &Path) -> PathBuf {
    match library {
        Library::Octokit => directory.join("driver.mjs"),
        Library::PyGithub => Path::new(SOURCES).join("pygithub/driver.py"),
    }
}

/// The interpreter that runs the script.
pub fn interpreter(library: Library, directory: &Path) -> PathBuf {
    match library {
        Library::Octokit => PathBuf::from("node"),
        Library::PyGithub => directory.join("bin/python"),
    }
}

fn install_for_node(directory: &Path) {
    let need =
        "the client tests need Node.js 20 or newer with npm (Debian: apt-get install nodejs npm)";
    run(Command::new("node").arg("--version"), need);
    run(Command::new("npm").args(["ci", "--ignore-scripts"]).current_dir(directory), need);
}

fn install_for_python(directory: &Path) {
    let need = "the client tests need Python 3.11 or newer with venv and pip (Debian: apt-get install python3 python3-venv)";
    run(Command::new("python3").args(["-m", "venv"]).arg(directory), need);
    let mut pip = Command::new(directory.join("bin/python"));
    run(
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
            "requirements.txt",
        ])
        .current_dir(directory),
        need,
    );
}

fn build_with_cargo(directory: &Path) {
    let need = "the client tests need cargo";
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked"]).current_dir(directory);
    run(cargo.env("CARGO_TARGET_DIR", directory.join("target")), need);
}

/// Runs a command to its end. A failure panics with `need` and the command's output.
fn run(command: &mut Command, need: &str) {
    let output = command.output().unwrap_or_else(|fault| {
        panic!("{need}\ncannot run {}: {fault}", command.get_program().display())
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{need}, and to reach their package registries the first time\n{command:?} ended with {}\n{stderr}",
        output.status
    );
}

fn copy(sources: &Path, directory: &Path, file: &str) {
    fs::copy(sources.join(file), directory.join(file))
        .unwrap_or_else(|fault| panic!("cannot copy {file}: {fault}"));
}

/// The version of the interpreter; a virtual environment is bound to it.
fn python_version() -> Vec<u8> {
    Command::new("python3")
        .arg("--version")
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default()
}

/// A digest of the version files and of `also`.
fn versions(sources: &Path, files: &[&str], also: &[u8]) -> String {
    let mut named = Vec::new();
    for file in files {
        named.extend(
            fs::read(sources.join(file))
                .unwrap_or_else(|fault| panic!("cannot read {file}: {fault}")),
        );
    }
    named.extend(also);
    let digest = ring::digest::digest(&ring::digest::SHA256, &named);
    super::hex(&digest.as_ref()[..8])
}
