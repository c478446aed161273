//! Visibility: no client receives a response that its accounts could not have fetched
//! (SPECIFICATION, "Promises" 1, and D2). Clients, pools, routes and credentials are random.
//! Meanwhile tokens are revoked and renewed, and accounts gain and lose access.
//!
//! Each response must come from an account that the client may use for the request: one of its
//! pool, its own account on routes about "me", or only its own credential. One of these accounts
//! must have revalidated it since the request began, so that lost access takes effect.
//!
//! `PROPTEST_CASES=500 cargo test --release --test contract visibility` plays 500 worlds. A failing
//! world names its seed; `PROPTEST_RNG_SEED=… PROPTEST_CASES=1` plays it alone.

mod realm;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde_json::Value;
use weir::random::Rng;

use super::apps::APP_KEY;
use crate::cache::freshness::UNLIMITED;
use crate::support::origin::Origin;
use crate::support::{Reply, Setup, World, config};
use realm::{Answered, Holder, REPOSITORIES, Realm, pick};

/// Worlds by default: a matter of seconds.
const CASES: u64 = 12;
const ROUNDS: u64 = 8;
/// Concurrent requests of one round, for a few resources.
const REQUESTS: usize = 40;
/// Clients' own credentials.
const OWN_CREDENTIALS: usize = 2;
/// A round that takes longer waits for the clock.
const STUCK: Duration = Duration::from_millis(300);
/// The one route whose responses have a lifetime, longer than any run.
const LASTING: &str = "/labels";
/// Request directives that some clients send.
const DIRECTIVES: [&str; 4] = ["no-cache", "no-store", "max-stale", "only-if-cached"];

/// A client and the accounts whose responses it may receive.
struct Client {
    pool: Vec<Holder>,
    own: Option<Holder>,
}

/// The accounts and clients of a world.
struct Cast {
    /// Accounts of the config; the clients' own credentials have the indexes after them.
    accounts: usize,
    clients: Vec<Client>,
    tokens: Vec<(String, Holder)>,
    installation: Option<Holder>,
    config: String,
}

/// A request and its answer.
struct Exchange {
    client: usize,
    own_credential: Option<Holder>,
    path: String,
    /// Its `Cache-Control`.
    directive: &'static str,
    round: u64,
    reply: Reply,
}

/// The number of times that each kind of case occurred.
type Figures = BTreeMap<&'static str, u64>;

