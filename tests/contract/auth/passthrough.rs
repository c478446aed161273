//! Clients with their own upstream credential: its view, its budget, and its absence from logs and
//! metrics (SPECIFICATION, "Keys").

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::support::{KEY, OTHER_KEY, Reply, Setup, World, captured_log};

const ENABLED: &str = "[passthrough]\nenabled = true";
/// A member of acme.
const CLEO: &str = "emu_classic_cleo_all_scopes";
/// A stranger to acme.
const DAN: &str = "emu_classic_dan_all_scopes";
/// A private repository of acme.
const GADGETS: &str = "/repos/acme/gadgets";
const WIDGETS: &str = "/repos/acme/widgets";

/// The pool sees public data only, and its client writes for no account.
fn strangers() -> Setup {
    Setup::new().holder("dan", "user", &[("classic", DAN)], "").config(ENABLED)
}

async fn send_as(world: &World, credential: &str, method: Method, path: &str, body: &str) -> Reply {
    let authorization = format!("Bearer {credential}");
    world.send(method, path, &[("x-weir-key", KEY), ("authorization", &authorization)], body).await
}

async fn get_as(world: &World, credential: &str, path: &str) -> Reply {
    send_as(world, credential, Method::GET, path, "").await
}

/// The same, repeated until a slot is free: a request keeps its slot a moment longer than its
/// client waits for the response.
async fn get_as_once_admitted(world: &World, credential: &str, path: &str) -> Reply {
    let seated = async {
        loop {
            let reply = get_as(world, credential, path).await;
            if reply.status != 403 {
                return reply;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seated).await.expect("no place becomes free")
}

/// The accounts of the upstream requests in their order, as the emulator names them.
fn accounts_used(world: &World) -> Vec<String> {
    world.upstream_requests().iter().map(|entry| entry.account.clone()).collect()
}

#[tokio::test]
async fn a_client_sees_by_its_own_credential_and_the_pool_does_not() {
    let world = strangers().start().await;
    world.get(GADGETS).await.assert_status(404);
    let own = get_as(&world, CLEO, GADGETS).await;
    own.assert_status(200);
    assert_eq!(
        (own.json()["name"].as_str(), own.header("x-weir-account")),
        (Some("gadgets"), Some("passthrough"))
    );
    world.get(GADGETS).await.assert_status(404);
    assert_eq!(accounts_used(&world), ["dan", "cleo", "dan"]);
}

#[tokio::test]
async fn two_credentials_and_the_pool_never_see_each_others_answers() {
    let world = strangers().cache_ttl("/user", "10m").start().await;
    for _ in 0..2 {
        for (credential, login) in [(CLEO, "cleo"), (DAN, "dan")] {
            assert_eq!(get_as(&world, credential, "/user").await.json()["login"], login);
        }
    }
    assert_eq!(world.get("/user").await.json()["login"], "dan");
    // The second round came from the cache. The pool did not reuse a response of a client's
    // credential.
    assert_eq!(accounts_used(&world), ["cleo", "dan", "dan"]);
}

#[tokio::test]
async fn a_credential_equal_to_a_pool_token_has_its_own_view() {
    let world = strangers().start().await;
    world.get(WIDGETS).await.assert_fetched_and_stored();
    get_as(&world, DAN, WIDGETS).await.assert_fetched_and_stored();
    get_as(&world, DAN, WIDGETS).await.assert_revalidated();
    world.get(WIDGETS).await.assert_revalidated();
}

#[tokio::test]
async fn an_etag_only_response_is_revalidated_by_its_credential() {
    let world = strangers().start().await;
    let labels = format!("{WIDGETS}/labels?page=1");
    for credential in [CLEO, DAN] {
        get_as(&world, credential, &labels).await.assert_fetched_and_stored();
    }
    for credential in [CLEO, DAN] {
        get_as(&world, credential, &labels).await.assert_revalidated();
    }
    assert!(world.upstream_requests()[2..].iter().all(|entry| entry.conditional == "etag"));
}

#[tokio::test]
async fn other_clients_with_the_same_credential_share_its_answers() {
    let world = strangers().start().await;
    get_as(&world, CLEO, GADGETS).await.assert_status(200);
    let authorization = format!("Bearer {CLEO}");
    let other = world
        .get_with(GADGETS, &[("x-weir-key", OTHER_KEY), ("authorization", &authorization)])
        .await;
    assert_eq!(
        (other.status.as_u16(), other.cache_status()),
        (200, "weir; fwd=stale; fwd-status=304")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_with_one_credential_are_one_fetch() {
    let world = strangers().start().await;
    let gate = world.close_gate("GET", GADGETS);
    let answers = futures_util::future::join_all((0..10).map(|_| get_as(&world, CLEO, GADGETS)));
    let release = async {
        world.held(gate, 1).await;
        world.all_waiting_for_one_fetch(10).await;
        world.open_gate(gate);
    };
    let (answers, ()) = tokio::join!(answers, release);
    crate::support::all_have_status(&answers, 200);
    assert_eq!(accounts_used(&world), ["cleo"]);
}

#[tokio::test]
async fn each_credential_sees_its_own_budget() {
    let world = strangers().start().await;
    for page in 1..=3 {
        world.get(&format!("{WIDGETS}/issues?page={page}")).await.assert_status(200);
    }
    let pools = world.get(WIDGETS).await.number("x-ratelimit-remaining");
    let own = get_as(&world, CLEO, GADGETS).await.number("x-ratelimit-remaining");
    assert_eq!((pools, own), (4_996, 4_999));
    let remaining = |answer: Reply| answer.json()["resources"]["core"]["remaining"].as_u64();
    assert_eq!(remaining(world.get("/rate_limit").await), Some(4_996));
    assert_eq!(remaining(get_as(&world, CLEO, "/rate_limit").await), Some(4_999));
}

#[tokio::test]
async fn a_spent_budget_refuses_its_credential_alone() {
    let world = strangers().manual_clock().start().await;
    world.set_limits(&json!({ "core": 2 }));
    for page in 1..=2 {
        get_as(&world, CLEO, &format!("{WIDGETS}/issues?page={page}")).await.assert_status(200);
    }
    let sent = world.upstream_requests().len();
    get_as(&world, CLEO, GADGETS).await.assert_rate_limited(world.clock.now().as_secs());
    assert_eq!(
        world.upstream_requests().len(),
        sent,
        "nothing that the books know to be refused is sent"
    );
    world.get(WIDGETS).await.assert_status(200);
}

#[tokio::test]
async fn a_secondary_refusal_closes_its_credential_alone() {
    let world = strangers().manual_clock().start().await;
    let fault = json!({ "fault": "secondary", "retry_after": 60, "match": { "account": "cleo", "times": 1 } });
    world.ask_emulator(Method::POST, "/_emulator/faults", &fault);
    let authorization = format!("Bearer {CLEO}");
    let impatient =
        [("x-weir-key", KEY), ("authorization", authorization.as_str()), ("prefer", "wait=0")];
    for _ in 0..3 {
        world.get_with(GADGETS, &impatient).await.assert_secondary_limited();
    }
    assert_eq!(accounts_used(&world), ["cleo"]);
    world.get(WIDGETS).await.assert_status(200);
}

#[tokio::test]
async fn denials_of_a_credential_are_passed_on_and_harm_no_other() {
    let world = strangers().start().await;
    let unknown = get_as(&world, "emu_unknown_token", WIDGETS).await;
    unknown.assert_status(401);
    assert_eq!(unknown.json()["message"], "Bad credentials");
    assert_eq!(world.upstream_requests().len(), 1, "no other credential was tried");
    let denied = json!({ "match": { "method": "GET", "path": GADGETS, "nth": 1 }, "fault": "status", "status": 403 });
    world.arm(&denied);
    get_as(&world, CLEO, GADGETS).await.assert_status(403);
    assert_eq!(accounts_used(&world)[1..], ["cleo"]);
    // Neither the credential nor the pool is benched.
    get_as(&world, "emu_unknown_token", WIDGETS).await.assert_status(401);
    get_as(&world, CLEO, GADGETS).await.assert_status(200);
    world.get(WIDGETS).await.assert_status(200);
    assert!(world.gateway.dispatcher.has_usable_token());
}

#[tokio::test]
async fn a_revoked_credential_is_not_served_from_the_cache() {
    let world = strangers().start().await;
    get_as(&world, CLEO, GADGETS).await.assert_status(200);
    world.arm(
        &json!({ "match": { "method": "GET", "path": GADGETS, "nth": 1 }, "fault": "revoke" }),
    );
    for _ in 0..2 {
        get_as(&world, CLEO, GADGETS).await.assert_status(401);
    }
}

#[tokio::test]
async fn authorization_beside_the_key_is_ignored_unless_enabled() {
    let world = Setup::new().holder("dan", "user", &[("classic", DAN)], "").start().await;
    get_as(&world, CLEO, GADGETS).await.assert_status(404);
    assert_eq!(get_as(&world, CLEO, WIDGETS).await.header("x-weir-account"), Some("dan"));
    assert!(accounts_used(&world).iter().all(|account| account == "dan"));
}

#[tokio::test]
async fn a_client_without_its_own_credential_is_served_by_its_pool() {
    let world = strangers().start().await;
    for headers in [vec![("x-weir-key", KEY), ("authorization", "")], vec![]] {
        assert_eq!(world.get_with(WIDGETS, &headers).await.header("x-weir-account"), Some("dan"));
    }
}

#[tokio::test]
async fn several_authorization_headers_are_refused_and_nothing_sent() {
    let world = strangers().start().await;
    let headers =
        [("x-weir-key", KEY), ("authorization", "Bearer one"), ("authorization", "Bearer two")];
    world.get_with(WIDGETS, &headers).await.assert_status(400);
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn a_gateway_key_never_reaches_the_upstream() {
    let world = strangers().start().await;
    for key in [KEY, OTHER_KEY] {
        let answer = get_as(&world, key, WIDGETS).await;
        assert_eq!((answer.status.as_u16(), answer.header("x-weir-account")), (200, Some("dan")));
    }
}

#[tokio::test]
async fn allow_limits_a_client_with_its_own_credential_too() {
    let world = strangers().client("allow = [\"GET /repos/**\"]").start().await;
    get_as(&world, CLEO, GADGETS).await.assert_status(200);
    get_as(&world, CLEO, "/user").await.assert_status(403);
    assert_eq!(accounts_used(&world), ["cleo"]);
}

#[tokio::test]
async fn writes_with_an_own_credential_invalidate_others_responses() {
    let world = strangers().cache_ttl("/repos/{owner}/{repo}/issues", "10m").start().await;
    let issues = format!("{WIDGETS}/issues");
    world.get(&issues).await.assert_status(200);
    world.get(&issues).await.assert_hit();
    send_as(&world, CLEO, Method::POST, &issues, "{\"title\":\"by cleo\"}")
        .await
        .assert_status(201);
    let after = world.get(&issues).await;
    assert_eq!(
        (after.cache_status(), &after.json()[0]["user"]["login"]),
        ("weir; fwd=stale; fwd-status=200", &json!("cleo"))
    );
    world.post(&issues, json!({ "title": "by nobody" })).await.assert_status(403);
    assert_eq!(accounts_used(&world), ["dan", "cleo", "dan"]);
}

#[tokio::test]
async fn streamed_uploads_use_the_clients_own_credential() {
    let world = strangers().writes("max_body = \"64B\"").start().await;
    let body = json!({ "title": "long", "body": "x".repeat(1_000) }).to_string();
    send_as(&world, CLEO, Method::POST, &format!("{WIDGETS}/issues"), &body)
        .await
        .assert_status(201);
    assert_eq!(accounts_used(&world), ["cleo"]);
}

#[tokio::test]
async fn graphql_is_sent_with_the_clients_own_credential() {
    let world = strangers().start().await;
    let body = json!({ "query": "{ viewer { login } }" }).to_string();
    let answer = send_as(&world, CLEO, Method::POST, "/graphql", &body).await;
    assert_eq!(answer.json()["data"]["viewer"]["login"], "cleo");
    let pools = world.send(Method::POST, "/graphql", &[], &body).await;
    assert_eq!(pools.json()["data"]["viewer"]["login"], "dan");
}

#[tokio::test]
async fn no_client_is_given_an_installation_token() {
    let world = strangers().start().await;
    send_as(&world, CLEO, Method::POST, "/app/installations/1/access_tokens", "")
        .await
        .assert_status(403);
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_credentials_slot_goes_to_the_next_one() {
    let world = strangers().config("credentials_max = 1").start().await;
    let gate = world.close_gate("GET", GADGETS);
    let first = get_as(&world, CLEO, GADGETS);
    let second = async {
        world.held(gate, 1).await;
        let refused = get_as(&world, DAN, WIDGETS).await;
        world.open_gate(gate);
        refused
    };
    let (first, refused) = tokio::join!(first, second);
    first.assert_status(200);
    refused.assert_secondary_limited();
    assert_eq!(accounts_used(&world), ["cleo"]);
    // Its ledger is new and shows nothing of the previous credential.
    assert_eq!(
        get_as_once_admitted(&world, DAN, WIDGETS).await.number("x-ratelimit-remaining"),
        4_999
    );
    get_as_once_admitted(&world, CLEO, GADGETS).await.assert_revalidated();
}

#[tokio::test]
async fn no_credential_is_in_logs_metrics_or_responses() {
    captured_log::begin();
    let world = strangers().start().await;
    let mut answers = Vec::new();
    for path in [GADGETS, GADGETS, "/user", "/rate_limit", "/nothing/here"] {
        answers.push(get_as(&world, CLEO, path).await);
    }
    answers.push(get_as(&world, "emu_nobodys_s3cret", WIDGETS).await);
    answers.push(
        send_as(&world, CLEO, Method::POST, &format!("{WIDGETS}/issues"), "{\"title\":\"x\"}")
            .await,
    );
    world.arm(&json!({ "match": { "method": "GET", "path": WIDGETS, "nth": 1 }, "fault": "reset_before" }));
    answers.push(get_as(&world, CLEO, WIDGETS).await);
    let shown = format!("{answers:?}{}{}", world.gateway.env.metrics.encode(), captured_log::all());
    for secret in [CLEO, "emu_nobodys_s3cret", KEY] {
        assert!(!shown.contains(secret), "{secret} is shown");
    }
    assert!(shown.contains("passthrough"));
    let budgets: Vec<Value> = world
        .gateway
        .dispatcher
        .admissions()
        .snapshot()
        .1
        .iter()
        .map(|account| json!(&*account.name))
        .collect();
    assert_eq!(budgets, [json!("dan")], "operators are shown the accounts of the config");
}
