//! GraphQL queries whose answers a rule stores: what is stored, in which view, and what ends it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use ring::hmac;
use serde_json::{Value, json};
use weir::api::Invalidation;
use weir::gateway::Prefix;

use crate::support::origin::Origin;
use crate::support::{OTHER_KEY, Reply, Setup, World, eventually};

const STORED: &str = "weir; fwd=miss; stored";
const CHANGED: &str = "weir; fwd=stale; fwd-status=200";
const HIT: &str = "weir; hit";
const BYPASS: &str = "weir; fwd=bypass";
const SECRET: &str = "It's a Secret to Everybody";

fn rule(operation: &str) -> String {
    format!("[[cache.rules]]\ngraphql = \"{operation}\"\nttl = \"1h\"\n")
}

fn setup() -> Setup {
    Setup::new().manual_clock().unspaced_writes().config(&rule("Issue"))
}

/// A query for these fields of an issue.
fn issue(number: u32, fields: &str) -> Value {
    let query = format!(
        "query Issue($n: Int!) {{ repository(owner: \"acme\", name: \"widgets\") {{ issue(number: $n) {{ title {fields} }} }} }}"
    );
    json!({ "query": query, "variables": { "n": number } })
}

async fn ask(world: &World, query: &Value) -> Reply {
    let reply = world.post("/graphql", query.clone()).await;
    reply.assert_status(200);
    reply
}

/// The `Cache-Status` of the answers to these queries.
async fn statuses(world: &World, queries: &[Value]) -> Vec<String> {
    let mut statuses = Vec::new();
    for query in queries {
        statuses.push(ask(world, query).await.cache_status().to_owned());
    }
    statuses
}

fn seconds(world: &World, count: u64) {
    world.advance_both(Duration::from_secs(count));
}

async fn write(world: &World, method: Method, path: &str, body: &Value) {
    let path = format!("/repos/acme/widgets{path}");
    let written = world.send(method, &path, &[], &body.to_string()).await;
    assert!(written.status.is_success(), "{written:?}");
}

#[tokio::test]
async fn a_query_is_stored_by_the_name_of_its_operation() {
    let world = setup().start().await;
    let [one, two] = [1, 2].map(|number| issue(number, "number"));
    assert_eq!(statuses(&world, &[one.clone(), two, one.clone()]).await, [STORED, STORED, HIT]);
    seconds(&world, 9);
    let hit = ask(&world, &one).await;
    assert_eq!((hit.header("age"), hit.header("x-from-cache")), (Some("9"), Some("1")));
    assert_eq!(hit.json()["data"]["repository"]["issue"]["number"], 1);
    assert_eq!(world.upstream_requests().len(), 2);
    seconds(&world, 3_592);
    assert_eq!(statuses(&world, &[one.clone(), one]).await, [CHANGED, HIT]);
}

#[tokio::test]
async fn the_operation_that_runs_decides_on_the_rule() {
    let world = setup().start().await;
    let both = "query Issue { viewer { login } } query Other { viewer { login } }";
    let queries = [
        json!({ "query": both, "operationName": "Issue" }),
        json!({ "query": both, "operationName": "Issue" }),
        json!({ "query": both, "operationName": "Other" }),
        json!({ "query": "{ viewer { login } }" }),
        json!({ "query": "query issue { viewer { login } }" }),
        json!({ "query": "query Other { Issue: viewer { login } }" }),
    ];
    assert_eq!(statuses(&world, &queries).await, [STORED, HIT, BYPASS, BYPASS, BYPASS, BYPASS]);
    let every = Setup::new().config(&rule("*")).start().await;
    let queries = [json!({ "query": "{ viewer { login } }" }), issue(1, "")];
    assert_eq!(statuses(&every, &queries).await, [STORED, STORED]);
    assert_eq!(statuses(&every, &queries).await, [HIT, HIT]);
}

#[tokio::test]
async fn a_stored_answer_stays_in_its_view() {
    let world = Setup::new().accounts(2).config(&rule("Who")).start().await;
    let who = json!({ "query": "query Who { viewer { login } }" });
    let own = ask(&world, &who).await;
    let authorization = format!("Bearer {OTHER_KEY}");
    let headers = [("authorization", authorization.as_str())];
    let other = world.send(Method::POST, "/graphql", &headers, &who.to_string()).await;
    assert_eq!((own.cache_status(), other.cache_status()), (STORED, STORED));
    assert_ne!(own.json()["data"]["viewer"]["login"], other.json()["data"]["viewer"]["login"]);
    assert_eq!(ask(&world, &who).await.body, own.body);
}

