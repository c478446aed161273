//! The setup of a test: config, emulator and gateway of a `World`, by their differences from the
//! usual ones.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use weir::api::Dialect;
use weir::clock::{Clock, Timestamp};
use weir::config::WriteStore;
use weir::emulator::{Emulator, Options, Server, TokenView};
use weir::gateway::Current;
use weir::gateway::Listening;
use weir::gateway::Recovery;
use weir::telemetry::Metrics;
use weir::writes::Store;
use weir::writes::file::FileStore;
use weir::writes::memory::MemoryStore;

use super::{KEY, OTHER_KEY, World, config};

/// The differences from the usual config and clocks.
pub struct Setup {
    accounts: usize,
    clock: Clock,
    upstream_clock: Option<Clock>,
    credentials: Option<String>,
    extra: String,
    cache: String,
    limits: String,
    writes: String,
    client: String,
    other_client: String,
    listen: String,
    upstream: Option<String>,
    upstream_keys: String,
    account: String,
    broken_token: Option<usize>,
    is_reader: bool,
    is_alone: bool,
    holders: String,
}

impl Setup {
    /// One account, one pool, the clock of the machine.
    pub fn new() -> Self {
        Self {
            accounts: 1,
            clock: Clock::system(),
            upstream_clock: None,
            credentials: None,
            extra: String::new(),
            cache: String::new(),
            limits: String::new(),
            writes: String::new(),
            client: String::new(),
            other_client: String::new(),
            listen: String::new(),
            upstream: None,
            upstream_keys: String::new(),
            account: String::new(),
            broken_token: None,
            is_reader: false,
            is_alone: false,
            holders: String::new(),
        }
    }

    /// Puts this many accounts into the pool.
    pub fn accounts(mut self, accounts: usize) -> Self {
        self.accounts = accounts;
        self
    }

    /// Leaves out the client of [`OTHER_KEY`](super::OTHER_KEY).
    pub fn single_client(mut self) -> Self {
        self.is_alone = true;
        self
    }

    /// Uses a clock that only the test moves.
    pub fn manual_clock(mut self) -> Self {
        self.clock = Clock::manual(Timestamp::from_secs(1_800_000_000));
        self
    }

    /// Uses this clock for gateway and emulator.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Uses manual clocks, with the upstream's this many seconds ahead of the gateway's.
    pub fn manual_clocks_apart(mut self, seconds: i64) -> Self {
        self.clock = Clock::manual(Timestamp::from_secs(1_800_000_000));
        self.upstream_clock = Some(Clock::manual(Timestamp::from_secs(
            1_800_000_000_u64.saturating_add_signed(seconds),
        )));
        self
    }

    /// Replaces the usual accounts, tokens, apps and clients with these sections.
    pub fn credentials(mut self, text: String) -> Self {
        self.credentials = Some(text);
        self
    }

    /// Keys of `[cache]`.
    pub fn cache(mut self, keys: &str) -> Self {
        push_line(&mut self.cache, keys);
        self
    }

    /// Makes the cache follow RFC 9111 alone.
    pub fn rfc9111(self) -> Self {
        self.cache(config::RFC9111)
    }

    /// Adds a cache rule that sets the lifetime of a route's responses.
    pub fn cache_ttl(self, route: &str, ttl: &str) -> Self {
        self.config(&config::cache_ttl(route, ttl))
    }

    /// Keys of `[limits]`.
    pub fn limits(mut self, keys: &str) -> Self {
        push_line(&mut self.limits, keys);
        self
    }

    /// Keys of `[writes]`.
    pub fn writes(mut self, keys: &str) -> Self {
        push_line(&mut self.writes, keys);
        self
    }

    /// Lets writes of one account follow each other immediately.
    pub fn unspaced_writes(self) -> Self {
        self.writes(config::UNSPACED)
    }

    /// Further sections of the config.
    pub fn config(mut self, text: &str) -> Self {
        push_line(&mut self.extra, text);
        self
    }

    /// Further keys of the client `ci`.
    pub fn client(mut self, text: &str) -> Self {
        push_line(&mut self.client, text);
        self
    }

    /// Further keys of the client `other`.
    pub fn other_client(mut self, text: &str) -> Self {
        push_line(&mut self.other_client, text);
        self
    }

    /// Further keys of each account.
    pub fn account(mut self, text: &str) -> Self {
        push_line(&mut self.account, text);
        self
    }

