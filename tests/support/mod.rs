//! The gateway and the emulator in one process, on ephemeral ports, and the words that tests use
//! about them.
//!
//! Nothing here sleeps: concurrency is held by the emulator's gates, time moves only where a test
//! says so.

pub mod broken;
pub mod log;
pub mod logged;
pub mod origin;
pub mod raw;
pub mod reply;
pub mod staged;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir::api::Dialect;
use weir::clock::{Clock, Timestamp};
use weir::config::{self, WriteStore};
use weir::emulator::{Emulator, Entry, Handle, Options, Server, TokenView};
use weir::gateway::Gateway;
use weir::gateway::reload::{Current, Reloaded};
use weir::gateway::server::listen::{Drained, Listening};
use weir::gateway::write::queue::Recovery;
use weir::telemetry::Metrics;
use weir::writes::Store;
use weir::writes::file::FileStore;
use weir::writes::memory::MemoryStore;

pub use reply::Reply;

/// The key of the client `ci`.
pub const KEY: &str = "weir_key_of_the_client_ci_in_tests";
/// The key of the client `other`, which writes for the second account.
pub const OTHER_KEY: &str = "weir_key_of_the_client_other_in_tests";

/// What a test wants to start with.
pub struct Setup {
    accounts: usize,
    clock: Clock,
    upstream_clock: Option<Clock>,
    credentials: Option<String>,
    extra: String,
    client: String,
    listen: String,
    upstream: Option<String>,
    upstream_keys: String,
    account: String,
    broken_token: Option<usize>,
    is_reader: bool,
    holders: String,
}

/// A gateway in front of an emulator.
pub struct World {
    pub emulator: Handle,
    /// By the config in force.
    pub current: Arc<Current>,
    /// By the first config; what it shares with later ones is theirs too.
    pub gateway: Arc<Gateway>,
    /// The first config.
    pub text: String,
    pub address: SocketAddr,
    pub clock: Clock,
    upstream_clock: Clock,
    pub tokens: Vec<TokenView>,
    http: Client<HttpConnector, Full<Bytes>>,
    listening: Listening,
}

impl Setup {
    /// One account, one pool, the machine's clock.
    pub fn new() -> Self {
        Self {
            accounts: 1,
            clock: Clock::system(),
            upstream_clock: None,
            credentials: None,
            extra: String::new(),
            client: String::new(),
            listen: String::new(),
            upstream: None,
            upstream_keys: String::new(),
            account: String::new(),
            broken_token: None,
            is_reader: false,
            holders: String::new(),
        }
    }

    /// This many accounts in the pool.
    pub fn accounts(mut self, accounts: usize) -> Self {
        self.accounts = accounts;
        self
    }

    /// A clock that only the test moves.
    pub fn manual_clock(mut self) -> Self {
        self.clock = Clock::manual(Timestamp::from_secs(1_800_000_000));
        self
    }

    /// Another clock for both sides.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The same, and one for the upstream that shows something else: this many seconds more.
    pub fn manual_clocks_apart(mut self, seconds: i64) -> Self {
        self.clock = Clock::manual(Timestamp::from_secs(1_800_000_000));
        self.upstream_clock = Some(Clock::manual(Timestamp::from_secs(
            1_800_000_000_u64.saturating_add_signed(seconds),
        )));
        self
    }

    /// Accounts, tokens, apps and clients of the test's own; those of the emulator's users are not
    /// used.
    pub fn credentials(mut self, text: String) -> Self {
        self.credentials = Some(text);
        self
    }

    /// Further sections of the config.
    pub fn config(mut self, text: &str) -> Self {
        self.extra.push_str(text);
        self.extra.push('\n');
        self
    }

    /// Further keys of the client `ci`.
    pub fn client(mut self, text: &str) -> Self {
        self.client.push_str(text);
        self.client.push('\n');
        self
    }

    /// Further keys of each account.
    pub fn account(mut self, text: &str) -> Self {
        self.account.push_str(text);
        self.account.push('\n');
        self
    }

    /// An account of this name and kind with tokens of these kinds, in place of the usual ones,
    /// which only the test itself uses then. The clients write for nobody unless [`Setup::client`]
    /// says for whom.
    pub fn holder(mut self, name: &str, kind: &str, tokens: &[(&str, &str)], extra: &str) -> Self {
        let _ =
            write!(self.holders, "[[accounts]]\nname = \"{name}\"\nkind = \"{kind}\"\n{extra}\n");
        for (kind, secret) in tokens {
            let _ = write!(
                self.holders,
                "[[tokens]]\naccount = \"{name}\"\nkind = \"{kind}\"\nsecret = {{ value = \"{secret}\" }}\n"
            );
        }
        self.is_reader = true;
        self
    }