#[tokio::test]
async fn an_answer_with_errors_is_not_stored() {
    let world = setup().start().await;
    let missing = issue(99_999, "");
    for _ in 0..2 {
        let reply = ask(&world, &missing).await;
        assert!(reply.json()["errors"].is_array(), "{reply:?}");
        assert_eq!(reply.cache_status(), "weir; fwd=miss");
    }
    world.arm(
        &json!({ "match": { "path": "/graphql" }, "fault": "status", "status": 404, "body": "{}" }),
    );
    let refused = world.post("/graphql", issue(1, "")).await;
    assert_eq!((refused.status.as_u16(), refused.cache_status()), (404, "weir; fwd=miss"));
}

#[tokio::test]
async fn a_write_ends_the_answers_that_name_what_it_changed() {
    let world = setup().start().await;
    let queries = [
        issue(3, "id"),
        issue(3, "key: id"),
        issue(3, "url"),
        issue(3, "number"),
        issue(4, "id url"),
    ];
    assert_eq!(statuses(&world, &queries).await, [STORED; 5]);
    seconds(&world, 60);
    assert_eq!(statuses(&world, &queries).await, [HIT; 5]);
    write(&world, Method::PATCH, "/issues/3", &json!({ "title": "by a write" })).await;
    seconds(&world, 1);
    assert_eq!(statuses(&world, &queries).await, [CHANGED, CHANGED, CHANGED, HIT, HIT]);
    let title = |reply: Reply| reply.json()["data"]["repository"]["issue"]["title"].clone();
    assert_eq!(title(ask(&world, &queries[0]).await), "by a write");
    assert_ne!(title(ask(&world, &queries[3]).await), "by a write", "its ttl alone ends it");
    // A comment changes its issue. The answer names the comment's id alone, so any id may be it.
    seconds(&world, 60);
    statuses(&world, &queries).await;
    write(&world, Method::POST, "/issues/4/comments", &json!({ "body": "said" })).await;
    seconds(&world, 1);
    assert_eq!(statuses(&world, &queries).await, [CHANGED, CHANGED, CHANGED, HIT, CHANGED]);
}

#[tokio::test]
async fn a_write_without_a_node_id_ends_answers_that_name_ids() {
    let label = json!({ "labels": ["bug"] });
    for (method, path, body) in [
        (Method::PUT, "/issues/3/lock", json!({})),
        (Method::DELETE, "/issues/3/lock", json!({})),
        (Method::POST, "/issues/3/labels", label),
        (Method::POST, "/issues/3/comments", json!({ "body": "said" })),
    ] {
        let world = setup().start().await;
        let queries = [issue(3, "id locked"), issue(3, "number")];
        statuses(&world, &queries).await;
        seconds(&world, 60);
        assert_eq!(statuses(&world, &queries).await, [HIT, HIT]);
        write(&world, method.clone(), path, &body).await;
        seconds(&world, 1);
        assert_eq!(statuses(&world, &queries).await, [CHANGED, HIT], "{method} {path}");
    }
}

#[tokio::test]
async fn a_removed_comment_is_served_no_more() {
    let world = setup().start().await;
    let path = "/repos/acme/widgets/issues/3/comments";
    let comment = world.ask_emulator(Method::POST, path, &json!({ "body": "secret" }));
    let text = "query Issue($id: ID!) { node(id: $id) { ... on IssueComment { id body } } }";
    let query = json!({ "query": text, "variables": { "id": comment["node_id"] } });
    assert_eq!(ask(&world, &query).await.json()["data"]["node"]["body"], "secret");
    seconds(&world, 60);
    assert_eq!(statuses(&world, std::slice::from_ref(&query)).await, [HIT]);
    let path = format!("/issues/comments/{}", comment["id"]);
    write(&world, Method::DELETE, &path, &json!({})).await;
    seconds(&world, 1);
    let after = ask(&world, &query).await;
    assert!(!after.json().to_string().contains("secret"), "{after:?}");
}

