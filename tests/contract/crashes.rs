//! The gateway is killed at any moment, again and again: what it has accepted is done, failed or unknown, nothing twice that must not be, nothing missing, and in its
//! order (CONTRACT §4, 3 to 5; DESIGN D7).
//!
//! The emulator lives through it and keeps count. Each write says who wrote it in its query. When the gateway is killed depends on how much has happened since it
//! was started, by a seed.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir::clock::Clock;
use weir::config;
use weir::emulator::{Emulator, Handle, Options, Server};

const CLIENTS: usize = 10;
const WRITES: usize = 50;
const KILLS: usize = 50;
/// What the upstream takes for each answer: long enough to be killed meanwhile.
const LATENCY: Duration = Duration::from_millis(4);

/// A gateway that can be killed, and the emulator behind it.
struct Run {
    emulator: Handle,
    address: SocketAddr,
    config: PathBuf,
    http: Client<HttpConnector, Full<Bytes>>,
    accepted: AtomicUsize,
    _folder: tempfile::TempDir,
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // SIGKILL on Unix; one that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn key(client: usize) -> String {
    format!("weir_key_of_client_{client}_in_a_crash")
}

/// Method, target and body of a client's nth write. All of a client's are about one issue, hence one lane.
fn nth(client: usize, n: usize) -> (Method, String, String) {
    let issue = format!("/repos/acme/widgets/issues/{}", client + 1);
    let mark = format!("?w={client}-{n}");
    match n % 4 {
        0 | 1 => (Method::POST, format!("{issue}/comments{mark}"), json!({ "body": format!("{client}-{n}") }).to_string()),
        2 => (Method::PUT, format!("{issue}/labels{mark}"), json!({ "labels": [] }).to_string()),
        _ => (Method::PATCH, format!("{issue}{mark}"), json!({ "title": format!("{client}-{n}") }).to_string()),
    }
}

impl Run {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let clock = Clock::system();
        let options = Options { base_url: format!("http://{upstream}"), ..Options::default() };
        let emulator = Server::start(listener, Emulator::new(options, clock.now()), clock, LATENCY);
        let token = emulator.with_emulator(|emulator| emulator.tokens());
        let token = token.into_iter().find(|token| token.kind == "classic" && token.scopes.contains(&"repo")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        // Free a moment ago.
        let address = StdListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let mut text = format!(
            "[listen]\nhttp = [\"{address}\"]\n[upstream]\nurl = \"http://{upstream}\"\n\
             [[accounts]]\nname = \"bot\"\nkind = \"user\"\n[[tokens]]\naccount = \"bot\"\nkind = \"classic\"\nsecret = {{ value = \"{}\" }}\n\
             [writes]\nstore = {{ path = \"weir.redb\" }}\nspacing = \"0s\"\nnotify_spacing = \"0s\"\n\
             [limits]\nrest_points_per_minute = 1000000\ncontent_per_minute = 1000000\ncontent_per_hour = 1000000\ncpu_seconds_per_minute = 1000000\n",
            token.token
        );
        for client in 0..CLIENTS {
            let digest = config::digest_hex(key(client).as_bytes());
            let _ = write!(text, "[[clients]]\nname = \"client-{client}\"\nkey_sha256 = \"{digest}\"\nwrites = \"bot\"\n");
        }
        let config = folder.path().join("weir.toml");
        std::fs::write(&config, text).unwrap();
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let run = Self { emulator, address, config, http, accepted: AtomicUsize::new(0), _folder: folder };
        run.lift_limits();
        run
    }

    fn lift_limits(&self) {
        let limits = json!({ "points.rest": 1_000_000, "content.minute": 1_000_000, "content.hour": 1_000_000 });
        let request = Request::put("/_emulator/limits").body(Bytes::from(limits.to_string())).unwrap();
        let answer = self.emulator.with_emulator(|emulator| emulator.respond(Clock::system().now(), &request, [127, 0, 0, 1].into()));
        assert!(answer.status().is_success(), "{:?}", answer.body());
    }

    /// The gateway, listening.
    async fn gateway(&self) -> Killed {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("serve").arg("--config").arg(&self.config).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Killed(command.spawn().unwrap());
        while std::net::TcpStream::connect(self.address).is_err() {
            assert!(child.0.try_wait().unwrap().is_none(), "the gateway does not start: {:?}", self.log());
            tokio::task::yield_now().await;
        }
        child
    }

