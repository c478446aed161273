//! The drain of a process under load, many times: every request is answered, and has one log line.
//!
//! Requests of all kinds are sent before, during and after the signal. A request is lost if the
//! gateway took its bytes and gave no whole answer, and unlogged if it has no log line.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::drain::{get, is_whole, within};
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
/// Requests that wait for the upstream when the drain begins.
const GETS: usize = 10;
const POSTS: usize = 3;
/// Connections whose request is half sent when the drain begins.
const HALVES: usize = 8;
/// Clients that open a connection for each request, before the signal and until that fails.
const OPENERS: usize = 6;
/// Tasks that share one HTTP/2 connection.
const STREAMS: usize = 4;
/// Log lines at the signal.
const WARM: usize = 60;
/// Rounds, unless the environment variable has another number. Each takes about a second.
const ROUNDS: usize = 8;
const ROUNDS_VARIABLE: &str = "DRAIN_ROUNDS";
/// Another program instead of the gateway, such as an earlier version.
const PROGRAM_VARIABLE: &str = "DRAIN_PROGRAM";
/// The log line of a head that was refused before its end came.
const UNREAD: &str = "a connection without a readable request was closed";
/// The system may hold a connection back while the listener closes; it then has sent nothing.
const CONNECT_WITHIN: Duration = Duration::from_millis(300);

/// The requests of a task by identifier, each with the fault of its answer. `None` for a fault: the
/// answer is whole and of a right status, or 503.
type Sent = Vec<(String, Option<String>)>;

#[derive(Debug, Default)]
struct Tally {
    /// Requests by the first word of their identifiers.
    sent: BTreeMap<String, usize>,
    lost: Vec<String>,
    /// Requests with another number of log lines than one.
    badly_logged: Vec<String>,
    /// Heads that were refused before their ends came. They have a log line without an identifier.
    unread: usize,
}

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
        "content.hour": 1_000_000, "points.graphql": 1_000_000,
    }));
    let rounds = std::env::var(ROUNDS_VARIABLE).ok().and_then(|rounds| rounds.parse().ok());
    let mut tally = Tally::default();
    for round in 0..rounds.unwrap_or(ROUNDS) {
        drain_once(&world, round, &mut tally).await;
    }
    if rounds.is_some() {
        eprintln!("sent: {:?}", tally.sent);
        let (lost, badly_logged) = (tally.lost.len(), tally.badly_logged.len());
        let unread = tally.unread;
        eprintln!("lost: {lost}, unlogged: {badly_logged}, refused unfinished heads: {unread}");
    }
    assert!(tally.lost.is_empty() && tally.badly_logged.is_empty(), "{tally:#?}");
}

/// Ends a gateway process under load, while the upstream answers the requests that it holds.
async fn drain_once(world: &World, round: usize, tally: &mut Tally) {
    let folder = tempfile::tempdir().unwrap();
    let spacing = if round.is_multiple_of(2) { "0s" } else { "20ms" };
    let config = world.text.replace("spacing = \"0s\"", &format!("spacing = \"{spacing}\""));
    let (mut gateway, address) = start(&config, folder.path()).await;
    let mut sent = Sent::new();
    let mut first = Connection::open(address).await;
    sent.push(one(&mut first, get(REPOSITORY, "first"), "first").await.unwrap());
    let gates = [world.close_gate("GET", ISSUES), world.close_gate("POST", ISSUES)];
    let mut load = JoinSet::new();
    for number in 0..GETS {
        let id = format!("held-{number}");
        let request = get(&format!("{ISSUES}?page={}", number + 1), &id);
        load.spawn(alone(address, request, id));
    }
    for number in 0..POSTS {
        let id = format!("held-post-{number}");
        load.spawn(alone(address, post(ISSUES, &id), id));
    }
    for kind in [Kind::Hit, Kind::Stale, Kind::Miss, Kind::Write, Kind::Graphql] {
        load.spawn(one_after_another(address, kind));
    }
    for number in 0..OPENERS {
        load.spawn(a_connection_each(address, Kind::OPENED[number % Kind::OPENED.len()], number));
    }
    http2_streams(address, &mut load).await;
    let halves = half_sent(address, &mut sent).await;
    within(world.held(gates[0], GETS)).await;
    // The others wait in the lane of the first.
    within(world.held(gates[1], 1)).await;
    let log = folder.path().join("log");
    let lines = || std::fs::read_to_string(&log).unwrap().lines().count();
    eventually(|| lines() >= WARM).await;
    let stopped = Command::new("kill").arg(gateway.0.id().to_string()).status().unwrap();
    assert!(stopped.success());
    for (mut client, rest, ids) in halves {
        load.spawn(async move {
            let is_open = client.send_unless_closed(rest.as_bytes()).await;
            let mut answers = Sent::new();
            for id in ids.into_iter().filter(|_| is_open) {
                answers.push((id, fault_of(&client.read_answer().await)));
            }
            answers
        });
    }
    for gate in gates {
        world.open_gate(gate);
    }
    while let Some(ids) = within(load.join_next()).await {
        sent.extend(ids.unwrap());
    }
    drop(first);
    let ended = tokio::task::spawn_blocking(move || gateway.0.wait());
    assert!(within(ended).await.unwrap().unwrap().success());
    let log = std::fs::read_to_string(log).unwrap();
    tally.take(round, sent, &log);
}