#[tokio::test]
async fn a_renamed_organization_ends_answers_that_name_its_id() {
    let webhooks = format!("[webhooks]\nsecret = {{ value = \"{SECRET}\" }}");
    let world = setup().config(&webhooks).start().await;
    let organization = world.ask_emulator(Method::GET, "/orgs/acme", &json!({}));
    let query = json!({ "query": "query Issue { organization(login: \"acme\") { id name } }" });
    let delivery = json!({
        "action": "renamed",
        "changes": { "login": { "from": "acmeold" } },
        "organization": organization,
        "sender": { "login": "ada", "id": 1 },
    });
    ask(&world, &query).await;
    seconds(&world, 60);
    assert_eq!(statuses(&world, std::slice::from_ref(&query)).await, [HIT]);
    let body = delivery.to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let digest = hmac::sign(&key, body.as_bytes());
    let signature = digest
        .as_ref()
        .iter()
        .fold("sha256=".to_owned(), |text, byte| text + &format!("{byte:02x}"));
    let headers = [
        ("x-github-event", "organization"),
        ("x-github-delivery", "g-1"),
        ("x-hub-signature-256", signature.as_str()),
        ("content-type", "application/json"),
    ];
    let accepted = world.send(Method::POST, "/_weir/webhooks", &headers, &body).await;
    assert!(accepted.status.is_success(), "{accepted:?}");
    seconds(&world, 1);
    assert_eq!(statuses(&world, &[query]).await, [CHANGED]);
}

#[tokio::test]
async fn an_answer_that_names_too_much_ends_with_any_change() {
    let nodes = |count: usize| -> Bytes {
        let ids: Vec<_> = (0..count).map(|number| format!("I_{number}")).collect();
        json!({ "data": { "ids": ids } }).to_string().into()
    };
    for (count, expected) in [(1_000, HIT), (20_000, CHANGED)] {
        let body = nodes(count);
        let origin = Origin::start(move |_| {
            let response = Response::builder().header("content-type", "application/json");
            let response = response.body(body.clone()).unwrap();
            async move { response }
        })
        .await;
        let world = setup().upstream(origin.url()).start().await;
        let query = issue(1, "");
        ask(&world, &query).await;
        seconds(&world, 60);
        assert_eq!(statuses(&world, std::slice::from_ref(&query)).await, [HIT], "{count}");
        let other = Invalidation::Exactly("/repos/acme/gadgets".to_owned());
        world.gateway.cache.invalidate_paths(&[other], world.clock.now());
        seconds(&world, 1);
        assert_eq!(statuses(&world, &[query]).await, [expected], "{count}");
    }
}

#[tokio::test]
async fn a_confirmation_serves_no_query_beyond_its_ttl() {
    let rule = "[[cache.rules]]\ngraphql = \"*\"\nttl = \"1s\"\n";
    let setup = Setup::new().manual_clock().cache("revalidate_at_most = \"10m\"").config(rule);
    let origin = Origin::start(|_| async {
        let response = Response::builder().header("content-type", "application/json");
        let response = response.header("cache-control", "max-age=600");
        response.body(Bytes::from("{\"data\":{}}")).unwrap()
    })
    .await;
    let world = setup.upstream(origin.url()).start().await;
    let query = json!({ "query": "{ viewer { login } }" });
    assert_eq!(statuses(&world, &[query.clone(), query.clone()]).await, [STORED, HIT]);
    seconds(&world, 2);
    assert_eq!(statuses(&world, &[query]).await, [CHANGED]);
}

#[tokio::test]
async fn a_mutation_ends_every_stored_answer() {
    let world = setup().start().await;
    let queries = [issue(1, "id"), issue(2, "number")];
    let id = ask(&world, &queries[0]).await.json()["data"]["repository"]["issue"]["id"].clone();
    ask(&world, &queries[1]).await;
    seconds(&world, 60);
    let close = "mutation($id: ID!) { closeIssue(input: { issueId: $id }) { clientMutationId } }";
    ask(&world, &json!({ "query": close, "variables": { "id": id } })).await;
    seconds(&world, 1);
    assert_eq!(statuses(&world, &queries).await, [CHANGED, CHANGED]);
}

