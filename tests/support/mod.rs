//! The gateway and the emulator in one process, on ephemeral ports, with the vocabulary of the
//! tests.
//!
//! Nothing here sleeps. The emulator's gates hold concurrent requests, and a clock moves only when
//! a test moves it.

pub mod broken;
pub mod captured_log;
pub mod cases;
pub mod collector;
pub mod config;
pub mod issuer;
pub mod jwt;
pub mod link;
pub mod log;
pub mod name_server;
pub mod origin;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod redis_server;
pub mod reply;
pub mod scripted;
pub mod setup;
pub mod switched;
pub mod tls_client;
pub mod tls_upstream;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use weir::clock::Clock;
use weir::emulator::{Entry, Handle, TokenView};
use weir::gateway::Gateway;
use weir::gateway::{Current, Reloaded};
use weir::gateway::{Drained, Leaving, Listening};

pub use reply::Reply;
pub use setup::Setup;

/// The key of the client `ci`.
pub const KEY: &str = "weir_key_of_the_client_ci_in_tests";
/// The key of the client `other`, which writes for the second account.
pub const OTHER_KEY: &str = "weir_key_of_the_client_other_in_tests";
/// A test that waits for longer has found a bug, and must not stop all others.
const LONGEST_WAIT: Duration = Duration::from_secs(180);

/// A gateway in front of an emulator.
pub struct World {
    pub emulator: Handle,
    /// The holder of the config in force.
    pub current: Arc<Current>,
    /// The gateway of the first config; later ones share its state.
    pub gateway: Arc<Gateway>,
    /// The text of the first config.
    pub text: String,
    pub address: SocketAddr,
    /// The address for TLS, if the config has one.
    pub https: Option<SocketAddr>,
    pub clock: Clock,
    upstream_clock: Clock,
    pub tokens: Vec<TokenView>,
    http: Client<HttpConnector, Full<Bytes>>,
    listening: Listening,
}

impl World {
    /// A GET by the client `ci`.
    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }

    /// A GET by the client `ci` with further headers.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.send(Method::GET, path, headers, "").await
    }

    /// A POST of JSON by the client `ci`.
    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, &[], &body.to_string()).await
    }

    /// Any request, with the key of `ci` unless the headers carry `Authorization`.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        self.send_to(self.address, method, path, headers, body).await
    }

    /// The same to another gateway.
    pub async fn send_to(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        send(&self.http, address, method, path, headers, body).await
    }

    /// A GET to another gateway with this key; `None` if it ends, or is not there.
    pub async fn get_from(&self, address: SocketAddr, key: &str, path: &str) -> Option<Reply> {
        let headers = [("authorization", &*format!("Bearer {key}"))];
        try_send(&self.http, address, Method::GET, path, &headers, "").await.ok()
    }

    /// Reloads with the first config's text as `edit` changes it.
    pub fn reload(&self, edit: impl FnOnce(&str) -> String) -> Reloaded {
        let text = edit(&self.text);
        assert_ne!(text, self.text, "nothing was edited");
        self.current.apply_config(config::parsed(&text))
    }

    /// The requests that the emulator received, without those to its control plane.
    pub fn upstream_requests(&self) -> Vec<Entry> {
        self.emulator.with_emulator(|emulator| emulator.transcript(0))
    }

    /// Sends a request to the emulator directly: to its control plane or its API.
    pub fn ask_emulator(&self, method: Method, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.tokens[0].token))
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let now = self.upstream_clock.now();
        let answer = self.emulator.with_emulator(|emulator| {
            emulator.respond(now, &request, IpAddr::V4(Ipv4Addr::LOCALHOST))
        });
        assert!(
            answer.status().is_success(),
            "the emulator answered {} to {path}: {:?}",
            answer.status(),
            answer.body()
        );
        serde_json::from_slice(answer.body()).unwrap_or(Value::Null)
    }

    /// The length of a list at the emulator over all its pages.
    pub fn count_at_emulator(&self, path: &str) -> usize {
        let page = |number| {
            self.ask_emulator(
                Method::GET,
                &format!("{path}&per_page=100&page={number}"),
                &Value::Null,
            )
            .as_array()
            .map_or(0, Vec::len)
        };
        (1..=100).map(page).take_while(|items| *items > 0).sum()
    }

    /// Advances the clocks of gateway and emulator, which may differ.
    pub fn advance_both(&self, by: Duration) {
        let before = self.upstream_clock.now();
        self.clock.advance(by);
        if self.upstream_clock.now() == before {
            self.upstream_clock.advance(by);
        }
    }

    /// Sets limits of the emulator by name.
    pub fn set_limits(&self, limits: &Value) {
        self.ask_emulator(Method::PUT, "/_emulator/limits", limits);
    }

    /// Arms a fault of the emulator.
    pub fn arm(&self, fault: &Value) {
        self.ask_emulator(Method::POST, "/_emulator/faults", fault);
    }

    /// Holds every matching request at the emulator until the returned gate is opened.
    pub fn close_gate(&self, method: &str, path: &str) -> u64 {
        let gate = self.ask_emulator(
            Method::POST,
            "/_emulator/gates",
            &json!({ "match": { "method": method, "path": path } }),
        );
        gate["id"].as_u64().unwrap_or_else(|| panic!("a gate has an id: {gate}"))
    }

    /// Releases the requests that a gate holds.
    pub fn open_gate(&self, gate: u64) {
        self.ask_emulator(Method::DELETE, &format!("/_emulator/gates/{gate}"), &Value::Null);
    }

    /// Waits until this many requests wait for a fetch.
    pub async fn all_waiting_for_one_fetch(&self, waiters: usize) {
        eventually(|| self.gateway.cache.single_flight().waiters() == waiters).await;
    }

    /// True if some token reports a problem.
    pub fn has_token_problem(&self) -> bool {
        let health = self.gateway.dispatcher.tokens().health(self.clock.now());
        health.iter().any(|token| token.message.is_some())
    }

    /// Ends the emulator and keeps the gateway.
    pub async fn without_emulator(self) -> Alone {
        self.emulator.shutdown().await;
        Alone {
            address: self.address,
            http: self.http,
            _gateway: self.gateway,
            _listening: self.listening,
        }
    }

    /// Ends the gateway as SIGTERM does, and starts one by the config's text as `edit` changes it,
    /// in front of the same emulator. `between` runs while no gateway runs.
    pub async fn restart(
        self,
        between: impl FnOnce(&Handle),
        edit: impl FnOnce(&str) -> String,
    ) -> Self {
        let Self { emulator, current, gateway, text, clock, listening, .. } = self;
        assert_eq!(listening.drain(LONGEST_WAIT).await, Drained::Completely);
        drop((current, gateway));
        between(&emulator);
        let text = edit(&text);
        let (current, listening) = setup::gateway_by(&text, &clock);
        let (gateway, address) = (current.gateway(), listening.addresses[0]);
        Self { emulator, current, gateway, text, address, clock, listening, ..self }
    }

    /// Begins the drain of SIGTERM. Returns the gates of the emulator and the drain itself.
    pub fn into_drain(
        self,
        grace: Duration,
    ) -> (Gates, impl Future<Output = Drained> + Send + 'static) {
        let gates = Gates { emulator: self.emulator, clock: self.clock };
        (gates, self.listening.drain(grace))
    }

    /// Begins the drain of a process whose successor goes on. Nobody has the sockets here.
    pub fn into_hand_over(
        self,
        grace: Duration,
    ) -> (Gates, impl Future<Output = Drained> + Send + 'static) {
        let gates = Gates { emulator: self.emulator, clock: self.clock };
        let listening = self.listening;
        let drain =
            async move { listening.drain_as(grace, &Leaving::HandedOver(Vec::new())).await };
        (gates, drain)
    }

    /// Waits until the gate holds this many requests.
    pub async fn held(&self, gate: u64, count: usize) {
        let held = self.emulator.wait_until_held(weir::emulator::GateId(gate), count);
        tokio::time::timeout(LONGEST_WAIT, held).await.expect("no request reaches the gate");
    }
}

