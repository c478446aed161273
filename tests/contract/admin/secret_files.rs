//! Secrets from files: read again when the files change, and kept when they are of no use
//! (SPECIFICATION, "Configuration").

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tempfile::TempDir;
use weir::clock::Clock;
use weir::gateway::Current;
use weir::telemetry::Metrics;

use crate::support::origin::{self, Origin};
use crate::support::{Setup, World, captured_log, config, eventually};

/// An upstream that tells each request its token.
async fn upstream() -> Origin {
    Origin::start(|request| async move {
        let token = origin::token(request.headers()).to_owned();
        Response::new(Bytes::from(format!("{{\"token\":\"{token}\"}}")))
    })
    .await
}

/// An account with a token from this file.
fn account(name: &str, file: &Path) -> String {
    let secret = format!("{{ file = \"{}\" }}", file.display());
    let token = config::token(name, "classic", "").replace("{ value = \"\" }", &secret);
    config::account(name, "user", "") + &token
}

async fn world(upstream: &Origin, credentials: String, more: &str) -> World {
    let credentials = credentials + &config::client("ci", crate::support::KEY, more);
    Setup::new().upstream(upstream.url()).credentials(credentials).start().await
}

/// The token that the upstream sees.
async fn token(world: &World, upstream: &Origin, path: &str) -> String {
    world.get(path).await;
    upstream.last().token().to_owned()
}

/// The lines of the log about files of a folder. They come from threads for blocking work.
fn lines(folder: &TempDir) -> Vec<String> {
    let path = folder.path().to_str().unwrap();
    let log = captured_log::all();
    log.lines().filter(|line| line.contains(path)).map(str::to_owned).collect()
}

/// Waits until the log has this many lines with a text about files of a folder.
async fn logged(folder: &TempDir, text: &str, times: usize) {
    let count = || lines(folder).iter().filter(|line| line.contains(text)).count();
    eventually(|| count() >= times).await;
    assert_eq!(count(), times);
}

const READ_AGAIN: &str = "secrets were read again";
const KEPT: &str = "a secret was not read again";

#[tokio::test]
async fn a_token_whose_file_changes_is_in_force_without_a_signal() {
    captured_log::begin();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "first\n").unwrap();
    let upstream = upstream().await;
    let world = world(&upstream, account("bot", &file), "").await;
    assert_eq!(token(&world, &upstream, "/meta").await, "first");
    fs::write(&file, "second\n").unwrap();
    logged(&folder, READ_AGAIN, 1).await;
    assert_eq!(token(&world, &upstream, "/zen").await, "second");
    let log = lines(&folder).concat();
    assert!(log.contains("tokens[0].secret.file"), "the key is named: {log}");
    assert!(!log.contains("first") && !log.contains("second"), "{log}");
}

#[tokio::test]
async fn a_symbolic_link_that_is_exchanged_is_a_change() {
    captured_log::begin();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (version, secret) in [("v1", "first"), ("v2", "second")] {
        fs::create_dir(path(version)).unwrap();
        fs::write(path(version).join("token"), secret).unwrap();
    }
    // The way in which Kubernetes mounts secrets.
    symlink("v1", path("data")).unwrap();
    symlink("data/token", path("token")).unwrap();
    let upstream = upstream().await;
    let world = world(&upstream, account("bot", &path("token")), "").await;
    assert_eq!(token(&world, &upstream, "/meta").await, "first");
    symlink("v2", path("next")).unwrap();
    fs::rename(path("next"), path("data")).unwrap();
    logged(&folder, READ_AGAIN, 1).await;
    assert_eq!(token(&world, &upstream, "/zen").await, "second");
}

#[tokio::test]
async fn a_secret_is_read_again_after_a_reload_of_an_earlier_one() {
    captured_log::begin();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let link_to = |version: &str| {
        symlink(version, path("next")).unwrap();
        fs::rename(path("next"), path("token")).unwrap();
    };
    for version in ["first", "second"] {
        fs::write(path(version), version).unwrap();
    }
    link_to("first");
    let upstream = upstream().await;
    let text = config::listen("127.0.0.1:0", "")
        + &config::upstream(&upstream.url(), "")
        + &account("bot", &path("token"))
        + &config::client("ci", crate::support::KEY, "");
    fs::write(path("weir.toml"), text).unwrap();
    let current = started(&path("weir.toml"));
    let token = || {
        let secret = current.gateway().env.config.tokens[0].secret.clone();
        secrecy::ExposeSecret::expose_secret(&secret).to_owned()
    };
    link_to("second");
    logged(&folder, READ_AGAIN, 1).await;
    assert_eq!(token(), "second");
    link_to("first");
    current.reload().unwrap();
    assert_eq!(token(), "first");
    link_to("second");
    eventually(|| token() == "second").await;
}