    /// What it says when it does not start.
    fn log(&self) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg("--config").arg(&self.config).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    async fn ask(&self, client: usize, method: &Method, target: &str, headers: &[(&str, &str)], body: &str) -> Option<(u16, Value)> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{target}", self.address));
        request = request.header("authorization", format!("Bearer {}", key(client)));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.http.request(request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()).await.ok()?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }

    /// Hands over all writes of a client, each as often as it takes; returns their ids.
    async fn hand_over(&self, client: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for n in 0..WRITES {
            let (method, target, body) = nth(client, n);
            let name = format!("{client}-{n}");
            let id = loop {
                let headers = [("prefer", "respond-async"), ("idempotency-key", name.as_str())];
                match self.ask(client, &method, &target, &headers, &body).await {
                    Some((202, told)) => break told["id"].as_str().unwrap().to_owned(),
                    // Draining or refused for the moment; the key makes it safe to ask again.
                    Some((status, told)) => panic!("{status}: {told}"),
                    None => tokio::task::yield_now().await,
                }
            };
            self.accepted.fetch_add(1, Ordering::Relaxed);
            ids.push(id);
        }
        ids
    }

    /// Everything that has happened so far.
    fn events(&self) -> usize {
        self.accepted.load(Ordering::Relaxed) + self.emulator.with_emulator(|emulator| emulator.transcript(0).len())
    }

    async fn end_of(&self, client: usize, id: &str) -> String {
        loop {
            let (status, told) =
                self.ask(client, &Method::GET, &format!("/_weir/writes/{id}"), &[("prefer", "wait=30")], "").await.unwrap();
            assert_eq!(status, 200, "the write {id} of client {client} is missing: {told}");
            let state = told["state"].as_str().unwrap();
            if !["queued", "sending"].contains(&state) {
                return state.to_owned();
            }
        }
    }

    /// For each write, as its query names it, where in the transcript it was carried out.
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

/// Numbers that look like chance (`xorshift`).
fn chance(seed: &mut u64, below: usize) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    usize::try_from(*seed % (below as u64)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_survives_fifty_kills() {
    let mut seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_1234_u64);
    println!("SEED={seed}");
    let run = Arc::new(Run::start().await);
    let killing = async {
        // A thousand events at least; fifty kills must fall between them.
        for _ in 0..KILLS {
            let gateway = run.gateway().await;
            let until = run.events() + chance(&mut seed, 20);
            while run.events() < until {
                tokio::task::yield_now().await;
            }
            drop(gateway);
        }
        run.gateway().await
    };
    let handing = (0..CLIENTS).map(|client| {
        let run = Arc::clone(&run);
        async move { tokio::spawn(async move { run.hand_over(client).await }).await.unwrap() }
    });
    let (gateway, ids) = tokio::join!(killing, join_all(handing));

    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    let mut told = HashMap::new();
    for (client, ids) in ids.iter().enumerate() {
        for (n, id) in ids.iter().enumerate() {
            let state = run.end_of(client, id).await;
            *states.entry(state.clone()).or_default() += 1;
            told.insert(format!("{client}-{n}"), state);
        }
    }
    drop(gateway);
    let executed = run.executed();
    println!("{states:?}, {} requests upstream", run.events() - CLIENTS * WRITES);
    assert_eq!(states.values().sum::<usize>(), CLIENTS * WRITES);
    assert!(states.keys().all(|state| ["done", "unknown"].contains(&state.as_str())), "nothing stood in the way of any: {states:?}");
    // A gateway that gave up on whatever it was killed in the midst of would know nothing of most.
    assert!(states["done"] >= CLIENTS * WRITES * 3 / 4, "{states:?}");
    for client in 0..CLIENTS {
        let mut last = 0;
        for n in 0..WRITES {
            let (method, ..) = nth(client, n);
            let mark = format!("{client}-{n}");
            let (state, times) = (&told[&mark], executed.get(&mark).map_or(&[][..], Vec::as_slice));
            match state.as_str() {
                "done" => assert!(!times.is_empty(), "{mark} is said to be done and was not"),
                _ => assert!(!method.is_idempotent(), "{mark} could have been repeated and is {state}"),
            }
            if !method.is_idempotent() {
                assert!(times.len() <= 1, "{method} {mark} was carried out {} times", times.len());
            }
            assert!(times.iter().all(|at| *at > last), "{mark} overtook an earlier write of its lane");
            last = times.iter().copied().max().unwrap_or(last);
        }
    }
}
