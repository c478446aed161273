//! The papers: every command and snippet of the README and the guides runs as it is printed.
//!
//! Shell blocks of a paper run one after the other in one shell. A demo, an emulator and a gateway
//! with an admin listener run beside it, and their ports replace the printed ones. Snippets for a
//! client library run in its own installation, TOML is checked by `weir check`, JSON is parsed. A
//! block that cannot run carries the comment `<!-- not run: REASON -->`. `make` is not run: its
//! targets must exist.

mod blocks;
mod servers;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::driver::Library;
use super::install;
use super::processes::Upstream;
use super::setup::{Account, KEY, Setup, Shape, TRUSTING};
use blocks::{Block, Kind, Paper, papers};
use servers::Servers;

/// The root of the repository.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The longest run of a paper's commands; a loaded machine needs a minute for simulations.
const DEADLINE: Duration = Duration::from_mins(10);
/// A private key for configs that name one: `app.pem`.
const APP_KEY: &str = include_str!("../../../src/emulator/seed/app_key.pem");

/// A failed request fails its block, unless the block prints the status itself.
const PRELUDE: &str = r#"set -eo pipefail
curl() { case " $* " in *http_code*) command curl "$@" ;; *) command curl -f "$@" ;; esac; }
"#;

#[test]
fn every_block_is_run_or_names_a_reason() {
    for block in papers().iter().flat_map(Paper::blocks) {
        assert!(
            block.kind.is_some() || block.not_run.is_some(),
            "{}: no test runs this language; mark it `<!-- not run: REASON -->`",
            block.location
        );
    }
}

#[test]
fn shell_blocks_run() {
    std::thread::scope(|scope| {
        for paper in papers() {
            let blocks = to_run(&paper, Kind::Shell);
            if !blocks.is_empty() {
                scope.spawn(move || run_in_one_shell(&paper.path, &blocks));
            }
        }
    });
}

#[test]
fn octokit_snippets_run() {
    let directory = install::installed(Library::Octokit);
    for (block, servers) in with_servers(Kind::Octokit) {
        // Node resolves imports from the folder of the script.
        let script = tempfile::Builder::new()
            .prefix("paper-")
            .suffix(".mjs")
            .tempfile_in(&directory)
            .expect("a file for the script");
        fs::write(script.path(), servers.rewritten(&block.text)).expect("the script is written");
        let mut node = Command::new("node");
        node.arg(script.path()).envs(servers.variables());
        assert_runs(&block.location, node);
    }
}

#[test]
fn pygithub_snippets_run() {
    let directory = install::installed(Library::PyGithub);
    for (block, servers) in with_servers(Kind::PyGithub) {
        let mut python = Command::new(directory.join("bin/python"));
        python.args(["-c", &servers.rewritten(&block.text)]).envs(servers.variables());
        assert_runs(&block.location, python);
    }
}

/// With the gateway's address in place of the demo's, and the private authority in the environment.
#[test]
fn client_samples_of_the_readme_run_over_https() {
    let account =
        Account { name: "ada".to_owned(), token: "emu_classic_ada_all_scopes".to_owned() };
    let setup = Setup::over_tls(Upstream::emulated(), vec![account]);
    let papers = papers();
    let readme = papers.iter().find(|paper| paper.path == "README.md").expect("a README");
    let mut kinds = Vec::new();
    for block in readme.blocks() {
        let has_key = block.text.contains("WEIR_KEY") && block.not_run.is_none();
        let Some(kind) = block.kind.filter(|_| has_key) else { continue };
        let text = block.text.replace(servers::DEMO_URL, &setup.base_url(Shape::Hosted));
        let folder = install::installed(Library::Octokit);
        let script = tempfile::Builder::new().suffix(".mjs").tempfile_in(&folder);
        let script = script.expect("a file for the script");
        let mut command = match kind {
            Kind::Shell => {
                let mut shell = Command::new("bash");
                shell.args(["-c", &format!("{PRELUDE}{text}")]);
                shell
            }
            Kind::Octokit => {
                fs::write(script.path(), text).expect("the script is written");
                let mut node = Command::new("node");
                node.arg(script.path());
                node
            }
            Kind::PyGithub => {
                let python = install::installed(Library::PyGithub).join("bin/python");
                let mut python = Command::new(python);
                python.args(["-c", &text]);
                python
            }
            Kind::Toml | Kind::Json | Kind::Figure => continue,
        };
        command.env("WEIR_KEY", KEY).envs(TRUSTING);
        assert_runs(&block.location, command);
        kinds.push(kind);
    }
    for kind in [Kind::Shell, Kind::Octokit, Kind::PyGithub] {
        assert!(kinds.contains(&kind), "the README has no sample of the kind {kind:?}");
    }
}

