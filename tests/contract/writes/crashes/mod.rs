//! Crashes: the gateway is killed at random moments. Every accepted write still ends as done,
//! failed, unknown or cancelled. None is lost or out of order, and no write that may be sent once
//! is sent twice (SPECIFICATION, "Promises" 3 to 5; D7).
//!
//! The emulator survives and keeps the record. The query of each write names its client. A seed
//! decides after how many events the gateway is killed. Some clients leave their synchronous write,
//! some writes are cancelled by their client or an operator, some requests are repeated.

mod full_disk;
mod replicas;

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::request::Builder;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir::clock::Clock;
use weir::emulator::{Emulator, Handle, Options, Server};
use weir::random::Rng;

use crate::support::cases::cases;
use crate::support::config;

const CLIENTS: usize = 10;
const WRITES: usize = 50;
const KILLS: u32 = 50;
/// Comments by id. Each has its own lane, because its path does not name the issue.
const COMMENTS: &str = "/repos/acme/widgets/issues/comments";
/// The upstream's latency, long enough for a kill.
const LATENCY: Duration = Duration::from_millis(4);

/// A gateway that can be killed, and the emulator behind it.
struct Run {
    emulator: Handle,
    gateways: Vec<Place>,
    /// Counts requests, which go to one gateway after the other.
    asked: AtomicUsize,
    /// The replicas may refuse a request for now, while what they share is away.
    may_refuse: bool,
    http: Client<HttpConnector, Full<Bytes>>,
    accepted: AtomicUsize,
    /// Existing comments for each client to delete.
    comments: Vec<Vec<u64>>,
    _folder: tempfile::TempDir,
}

/// The place of a gateway.
struct Place {
    address: SocketAddr,
    admin: SocketAddr,
    config: PathBuf,
}

/// The author of a cancellation.
#[derive(Clone, Copy)]
enum By {
    Client,
    Operator,
}

/// A write that was accepted.
struct Accepted {
    id: String,
    /// A caller received the cancellation.
    taken_back: bool,
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // SIGKILL on Unix. A process that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn key(client: usize) -> String {
    format!("weir_key_of_client_{client}_in_a_crash")
}

/// Limits of the gateway too high for this test to meet.
const HIGH_LIMITS: &str = "rest_points_per_minute = 1000000\ncontent_per_minute = 1000000\n\
    content_per_hour = 1000000\ncpu_seconds_per_minute = 1000000";

impl Run {
    /// Method, target and body of a client's nth write. All writes of a client concern one issue,
    /// so they share a lane.
    fn nth(&self, client: usize, n: usize) -> (Method, String, String) {
        let issue = format!("/repos/acme/widgets/issues/{}", client + 1);
        let mark = format!("?w={client}-{n}");
        match n % 5 {
            0 | 1 => (
                Method::POST,
                format!("{issue}/comments{mark}"),
                json!({ "body": format!("{client}-{n}") }).to_string(),
            ),
            2 => {
                (Method::PUT, format!("{issue}/labels{mark}"), json!({ "labels": [] }).to_string())
            }
            3 => (
                Method::PATCH,
                format!("{issue}{mark}"),
                json!({ "title": format!("{client}-{n}") }).to_string(),
            ),
            _ if n.is_multiple_of(2) => {
                let comment = self.comments[client][n / 10];
                (Method::DELETE, format!("{COMMENTS}/{comment}{mark}"), String::new())
            }
            _ => (Method::DELETE, format!("{issue}/labels{mark}"), String::new()),
        }
    }

    /// A gateway alone, with its writes in a file.
    async fn start() -> Self {
        Self::start_by(1, "store = { path = \"weir.redb\" }", "").await
    }

