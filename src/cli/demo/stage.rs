//! The parts of the demo: an emulator with its world, the gateways in front of it with a Redis if
//! there are several, and keys for the visitor and each bot.

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
use tokio::time::timeout;

use super::redis_server::RedisServer;
use crate::admin::Admin;
use crate::api::Dialect;
use crate::clock::Clock;
use crate::config;
use crate::emulator::{Emulator, Handle, Options, Server, TokenView};
use crate::gateway::{Current, Gateway};
use crate::state::redis::RedisHome;
use crate::telemetry::Metrics;

/// Latency of the emulated upstream: about that of the real one for a small answer.
const UPSTREAM_LATENCY: Duration = Duration::from_millis(40);
/// Most accounts in the pool.
const ACCOUNTS_MAX: usize = 4;
/// Longest wait for the first exchange of the gateways. It usually takes less than a second.
const TOUCH_MAX: Duration = Duration::from_secs(10);

pub struct Stage {
    /// At least one.
    pub gateways: Vec<StagedGateway>,
    pub upstream: Handle,
    pub bot_keys: Vec<SecretString>,
    /// `owner/name` of repositories that every account sees.
    pub repositories: Vec<String>,
    /// Token for reading the emulator's contents directly.
    inspector: String,
    visitor_key: SecretString,
    clock: Clock,
    /// Of several gateways.
    redis: Option<RedisServer>,
}

/// A gateway, not listening yet.
pub struct StagedGateway {
    pub current: Arc<Current>,
    /// The gateway of its only config.
    pub gateway: Arc<Gateway>,
    admin: Option<SocketAddr>,
}

/// The common part of the configs of all gateways.
struct Common {
    upstream: SocketAddr,
    tokens: Vec<TokenView>,
    visitor_key: SecretString,
    bot_keys: Vec<SecretString>,
    /// The section `[state]`; empty for one gateway.
    state: String,
}

impl Stage {
    /// Starts the emulator, builds a gateway for each address, and starts a Redis if there are
    /// several.
    pub async fn build(listen: &[SocketAddr], bots: u32) -> Result<Self, String> {
        let redis = if listen.len() > 1 { Some(RedisServer::start().await?) } else { None };
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
        let common = Common {
            upstream: address,
            tokens,
            visitor_key: new_key()?,
            bot_keys: (0..bots).map(|_| new_key()).collect::<Result<_, _>>()?,
            state: redis.as_ref().map_or(String::new(), |redis| state_text(redis, listen.len())),
        };
        let mut gateways = Vec::new();
        for listen in listen {
            gateways.push(StagedGateway::build(&common.config_text(*listen), &clock).await?);
        }
        in_touch(&gateways, &clock).await?;
        let Common { visitor_key, bot_keys, .. } = common;
        let mut stage = Self {
            gateways,
            upstream,
            bot_keys,
            repositories: Vec::new(),
            inspector,
            visitor_key,
            clock,
            redis,
        };
        stage.repositories = stage.public_repositories();
        if stage.repositories.is_empty() {
            return Err("the emulator's world has no public repository with issues".into());
        }
        Ok(stage)
    }