    /// The client `ci` has no account of its own.
    pub fn reader(mut self) -> Self {
        self.is_reader = true;
        self
    }

    /// The token of this account is one that the upstream does not know.
    pub fn broken_token(mut self, account: usize) -> Self {
        self.broken_token = Some(account);
        self
    }

    /// Further keys of `[listen]`.
    pub fn listen(mut self, text: &str) -> Self {
        self.listen.push_str(text);
        self.listen.push('\n');
        self
    }

    /// Another upstream than the emulator.
    pub fn upstream(mut self, url: String) -> Self {
        self.upstream = Some(url);
        self
    }

    /// Further keys of `[upstream]`.
    pub fn upstream_keys(mut self, text: &str) -> Self {
        self.upstream_keys.push_str(text);
        self.upstream_keys.push('\n');
        self
    }

    /// Starts both.
    pub async fn start(self) -> World {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let options = Options {
            dialect: Dialect::Github,
            base_url: format!("http://{upstream}"),
            ..Options::default()
        };
        let upstream_clock = self.upstream_clock.clone().unwrap_or_else(|| self.clock.clone());
        let emulator = Server::start(
            listener,
            Emulator::new(options, upstream_clock.now()),
            upstream_clock.clone(),
            Duration::ZERO,
        );
        let tokens =
            usable_tokens(emulator.with_emulator(|emulator| emulator.tokens()), self.accounts);
        assert_eq!(
            tokens.len(),
            self.accounts,
            "the emulator's world has too few accounts with a classic token"
        );
        let text = self.text(upstream, &tokens);
        let config = config::parse(&text, "test", &|_| None, Path::new("."))
            .unwrap_or_else(|faults| panic!("{faults}\n{text}"));
        let store: Arc<dyn Store> = match &config.writes.store {
            WriteStore::File(path) => Arc::new(FileStore::open(path, |_, _| Ok(())).unwrap()),
            WriteStore::Memory | WriteStore::Redis => Arc::new(MemoryStore::default()),
        };
        let current = Current::with_writes(
            Arc::new(config),
            self.clock.clone(),
            Arc::new(Metrics::new()),
            store,
            Recovery::default(),
        );
        let listening = Listening::open(&current).unwrap();
        let gateway = current.gateway();
        let address = listening.addresses[0];
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(512).build_http();
        World {
            emulator,
            current,
            text,
            gateway,
            address,
            clock: self.clock,
            upstream_clock,
            tokens,
            http,
            listening,
        }
    }

    /// A gateway that does not listen yet, with nothing behind it.
    pub fn gateway_alone(self) -> Arc<Current> {
        let token = TokenView {
            token: "emu_none".into(),
            account: String::new(),
            kind: "classic",
            user: None,
            scopes: Vec::new(),
            permissions: BTreeMap::new(),
            note: "",
        };
        let text = self.text(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)), &[token]);
        let config = config::parse(&text, "test", &|_| None, Path::new("."))
            .unwrap_or_else(|faults| panic!("{faults}\n{text}"));
        Current::new(Arc::new(config), self.clock, Arc::new(Metrics::new()))
    }

    fn text(&self, upstream: SocketAddr, tokens: &[TokenView]) -> String {
        let url = self.upstream.clone().unwrap_or_else(|| format!("http://{upstream}"));
        let mut text = format!(
            "[listen]\nhttp = [\"127.0.0.1:0\"]\n{}\n[upstream]\nurl = \"{url}\"\ndialect = \"github\"\n{}\n",
            self.listen, self.upstream_keys
        );
        if let Some(credentials) = &self.credentials {
            text.push_str(credentials);
            text.push_str(&self.extra);
            return text;
        }
        let has_own = !self.holders.is_empty();
        text.push_str(&self.holders);
        for (index, token) in tokens.iter().enumerate().filter(|_| !has_own) {
            let _ = write!(
                text,
                "[[accounts]]\nname = \"account-{index}\"\nkind = \"user\"\n{}",
                self.account
            );
            let secret =
                if self.broken_token == Some(index) { "emu_unknown_token" } else { &token.token };
            let _ = write!(
                text,
                "[[tokens]]\naccount = \"account-{index}\"\nkind = \"classic\"\nsecret = {{ value = \"{secret}\" }}\n"
            );
        }
        let other = 1.min(tokens.len() - 1);
        let _ = write!(
            text,
            "[[clients]]\nname = \"ci\"\nkey_sha256 = \"{}\"\n{}{}\n",
            config::digest_hex(KEY.as_bytes()),
            if self.is_reader { "" } else { "writes = \"account-0\"\n" },
            self.client
        );
        let _ = write!(
            text,
            "[[clients]]\nname = \"other\"\nkey_sha256 = \"{}\"\n{}\n",
            config::digest_hex(OTHER_KEY.as_bytes()),
            if has_own { String::new() } else { format!("writes = \"account-{other}\"") }
        );
        text.push_str(&self.extra);
        text
    }
}