    /// Gateways with one upstream. `store` is a line of `[writes]`, and `more` further sections.
    async fn start_by(gateways: usize, store: &str, more: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let clock = Clock::system();
        let options = Options { base_url: format!("http://{upstream}"), ..Options::default() };
        let emulator = Server::start(listener, Emulator::new(options, clock.now()), clock, LATENCY);
        let token = emulator.with_emulator(|emulator| emulator.tokens());
        let token = token
            .into_iter()
            .find(|token| token.kind == "classic" && token.scopes.contains(&"repo"))
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        // Ports that were free a moment ago, bound together so that they differ.
        let free: Vec<_> =
            (0..2 * gateways).map(|_| StdListener::bind(("127.0.0.1", 0)).unwrap()).collect();
        let free: Vec<_> = free.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let store = format!("{store}\n{}", config::UNSPACED);
        let clients = (0..CLIENTS).map(|client| {
            config::client(&format!("client-{client}"), &key(client), "writes = \"bot\"")
        });
        let rest = config::upstream(&format!("http://{upstream}"), "")
            + &config::user("bot", &token.token)
            + &config::section("writes", &store)
            + &config::section("limits", HIGH_LIMITS)
            + &clients.collect::<String>()
            + more;
        let gateways = free.chunks(2).enumerate().map(|(number, free)| {
            let config = folder.path().join(format!("weir-{number}.toml"));
            let admin = format!("admin = \"{}\"", free[1]);
            let text = config::listen(&free[0].to_string(), &admin) + &rest;
            std::fs::write(&config, text).unwrap();
            Place { address: free[0], admin: free[1], config }
        });
        let gateways = gateways.collect();
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let accepted = AtomicUsize::new(0);
        let mut run = Self {
            emulator,
            gateways,
            asked: AtomicUsize::new(0),
            may_refuse: !more.is_empty(),
            http,
            accepted,
            comments: Vec::new(),
            _folder: folder,
        };
        run.lift_limits();
        run.comments = (0..CLIENTS)
            .map(|client| {
                (0..WRITES.div_ceil(10)).map(|_| run.make_comment(client, &token.token)).collect()
            })
            .collect();
        run
    }

    fn lift_limits(&self) {
        let limits = json!({ "points.rest": 1_000_000, "content.minute": 1_000_000, "content.hour": 1_000_000 });
        self.ask_emulator(Request::put("/_emulator/limits"), &limits);
    }

    /// Creates a comment directly at the emulator and returns its id.
    fn make_comment(&self, client: usize, token: &str) -> u64 {
        let path = format!("/repos/acme/widgets/issues/{}/comments", client + 1);
        let request = Request::post(path).header("authorization", format!("Bearer {token}"));
        self.ask_emulator(request, &json!({ "body": "to be deleted" }))["id"].as_u64().unwrap()
    }

    fn ask_emulator(&self, request: Builder, body: &Value) -> Value {
        let request = request.body(Bytes::from(body.to_string())).unwrap();
        let answer = self.emulator.with_emulator(|emulator| {
            emulator.respond(Clock::system().now(), &request, [127, 0, 0, 1].into())
        });
        assert!(answer.status().is_success(), "{:?}", answer.body());
        serde_json::from_slice(answer.body()).unwrap_or(Value::Null)
    }

    /// Starts a gateway and waits until it listens.
    async fn gateway(&self) -> Killed {
        self.gateway_by(Command::new(env!("CARGO_BIN_EXE_weir"))).await
    }

    /// The same with another command.
    async fn gateway_by(&self, command: Command) -> Killed {
        let mut child = self.begin(0, command);
        while std::net::TcpStream::connect(self.gateways[0].address).is_err() {
            assert!(
                child.0.try_wait().unwrap().is_none(),
                "the gateway does not start: {:?}",
                self.log()
            );
            tokio::task::yield_now().await;
        }
        child
    }

    /// Starts one of the gateways.
    fn begin(&self, gateway: usize, mut command: Command) -> Killed {
        let config = &self.gateways[gateway].config;
        command.arg("serve").arg("--config").arg(config);
        // A folder for the logs of a run that fails.
        let log = || match std::env::var("LOGS") {
            Ok(folder) => {
                let file = PathBuf::from(folder).join(format!("gateway-{gateway}.log"));
                let options = OpenOptions::new().create(true).append(true).open(file);
                Stdio::from(options.unwrap())
            }
            Err(_) => Stdio::null(),
        };
        Killed(command.stdout(log()).stderr(log()).spawn().unwrap())
    }