#[test]
fn toml_blocks_are_valid_configs() {
    let papers = papers();
    let readme = papers.iter().find(|paper| paper.path == "README.md").expect("a README");
    let readme = to_run(readme, Kind::Toml);
    let whole = readme.iter().find(|block| is_whole(block)).expect("the README has a config");
    for block in papers.iter().flat_map(|paper| to_run(paper, Kind::Toml)) {
        let text = if is_whole(&block) {
            block.text.clone()
        } else {
            format!("{}\n{}", whole.text, block.text)
        };
        let folder = tempfile::tempdir().expect("a folder for the config");
        fs::write(folder.path().join("weir.toml"), &text).expect("the config is written");
        fs::write(folder.path().join("app.pem"), APP_KEY).expect("the key is written");
        let mut check = Command::new(env!("CARGO_BIN_EXE_weir"));
        check.arg("check").current_dir(folder.path()).envs(secrets(&text));
        assert_runs(&block.location, check);
    }
}

#[test]
fn json_blocks_are_valid() {
    for block in papers().iter().flat_map(|paper| to_run(paper, Kind::Json)) {
        if let Err(fault) = serde_json::from_str::<serde_json::Value>(&block.text) {
            panic!("{}: {fault}", block.location);
        }
    }
}

#[test]
fn make_targets_exist() {
    let makefile = fs::read_to_string(Path::new(ROOT).join("Makefile")).expect("a Makefile");
    let exists =
        |target: &str| makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
    for paper in papers() {
        let blocks = paper.blocks();
        let lines = blocks.iter().filter(|block| block.kind == Some(Kind::Shell));
        let lines = lines.flat_map(|block| block.text.lines().filter(|line| is_make(line)));
        for command in lines.chain(paper.inline("make")) {
            for target in command.split(' ').skip(1).filter(|word| !word.contains(['=', '"'])) {
                assert!(exists(target), "{}: `{command}`: there is no such target", paper.path);
            }
        }
    }
}

#[test]
fn commands_in_the_text_exist() {
    for paper in papers() {
        for command in paper.inline("weir") {
            let words: Vec<_> = command.split(' ').skip(1).collect();
            let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase());
            let mut help = Command::new(env!("CARGO_BIN_EXE_weir"));
            help.args(words.iter().take(1).filter(is_name)).arg("--help");
            assert_runs(&format!("{}: `{command}`", paper.path), help);
        }
    }
}

/// The blocks of a paper that run as this kind.
fn to_run(paper: &Paper, kind: Kind) -> Vec<Block> {
    let is_run = |block: &Block| block.kind == Some(kind) && block.not_run.is_none();
    paper.blocks().into_iter().filter(is_run).collect()
}

/// The blocks of this kind in all papers, each with the servers that it names.
fn with_servers(kind: Kind) -> Vec<(Block, Servers)> {
    let papers = papers();
    let blocks = papers.iter().flat_map(|paper| to_run(paper, kind));
    let blocks: Vec<_> = blocks.map(|block| (Servers::named_in(&block.text), block)).collect();
    assert!(!blocks.is_empty(), "no paper has a snippet of the kind {kind:?}");
    blocks.into_iter().map(|(servers, block)| (block, servers)).collect()
}

fn run_in_one_shell(paper: &str, blocks: &[Block]) {
    let mut script = PRELUDE.to_owned();
    for Block { location, text, .. } in blocks {
        let announced = format!("echo '== {location}'");
        for line in std::iter::once(&*announced).chain(text.lines().filter(|line| !is_make(line))) {
            script.push_str(line);
            script.push('\n');
        }
    }
    let servers = Servers::named_in(&script);
    let folder = tempfile::tempdir().expect("a folder for the commands");
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, folder.path().join(name)).expect("a link");
    };
    link(Path::new(env!("CARGO_BIN_EXE_weir")), "weir");
    link(&Path::new(ROOT).join("config"), "config");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &servers.rewritten(&script)])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .envs(servers.variables());
    assert_runs(paper, shell);
}

fn is_make(line: &str) -> bool {
    line.split(' ').next() == Some("make")
}

fn is_whole(block: &Block) -> bool {
    block.text.contains("[upstream]")
}

/// A value for each environment variable that a config names.
fn secrets(config: &str) -> BTreeMap<String, &'static str> {
    let named = config.split("env = \"").skip(1).filter_map(|rest| rest.split('"').next());
    named.map(|name| (name.to_owned(), "a-secret-of-the-papers")).collect()
}

/// Runs a command to its end, which must come in time and without an error.
#[track_caller]
fn assert_runs(location: &str, mut command: Command) {
    // A proxy of the machine would be a third party.
    command.env("NO_PROXY", "*").stdin(Stdio::null());
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        // The test may have given up already.
        let _ = send.send(command.output());
    });
    let output: Output = receive
        .recv_timeout(DEADLINE)
        .unwrap_or_else(|_| panic!("{location} did not end in time"))
        .unwrap_or_else(|fault| panic!("{location} did not start: {fault}"));
    assert!(
        output.status.success(),
        "{location} ended with {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
