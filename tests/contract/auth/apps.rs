//! Apps: installation tokens that are minted, renewed and replaced, JWTs for the app's own routes,
//! and accounts without a token (SPECIFICATION, "Configuration").

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use weir::emulator::Entry;
use weir::tokens::HealthState;

use crate::support::{
    KEY, OTHER_KEY, Reply, Setup, World, all_have_status, captured_log, config, eventually,
};

pub(crate) const APP_KEY: &str = include_str!("../../../src/emulator/seed/app_key.pem");
/// The key of another app. The upstream refuses JWTs of app 301 that it signed.
const WRONG_KEY: &str = include_str!("../../../src/emulator/seed/initech_app_key.pem");
pub(crate) const REPOSITORY: &str = "/repos/acme/widgets";
pub(crate) const MINT: &str = "/app/installations/311/access_tokens";

/// App 301 of the emulator's world. `ci` reads and writes for its first installation, `other` acts
/// as the app.
pub(crate) fn credentials(key: &str, installations: &[u64]) -> String {
    let names: Vec<_> = installations.iter().map(|id| (*id, format!("installed-{id}"))).collect();
    let names: Vec<_> = names.iter().map(|(id, name)| (*id, name.as_str())).collect();
    let accounts = names.iter().map(|(_, name)| config::account(name, "installation", ""));
    config::account("the-app", "app", "")
        + &accounts.collect::<String>()
        + &config::app(301, key, &names)
        + &config::client("ci", KEY, &format!("writes = \"{}\"", names[0].1))
        + &config::client("other", OTHER_KEY, "writes = \"the-app\"")
}

pub(crate) fn setup() -> Setup {
    Setup::new().credentials(credentials(APP_KEY, &[311]))
}

pub(crate) fn mints(world: &World) -> Vec<Entry> {
    world
        .upstream_requests()
        .into_iter()
        .filter(|entry| entry.path.ends_with("/access_tokens"))
        .collect()
}

/// The emulator's index of the token of the last request.
fn last_token(world: &World) -> Option<usize> {
    world
        .upstream_requests()
        .into_iter()
        .rev()
        .find(|entry| !entry.path.starts_with("/app/"))
        .and_then(|entry| entry.token)
}

fn page(number: u32) -> String {
    format!("{REPOSITORY}/issues?per_page=1&page={number}")
}

pub(crate) fn state(world: &World, name: &str) -> Option<HealthState> {
    let health = world.gateway.dispatcher.tokens().health(world.clock.now());
    health.iter().find(|token| token.token.to_string() == name).map(|token| token.state)
}

pub(crate) async fn ready(world: &World) {
    eventually(|| state(world, "installation 311") == Some(HealthState::Healthy)).await;
}

async fn as_app(world: &World, method: Method, path: &str) -> Reply {
    world.send(method, path, &[("authorization", &format!("Bearer {OTHER_KEY}"))], "").await
}

#[tokio::test]
async fn a_request_is_sent_with_a_minted_token() {
    let world = setup().start().await;
    let answer = world.get(REPOSITORY).await;
    answer.assert_status(200);
    assert_eq!(answer.header("x-weir-account"), Some("installed-311"));
    let seen: Vec<_> = world
        .upstream_requests()
        .into_iter()
        .map(|entry| (entry.method, entry.account, entry.status))
        .collect();
    assert_eq!(
        seen,
        [("POST".into(), "app-301".into(), 201), ("GET".into(), "installation-311".into(), 200)]
    );
}

