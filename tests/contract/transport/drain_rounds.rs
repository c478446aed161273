//! The drain of a process under load, many times: every request is answered, and has one log line.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::drain::{get, is_whole, within};
use crate::support::raw::Connection;
use crate::support::{Setup, World, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
/// Requests that wait for the upstream when the drain begins.
const GETS: usize = 10;
const POSTS: usize = 3;
/// Rounds, unless the environment variable has another number. Each takes half a second.
const ROUNDS: usize = 12;
const ROUNDS_VARIABLE: &str = "DRAIN_ROUNDS";
/// The system may hold a connection back while the listener closes; it then has sent nothing.
const CONNECT_WITHIN: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_loses_no_request_and_no_log_line() {
    let world = Setup::new()
        .writes("spacing = \"0s\"\nnotify_spacing = \"0s\"")
        .limits(
            "rest_points_per_minute = 1000000\ncontent_per_minute = 1000000\n\
             content_per_hour = 1000000\ncpu_seconds_per_minute = 1000000",
        )
        .start()
        .await;
    world.set_limits(&json!({
        "core.user": 1_000_000, "points.rest": 1_000_000, "content.minute": 1_000_000,
        "content.hour": 1_000_000,
    }));
    let rounds = std::env::var(ROUNDS_VARIABLE).ok().and_then(|rounds| rounds.parse().ok());
    for round in 0..rounds.unwrap_or(ROUNDS) {
        drain_once(&world, round).await;
    }
}

/// Ends a gateway process under load, while the upstream answers the requests that it holds.
async fn drain_once(world: &World, round: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (mut gateway, address) = start(&world.text, folder.path()).await;
    let mut answered = vec!["first".to_owned()];
    let mut first = Connection::open(address).await;
    first.send(get(REPOSITORY, "first").as_bytes()).await;
    assert!(is_whole(&within(first.read_answer()).await, 200));
    let gates = [world.close_gate("GET", ISSUES), world.close_gate("POST", ISSUES)];
    let mut load = JoinSet::new();
    for number in 0..GETS + POSTS {
        let mut client = Connection::open(address).await;
        let id = format!("held-{round}-{number}");
        let status = if number < GETS {
            client.send(get(&format!("{ISSUES}?page={}", number + 1), &id).as_bytes()).await;
            200
        } else {
            send_post(&mut client, ISSUES, &id).await;
            201
        };
        load.spawn(async move {
            let answer = client.read_answer().await;
            assert!(is_whole(&answer, status), "{id}: {answer:?}");
            vec![id]
        });
    }
    load.spawn(reads_on_one_connection(address, round));
    load.spawn(writes_on_one_connection(address, round));
    load.spawn(a_connection_for_each_read(address, round));
    within(world.held(gates[0], GETS)).await;
    // The others wait in the lane of the first.
    within(world.held(gates[1], 1)).await;
    let stopped = Command::new("kill").arg(gateway.0.id().to_string()).status().unwrap();
    assert!(stopped.success());
    for gate in gates {
        world.open_gate(gate);
    }
    while let Some(ids) = within(load.join_next()).await {
        answered.extend(ids.unwrap());
    }
    drop(first);
    let ended = tokio::task::spawn_blocking(move || gateway.0.wait());
    assert!(within(ended).await.unwrap().unwrap().success());
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let mut logged: Vec<String> = log.lines().filter_map(request_of).collect();
    logged.sort();
    answered.sort();
    assert_eq!(answered, logged, "round {round}");
}

/// The identifier of the request that a log line is about.
fn request_of(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).unwrap();
    let is_end = line["message"] == "request";
    is_end.then(|| line["request_id"].as_str().unwrap().to_owned())
}

async fn send_post(client: &mut Connection, path: &str, id: &str) {
    let (headers, body) = ([("X-Request-Id", id)], json!({ "title": id, "body": id }));
    client.send_write(&Method::POST, path, &headers, &body).await;
}

/// True if the gateway keeps the connection open after this answer.
fn goes_on(answer: &str) -> bool {
    !answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n")
}

/// Reads again and again, until an answer ends the connection.
async fn reads_on_one_connection(address: SocketAddr, round: usize) -> Vec<String> {
    let mut client = Connection::open(address).await;
    let mut ids = Vec::new();
    loop {
        let id = format!("read-{round}-{}", ids.len());
        client.send(get(REPOSITORY, &id).as_bytes()).await;
        let answer = client.read_answer().await;
        assert!(is_whole(&answer, 200), "{id}: {answer:?}");
        ids.push(id);
        if !goes_on(&answer) {
            return ids;
        }
    }
}

async fn writes_on_one_connection(address: SocketAddr, round: usize) -> Vec<String> {
    let mut client = Connection::open(address).await;
    let mut ids = Vec::new();
    loop {
        let id = format!("write-{round}-{}", ids.len());
        send_post(&mut client, COMMENTS, &id).await;
        let answer = client.read_answer().await;
        assert!(is_whole(&answer, 201), "{id}: {answer:?}");
        ids.push(id);
        if !goes_on(&answer) {
            return ids;
        }
    }
}

/// Opens connections until that fails; on each it reads once.
async fn a_connection_for_each_read(address: SocketAddr, round: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while let Ok(Ok(mut client)) = timeout(CONNECT_WITHIN, Connection::try_open(address)).await {
        let id = format!("opened-{round}-{}", ids.len());
        client.send(get(REPOSITORY, &id).as_bytes()).await;
        let answer = client.read_answer().await;
        assert!(is_whole(&answer, 200), "{id}: {answer:?}");
        ids.push(id);
    }
    ids
}

/// A gateway process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // A process that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a gateway process that logs into `folder`. Returns it and its address.
async fn start(config: &str, folder: &Path) -> (Killed, SocketAddr) {
    let (file, log) = (folder.join("weir.toml"), folder.join("log"));
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("serve").arg("--config").arg(&file).env_remove("WEIR_LOG");
    command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let gateway = Killed(command.spawn().unwrap());
    let listening = || {
        let text = std::fs::read_to_string(&log).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == "listening").find_map(|line| {
            line["address"].as_str().and_then(|address| address.parse::<SocketAddr>().ok())
        })
    };
    eventually(|| listening().is_some()).await;
    (gateway, listening().unwrap())
}