#[tokio::test]
async fn a_delivery_ends_the_answers_that_name_its_subject() {
    let webhooks = format!("[webhooks]\nsecret = {{ value = \"{SECRET}\" }}");
    let world = setup().config(&webhooks).start().await;
    let url = format!("http://{}/_weir/webhooks", world.address);
    let hook = json!({
        "name": "web",
        "config": { "url": url, "content_type": "json", "secret": SECRET },
        "events": ["*"],
    });
    world.ask_emulator(Method::POST, "/orgs/acme/hooks", &hook);
    let queries = [issue(3, "id"), issue(3, "url"), issue(3, "number"), issue(4, "id url")];
    statuses(&world, &queries).await;
    seconds(&world, 60);
    assert_eq!(statuses(&world, &queries).await, [HIT; 4]);
    let path = "/repos/acme/widgets/issues/3";
    world.ask_emulator(Method::PATCH, path, &json!({ "title": "around the gateway" }));
    let accepted = "weir_webhook_deliveries_total{event=\"issues\",outcome=\"accepted\"} ";
    eventually(|| world.gateway.env.metrics.encode().contains(accepted)).await;
    seconds(&world, 1);
    assert_eq!(statuses(&world, &queries).await, [CHANGED, CHANGED, HIT, HIT]);
}

#[tokio::test]
async fn equal_queries_at_once_store_one_answer() {
    let world = Arc::new(setup().start().await);
    let gate = world.close_gate("POST", "/graphql");
    let requests: Vec<_> = (0..10)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { ask(&world, &issue(1, "")).await })
        })
        .collect();
    world.all_waiting_for_one_fetch(10).await;
    world.open_gate(gate);
    let mut collapsed = 0;
    for request in requests {
        collapsed +=
            usize::from(request.await.unwrap().cache_status() == STORED.to_owned() + "; collapsed");
    }
    assert_eq!((collapsed, world.upstream_requests().len()), (9, 1));
    assert_eq!(statuses(&world, &[issue(1, "")]).await, [HIT]);
}

#[tokio::test]
async fn a_purge_and_a_reload_end_stored_queries() {
    let world = setup().start().await;
    let queries = [issue(1, "")];
    statuses(&world, &queries).await;
    seconds(&world, 1);
    let purge = |prefix| {
        let prefix = Prefix::new(prefix).unwrap();
        world.gateway.cache.store().purge(&prefix, world.clock.now()).entries
    };
    assert_eq!((purge("/graphql/Other"), purge("/graphql/Issue")), (0, 1));
    seconds(&world, 1);
    assert_eq!(statuses(&world, &queries).await, [STORED]);
    assert_eq!(statuses(&world, &queries).await, [HIT]);
    world.reload(|text| text.replace("\"1h\"", "\"2h\""));
    seconds(&world, 1);
    assert_eq!(statuses(&world, &queries).await, [CHANGED]);
    world.reload(|text| text.replace(&rule("Issue"), ""));
    assert_eq!(statuses(&world, &queries).await, [BYPASS]);
}

#[tokio::test]
async fn request_directives_hold_for_stored_queries() {
    let world = setup().start().await;
    let body = issue(1, "").to_string();
    let with = async |directive: &str| {
        world.send(Method::POST, "/graphql", &[("cache-control", directive)], &body).await
    };
    assert_eq!(with("only-if-cached").await.status, 504);
    assert_eq!(with("no-store").await.cache_status(), "weir; fwd=miss");
    assert_eq!(with("max-age=60").await.cache_status(), STORED);
    assert_eq!(with("max-age=60").await.cache_status(), HIT);
    assert_eq!(with("no-cache").await.cache_status(), CHANGED);
    let condition = [("if-none-match", "*"), ("range", "bytes=0-3")];
    let whole = world.send(Method::POST, "/graphql", &condition, &body).await;
    assert_eq!((whole.status.as_u16(), whole.cache_status()), (200, HIT));
    assert!(whole.json()["data"].is_object());
}

#[tokio::test]
async fn a_stored_query_stands_in_when_no_budget_is_left() {
    let rule = "[[cache.rules]]\ngraphql = \"*\"\nttl = \"1m\"\n";
    let world = Setup::new().manual_clock().unspaced_writes().config(rule).start().await;
    world.set_limits(&json!({ "graphql": 2 }));
    let queries = [issue(1, "id"), issue(2, "id")];
    assert_eq!(statuses(&world, &queries).await, [STORED, STORED]);
    seconds(&world, 61);
    let limited = "weir; hit; detail=stale-if-limited";
    assert_eq!(statuses(&world, &queries).await, [limited, limited]);
    // A changed answer would hide the client's own write.
    write(&world, Method::PATCH, "/issues/1", &json!({ "title": "written" })).await;
    let refused = world.post("/graphql", queries[0].clone()).await;
    refused.assert_rate_limited(world.clock.now().as_secs());
}
