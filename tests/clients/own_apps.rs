//! Client libraries with an app of their own, by pass-through: each mints an installation token
//! with its JWT and works with that token.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::config;
use super::install::{self, SOURCES};
use super::processes::{Gateway, Upstream};
use super::setup::KEY;

/// A stranger to acme: what this token cannot see, the app's own token can.
const POOL_TOKEN: &str = "emu_classic_dan_all_scopes";
const TITLE: &str = "By an app of one's own";

#[test]
fn octokits_app_mints_and_uses_a_token() {
    let directory = install::installed_for_node("octokit", &["own_app.mjs"]);
    assert_mints(Command::new("node").arg(directory.join("own_app.mjs")));
}

#[test]
fn probot_mints_and_uses_a_token() {
    let directory = install::installed_for_node("probot", &["own_app.mjs"]);
    assert_mints(Command::new("node").arg(directory.join("own_app.mjs")));
}

#[test]
fn gidgethub_mints_and_uses_a_token() {
    let directory = install::installed_for_python("gidgethub");
    let script = format!("{SOURCES}/gidgethub/own_app.py");
    assert_mints(Command::new(directory.join("bin/python")).arg(script));
}

#[test]
fn pygithubs_integration_mints_and_uses_a_token() {
    let directory = install::installed_for_python("pygithub");
    let script = format!("{SOURCES}/pygithub/own_app.py");
    assert_mints(Command::new(directory.join("bin/python")).arg(script));
}

#[test]
fn octocrab_mints_and_uses_a_token() {
    assert_mints(&mut Command::new(install::built_octocrab()));
}

/// Runs a library's app against a gateway whose pool has another token, and checks the upstream's
/// transcript.
fn assert_mints(library: &mut Command) {
    let upstream = Upstream::emulated();
    let gateway = Gateway::serve(&config(&upstream.address));
    let app = upstream.control("world")["apps"][0].clone();
    let plan = json!({
        "base_url": gateway.base_url,
        "key": KEY,
        "arguments": {
            "app_id": app["app_id"],
            "private_key": app["private_key"],
            "installation_id": app["installations"][0]["id"],
            "owner": "acme",
            "repo": "widgets",
            "title": TITLE,
        },
    });
    let observed = observations(library, &plan);
    let author = format!("{}[bot]", app["slug"].as_str().expect("a name"));
    let expected =
        json!({ "app": app["slug"], "repositories": true, "title": TITLE, "author": author });
    assert_eq!(observed, expected);
    let mut mints = 0;
    for request in upstream.transcript() {
        let path = request["path"].as_str().expect("a path");
        // The gateway's own look at the token of its pool.
        if path == "/rate_limit" {
            continue;
        }
        let as_app = path == "/app" || path.starts_with("/app/");
        mints += usize::from(path.ends_with("/access_tokens"));
        let expected = if as_app { "app-301" } else { "installation-311" };
        assert_eq!(request["account"], expected, "{request}");
    }
    assert!(mints > 0, "nothing was minted");
}

fn config(upstream: &str) -> String {
    config::listen("127.0.0.1:0", "")
        + &config::upstream(&format!("http://{upstream}"), config::GITHUB)
        + &config::section("passthrough", "enabled = true")
        + &config::user("dan", POOL_TOKEN)
        + &config::pool("readers", &["dan"])
        + &config::client("library", KEY, "reads = \"readers\"\nwrites = \"dan\"")
}

/// Runs the command with the plan on its standard input. Its standard output is JSON.
fn observations(command: &mut Command, plan: &Value) -> Value {
    let mut child = command
        .env("NO_PROXY", "*")
        .env("no_proxy", "*")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the library starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(plan.to_string().as_bytes()).expect("the library reads its plan");
    drop(stdin);
    let output = child.wait_with_output().expect("the library ends");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|fault| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        panic!("{command:?}, {}: {fault}\n{stderr}", output.status)
    })
}