    /// Adds an account of this kind with tokens of these kinds, instead of the usual accounts. The
    /// clients then write for no account unless [`Setup::client`] names one.
    pub fn holder(mut self, name: &str, kind: &str, tokens: &[(&str, &str)], extra: &str) -> Self {
        self.holders.push_str(&config::account(name, kind, extra));
        for (kind, secret) in tokens {
            self.holders.push_str(&config::token(name, kind, secret));
        }
        self.is_reader = true;
        self
    }

    /// Leaves the client `ci` without an account to write for.
    pub fn reader(mut self) -> Self {
        self.is_reader = true;
        self
    }

    /// Gives this account a token that the upstream does not know.
    pub fn broken_token(mut self, account: usize) -> Self {
        self.broken_token = Some(account);
        self
    }

    /// Further keys of `[listen]`.
    pub fn listen(mut self, text: &str) -> Self {
        push_line(&mut self.listen, text);
        self
    }

    /// Puts another upstream behind the gateway.
    pub fn upstream(mut self, url: String) -> Self {
        self.upstream = Some(url);
        self
    }

    /// Further keys of `[upstream]`.
    pub fn upstream_keys(mut self, text: &str) -> Self {
        push_line(&mut self.upstream_keys, text);
        self
    }

    /// Starts the emulator and the gateway.
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
        let (current, listening) = gateway_by(&text, &self.clock);
        let gateway = current.gateway();
        let (address, https) = (listening.addresses[0], listening.https);
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(512).build_http();
        World {
            emulator,
            current,
            text,
            gateway,
            address,
            https,
            clock: self.clock,
            upstream_clock,
            tokens,
            http,
            listening,
        }
    }

    /// A gateway that does not listen and has no upstream.
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
        let config = config::parsed(&text);
        Current::new(Arc::new(config), self.clock, Arc::new(Metrics::new()))
    }

    fn text(&self, upstream: SocketAddr, tokens: &[TokenView]) -> String {
        let url = self.upstream.clone().unwrap_or_else(|| format!("http://{upstream}"));
        let mut text = config::listen("127.0.0.1:0", &self.listen)
            + &config::upstream(&url, &(config::GITHUB.to_owned() + &self.upstream_keys));
        match &self.credentials {
            Some(credentials) => text.push_str(credentials),
            None => text.push_str(&self.usual_credentials(tokens)),
        }
        text + &self.extra
            + &config::section("cache", &self.cache)
            + &config::section("limits", &self.limits)
            + &config::section("writes", &self.writes)
    }

    fn usual_credentials(&self, tokens: &[TokenView]) -> String {
        let mut text = self.holders.clone();
        let (mut ci, mut other) = (self.client.clone(), self.other_client.clone());
        if self.holders.is_empty() {
            for (index, token) in tokens.iter().enumerate() {
                let name = format!("account-{index}");
                let is_broken = self.broken_token == Some(index);
                let secret = if is_broken { "emu_unknown_token" } else { &token.token };
                text.push_str(&config::account(&name, "user", &self.account));
                text.push_str(&config::token(&name, "classic", secret));
            }
            let account = 1.min(tokens.len() - 1);
            push_line(&mut other, &format!("writes = \"account-{account}\""));
        }
        if !self.is_reader {
            ci.insert_str(0, "writes = \"account-0\"\n");
        }
        text.push_str(&config::client("ci", KEY, &ci));
        if !self.is_alone {
            text.push_str(&config::client("other", OTHER_KEY, &other));
        }
        text
    }
}

/// A listening gateway by this config.
pub fn gateway_by(text: &str, clock: &Clock) -> (Arc<Current>, Listening) {
    let config = config::parsed(text);
    let store: Arc<dyn Store> = match &config.writes.store {
        WriteStore::File(path) => Arc::new(FileStore::open(path, |_, _| Ok(())).unwrap()),
        WriteStore::Memory | WriteStore::Redis => Arc::new(MemoryStore::default()),
    };
    let current = Current::with_writes(
        Arc::new(config),
        clock.clone(),
        Arc::new(Metrics::new()),
        store,
        Recovery::default(),
    );
    let listening = Listening::open(&current).unwrap();
    (current, listening)
}

fn push_line(keys: &mut String, line: &str) {
    keys.push_str(line);
    keys.push('\n');
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