impl Tally {
    fn take(&mut self, round: usize, sent: Sent, log: &str) {
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        for id in log.lines().filter_map(request_of) {
            *lines.entry(id).or_default() += 1;
        }
        let mut unread = log.matches(UNREAD).count();
        for (id, fault) in sent {
            let kind = id.split('-').next().unwrap_or_default().to_owned();
            let is_half = kind == "half";
            *self.sent.entry(kind).or_default() += 1;
            let logged = lines.remove(&id).unwrap_or_default();
            if let Some(fault) = fault {
                self.lost.push(format!("round {round}: {id}, {fault}, {logged} lines"));
            } else if logged == 0 && is_half && unread > 0 {
                unread -= 1;
                self.unread += 1;
            } else if logged != 1 {
                self.badly_logged.push(format!("round {round}: {id}, {logged} lines"));
            }
        }
        let unknown = lines.into_keys().map(|id| format!("round {round}: {id} has no answer"));
        self.lost.extend(unknown);
    }
}

/// The identifier of the request that a log line is about.
fn request_of(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).unwrap();
    let is_end = line["message"] == "request";
    is_end.then(|| line["request_id"].as_str().unwrap().to_owned())
}

/// Requests that differ in the stages that serve them.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Hit,
    /// A stored answer that is revalidated.
    Stale,
    Miss,
    Write,
    Graphql,
}

impl Kind {
    const OPENED: [Self; 3] = [Self::Hit, Self::Miss, Self::Write];

    /// The request of this number in a task.
    fn request(self, id: &str, number: usize) -> String {
        match self {
            Self::Hit => get(REPOSITORY, id),
            Self::Stale => {
                get(REPOSITORY, id).replace("\r\nHost", "\r\nCache-Control: max-age=0\r\nHost")
            }
            Self::Miss => get(&format!("{COMMENTS}?page={}", number + 1), id),
            Self::Write => post(COMMENTS, id),
            Self::Graphql => {
                message("/graphql", id, &json!({ "query": "{ viewer { login } }" }).to_string())
            }
        }
    }
}

fn post(path: &str, id: &str) -> String {
    message(path, id, &json!({ "title": id, "body": id }).to_string())
}

