//! Gateway and emulator in the test's process with a manual clock. Minutes of the service's limits
//! pass in a second, and the libraries in their own processes see quick responses only.
//!
//! Connection timeouts follow the machine's clock.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use weir::api::Dialect;
use weir::clock::{Clock, Timestamp, timer_now};
use weir::emulator::{Emulator, Entry, GateId, Handle, Options, Server};
use weir::gateway::Current;
use weir::gateway::Gateway;
use weir::gateway::Listening;
use weir::telemetry::Metrics;

use super::config;
use super::driver::{Client, Library};

/// A gateway under the service's own limits, with clients that all write for one account.
pub struct VirtualTime {
    emulator: Handle,
    pub gateway: Arc<Gateway>,
    pub clock: Clock,
    address: String,
    token: String,
    _current: Arc<Current>,
    _listening: Listening,
    pub runtime: Runtime,
}

/// Longer than any step of a test takes, on a busy machine too.
pub const LONGEST_WAIT: Duration = Duration::from_secs(180);

/// The key of a client by its number.
fn key(client: usize) -> String {
    format!("weir_key_of_the_library_number_{client}")
}

impl VirtualTime {
    /// Starts with this many clients, each with ten minutes of `max_wait`, and further config
    /// sections.
    pub fn start(clients: usize, sections: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let clock = Clock::manual(Timestamp::from_secs(1_800_000_000));
        let guard = runtime.enter();
        let listener =
            runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a port");
        let upstream = listener.local_addr().expect("its address");
        let options = Options {
            dialect: Dialect::Github,
            base_url: format!("http://{upstream}"),
            ..Options::default()
        };
        let emulator = Server::start(
            listener,
            Emulator::new(options, clock.now()),
            clock.clone(),
            Duration::ZERO,
        );
        let tokens = emulator.with_emulator(|emulator| emulator.tokens());
        let token = tokens
            .iter()
            .find(|token| token.kind == "classic" && token.scopes.contains(&"repo"))
            .expect("a token that may write");
        let keys = "writes = \"bot\"\nmax_wait = \"10m\"";
        let clients = (0..clients)
            .map(|client| config::client(&format!("library-{client}"), &key(client), keys));
        let text = config::listen("127.0.0.1:0", "")
            + &config::upstream(&format!("http://{upstream}"), config::GITHUB)
            + &config::user("bot", &token.token)
            + &clients.collect::<String>()
            + sections;
        let current =
            Current::new(Arc::new(config::parsed(&text)), clock.clone(), Arc::new(Metrics::new()));
        let listening = Listening::open(&current).expect("the gateway listens");
        let gateway = current.gateway();
        let address = listening.addresses[0].to_string();
        drop(guard);
        let token = token.token.clone();
        Self {
            emulator,
            gateway,
            clock,
            address,
            token,
            _current: current,
            _listening: listening,
            runtime,
        }
    }

    /// The address of the gateway.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A library as this client, with `address` as the gateway's.
    pub fn client(client: usize, library: Library, address: &str) -> Client {
        Client { library, base_url: format!("http://{address}"), key: key(client) }
    }

    /// Every request that the emulator received.
    pub fn transcript(&self) -> Vec<Entry> {
        self.emulator.with_emulator(|emulator| emulator.transcript(0))
    }

    /// The number of writes that the emulator received.
    pub fn posts(&self) -> usize {
        self.transcript().iter().filter(|entry| entry.method == "POST").count()
    }

    /// Waits for a condition that the gateway, the emulator or a library makes true.
    pub fn until(is_so: impl Fn() -> bool) {
        let begun = timer_now();
        while !is_so() {
            assert!(begun.elapsed() < LONGEST_WAIT, "what the test waits for does not come about");
            std::thread::yield_now();
        }
    }

    /// Holds every POST at the emulator until the returned gate is opened.
    pub fn close_gate(&self) -> GateId {
        let gate = self.ask_emulator(
            Method::POST,
            "/_emulator/gates",
            &json!({ "match": { "method": "POST" } }),
        );
        GateId(gate["id"].as_u64().unwrap_or_else(|| panic!("a gate has an id: {gate}")))
    }

    /// Releases the requests that a gate holds.
    pub fn open_gate(&self, gate: GateId) {
        self.ask_emulator(Method::DELETE, &format!("/_emulator/gates/{}", gate.0), &Value::Null);
    }

    /// All comments of the written repository, as the emulator has them.
    pub fn comments(&self) -> Vec<Value> {
        let page = |page: usize| {
            let listed = self.ask_emulator(
                Method::GET,
                &format!("/repos/acme/widgets/issues/comments?per_page=100&page={page}"),
                &Value::Null,
            );
            listed.as_array().cloned().unwrap_or_default()
        };
        (1..).map(page).take_while(|comments| !comments.is_empty()).flatten().collect()
    }

    /// The emulator's response to a direct request.
    pub fn ask_emulator(&self, method: Method, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(body)
            .expect("a request");
        let now = self.clock.now();
        let answer = self.emulator.with_emulator(|emulator| {
            emulator.respond(now, &request, IpAddr::V4(Ipv4Addr::LOCALHOST))
        });
        assert!(answer.status().is_success(), "{path}: {:?}", answer.body());
        serde_json::from_slice(answer.body()).unwrap_or(Value::Null)
    }
}