/// Classic tokens with the scope `repo`, one for each account.
fn usable_tokens(all: Vec<TokenView>, wanted: usize) -> Vec<TokenView> {
    let mut chosen: Vec<TokenView> = Vec::new();
    for token in
        all.into_iter().filter(|token| token.kind == "classic" && token.scopes.contains(&"repo"))
    {
        if chosen.len() < wanted && chosen.iter().all(|other| other.account != token.account) {
            chosen.push(token);
        }
    }
    chosen
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

    /// Any request; with the key of `ci` unless the headers say who asks.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        send(&self.http, self.address, method, path, headers, body).await
    }

    /// Puts another config in force: what `edit` makes of the first one's text.
    pub fn reload(&self, edit: impl FnOnce(&str) -> String) -> Reloaded {
        let text = edit(&self.text);
        assert_ne!(text, self.text, "nothing was edited");
        let config = config::parse(&text, "test", &|_| None, Path::new("."))
            .unwrap_or_else(|faults| panic!("{faults}\n{text}"));
        self.current.succeed(config)
    }

    /// What the emulator saw, control plane excluded.
    pub fn upstream_requests(&self) -> Vec<Entry> {
        self.emulator.with_emulator(|emulator| emulator.transcript(0))
    }

    /// Asks the emulator's control plane or API itself, past the gateway.
    pub fn ask_emulator(&self, method: Method, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.tokens[0].token))
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

    /// How many items a list of the emulator has, all pages together.
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

    /// Moves the clocks of both sides, which may be apart.
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

    /// Lets what a gate holds go on.
    pub fn open_gate(&self, gate: u64) {
        self.ask_emulator(Method::DELETE, &format!("/_emulator/gates/{gate}"), &Value::Null);
    }

    /// Until this many requests wait for fetches.
    pub async fn all_waiting_for_one_fetch(&self, askers: usize) {
        eventually(|| self.gateway.flights.askers() == askers).await;
    }

    /// Ends the emulator; the gateway goes on.
    pub async fn without_emulator(self) -> Alone {
        self.emulator.shutdown().await;
        Alone {
            address: self.address,
            http: self.http,
            _gateway: self.gateway,
            _listening: self.listening,
        }
    }

    /// The drain that SIGTERM begins, and what is left of the world to watch it.
    pub fn into_drain(
        self,
        grace: Duration,
    ) -> (Gates, impl Future<Output = Drained> + Send + 'static) {
        let gates = Gates { emulator: self.emulator, clock: self.clock };
        (gates, self.listening.drain(grace))
    }

    /// Until the gate holds this many requests.
    pub async fn held(&self, gate: u64, count: usize) {
        self.emulator.wait_until_held(weir::emulator::GateId(gate), count).await;
    }
}

/// The emulator of a world whose gateway is draining.
pub struct Gates {
    emulator: Handle,
    clock: Clock,
}

impl Gates {
    /// Lets what a gate holds go on.
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
    let mut request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        request = request.header("authorization", format!("Bearer {KEY}"));
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    Reply::read(http.request(request).await.unwrap()).await
}

/// All answers of one round.
#[track_caller]
pub fn all_have_status(answers: &[Reply], status: u16) {
    for answer in answers {
        answer.assert_status(status);
    }
}

/// Until a condition holds that another task brings about; a test that waits for ever has found a
/// bug.
pub async fn eventually(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), holds)
        .await
        .expect("what the test waits for does not come about");
}