impl Cast {
    fn new(dice: &mut Rng) -> Self {
        let accounts = 2 + pick(dice, 4);
        let installation = dice.percent(50.0).then_some(accounts - 1);
        let (mut tokens, mut text) = (Vec::new(), String::new());
        for account in 0..accounts {
            let kind = if installation == Some(account) { "installation" } else { "user" };
            let name = format!("account-{account}");
            text.push_str(&config::account(&name, kind, ""));
            // The tokens of an installation are minted.
            let count = if kind == "user" { 1 + pick(dice, 2) } else { 0 };
            for number in 0..count {
                let secret = format!("token-{account}-{number}");
                text.push_str(&config::token(&name, "classic", &secret));
                tokens.push((secret, account));
            }
        }
        if installation.is_some() {
            let last = format!("account-{}", accounts - 1);
            text.push_str(&config::account("the-app", "app", ""));
            text.push_str(&config::app(1, APP_KEY, &[(7, &last)]));
        }
        tokens.extend((0..OWN_CREDENTIALS).map(|own_credential| {
            (format!("brought-{own_credential}"), accounts + own_credential)
        }));
        let pools: Vec<Vec<Holder>> =
            (0..=pick(dice, 3)).map(|_| members(dice, accounts)).collect();
        for (number, pool) in pools.iter().enumerate() {
            let names: Vec<_> = pool.iter().map(|account| format!("account-{account}")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            text.push_str(&config::pool(&format!("pool-{number}"), &names));
        }
        let clients = (0..2 + pick(dice, 4))
            .map(|number| Self::client(dice, number, &pools, accounts, &mut text))
            .collect();
        let predicted = dice.percent(50.0);
        let freshness = if dice.percent(25.0) { "rfc9111" } else { "revalidate" };
        let cache = format!("predicted_etags = {predicted}\nfreshness = \"{freshness}\"");
        text.push_str(&config::section("passthrough", "enabled = true"));
        text.push_str(&config::section("cache", &cache));
        text.push_str(&config::cache_ttl(&format!("/repos/{{owner}}/{{repo}}{LASTING}"), "1000h"));
        text.push_str(UNLIMITED);
        Self { accounts, clients, tokens, installation, config: text }
    }

    fn client(
        dice: &mut Rng,
        number: usize,
        pools: &[Vec<Holder>],
        accounts: usize,
        text: &mut String,
    ) -> Client {
        let pool = pick(dice, pools.len());
        let own = dice.percent(60.0).then(|| pick(dice, accounts));
        let writes = own.map(|own| format!("\nwrites = \"account-{own}\"")).unwrap_or_default();
        let keys = format!("reads = \"pool-{pool}\"{writes}");
        text.push_str(&config::client(&format!("client-{number}"), &key(number), &keys));
        Client { pool: pools[pool].clone(), own }
    }

    /// The accounts that may have fetched the response.
    fn allowed(&self, exchange: &Exchange) -> Vec<Holder> {
        let client = &self.clients[exchange.client];
        match (exchange.own_credential, is_about_me(&exchange.path)) {
            (Some(own_credential), _) => vec![own_credential],
            (None, false) => client.pool.clone(),
            // The single account of a pool is "me".
            (None, true) => client
                .own
                .or_else(|| client.pool.first().copied().filter(|_| client.pool.len() == 1))
                .into_iter()
                .collect(),
        }
    }

    /// The fault of a response, if any.
    fn judge(
        &self,
        exchange: &Exchange,
        answered: &[Answered],
        figures: &mut Figures,
    ) -> Result<(), String> {
        let Exchange { path, reply, round, .. } = exchange;
        let allowed = self.allowed(exchange);
        let cache = reply.cache_status();
        if reply.header("x-fetched-by").is_none() {
            let is_own = !matches!(reply.status.as_u16(), 200 | 304 | 404);
            *figures.entry("refused").or_default() += 1;
            return if is_own { Ok(()) } else { Err("it says nothing of who fetched it".into()) };
        }
        // The header names the account of the last revalidation, the body that of the fetch.
        let revalidated_by: Holder = usize::try_from(reply.number("x-fetched-by")).unwrap();
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let fetched_by = body["by"].as_u64().map(|by| usize::try_from(by).unwrap());
        for holder in [Some(revalidated_by), fetched_by].into_iter().flatten() {
            if !allowed.contains(&holder) {
                return Err(format!("holder {holder} has nothing to do with it; {allowed:?} have"));
            }
        }
        if body.is_object() && body["path"] != path.as_str() {
            return Err("it is the answer to something else".into());
        }
        let status =
            if reply.status == StatusCode::NOT_MODIFIED { StatusCode::OK } else { reply.status };
        // Or the response was served to some client for which it is fresh enough.
        let is_lasting = path.ends_with(LASTING) && exchange.directive != "no-cache"
            || exchange.directive.contains("max-stale")
            || cache.contains("detail=");
        let reported = |reported: &&Answered| {
            reported.path == *path
                && reported.status == status
                && allowed.contains(&reported.holder)
        };
        if !answered.iter().filter(reported).any(|reported| reported.round == *round || is_lasting)
        {
            return Err(
                "none of those who could have fetched it was told so since it was asked for".into(),
            );
        }
        for (word, counts) in [
            ("shown", status == StatusCode::OK),
            ("hidden", status == StatusCode::NOT_FOUND),
            ("about me", is_about_me(path)),
            ("brought", exchange.own_credential.is_some()),
            ("collapsed", cache.ends_with("collapsed")),
            ("confirmed", cache.contains("fwd-status=304")),
            ("hit", cache == "weir; hit"),
            ("of another holder", fetched_by.is_some_and(|by| by != revalidated_by)),
        ] {
            *figures.entry(word).or_default() += u64::from(counts);
        }
        Ok(())
    }
}

/// Some of the accounts, at least one.
fn members(dice: &mut Rng, accounts: usize) -> Vec<Holder> {
    let first = pick(dice, accounts);
    (0..accounts).filter(|account| *account == first || dice.percent(40.0)).collect()
}

fn key(client: usize) -> String {
    format!("weir_key_of_client_{client}_in_tests")
}

fn is_about_me(path: &str) -> bool {
    path.starts_with("/user") || path == "/notifications" || path.contains("@me")
}

fn path(dice: &mut Rng) -> String {
    let repository = pick(dice, REPOSITORIES);
    match dice.below(10) {
        0..3 => format!("/repos/acme/r{repository}"),
        3 | 4 => format!("/repos/acme/r{repository}/branches"),
        5 => format!("/repos/acme/r{repository}{LASTING}"),
        6 => "/orgs/acme/repos".into(),
        _ => ["/user", "/user/repos", "/notifications", "/search/issues?q=author:@me"]
            [pick(dice, 4)]
        .into(),
    }
}

/// One request of a random client. Some send a credential, possibly one of the pools', and some
/// send an `ETag` that another client received.
async fn ask(
    world: &World,
    cast: &Cast,
    round: u64,
    known: &[(String, String)],
    mut dice: Rng,
) -> Exchange {
    let client = pick(&mut dice, cast.clients.len());
    let path = path(&mut dice);
    let own = dice.percent(20.0).then(|| cast.tokens[pick(&mut dice, cast.tokens.len())].clone());
    let etag =
        known.iter().find(|(of, _)| *of == path && dice.percent(20.0)).map_or("", |(_, etag)| etag);
    let secret = format!("Bearer {}", own.as_ref().map_or(&key(client), |(secret, _)| secret));
    let own_key = if own.is_some() { key(client) } else { String::new() };
    let accept = if dice.percent(20.0) { "application/vnd.github.raw+json" } else { "" };
    let directive =
        if dice.percent(20.0) { DIRECTIVES[pick(&mut dice, DIRECTIVES.len())] } else { "" };
    let headers = [
        ("authorization", secret.as_str()),
        ("x-weir-key", &own_key),
        ("if-none-match", etag),
        ("accept", accept),
        ("cache-control", directive),
    ];
    let method = if dice.percent(10.0) { Method::HEAD } else { Method::GET };
    let reply = world.send(method, &path, &headers, "").await;
    // Beside a condition, `no-cache` is not a directive of the user (SPECIFICATION, "Client
    // libraries" 9).
    let directive = if directive == "no-cache" && !etag.is_empty() { "" } else { directive };
    Exchange {
        client,
        own_credential: own.map(|(_, holder)| holder),
        path,
        directive,
        round,
        reply,
    }
}

/// One round of concurrent requests, during which the world changes.
async fn all_at_once(
    world: &World,
    cast: &Cast,
    realm: &Realm,
    (round, known): (u64, &[(String, String)]),
    dice: &mut Rng,
) -> Vec<Exchange> {
    let requests: Vec<_> = (0..REQUESTS)
        .map(|_| ask(world, cast, round, known, Rng::for_purpose(dice.next_u64(), 0)))
        .collect();
    let changes = realm.change_meanwhile(Rng::for_purpose(dice.next_u64(), 0));
    let mut all = std::pin::pin!(async { tokio::join!(join_all(requests), changes) });
    // The clock advances for requests that wait for a time.
    loop {
        match tokio::time::timeout(STUCK, &mut all).await {
            Ok((exchanges, ())) => return exchanges,
            Err(_) => world.clock.advance(Duration::from_secs(1)),
        }
    }
}

/// Plays one world and adds to the figures.
async fn play(seed: u64, figures: &mut Figures) {
    let mut dice = Rng::for_purpose(seed, 1);
    let cast = Cast::new(&mut dice);
    let realm = Realm::new(
        cast.tokens.clone(),
        cast.accounts + OWN_CREDENTIALS,
        cast.installation,
        Rng::for_purpose(seed, 2),
    );
    let theirs = Arc::clone(&realm);
    let origin = Origin::start(move |request| Arc::clone(&theirs).answer(request)).await;
    let world = Setup::new()
        .manual_clock()
        .upstream(origin.url())
        .credentials(cast.config.clone())
        .start()
        .await;
    realm.set_clock(&world.clock);
    let mut known: Vec<(String, String)> = Vec::new();
    for _ in 0..ROUNDS {
        let round = realm.next_round();
        let exchanges = all_at_once(&world, &cast, &realm, (round, &known), &mut dice).await;
        let answered = realm.answered();
        for exchange in &exchanges {
            if let Err(wrong) = cast.judge(exchange, &answered, figures) {
                let Exchange { client, own_credential, path, reply, .. } = exchange;
                panic!(
                    "seed {seed}, round {round}: client {client} with credential {own_credential:?} asked for {path}: {wrong}\n{reply:?}\n{}",
                    cast.config
                );
            }
        }
        known.extend(exchanges.iter().filter_map(|exchange| {
            Some((exchange.path.clone(), exchange.reply.header("etag")?.to_owned()))
        }));
        for _ in 0..dice.below(6) {
            realm.change(&mut dice);
        }
        let pause = if dice.percent(20.0) { dice.between(1_800, 7_200) } else { dice.below(30) };
        world.clock.advance(Duration::from_secs(pause));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_gets_a_response_its_accounts_could_not_fetch() {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let (first, cases) =
        (number("PROPTEST_RNG_SEED").unwrap_or(1), number("PROPTEST_CASES").unwrap_or(CASES));
    let mut figures = Figures::new();
    for seed in (first..).take(usize::try_from(cases).unwrap()) {
        play(seed, &mut figures).await;
    }
    println!("{figures:?}");
    for (word, count) in &figures {
        assert!(
            cases < CASES || *count > 20,
            "{word} came about {count} times, too rarely to prove anything: {figures:?}"
        );
    }
}
