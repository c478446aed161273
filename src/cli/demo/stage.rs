//! The parts of the demo: an emulator with its world, a gateway in front of it, and keys for the
//! visitor and each bot.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use ring::rand::SystemRandom;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::admin::Admin;
use crate::api::Dialect;
use crate::clock::Clock;
use crate::config;
use crate::emulator::{Emulator, Handle, Options, Server, TokenView};
use crate::gateway::{Current, Gateway};
use crate::telemetry::Metrics;

/// Latency of the emulated upstream: about that of the real one for a small answer.
const UPSTREAM_LATENCY: Duration = Duration::from_millis(40);
/// Most accounts in the pool.
const ACCOUNTS_MAX: usize = 4;

pub struct Stage {
    /// The gateway, not listening yet.
    pub current: Arc<Current>,
    /// The gateway of its only config.
    pub gateway: Arc<Gateway>,
    pub upstream: Handle,
    pub bot_keys: Vec<SecretString>,
    /// `owner/name` of repositories that every account sees.
    pub repositories: Vec<String>,
    /// Token for reading the emulator's contents directly.
    inspector: String,
    visitor_key: SecretString,
    admin: Option<SocketAddr>,
    clock: Clock,
}

impl Stage {
    /// Starts the emulator and builds the gateway.
    pub async fn build(listen: SocketAddr, bots: u32) -> Result<Self, String> {
        let clock = Clock::system();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|fault| fault.to_string())?;
        let address = listener.local_addr().map_err(|fault| fault.to_string())?;
        let options = Options {
            dialect: Dialect::Github,
            base_url: format!("http://{address}"),
            ..Options::default()
        };
        let upstream = Server::start(
            listener,
            Emulator::new(options, clock.now()),
            clock.clone(),
            UPSTREAM_LATENCY,
        );
        let tokens = pool_tokens(upstream.with_emulator(|emulator| emulator.tokens()));
        let inspector =
            tokens.first().ok_or("the emulator has no token that can be used")?.token.clone();
        let random = SystemRandom::new();
        let new_key = || {
            config::generate(&random).map_err(|_| "the system gives no random numbers".to_owned())
        };
        let visitor_key = new_key()?;
        let bot_keys = (0..bots).map(|_| new_key()).collect::<Result<Vec<_>, _>>()?;
        let text = config_text(listen, address, &tokens, &visitor_key, &bot_keys);
        let config = config::parse(&text, "demo", &|_| None, Path::new("."))
            .map_err(|faults| faults.to_string())?;
        let current = Current::new(Arc::new(config), clock.clone(), Arc::new(Metrics::new()));
        let admin = Admin::open(&current).await.map_err(|fault| fault.to_string())?.address();
        let gateway = current.gateway();
        let mut stage = Self {
            current,
            gateway,
            upstream,
            bot_keys,
            repositories: Vec::new(),
            inspector,
            visitor_key,
            admin,
            clock,
        };
        stage.repositories = stage.public_repositories();
        if stage.repositories.is_empty() {
            return Err("the emulator's world has no public repository with issues".into());
        }
        Ok(stage)
    }

    /// Formats address, key and three commands to try.
    pub fn welcome(&self, address: SocketAddr) -> String {
        let key = self.visitor_key.expose_secret();
        let repository = &self.repositories[0];
        let mut text = format!(
            "\nweir is listening on http://{address}, in front of an emulated upstream on http://{}\n",
            self.upstream.addr()
        );
        if let Some(admin) = self.admin {
            let _ = writeln!(
                text,
                "operators look at http://{admin}/api/budgets and http://{admin}/metrics"
            );
        }
        let _ = write!(text, "\nyour key: {key}\n\ntry, in another terminal:\n\n");
        let _ = writeln!(
            text,
            "  curl -i -H 'Authorization: Bearer {key}' http://{address}/repos/{repository}"
        );
        let _ = writeln!(
            text,
            "  curl -s -H 'Authorization: Bearer {key}' 'http://{address}/repos/{repository}/issues?per_page=2'"
        );
        let _ = writeln!(
            text,
            "  curl -s -H 'Authorization: Bearer {key}' http://{address}/rate_limit"
        );
        text
    }

    /// Sends a GET to the emulator directly.
    pub fn inspect(&self, path: &str) -> Value {
        let request = Request::get(path)
            .header("authorization", format!("Bearer {}", self.inspector))
            .body(Bytes::new());
        let Ok(request) = request else { return Value::Null };
        let now = self.clock.now();
        let answer = self.upstream.with_emulator(|emulator| {
            emulator.respond(now, &request, IpAddr::V4(Ipv4Addr::LOCALHOST))
        });
        serde_json::from_slice(answer.body()).unwrap_or(Value::Null)
    }

    pub async fn close(self) {
        self.upstream.shutdown().await;
    }

    fn public_repositories(&self) -> Vec<String> {
        let world = self.inspect("/_emulator/world");
        let repositories = world["repositories"].as_array().cloned().unwrap_or_default();
        let public =
            repositories.iter().filter(|repository| repository["private"] == Value::Bool(false));
        let named = public.filter_map(|repository| repository["full_name"].as_str());
        let usable = named.filter(|name| {
            self.inspect(&format!("/repos/{name}/issues?per_page=1"))
                .as_array()
                .is_some_and(|issues| !issues.is_empty())
        });
        usable.map(str::to_owned).take(6).collect()
    }
}

/// Picks one classic token with enough scopes for each account: classic tokens may use every route
/// of the bots.
fn pool_tokens(all: Vec<TokenView>) -> Vec<TokenView> {
    let is_usable = |token: &TokenView| token.kind == "classic" && token.scopes.contains(&"repo");
    let mut by_account = BTreeMap::new();
    for token in all.into_iter().filter(is_usable) {
        by_account.entry(token.account.clone()).or_insert(token);
    }
    by_account.into_values().take(ACCOUNTS_MAX).collect()
}

fn config_text(
    listen: SocketAddr,
    upstream: SocketAddr,
    tokens: &[TokenView],
    visitor: &SecretString,
    bots: &[SecretString],
) -> String {
    let mut text = format!(
        "[listen]\nhttp = [\"{listen}\"]\nadmin = \"127.0.0.1:0\"\n\n[upstream]\nurl = \"http://{upstream}\"\ndialect = \"github\"\n"
    );
    for (index, token) in tokens.iter().enumerate() {
        let _ = write!(text, "\n[[accounts]]\nname = \"pool-{index}\"\nkind = \"user\"\n");
        let _ = write!(
            text,
            "\n[[tokens]]\naccount = \"pool-{index}\"\nkind = \"classic\"\nsecret = {{ value = \"{}\" }}\n",
            token.token
        );
    }
    let names = std::iter::once("you".to_owned())
        .chain((1..=bots.len()).map(|number| format!("bot-{number}")));
    for (index, (name, key)) in names.zip(std::iter::once(visitor).chain(bots)).enumerate() {
        let digest = config::digest_hex(key.expose_secret().as_bytes());
        // Bots of one kind are four numbers apart; they write for different accounts.
        let account = index / 4 % tokens.len().max(1);
        let _ = write!(
            text,
            "\n[[clients]]\nname = \"{name}\"\nkey_sha256 = \"{digest}\"\nwrites = \"pool-{account}\"\nmax_wait = \"60s\"\n"
        );
    }
    text
}