fn message(path: &str, id: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nX-Request-Id: {id}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The fault of an answer. A refusal says when to come back, and ends the connection.
fn fault_of(answer: &str) -> Option<String> {
    let is_served = [200, 201].iter().any(|status| is_whole(answer, *status));
    let head = answer.to_ascii_lowercase();
    let is_refused = is_whole(answer, 503)
        && head.contains("\r\nretry-after: ")
        && head.contains("\r\nconnection: close\r\n");
    (!is_served && !is_refused).then(|| format!("{answer:?}"))
}

/// True if the gateway keeps the connection open after this answer.
fn goes_on(answer: &str) -> bool {
    !answer.is_empty() && !answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n")
}

/// Sends a request and reads its answer. `None` if the gateway had closed the connection.
async fn one(
    client: &mut Connection,
    request: String,
    id: &str,
) -> Option<(String, Option<String>)> {
    if !client.send_unless_closed(request.as_bytes()).await {
        return None;
    }
    Some((id.to_owned(), fault_of(&client.read_answer().await)))
}

async fn alone(address: SocketAddr, request: String, id: String) -> Sent {
    let mut client = Connection::open(address).await;
    one(&mut client, request, &id).await.into_iter().collect()
}

/// Sends requests on one connection, until an answer ends it.
async fn one_after_another(address: SocketAddr, kind: Kind) -> Sent {
    let mut client = Connection::open(address).await;
    let mut sent = Sent::new();
    loop {
        let id = format!("{kind:?}-{}", sent.len());
        let request = kind.request(&id, sent.len());
        if !client.send_unless_closed(request.as_bytes()).await {
            return sent;
        }
        let answer = client.read_answer().await;
        sent.push((id, fault_of(&answer)));
        if !goes_on(&answer) {
            return sent;
        }
    }
}

/// Opens connections until that fails; on each it sends one request.
async fn a_connection_each(address: SocketAddr, kind: Kind, opener: usize) -> Sent {
    let mut sent = Sent::new();
    while let Ok(Ok(mut client)) = timeout(CONNECT_WITHIN, Connection::try_open(address)).await {
        let id = format!("opened-{opener}-{}", sent.len());
        let request = kind.request(&id, OPENERS * sent.len() + opener);
        sent.extend(one(&mut client, request, &id).await);
    }
    sent
}

/// Sends requests on one HTTP/2 connection, until it takes no more.
async fn http2_streams(address: SocketAddr, load: &mut JoinSet<Sent>) {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) =
        http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), stream).await.unwrap();
    load.spawn(async move {
        // Its end is that of the requests.
        let _ = connection.await;
        Sent::new()
    });
    for task in 0..STREAMS {
        let mut sender = sender.clone();
        load.spawn(async move {
            let mut sent = Sent::new();
            while sender.ready().await.is_ok() {
                let id = format!("stream-{task}-{}", sent.len());
                let (method, path) = match task % 4 {
                    0 => ("GET", REPOSITORY.to_owned()),
                    1 => ("GET", format!("{COMMENTS}?page={}", 1_000 + sent.len())),
                    2 => ("GET", format!("{ISSUES}/1")),
                    _ => ("POST", COMMENTS.to_owned()),
                };
                let request = Request::builder()
                    .method(method)
                    .uri(format!("http://weir{path}"))
                    .header("authorization", format!("Bearer {KEY}"))
                    .header("x-request-id", &id)
                    .header("cache-control", if task == 2 { "max-age=0" } else { "max-age=60" });
                let body = if method == "POST" {
                    json!({ "body": id }).to_string()
                } else {
                    String::new()
                };
                match sender.send_request(request.body(Full::from(body)).unwrap()).await {
                    Ok(answer) => {
                        let status = answer.status().as_u16();
                        let body = answer.into_body().collect().await;
                        let is_good = body.is_ok() && matches!(status, 200 | 201 | 503);
                        sent.push((id, (!is_good).then(|| format!("{status} {body:?}"))));
                    }
                    // The stream was not begun: the connection had ended (RFC 9113 §6.8).
                    Err(error) if is_not_begun(&error) => return sent,
                    Err(error) => sent.push((id, Some(format!("{error:?}")))),
                }
            }
            sent
        });
    }
}

/// True if the gateway does not process the stream, by its GOAWAY.
fn is_not_begun(error: &hyper::Error) -> bool {
    error.is_canceled() || format!("{error:?}").contains("GoAway(b\"\", NO_ERROR, Remote)")
}

/// Sends the first bytes of requests. Returns each connection with the rest, and the identifiers.
async fn half_sent(address: SocketAddr, sent: &mut Sent) -> Vec<(Connection, String, Vec<String>)> {
    let mut halves = Vec::new();
    for number in 0..HALVES {
        let mut client = Connection::open(address).await;
        let id = format!("half-{number}");
        let (before, last) = match number % 4 {
            // In its head.
            0 => (String::new(), get(REPOSITORY, &id)),
            1 => (String::new(), post(COMMENTS, &id)),
            // In the head of the second of two.
            2 => (get(REPOSITORY, &format!("before-{number}")), get(COMMENTS, &id)),
            // On a connection in use.
            _ => {
                let used = format!("used-{number}");
                sent.extend(one(&mut client, get(REPOSITORY, &used), &used).await);
                (String::new(), get(COMMENTS, &id))
            }
        };
        // Every other POST is split in its body.
        let split = if number == 5 { last.len() - 5 } else { 10 + 9 * number };
        client.send([&before, &last[..split]].concat().as_bytes()).await;
        let ids = if before.is_empty() { vec![id] } else { vec![format!("before-{number}"), id] };
        halves.push((client, last[split..].to_owned(), ids));
    }
    halves
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
    let program = std::env::var_os(PROGRAM_VARIABLE);
    let mut command = Command::new(program.unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into()));
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
