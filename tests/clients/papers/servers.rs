//! The servers that the papers' commands address, on free ports in place of the printed ones.

use std::net::TcpListener;

use crate::config;
use crate::processes::{Demo, Gateway, Upstream};

/// The printed addresses of the demo, the emulator, the admin listener, and a webhook receiver.
const DEMO: &str = "127.0.0.1:8080";
/// The demo's base URL.
pub const DEMO_URL: &str = "http://127.0.0.1:8080";
const EMULATOR: &str = "127.0.0.1:8090";
const ADMIN: &str = "127.0.0.1:9090";
const RECEIVER: &str = "127.0.0.1:9000";

const ADMIN_TOKEN: &str = "admin-token-of-the-papers";

/// The running servers.
pub struct Servers {
    demo: Option<Demo>,
    emulator: Option<Upstream>,
    operated: Option<Operated>,
    /// An address without a listener: the emulator records failed deliveries too.
    receiver: String,
}

/// A gateway with an admin listener, and its upstream.
struct Operated {
    admin: String,
    _gateway: Gateway,
    _upstream: Upstream,
}

impl Servers {
    /// Starts the servers whose addresses stand in the text.
    pub fn named_in(text: &str) -> Self {
        Self {
            demo: text.contains(DEMO).then(Demo::start),
            emulator: text.contains(EMULATOR).then(Upstream::emulated),
            operated: text.contains(ADMIN).then(Operated::start),
            receiver: free_address(),
        }
    }

    /// The text with the addresses in use.
    pub fn rewritten(&self, text: &str) -> String {
        let demo = self.demo.as_ref().map_or(DEMO, |demo| &demo.address);
        let emulator = self.emulator.as_ref().map_or(EMULATOR, |emulator| &emulator.address);
        let admin = self.operated.as_ref().map_or(ADMIN, |operated| &operated.admin);
        text.replace(DEMO, demo)
            .replace(EMULATOR, emulator)
            .replace(ADMIN, admin)
            .replace(RECEIVER, &self.receiver)
    }

    /// The environment that the papers assume.
    pub fn variables(&self) -> Vec<(&'static str, &str)> {
        let key = self.demo.as_ref().map(|demo| ("WEIR_KEY", demo.key.as_str()));
        let token = self.operated.as_ref().map(|_| ("WEIR_ADMIN_TOKEN", ADMIN_TOKEN));
        key.into_iter().chain(token).collect()
    }
}

impl Operated {
    fn start() -> Self {
        let upstream = Upstream::emulated();
        let admin = free_address();
        let keys = format!("admin = \"{admin}\"\nadmin_token = {{ value = \"{ADMIN_TOKEN}\" }}");
        let text = config::listen("127.0.0.1:0", &keys)
            + &config::upstream(&format!("http://{}", upstream.address), config::GITHUB)
            + &config::user("build-bot", "emu_classic_ada_all_scopes")
            + &config::client("ci", "weir_key_of_the_papers", "writes = \"build-bot\"");
        Self { admin, _gateway: Gateway::serve(&text), _upstream: upstream }
    }
}

/// An address that was free a moment ago.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").to_string()
}