    /// Formats the addresses, one for each gateway, the key, and commands to try.
    pub fn welcome(&self, addresses: &[SocketAddr]) -> String {
        let mut text = match (addresses, &self.redis) {
            (_, Some(redis)) => self.several_at(addresses, redis),
            ([address, ..], None) => self.one_at(*address),
            ([], None) => String::new(),
        };
        let key = self.visitor_key.expose_secret();
        let repository = &self.repositories[0];
        let _ = write!(text, "\nyour key: {key}\n\ntry, in another terminal:\n\n");
        // The second gateway has the answer from the first.
        for address in addresses.iter().take(2) {
            let _ = writeln!(
                text,
                "  curl -i -H 'Authorization: Bearer {key}' http://{address}/repos/{repository}"
            );
        }
        let Some(address) = addresses.first() else { return text };
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

    fn one_at(&self, address: SocketAddr) -> String {
        let mut text = format!(
            "\nweir is listening on http://{address}, in front of an emulated upstream on http://{}\n",
            self.upstream.addr()
        );
        if let Some(admin) = self.gateways.iter().find_map(|staged| staged.admin) {
            let _ = writeln!(
                text,
                "operators look at http://{admin}/ in a browser, and at http://{admin}/metrics"
            );
        }
        text
    }

    fn several_at(&self, addresses: &[SocketAddr], redis: &RedisServer) -> String {
        let mut text = format!(
            "\n{} gateways share {}, in front of an emulated upstream on http://{}\n\n",
            addresses.len(),
            redis.url(),
            self.upstream.addr()
        );
        for ((number, address), staged) in (1..).zip(addresses).zip(&self.gateways) {
            let name = format!("gateway {number}");
            let _ = write!(text, "  {name:<10}  http://{address}");
            if let Some(admin) = staged.admin {
                let _ = write!(text, "  operators look at http://{admin}/");
            }
            text.push('\n');
        }
        text.push_str(
            "\neach holds a part of every budget, which the table shows, and decides inside it alone\n",
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

    /// Ends the gateways, then the upstream and the Redis.
    pub async fn close(self) {
        for staged in &self.gateways {
            staged.current.leave_replicas().await;
        }
        drop(self.gateways);
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

/// The section `[state]`. The timeout is longer than a busy machine delays an answer.
fn state_text(redis: &RedisServer, gateways: usize) -> String {
    let url = redis.url();
    format!(
        "\n[state]\nredis = {{ url = \"{url}\", op_timeout = \"500ms\" }}\nreplicas_max = {gateways}\n"
    )
}

/// Waits until each gateway hears the others.
async fn in_touch(gateways: &[StagedGateway], clock: &Clock) -> Result<(), String> {
    for staged in gateways {
        let Some(replica) = &staged.gateway.env.replica else { continue };
        let touched = timeout(TOUCH_MAX, replica.in_touch(|| clock.now())).await;
        touched.map_err(|_| "the gateways do not reach Redis".to_owned())?;
    }
    Ok(())
}

impl StagedGateway {
    async fn build(config: &str, clock: &Clock) -> Result<Self, String> {
        let config = config::parse(config, "demo", &|_| None, Path::new("."))
            .map_err(|faults| faults.to_string())?;
        if let Some(redis) = &config.state.redis {
            RedisHome::examine(redis).await.map_err(|fault| fault.to_string())?;
        }
        let current = Current::new(Arc::new(config), clock.clone(), Arc::new(Metrics::new()));
        let admin = Admin::open(&current).map_err(|fault| fault.to_string())?.address();
        let gateway = current.gateway();
        Ok(Self { current, gateway, admin })
    }
}

impl Common {
    /// The config of the gateway that listens at this address.
    fn config_text(&self, listen: SocketAddr) -> String {
        let mut text = format!(
            "[listen]\nhttp = [\"{listen}\"]\nadmin = \"127.0.0.1:0\"\n\n[upstream]\nurl = \"http://{}\"\ndialect = \"github\"\n{}",
            self.upstream, self.state
        );
        for (index, token) in self.tokens.iter().enumerate() {
            let _ = write!(text, "\n[[accounts]]\nname = \"pool-{index}\"\nkind = \"user\"\n");
            let _ = write!(
                text,
                "\n[[tokens]]\naccount = \"pool-{index}\"\nkind = \"classic\"\nsecret = {{ value = \"{}\" }}\n",
                token.token
            );
        }
        let names = std::iter::once("you".to_owned())
            .chain((1..=self.bot_keys.len()).map(|number| format!("bot-{number}")));
        for (index, (name, key)) in
            names.zip(std::iter::once(&self.visitor_key).chain(&self.bot_keys)).enumerate()
        {
            let digest = config::digest_hex(key.expose_secret().as_bytes());
            // Bots of one kind are four numbers apart; they write for different accounts.
            let account = index / 4 % self.tokens.len().max(1);
            let _ = write!(
                text,
                "\n[[clients]]\nname = \"{name}\"\nkey_sha256 = \"{digest}\"\nwrites = \"pool-{account}\"\nmax_wait = \"60s\"\n"
            );
        }
        text
    }
}