#[tokio::test]
async fn a_fault_of_one_secret_holds_up_no_other() {
    captured_log::begin();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a", "b", "c"] {
        fs::write(path(name), format!("token-{name}")).unwrap();
    }
    let accounts = ["a", "b", "c"].map(|name| account(name, &path(name))).concat();
    let text = config::listen("127.0.0.1:0", "")
        + &config::upstream("http://127.0.0.1:9", "")
        + &accounts
        + &config::client("ci", crate::support::KEY, "writes = \"a\"");
    fs::write(path("weir.toml"), text).unwrap();
    let current = started(&path("weir.toml"));
    let tokens = || {
        let config = Arc::clone(&current.gateway().env.config);
        let secrets = config.tokens.iter().map(|token| token.secret.clone());
        secrets.map(|secret| secrecy::ExposeSecret::expose_secret(&secret).to_owned()).collect()
    };
    fs::write(path("b"), "token-a").unwrap();
    fs::write(path("c"), "token-d").unwrap();
    logged(&folder, READ_AGAIN, 1).await;
    let found: Vec<String> = tokens();
    assert_eq!(found, ["token-a", "token-b", "token-d"]);
    let log = captured_log::all();
    assert!(log.contains("tokens[1].secret: duplicate token"), "{log}");
}

/// A gateway with the config of a file.
fn started(path: &Path) -> Arc<Current> {
    let config = weir::config::load(path).unwrap();
    let current = Current::new(config.into(), Clock::system(), Arc::new(Metrics::new()));
    current.read_from(path.to_owned());
    current
}

#[tokio::test]
async fn a_file_of_no_use_leaves_the_old_secret_in_force() {
    captured_log::begin();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("bot"), "bot-1").unwrap();
    fs::write(path("admin"), "admin-1").unwrap();
    let upstream = upstream().await;
    let admin = format!(
        "admin = \"127.0.0.1:0\"\nadmin_token = {{ file = \"{}\" }}",
        path("admin").display()
    );
    let credentials = account("bot", &path("bot")) + &config::client("ci", crate::support::KEY, "");
    let setup = Setup::new().upstream(upstream.url()).credentials(credentials).listen(&admin);
    let world = setup.start().await;
    for (times, content) in [(1, Some("")), (2, Some("two\nlines")), (3, None)] {
        match content {
            Some(content) => fs::write(path("bot"), content).unwrap(),
            None => fs::remove_file(path("bot")).unwrap(),
        }
        logged(&folder, KEPT, times).await;
    }
    assert_eq!(token(&world, &upstream, "/meta").await, "bot-1");
    // The other file is read although this one is gone.
    fs::write(path("admin"), "admin-2").unwrap();
    logged(&folder, READ_AGAIN, 1).await;
    let gateway = world.current.gateway();
    let token_of = |gateway: &weir::gateway::Gateway| {
        let token = gateway.env.config.listen.admin_token.clone().unwrap();
        secrecy::ExposeSecret::expose_secret(&token).to_owned()
    };
    assert_eq!(token_of(&gateway), "admin-2");
    assert_eq!(token(&world, &upstream, "/zen").await, "bot-1");
    // No further line about the file that did not change again.
    logged(&folder, KEPT, 3).await;
    fs::write(path("bot"), "bot-2").unwrap();
    logged(&folder, READ_AGAIN, 2).await;
    assert_eq!(token(&world, &upstream, "/octocat").await, "bot-2");
}

#[tokio::test]
async fn a_changed_secret_applies_no_other_change_of_the_config() {
    captured_log::begin();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("token"), "first").unwrap();
    let text = config::listen("127.0.0.1:0", "")
        + &config::upstream("http://127.0.0.1:9", "")
        + &account("bot", &path("token"))
        + &config::client("ci", crate::support::KEY, "weight = 1");
    fs::write(path("weir.toml"), &text).unwrap();
    let current = started(&path("weir.toml"));
    fs::write(path("weir.toml"), text.replace("weight = 1", "weight = 2")).unwrap();
    fs::write(path("token"), "second").unwrap();
    logged(&folder, READ_AGAIN, 1).await;
    let weight = || current.gateway().env.config.clients[0].weight.get();
    assert_eq!(weight(), 1, "the operator has not reloaded the config");
    current.reload().unwrap();
    assert_eq!(weight(), 2);
}
