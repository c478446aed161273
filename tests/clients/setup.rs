//! The setup of most tests here: upstream, gateway and client.

use std::path::Path;

use serde_json::Value;

use super::config;
use super::driver::{Client, Library, Report};
use super::processes::{Gateway, Upstream};

/// The client's key. It resembles those of `weir key`, and no credential of the upstream.
pub const KEY: &str = "weir_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The folder of the certificates of all suites.
const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/certificates");
/// The certificate of the private authority.
const AUTHORITY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/certificates/authority.pem");
/// Variables by which clients trust the private authority: curl, Node.js, Python's requests, and
/// programs that use OpenSSL or are written in Go.
pub const TRUSTING: [(&str, &str); 4] = [
    ("CURL_CA_BUNDLE", AUTHORITY),
    ("NODE_EXTRA_CA_CERTS", AUTHORITY),
    ("REQUESTS_CA_BUNDLE", AUTHORITY),
    ("SSL_CERT_FILE", AUTHORITY),
];

/// An account of the gateway and its one classic token.
#[derive(Clone, Debug)]
pub struct Account {
    pub name: String,
    pub token: String,
}

/// The client's base URL.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// `http://HOST` or `https://HOST`.
    Hosted,
    /// The same with `/api/v3`.
    SelfHosted,
}

/// A running gateway in front of a running upstream.
pub struct Setup {
    pub upstream: Upstream,
    gateway: Gateway,
    accounts: Vec<Account>,
}

impl Setup {
    /// A gateway with one client that reads by all the accounts and writes as the first.
    pub fn new(upstream: Upstream, accounts: Vec<Account>) -> Self {
        Self::tuned(upstream, accounts, "", "")
    }

    /// The same with further keys of the client and further sections.
    pub fn tuned(upstream: Upstream, accounts: Vec<Account>, client: &str, sections: &str) -> Self {
        let config = config_of(&upstream.address, &accounts, client, "") + sections;
        Self { gateway: Gateway::serve(&config), upstream, accounts }
    }

    /// The same, and the gateway also listens on a Unix socket.
    pub fn on_socket(upstream: Upstream, accounts: Vec<Account>, socket: &Path) -> Self {
        let listen = format!("unix = \"{}\"", socket.display());
        let config = config_of(&upstream.address, &accounts, "", &listen);
        Self { gateway: Gateway::serve(&config), upstream, accounts }
    }

    /// The same with an admin listener by these keys of `[listen]`.
    pub fn with_admin(upstream: Upstream, accounts: Vec<Account>, listen: &str) -> Self {
        let config = config_of(&upstream.address, &accounts, "", listen);
        Self { gateway: Gateway::serve(&config), upstream, accounts }
    }

    /// `HOST:PORT` of the admin listener, which the first call waits for.
    pub fn admin_address(&self) -> String {
        self.gateway.admin_address()
    }

    /// The same with a listener for TLS, which clients use. Its certificate is of the private
    /// authority.
    pub fn over_tls(upstream: Upstream, accounts: Vec<Account>) -> Self {
        Self::over_tls_with(upstream, accounts, "")
    }

    /// The same with further keys of `[listen]`.
    pub fn over_tls_with(upstream: Upstream, accounts: Vec<Account>, keys: &str) -> Self {
        let server = format!("{CERTIFICATES}/server.pem");
        let listen = format!(
            "https = {{ address = \"127.0.0.1:0\", cert = \"{server}\", key = \"{server}\" }}\n{keys}"
        );
        let config = config_of(&upstream.address, &accounts, "", &listen);
        Self { gateway: Gateway::serve_tls(&config), upstream, accounts }
    }

    /// The library, configured for this gateway.
    pub fn client(&self, library: Library, shape: Shape) -> Client {
        Client { library, base_url: self.base_url(shape), key: KEY.to_owned() }
    }

    /// The base URL of the client.
    pub fn base_url(&self, shape: Shape) -> String {
        match shape {
            Shape::Hosted => self.gateway.base_url.clone(),
            Shape::SelfHosted => format!("{}/api/v3", self.gateway.base_url),
        }
    }

    /// Plays a scenario with the hosted base URL. Returns its values and its traffic.
    pub fn plays(&self, library: Library, scenario: &str, arguments: &Value) -> (Value, Report) {
        self.client(library, Shape::Hosted).plays(scenario, arguments)
    }

    /// The account that the client writes as.
    pub fn writer(&self) -> &str {
        &self.accounts[0].name
    }

    /// The upstream requests as `METHOD path?query`, without the gateway's look at each token.
    pub fn sent(&self) -> Vec<String> {
        let text =
            |request: &Value, key: &str| request[key].as_str().unwrap_or_default().to_owned();
        let mut looks = 0;
        self.upstream
            .transcript()
            .iter()
            .map(|request| format!("{} {}", text(request, "method"), text(request, "path")))
            .filter(|request| {
                looks += usize::from(request == "GET /rate_limit");
                request != "GET /rate_limit" || looks > self.accounts.len()
            })
            .collect()
    }

    /// The accounts of the upstream requests, each once.
    pub fn seen_accounts(&self) -> Vec<String> {
        let mut accounts: Vec<String> = self
            .upstream
            .transcript()
            .iter()
            .filter_map(|request| Some(request["account"].as_str()?.to_owned()))
            .collect();
        accounts.sort();
        accounts.dedup();
        accounts
    }

    /// Asserts that every upstream request used an account of the gateway: neither the client's key
    /// nor an anonymous request arrived.
    pub fn assert_only_own_accounts_were_seen(&self) {
        for seen in self.seen_accounts() {
            assert!(
                self.accounts.iter().any(|account| account.name == seen),
                "the upstream saw {seen}"
            );
        }
        for request in self.upstream.transcript() {
            assert!(
                request["token"].is_u64(),
                "the upstream does not know the credential of {request}"
            );
        }
    }
}

fn config_of(upstream: &str, accounts: &[Account], client: &str, listen: &str) -> String {
    let names: Vec<&str> = accounts.iter().map(|account| account.name.as_str()).collect();
    let keys = format!("reads = \"readers\"\nwrites = \"{}\"\n{client}", names[0]);
    let users = accounts.iter().map(|account| config::user(&account.name, &account.token));
    config::listen("127.0.0.1:0", listen)
        + &config::upstream(&format!("http://{upstream}"), config::GITHUB)
        + &config::pool("readers", &names)
        + &config::client("library", KEY, &keys)
        + &config::section("writes", "spacing = \"10ms\"\nnotify_spacing = \"10ms\"")
        + &users.collect::<String>()
}