#[tokio::test]
async fn minting_is_charged_to_the_apps_account() {
    let world = setup().start().await;
    ready(&world).await;
    let accounts =
        world.gateway.dispatcher.admissions().with_ledger(weir::decision::QuotaLedger::snapshot);
    let app = accounts.iter().find(|account| &*account.name == "the-app").unwrap();
    let core = app.windows.iter().find(|window| window.resource.as_str() == "core").unwrap();
    assert_eq!((core.used, core.reserved), (1, 0));
    assert!(world.upstream_requests().len() == 1, "and it happens before anybody asks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_first_requests_at_once_mint_once() {
    let world = setup().manual_clock().start().await;
    ready(&world).await;
    // The token has expired unused; now all requests arrive at once.
    world.clock.advance(Duration::from_hours(2));
    let before = mints(&world).len();
    let gate = world.close_gate("POST", MINT);
    let pages: Vec<String> = (1..=100).map(page).collect();
    let askers = join_all(pages.iter().map(|path| world.get(path)));
    let opener = async {
        world.held(gate, 1).await;
        world.all_waiting_for_one_fetch(100).await;
        world.open_gate(gate);
    };
    let (answers, ()) = tokio::join!(askers, opener);
    all_have_status(&answers, 200);
    assert_eq!(mints(&world).len() - before, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_before_it_expires_and_used_meanwhile() {
    let world = setup().manual_clock().start().await;
    world.get(&page(1)).await.assert_status(200);
    let first = last_token(&world);
    let gate = world.close_gate("POST", MINT);
    world.clock.advance(Duration::from_mins(52));
    world.held(gate, 1).await;
    let answers = join_all((2..12).map(|number| {
        let world = &world;
        async move { world.get(&page(number)).await }
    }))
    .await;
    all_have_status(&answers, 200);
    assert_eq!(last_token(&world), first);
    world.open_gate(gate);
    eventually(|| mints(&world).len() == 2 && mints(&world)[1].status == 201).await;
    eventually(|| {
        world.gateway.dispatcher.admissions().with_ledger(weir::decision::QuotaLedger::snapshot)[0]
            .windows
            .iter()
            .all(|window| window.reserved == 0)
    })
    .await;
    world.clock.advance(Duration::from_mins(10));
    world.get(&page(20)).await.assert_status(200);
    assert!(last_token(&world).is_some() && last_token(&world) != first);
    assert_eq!(mints(&world).len(), 2);
    assert!(world.upstream_requests().iter().all(|entry| entry.status != 401));
}

#[tokio::test]
async fn a_tokens_validators_are_not_sent_with_its_successor() {
    let world = setup().manual_clock().start().await;
    let path = format!("{REPOSITORY}/issues");
    world.get(&path).await.assert_status(200);
    world.get(&path).await.assert_status(200);
    world.clock.advance(Duration::from_hours(2));
    world.get(&path).await.assert_status(200);
    let requests: Vec<_> = world
        .upstream_requests()
        .into_iter()
        .filter(|entry| entry.path == path)
        .map(|entry| (entry.conditional, entry.status))
        .collect();
    assert_eq!(requests[1], ("etag", 304));
    assert_eq!(
        requests[2],
        ("none", 200),
        "the list has no date, and the ETag belonged to the old token"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_minted_again_unnoticed() {
    let world = setup().start().await;
    ready(&world).await;
    world.arm(&json!({ "fault": "revoke", "match": { "path": "/repos/*", "nth": 1 } }));
    let answers = join_all((1..=20).map(|number| {
        let world = &world;
        async move { world.get(&page(number)).await }
    }))
    .await;
    all_have_status(&answers, 200);
    assert_eq!(mints(&world).len(), 2);
    assert!(world.upstream_requests().iter().any(|entry| entry.status == 401));
}

#[tokio::test]
async fn a_refused_installation_is_benched_and_probed_later() {
    let world = setup().manual_clock().start().await;
    ready(&world).await;
    for _ in 0..2 {
        world.arm(&json!({ "fault": "revoke", "match": { "path": "/repos/*", "nth": 1 } }));
    }
    world.arm(&json!({ "fault": "status", "status": 401, "body": { "message": "Bad credentials" }, "match": { "path": "/repos/*" } }));
    let refused = world.get(REPOSITORY).await;
    refused.assert_status(503);
    assert!(
        refused.json()["message"].as_str().unwrap().contains("401 Bad credentials"),
        "{refused:?}"
    );
    assert!(
        matches!(state(&world, "installation 311"), Some(HealthState::Benched { .. }))
            && !world.gateway.dispatcher.has_usable_token()
    );
    let sent = world.upstream_requests().len();
    world.get(REPOSITORY).await.assert_status(503);
    assert_eq!(world.upstream_requests().len(), sent, "nothing is tried meanwhile");
    world.ask_emulator(Method::DELETE, "/_emulator/faults", &serde_json::Value::Null);
    world.clock.advance(Duration::from_mins(5));
    world.get(REPOSITORY).await.assert_status(200);
    assert_eq!(state(&world, "installation 311"), Some(HealthState::Healthy));
}

#[tokio::test]
async fn a_wrong_clock_is_corrected_by_the_upstreams_date() {
    for seconds in [-300, 300, 86_400, -7_200] {
        let world = setup().manual_clocks_apart(seconds).start().await;
        let answer = world.get(REPOSITORY).await;
        assert_eq!(answer.status, 200, "{seconds}: {answer:?}");
        let refused = world.upstream_requests().iter().filter(|entry| entry.status == 401).count();
        assert!(refused <= 1, "signed again once: {refused}");
        world.clock.advance(Duration::from_mins(40));
        as_app(&world, Method::GET, "/app").await.assert_status(200);
    }
}

#[tokio::test]
async fn a_single_wrong_date_is_not_believed() {
    let world = setup().manual_clock().start().await;
    ready(&world).await;
    world.arm(&json!({ "fault": "clock_offset", "seconds": 86_400, "match": { "path": "/repos/*", "nth": 1 } }));
    world.get(REPOSITORY).await.assert_status(200);
    world.clock.advance(Duration::from_mins(10));
    as_app(&world, Method::GET, "/app").await.assert_status(200);
    assert!(world.upstream_requests().iter().all(|entry| entry.status < 400));
}

#[tokio::test]
async fn app_routes_are_served_with_the_jwt_and_no_client_mints() {
    let world = setup().start().await;
    ready(&world).await;
    let answer = as_app(&world, Method::GET, "/app").await;
    answer.assert_status(200);
    assert_eq!(
        (&answer.json()["id"], answer.header("x-weir-account")),
        (&json!(301), Some("the-app"))
    );
    let refused = as_app(&world, Method::POST, MINT).await;
    refused.assert_status(403);
    assert!(
        refused.json()["message"].as_str().unwrap().contains("minted for the gateway alone"),
        "{refused:?}"
    );
    as_app(&world, Method::POST, &format!("{REPOSITORY}/issues")).await.assert_status(403);
    assert_eq!(mints(&world).len(), 1);
}

#[tokio::test]
async fn a_wrong_private_key_is_reported_and_not_retried() {
    let world = Setup::new()
        .credentials(credentials(WRONG_KEY, &[311, 312]))
        .listen("admin = \"127.0.0.1:0\"")
        .manual_clock()
        .start()
        .await;
    let admin = weir::admin::Admin::open(&world.current).unwrap().address().unwrap();
    let answer = world.get(REPOSITORY).await;
    answer.assert_status(503);
    assert!(
        answer.json()["message"]
            .as_str()
            .unwrap()
            .contains("does not accept app 301: 401 Bad credentials"),
        "{answer:?}"
    );
    assert_eq!(answer.number("retry-after"), 300, "when it is tried again");
    for _ in 0..10 {
        world.get(REPOSITORY).await.assert_status(503);
    }
    // Both installations may have sent their JWT already.
    assert!(world.upstream_requests().len() <= 2, "{:?}", world.upstream_requests());
    let http: hyper_util::client::legacy::Client<_, http_body_util::Full<bytes::Bytes>> =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
            .build_http();
    let readiness =
        Reply::read(http.get(format!("http://{admin}/readyz").parse().unwrap()).await.unwrap())
            .await;
    readiness.assert_status(503);
    let text = String::from_utf8_lossy(&readiness.body).into_owned();
    assert!(
        text.contains("the-app, token app 301: benched for 300 s: 401 Bad credentials"),
        "{text}"
    );
    assert!(text.contains("installed-311, token installation 311: benched"), "{text}");
    let metrics =
        Reply::read(http.get(format!("http://{admin}/metrics").parse().unwrap()).await.unwrap())
            .await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(
        metrics.contains("weir_token_healthy{account=\"the-app\",token=\"app 301\"} 0"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_failed_mint_is_retried_while_the_request_waits() {
    for fault in [
        json!({ "fault": "status", "status": 502 }),
        json!({ "fault": "lost" }),
        json!({ "fault": "half_body" }),
    ] {
        let world = setup().manual_clock().start().await;
        let mut fault = fault;
        fault["match"] = json!({ "path": MINT, "nth": 1 });
        world.arm(&fault);
        let waiting = world.get(REPOSITORY);
        let time = async {
            eventually(|| world.has_token_problem()).await;
            world.clock.advance(Duration::from_secs(1));
        };
        let (answer, ()) = tokio::join!(waiting, time);
        answer.assert_status(200);
        assert_eq!(mints(&world).len(), 2);
    }
}

#[tokio::test]
async fn a_deleted_installation_is_reported_at_once() {
    let world = Setup::new().credentials(credentials(APP_KEY, &[999])).manual_clock().start().await;
    for _ in 0..5 {
        let answer = world.get(REPOSITORY).await;
        answer.assert_status(503);
        assert!(
            answer.json()["message"].as_str().unwrap().contains("installation 999: 404 Not Found"),
            "{answer:?}"
        );
    }
    assert_eq!(mints(&world).len(), 1);
    assert!(!world.gateway.dispatcher.has_usable_token());
}

#[tokio::test]
async fn a_stored_response_is_served_while_minting_fails() {
    let world = setup().manual_clock().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    world.arm(&json!({ "fault": "status", "status": 502, "match": { "path": MINT } }));
    world.clock.advance(Duration::from_mins(54));
    eventually(|| mints(&world).len() == 2).await;
    world.get(REPOSITORY).await.assert_status(200);
    world.clock.advance(Duration::from_mins(6));
    let bridged = world.get_with(REPOSITORY, &[("prefer", "wait=0")]).await;
    bridged.assert_status(200);
    assert_eq!(bridged.cache_status(), "weir; hit; detail=stale-if-error");
    world.get_with(&page(1), &[("prefer", "wait=0")]).await.assert_status(503);
}

#[tokio::test]
async fn a_request_waits_for_a_token_up_to_its_own_limit() {
    let world = setup().manual_clock().start().await;
    let gate = world.close_gate("POST", MINT);
    let waiting = world.get_with(REPOSITORY, &[("prefer", "wait=5")]);
    let time = async {
        world.held(gate, 1).await;
        world.all_waiting_for_one_fetch(1).await;
        world.clock.advance(Duration::from_secs(6));
    };
    let (answer, ()) = tokio::join!(waiting, time);
    answer.assert_status(503);
    assert!(
        answer.json()["message"]
            .as_str()
            .unwrap()
            .contains("installation 311: its token is being minted"),
        "{answer:?}"
    );
    world.open_gate(gate);
}

#[tokio::test]
async fn without_a_credential_only_public_data_is_read() {
    let text = config::account("nobody", "anonymous", "") + &config::client("ci", KEY, "");
    let world = Setup::new().credentials(text).start().await;
    world.get(REPOSITORY).await.assert_status(200);
    assert!(
        world
            .upstream_requests()
            .iter()
            .all(|entry| entry.token.is_none() && entry.account.contains("127.0.0.1")),
        "{:?}",
        world.upstream_requests()
    );
    assert!(world.gateway.dispatcher.has_usable_token());
    world.post(&format!("{REPOSITORY}/issues"), json!({ "title": "x" })).await.assert_status(403);
    world.get("/user").await.assert_status(403);
    assert_eq!(world.upstream_requests().len(), 1);
}

#[tokio::test]
async fn an_oauth_app_reads_with_its_id_and_secret() {
    let text = config::account("oauth", "oauth-app", "")
        + &config::token("oauth", "basic", "emu_client_id:emu_client_secret")
        + &config::client("ci", KEY, "");
    let world = Setup::new().credentials(text).start().await;
    world.get(REPOSITORY).await.assert_status(200);
    assert!(
        world.upstream_requests().iter().all(|entry| entry.account.starts_with("oauth")),
        "{:?}",
        world.upstream_requests()
    );
}

#[tokio::test]
async fn jwts_and_minted_tokens_appear_in_no_response_log_or_metric() {
    captured_log::begin();
    let world = setup().start().await;
    world.arm(&json!({ "fault": "revoke", "match": { "path": "/repos/*", "nth": 2 } }));
    let mut shown = String::new();
    for path in [
        REPOSITORY,
        &page(1),
        &page(2),
        "/installation/repositories",
        "/repos/acme/nothing",
        "/rate_limit",
    ] {
        let answer = world.get(path).await;
        let _ = write!(shown, "{answer:?}{}", String::from_utf8_lossy(&answer.body));
    }
    let answer = as_app(&world, Method::GET, "/app").await;
    let log = captured_log::all();
    let health = world.gateway.dispatcher.tokens().health(world.clock.now());
    let _ = write!(shown, "{answer:?}{log}{health:?}{}", world.gateway.env.metrics.encode());
    assert!(
        log.contains("an installation token was minted") && log.contains("a new one replaces it"),
        "{log}"
    );
    let minted: Vec<_> = world
        .emulator
        .with_emulator(|emulator| emulator.tokens())
        .into_iter()
        .map(|token| token.token)
        .collect();
    let minted: Vec<_> =
        minted.into_iter().filter(|token| token.starts_with("emu_installation_311_")).collect();
    assert!(minted.len() >= 2);
    // Every JWT begins with the base64 of `{"alg":` or `{"typ":`.
    for secret in minted.iter().map(String::as_str).chain([
        "eyJhbGci",
        "eyJ0eXAi",
        &APP_KEY[40..80],
        KEY,
        OTHER_KEY,
    ]) {
        assert!(!shown.contains(secret), "{secret} is shown");
    }
}

/// The app, its installation, and a user who sees public data only, in one pool that `ci` reads
/// from.
pub(crate) fn mixed() -> Setup {
    let text = config::user("dan", "emu_classic_dan_all_scopes")
        + &credentials(APP_KEY, &[311]).replace("writes = \"installed-311\"", "");
    Setup::new().credentials(text).manual_clock()
}

#[tokio::test]
async fn a_reader_of_app_routes_is_served_by_its_pools_only_app() {
    let world = mixed().start().await;
    ready(&world).await;
    let answer = world.get("/app").await;
    answer.assert_status(200);
    assert_eq!(
        (&answer.json()["id"], answer.header("x-weir-account")),
        (&json!(301), Some("the-app"))
    );
    world.send(Method::PATCH, "/app/hook/config", &[], "{}").await.assert_status(403);
    world.get(&format!("{REPOSITORY}/installation")).await.assert_status(200);
    assert!(
        world.upstream_requests().iter().all(|entry| entry.account.starts_with("app-")),
        "nobody else is asked"
    );
}

#[tokio::test]
async fn an_installation_without_a_live_token_is_still_probed() {
    let world = mixed().start().await;
    ready(&world).await;
    world.clock.advance(Duration::from_hours(2));
    assert_eq!(state(&world, "installation 311"), Some(HealthState::Expired));
    world.get(REPOSITORY).await.assert_status(200);
    assert_eq!(mints(&world).len(), 1, "whoever has a token goes first");
    let private = world.get("/repos/acme/gadgets").await;
    private.assert_status(200);
    assert_eq!((private.header("x-weir-account"), mints(&world).len()), (Some("installed-311"), 2));
}

#[tokio::test]
async fn permissions_learned_of_an_installation_outlive_its_token() {
    let world = mixed().start().await;
    ready(&world).await;
    world.get("/repos/acme/gadgets").await.assert_status(200);
    let before = world.upstream_requests().len();
    world.arm(&json!({ "fault": "revoke", "match": { "path": "/repos/*", "nth": 1 } }));
    world.get("/repos/acme/gadgets/labels").await.assert_status(200);
    assert_eq!(mints(&world).len(), 2);
    let requests = world.upstream_requests();
    assert!(
        requests[before..].iter().all(|entry| entry.account != "dan"),
        "the installation is asked again with its next token: {requests:?}"
    );
}

#[tokio::test]
async fn an_idle_installation_is_minted_for_when_others_are_spent() {
    let world = mixed().start().await;
    ready(&world).await;
    world.clock.advance(Duration::from_hours(2));
    world.set_limits(&json!({ "core.user": 1 }));
    world.get(&page(1)).await.assert_status(200);
    let answer = world.get(&page(2)).await;
    answer.assert_status(200);
    assert_eq!((answer.header("x-weir-account"), mints(&world).len()), (Some("installed-311"), 2));
}