    /// The log, for a gateway that does not start.
    fn log(&self) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("check")
            .arg("--config")
            .arg(&self.gateways[0].config)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    async fn ask(
        &self,
        client: usize,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<(u16, Value)> {
        let key = format!("Bearer {}", key(client));
        let headers = [&[("authorization", key.as_str())], headers].concat();
        self.ask_at(self.next().address, method, target, &headers, body).await
    }

    /// The gateway of the next request.
    fn next(&self) -> &Place {
        &self.gateways[self.asked.fetch_add(1, Ordering::Relaxed) % self.gateways.len()]
    }

    async fn ask_at(
        &self,
        at: SocketAddr,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<(u16, Value)> {
        let mut request = Request::builder().method(method).uri(format!("http://{at}{target}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self
            .http
            .request(request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap())
            .await
            .ok()?;
        let status = answer.status().as_u16();
        if status == 503 && self.may_refuse {
            return None;
        }
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }

    /// Queues all writes of a client, each as often as necessary.
    async fn hand_over(&self, client: usize, mut rng: Rng) -> Vec<Accepted> {
        let mut all: Vec<Accepted> = Vec::new();
        for n in 0..WRITES {
            if chance(&mut rng, 4) == 0 {
                self.wait_a_while_and_leave(client, n, chance(&mut rng, 6)).await;
            }
            let id = self.hand_over_nth(client, n).await;
            self.accepted.fetch_add(1, Ordering::Relaxed);
            let taken_back = match chance(&mut rng, 12) {
                0 => self.take_back(client, &id, By::Client).await,
                1 => self.take_back(client, &id, By::Operator).await,
                _ => false,
            };
            all.push(Accepted { id, taken_back });
            let earlier = chance(&mut rng, 4 * (n + 1));
            if let Some(accepted) = all.get(earlier) {
                assert_eq!(
                    self.hand_over_nth(client, earlier).await,
                    accepted.id,
                    "the key of {client}-{earlier} stands for another write now"
                );
            }
        }
        all
    }

    /// The id of the write behind the client's nth request.
    async fn hand_over_nth(&self, client: usize, n: usize) -> String {
        let (method, target, body) = self.nth(client, n);
        let name = format!("{client}-{n}");
        let headers = [("prefer", "respond-async"), ("idempotency-key", name.as_str())];
        loop {
            match self.ask(client, &method, &target, &headers, &body).await {
                Some((202, reported)) => return reported["id"].as_str().unwrap().to_owned(),
                Some((status, reported)) => panic!("{status}: {reported}"),
                // The key makes repetition safe.
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// The same request, synchronous, until this many events have happened. The next request takes
    /// it over, or it ends with its client, or it is done.
    async fn wait_a_while_and_leave(&self, client: usize, n: usize, events: usize) {
        let (method, target, body) = self.nth(client, n);
        let name = format!("{client}-{n}");
        let headers = [("idempotency-key", name.as_str())];
        let until = self.events() + events;
        let patience = async {
            while self.events() < until {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = self.ask(client, &method, &target, &headers, &body) => {}
            () = patience => {}
        }
    }

    /// Cancels a write. Returns true if a caller received the cancellation; after a lost response
    /// the next one reports the same.
    async fn take_back(&self, client: usize, id: &str, by: By) -> bool {
        loop {
            let answer = match by {
                By::Client => {
                    self.ask(client, &Method::DELETE, &format!("/_weir/writes/{id}"), &[], "").await
                }
                By::Operator => {
                    self.ask_at(
                        self.next().admin,
                        &Method::POST,
                        &format!("/api/writes/{id}/cancel"),
                        &[("content-type", "application/json")],
                        "",
                    )
                    .await
                }
            };
            match answer {
                Some((200 | 204, _)) => return true,
                Some((409, reported)) => return reported.to_string().contains("is cancelled"),
                Some((status, reported)) => panic!("{status}: {reported}"),
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// The number of events so far.
    fn events(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
            + self.emulator.with_emulator(|emulator| emulator.transcript(0).len())
    }

    async fn end_of(&self, client: usize, id: &str) -> String {
        loop {
            let status = format!("/_weir/writes/{id}");
            let wait = [("prefer", "wait=30")];
            let asked = self.ask(client, &Method::GET, &status, &wait, "").await;
            if asked.is_none() && self.may_refuse {
                tokio::task::yield_now().await;
                continue;
            }
            let (status, reported) = asked.unwrap();
            assert_eq!(status, 200, "the write {id} of client {client} is missing: {reported}");
            let state = reported["state"].as_str().unwrap();
            if !["queued", "sending"].contains(&state) {
                return state.to_owned();
            }
        }
    }

    /// The positions in the transcript at which each write was executed, by the name in its query.
    fn executed(&self) -> HashMap<String, Vec<u64>> {
        let mut executed: HashMap<String, Vec<u64>> = HashMap::new();
        for entry in self.emulator.with_emulator(|emulator| emulator.transcript(0)) {
            if let (true, Some((_, mark))) = (entry.executed, entry.path.split_once("?w=")) {
                executed.entry(mark.to_owned()).or_default().push(entry.sequence);
            }
        }
        executed
    }
}

fn chance(rng: &mut Rng, below: usize) -> usize {
    usize::try_from(rng.below(below as u64)).unwrap()
}

/// The final states.
struct Ended {
    accepted: Vec<Vec<Accepted>>,
    states: HashMap<String, String>,
    executed: HashMap<String, Vec<u64>>,
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_writes_survive_fifty_kills() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_1234_u64);
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let run = Arc::new(Run::start().await);
    let handing = (0..CLIENTS).map(|client| {
        let (run, rng) = (Arc::clone(&run), Rng::for_purpose(seed, 1 + client as u64));
        async move { tokio::spawn(async move { run.hand_over(client, rng).await }).await.unwrap() }
    });
    let handing = join_all(handing);
    let killing = async {
        // A thousand events at least, so that fifty kills fall between them.
        for _ in 0..cases(KILLS) {
            let gateway = run.gateway().await;
            let until = run.events() + chance(&mut rng, 20);
            while run.events() < until {
                tokio::task::yield_now().await;
            }
            drop(gateway);
        }
        run.gateway().await
    };
    let (gateway, accepted) = tokio::join!(killing, handing);
    judge(&run, accepted).await;
    drop(gateway);
}

/// Waits for the ends of all writes, and compares them with the emulator's record.
async fn judge(run: &Run, accepted: Vec<Vec<Accepted>>) {
    let mut states = HashMap::new();
    for (client, n, accepted) in all(&accepted) {
        states.insert(format!("{client}-{n}"), run.end_of(client, &accepted.id).await);
    }
    let executed = run.executed();
    // A repeated request afterwards returns the same write, and nothing more is executed.
    for (client, n, accepted) in all(&accepted) {
        assert_eq!(run.hand_over_nth(client, n).await, accepted.id);
    }
    assert_eq!(run.executed(), executed);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for state in states.values() {
        *counts.entry(state).or_default() += 1;
    }
    println!("{counts:?}, {} requests upstream", executed.values().map(Vec::len).sum::<usize>());
    // A gateway that dropped every interrupted write would know few of them.
    assert!(counts["done"] >= CLIENTS * WRITES * 2 / 3 && counts["cancelled"] > 0, "{counts:?}");
    assert_true(run, &Ended { accepted, states, executed });
}

/// Each write with its client and its number.
fn all(accepted: &[Vec<Accepted>]) -> impl Iterator<Item = (usize, usize, &Accepted)> {
    accepted.iter().enumerate().flat_map(|(client, all)| {
        all.iter().enumerate().map(move |(n, accepted)| (client, n, accepted))
    })
}

/// Asserts that each reported state matches the emulator's record.
fn assert_true(run: &Run, ended: &Ended) {
    let mut lanes: HashMap<usize, u64> = HashMap::new();
    for (client, n, accepted) in all(&ended.accepted) {
        let (method, target, _) = run.nth(client, n);
        let mark = format!("{client}-{n}");
        let (state, times) = (
            ended.states[&mark].as_str(),
            ended.executed.get(&mark).map_or(&[][..], Vec::as_slice),
        );
        match state {
            "done" => assert!(!times.is_empty(), "{mark} is said to be done and was not"),
            "cancelled" => {
                assert!(times.is_empty(), "{mark} is said to be taken back and was executed");
            }
            // The first attempt, or nobody, deleted a comment that a repetition does not find.
            "unknown" => assert!(
                !method.is_idempotent() || target.starts_with(COMMENTS),
                "{method} {mark} could have been repeated"
            ),
            _ => panic!("nothing stood in the way of {method} {mark}, and it is {state}"),
        }
        assert!(
            !accepted.taken_back || state == "cancelled",
            "{mark} was taken back, and is {state}"
        );
        assert!(
            method.is_idempotent() || times.len() <= 1,
            "{method} {mark} was carried out {} times",
            times.len()
        );
        if !target.starts_with(COMMENTS) {
            let last = lanes.entry(client).or_default();
            assert!(
                times.iter().all(|at| *at > *last),
                "{mark} overtook an earlier write of its lane"
            );
            *last = times.iter().copied().max().unwrap_or(*last);
        }
    }
}