/// The emulator of a draining gateway.
pub struct Gates {
    emulator: Handle,
    clock: Clock,
}

impl Gates {
    /// Releases the requests that a gate holds.
    pub fn open_gate(&self, gate: u64) {
        let request =
            Request::delete(format!("/_emulator/gates/{gate}")).body(Bytes::new()).unwrap();
        let now = self.clock.now();
        self.emulator.with_emulator(|emulator| {
            emulator.respond(now, &request, IpAddr::V4(Ipv4Addr::LOCALHOST))
        });
    }
}

/// A gateway whose upstream is gone.
pub struct Alone {
    address: SocketAddr,
    http: Client<HttpConnector, Full<Bytes>>,
    _gateway: Arc<Gateway>,
    _listening: Listening,
}

impl Alone {
    /// A GET by the client `ci`.
    pub async fn get(&self, path: &str) -> Reply {
        send(&self.http, self.address, Method::GET, path, &[], "").await
    }
}

async fn send(
    http: &Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    try_send(http, address, method, path, headers, body).await.expect("a whole answer")
}

/// The same, which fails without a whole answer.
async fn try_send(
    http: &Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Reply, Box<dyn Error>> {
    let mut request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        request = request.header("authorization", format!("Bearer {KEY}"));
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    let reply = async { Ok(Reply::try_read(http.request(request).await?).await?) };
    tokio::time::timeout(LONGEST_WAIT, reply).await.expect("the gateway answers")
}

/// Asserts the status of every reply.
#[track_caller]
pub fn all_have_status(answers: &[Reply], status: u16) {
    for answer in answers {
        answer.assert_status(status);
    }
}

/// Bounds a wait for a peer, so that a lost message fails its test.
pub async fn bounded<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONGEST_WAIT, wait).await.expect("the peer does not do its part")
}

/// Waits until another task makes a condition true. A test that waits in vain has found a bug.
pub async fn eventually(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONGEST_WAIT, holds)
        .await
        .expect("what the test waits for does not come about");
}
