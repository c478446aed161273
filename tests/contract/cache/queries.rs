//! GraphQL queries of one view that are in flight at the same time share one upstream request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::variants::GatedUpstream;
use crate::support::origin::header;
use crate::support::raw::Connection;
use crate::support::scripted::ScriptedUpstream;
use crate::support::{KEY, OTHER_KEY, Reply, Setup, World, all_have_status, eventually};

const LOGIN: &str = "{ viewer { login } }";
const GOOD: &str = "{\"data\":{\"viewer\":{\"login\":\"ada\"}}}";
const ISSUE: &str = "query Issue($n: Int!) { repository(owner: \"acme\", name: \"widgets\") { issue(number: $n) { id title } } }";

fn issue(number: u32) -> String {
    json!({ "query": ISSUE, "variables": { "n": number } }).to_string()
}

fn login() -> String {
    json!({ "query": LOGIN }).to_string()
}

fn authorization(key: &str) -> String {
    format!("Bearer {key}")
}

/// Sends a query in its own task.
fn spawn(world: &Arc<World>, headers: &[(&str, &str)], body: &str) -> JoinHandle<Reply> {
    let (world, body) = (Arc::clone(world), body.to_owned());
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    tokio::spawn(async move {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        world.send(Method::POST, "/graphql", &headers, &body).await
    })
}

async fn all(requests: Vec<JoinHandle<Reply>>) -> Vec<Reply> {
    let mut replies = Vec::new();
    for request in requests {
        replies.push(request.await.unwrap());
    }
    replies
}

/// Sends these bodies at once and returns the replies, with the number of upstream requests.
async fn at_once(world: &Arc<World>, bodies: &[String]) -> (Vec<Reply>, usize) {
    let before = world.upstream_requests().len();
    let gate = world.close_gate("POST", "/graphql");
    let requests = bodies.iter().map(|body| spawn(world, &[], body)).collect();
    world.all_waiting_for_one_fetch(bodies.len()).await;
    world.open_gate(gate);
    let replies = all(requests).await;
    (replies, world.upstream_requests().len() - before)
}

#[tokio::test]
async fn a_hundred_equal_queries_are_one_upstream_request() {
    let world = Arc::new(Setup::new().start().await);
    let (replies, sent) = at_once(&world, &vec![issue(1); 100]).await;
    all_have_status(&replies, 200);
    assert_eq!(sent, 1);
    let collapsed =
        replies.iter().filter(|reply| reply.cache_status() == "weir; fwd=bypass; collapsed");
    assert_eq!(collapsed.count(), 99);
    assert!(replies.iter().all(|reply| reply.body == replies[0].body));
    assert!(replies[0].json()["data"]["repository"]["issue"]["title"].is_string());
    // Nothing is kept.
    world.send(Method::POST, "/graphql", &[], &issue(1)).await.assert_status(200);
    assert_eq!(world.upstream_requests().len(), 2);
}

#[tokio::test]
async fn equal_queries_in_two_views_are_two_requests() {
    let world = Arc::new(Setup::new().accounts(2).start().await);
    let gate = world.close_gate("POST", "/graphql");
    let other = authorization(OTHER_KEY);
    let mut requests: Vec<_> = (0..50).map(|_| spawn(&world, &[], &login())).collect();
    requests.extend((0..50).map(|_| spawn(&world, &[("authorization", other.as_str())], &login())));
    world.all_waiting_for_one_fetch(100).await;
    world.open_gate(gate);
    let replies = all(requests).await;
    all_have_status(&replies, 200);
    assert_eq!(world.upstream_requests().len(), 2);
    let logins: Vec<Value> =
        replies.iter().map(|reply| reply.json()["data"]["viewer"]["login"].clone()).collect();
    assert!(logins[..50].iter().all(|login| *login == logins[0]));
    assert!(logins[50..].iter().all(|login| *login == logins[50]));
    assert_ne!(logins[0], logins[50]);
}

#[tokio::test]
async fn spellings_of_one_body_share_a_request() {
    let world = Arc::new(Setup::new().start().await);
    let document = serde_json::to_string(ISSUE).unwrap();
    let bodies = [
        issue(1),
        format!("{{ \"variables\" : {{ \"n\" : 1 }}, \"query\" : {document} }}"),
        format!("{{\"query\":{document},\"operationName\":null,\"variables\":{{\"n\":1}}}}"),
    ];
    let (replies, sent) = at_once(&world, &bodies).await;
    all_have_status(&replies, 200);
    assert_eq!(sent, 1);
}

#[tokio::test]
async fn queries_that_differ_in_anything_share_nothing() {
    let world = Arc::new(Setup::new().start().await);
    let both = "query A { viewer { login } } query B { viewer { login id } }";
    let bodies = [
        issue(1),
        issue(2),
        json!({ "query": ISSUE.replace("title", "title "), "variables": { "n": 1 } }).to_string(),
        json!({ "query": ISSUE, "operationName": "Issue", "variables": { "n": 1 } }).to_string(),
        json!({ "query": both, "operationName": "A" }).to_string(),
        json!({ "query": both, "operationName": "B" }).to_string(),
    ];
    let (replies, sent) = at_once(&world, &bodies).await;
    assert_eq!(sent, bodies.len());
    assert!(replies.iter().all(|reply| reply.cache_status() == "weir; fwd=bypass"));
    assert_eq!(replies[1].json()["data"]["repository"]["issue"]["id"], {
        let again = world.send(Method::POST, "/graphql", &[], &issue(2)).await.json();
        again["data"]["repository"]["issue"]["id"].clone()
    });
    assert!(replies[4].json()["data"]["viewer"]["id"].is_null());
    assert!(replies[5].json()["data"]["viewer"]["id"].is_string());
}

#[tokio::test]
async fn headers_that_may_choose_the_answer_are_not_shared() {
    let world = Arc::new(Setup::new().start().await);
    let gate = world.close_gate("POST", "/graphql");
    let kinds: [&[(&str, &str)]; 5] = [
        &[("user-agent", "one")],
        &[("user-agent", "two"), ("x-correlation-id", "2")],
        &[("if-none-match", "\"a\""), ("x-correlation-id", "3")],
        &[("graphql-features", "a_preview")],
        &[("accept", "application/vnd.github.a-preview+json")],
    ];
    let requests = kinds.iter().map(|headers| spawn(&world, headers, &login())).collect();
    world.all_waiting_for_one_fetch(5).await;
    world.open_gate(gate);
    all_have_status(&all(requests).await, 200);
    assert_eq!(world.upstream_requests().len(), 3, "the first three share one");
}

#[tokio::test]
async fn traces_and_the_order_of_headers_separate_no_queries() {
    let world = Arc::new(Setup::new().start().await);
    let gate = world.close_gate("POST", "/graphql");
    let kinds: [&[(&str, &str)]; 6] = [
        &[("graphql-features", "a"), ("x-kind", "b")],
        &[("x-kind", "b"), ("graphql-features", "a")],
        &[("x-b3-traceid", "1"), ("graphql-features", "a"), ("x-b3-sampled", "0"), ("x-kind", "b")],
        &[("x-datadog-trace-id", "1"), ("graphql-features", "a"), ("x-kind", "b")],
        &[("graphql-features", "a"), ("uber-trace-id", "1"), ("newrelic", "1"), ("x-kind", "b")],
        &[("graphql-features", "a"), ("x-kind", "b"), ("x-trace-id", "1"), ("sentry-trace", "2")],
    ];
    let requests = kinds.iter().map(|headers| spawn(&world, headers, &login())).collect();
    world.all_waiting_for_one_fetch(6).await;
    world.open_gate(gate);
    all_have_status(&all(requests).await, 200);
    assert_eq!(world.upstream_requests().len(), 1);
}

#[tokio::test]
async fn a_long_answer_with_errors_reaches_no_other_headers() {
    let long = |end: &str| {
        Bytes::from(format!("{{\"data\":{{\"text\":\"{}\"}}{end}}}", "x".repeat(100_000)))
    };
    let (good, bad) = (long(""), long(",\"errors\":[{\"message\":\"odd\"}]"));
    let answers = (good.clone(), bad.clone());
    let config = "[cache]\nmax_object = \"4KiB\"";
    let GatedUpstream { world, origin, turns } = GatedUpstream::new(config, 0, move |headers| {
        let is_odd = header(headers, "user-agent") == "odd";
        let response = Response::builder().header("content-type", "application/json");
        response.body(if is_odd { answers.1.clone() } else { answers.0.clone() }).unwrap()
    })
    .await;
    let world = Arc::new(world);
    let odd = spawn(&world, &[("user-agent", "odd")], &login());
    world.all_waiting_for_one_fetch(1).await;
    let others: Vec<_> =
        (0..3).map(|_| spawn(&world, &[("user-agent", "plain")], &login())).collect();
    world.all_waiting_for_one_fetch(4).await;
    turns.add_permits(10);
    assert_eq!(odd.await.unwrap().body, bad);
    for reply in all(others).await {
        assert_eq!(reply.body, good);
    }
    assert!(origin.exchanges().len() <= 4);
}

#[tokio::test]
async fn a_query_that_renames_a_secret_is_not_shared() {
    let world = Setup::new().config("[[cache.rules]]\ngraphql = \"*\"\nttl = \"1h\"").start().await;
    let world = Arc::new(world);
    let gate = world.close_gate("POST", "/graphql");
    let secret = "{ repository(owner: \"acme\", name: \"widgets\") { t: tempCloneToken } }";
    let body = json!({ "query": secret }).to_string();
    let requests = (0..2).map(|_| spawn(&world, &[], &body)).collect();
    world.held(gate, 2).await;
    world.open_gate(gate);
    for reply in all(requests).await {
        assert_eq!(reply.cache_status(), "weir; fwd=bypass");
    }
}

#[tokio::test]
async fn nothing_but_plain_queries_is_shared() {
    let close = "mutation($id: ID!) { closeIssue(input: { issueId: $id }) { clientMutationId } }";
    let mixed = "query A { viewer { login } } mutation B { closeIssue(input: { issueId: \"x\" }) { clientMutationId } }";
    let bodies = [
        json!({ "query": close, "variables": { "id": "x" } }),
        json!({ "query": mixed, "operationName": "B" }),
        json!({ "query": mixed }),
        json!({ "query": mixed, "operationName": "" }),
        json!({ "query": "fragment F on Mutation { closeIssue(input: { issueId: \"x\" }) { clientMutationId } } mutation { ...F }" }),
        json!({ "query": "subscription { a }" }),
        json!({ "query": "{ viewer { login }" }),
        json!([{ "query": LOGIN }]),
        json!({ "query": LOGIN, "extensions": { "persistedQuery": { "version": 1 } } }),
        json!({ "id": "persisted" }),
    ];
    let world = Arc::new(Setup::new().unspaced_writes().start().await);
    for body in bodies {
        let before = world.upstream_requests().len();
        let body = body.to_string();
        all(vec![spawn(&world, &[], &body), spawn(&world, &[], &body)]).await;
        assert_eq!(world.upstream_requests().len() - before, 2, "{body}");
    }
    let get = || world.send(Method::GET, "/graphql?query=%7Bviewer%7Blogin%7D%7D", &[], "");
    let before = world.upstream_requests().len();
    tokio::join!(get(), get());
    assert_eq!(world.upstream_requests().len() - before, 2, "by GET it may be a mutation");
    // Beside a mutation, a named query is one.
    let named = json!({ "query": mixed, "operationName": "A" }).to_string();
    assert_eq!(at_once(&world, &[named.clone(), named]).await.1, 1);
}

#[tokio::test]
async fn a_leader_that_leaves_takes_nobody_along() {
    let world = Arc::new(Setup::new().start().await);
    let gate = world.close_gate("POST", "/graphql");
    let body = login();
    let mut leader = Connection::open(world.address).await;
    leader
        .send(
            format!(
                "POST /graphql HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .as_bytes(),
        )
        .await;
    world.held(gate, 1).await;
    let followers: Vec<_> = (0..3).map(|_| spawn(&world, &[], &body)).collect();
    world.all_waiting_for_one_fetch(4).await;
    drop(leader);
    world.all_waiting_for_one_fetch(3).await;
    world.open_gate(gate);
    all_have_status(&all(followers).await, 200);
    assert_eq!(world.upstream_requests().len(), 1);
}

#[tokio::test]
async fn a_query_after_a_write_joins_no_earlier_one() {
    let world = Arc::new(Setup::new().unspaced_writes().start().await);
    let gate = world.close_gate("POST", "/graphql");
    let early = spawn(&world, &[], &issue(1));
    world.held(gate, 1).await;
    world
        .send(
            Method::PATCH,
            "/repos/acme/widgets/issues/1",
            &[],
            &json!({ "title": "written" }).to_string(),
        )
        .await
        .assert_status(200);
    let late = spawn(&world, &[], &issue(1));
    world.held(gate, 2).await;
    world.open_gate(gate);
    early.await.unwrap().assert_status(200);
    let late = late.await.unwrap();
    assert_eq!(late.json()["data"]["repository"]["issue"]["title"], "written");
    let sent = world.upstream_requests();
    assert_eq!(sent.iter().filter(|entry| entry.path == "/graphql").count(), 2);
}

#[tokio::test]
async fn a_failure_that_odd_headers_cause_reaches_no_follower() {
    let failures = [
        (200, "{\"data\":{\"viewer\":null},\"errors\":[{\"message\":\"odd\"}]}"),
        (400, "{\"message\":\"odd\"}"),
        (403, "{\"message\":\"odd\"}"),
    ];
    for (status, body) in failures {
        let refuses_odd = move |headers: &HeaderMap| {
            let is_odd = header(headers, "user-agent") == "odd";
            let response = Response::builder()
                .status(if is_odd { status } else { 200 })
                .header("content-type", "application/json");
            response.body(Bytes::from(if is_odd { body } else { GOOD })).unwrap()
        };
        let GatedUpstream { world, origin, turns } = GatedUpstream::new("", 0, refuses_odd).await;
        let world = Arc::new(world);
        let odd = spawn(&world, &[("user-agent", "odd")], &login());
        world.all_waiting_for_one_fetch(1).await;
        let odd_too = spawn(&world, &[("user-agent", "odd")], &login());
        world.all_waiting_for_one_fetch(2).await;
        let others = [&[("user-agent", "plain")][..], &[]].map(|it| spawn(&world, it, &login()));
        world.all_waiting_for_one_fetch(4).await;
        turns.add_permits(10);
        for odd in [odd, odd_too] {
            let odd = odd.await.unwrap();
            assert_eq!((odd.status.as_u16(), &*odd.body), (status, body.as_bytes()));
        }
        for other in others {
            assert_eq!(&*other.await.unwrap().body, GOOD.as_bytes(), "{status}");
        }
        assert!(origin.exchanges().len() <= 3, "{status}");
    }
}

#[tokio::test]
async fn a_lost_query_is_repeated_and_a_mutation_is_not() {
    let upstream = ScriptedUpstream::start().await;
    let world = Setup::new().upstream(upstream.url()).unspaced_writes().start().await;
    let world = Arc::new(world);
    let requests: Vec<_> = (0..10).map(|_| spawn(&world, &[], &login())).collect();
    for attempt in 0..2 {
        let mut connection = upstream.next().await;
        connection.read_body(login().len()).await;
        if attempt == 0 {
            world.all_waiting_for_one_fetch(10).await;
            continue;
        }
        let (length, json) = (GOOD.len(), "Content-Type: application/json");
        let head = format!("HTTP/1.1 200 OK\r\n{json}\r\nContent-Length: {length}\r\n\r\n");
        connection.send(head + GOOD).await;
        connection.half_closes().await;
    }
    for reply in all(requests).await {
        assert_eq!((reply.status.as_u16(), &*reply.body), (200, GOOD.as_bytes()));
    }
    let close = json!({ "query": "mutation { closeIssue(input: {}) { clientMutationId } }" });
    let mutation = spawn(&world, &[], &close.to_string());
    let mut connection = upstream.next().await;
    connection.read_body(close.to_string().len()).await;
    drop(connection);
    assert!(mutation.await.unwrap().json().to_string().contains("outcome_unknown"));
}

#[tokio::test]
async fn a_query_answered_by_a_502_is_repeated_once() {
    let failures = Arc::new(AtomicUsize::new(1));
    let theirs = Arc::clone(&failures);
    let fails = move || {
        let less = |left: usize| left.checked_sub(1);
        theirs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    };
    let GatedUpstream { world, origin, turns } = GatedUpstream::new("", 9, move |_| {
        let response = Response::builder().header("content-type", "application/json");
        let status = if fails() { 502 } else { 200 };
        response.status(status).body(Bytes::from(if status == 502 { "" } else { GOOD })).unwrap()
    })
    .await;
    let world = Arc::new(world);
    let query = spawn(&world, &[], &login());
    // The pause before the repetition.
    eventually(|| {
        world.clock.advance(Duration::from_millis(50));
        origin.exchanges().len() == 2
    })
    .await;
    query.await.unwrap().assert_status(200);
    assert_eq!((origin.exchanges().len(), turns.available_permits()), (2, 7));
}

#[tokio::test]
async fn a_long_answer_is_shared_as_it_comes() {
    let long = format!("{{\"data\":{{\"text\":\"{}\"}}}}", "x".repeat(100_000));
    let body = Bytes::from(long.clone());
    let answer = move |_: &HeaderMap| {
        Response::builder().header("content-type", "application/json").body(body.clone()).unwrap()
    };
    let config = "[cache]\nmax_object = \"4KiB\"";
    let GatedUpstream { world, origin, turns } = GatedUpstream::new(config, 0, answer).await;
    let world = Arc::new(world);
    let requests = (0..5).map(|_| spawn(&world, &[], &login())).collect();
    world.all_waiting_for_one_fetch(5).await;
    turns.add_permits(10);
    for reply in all(requests).await {
        assert_eq!((reply.status.as_u16(), &*reply.body), (200, long.as_bytes()));
    }
    assert_eq!(origin.exchanges().len(), 1);
}

#[tokio::test]
async fn a_clients_own_credential_shares_with_itself_alone() {
    let world = Arc::new(Setup::new().config("[passthrough]\nenabled = true").start().await);
    let gate = world.close_gate("POST", "/graphql");
    let as_client = |credential: &str| {
        let authorization = authorization(credential);
        let headers = [("x-weir-key", KEY), ("authorization", authorization.as_str())];
        spawn(&world, &headers, &login())
    };
    let (cleo, dan) = ("emu_classic_cleo_all_scopes", "emu_classic_dan_all_scopes");
    let mut requests = vec![as_client(cleo), as_client(cleo), as_client(dan)];
    requests.push(spawn(&world, &[], &login()));
    world.all_waiting_for_one_fetch(4).await;
    world.open_gate(gate);
    let replies = all(requests).await;
    all_have_status(&replies, 200);
    let logins = replies.iter().map(|reply| reply.json()["data"]["viewer"]["login"].clone());
    let logins: Vec<Value> = logins.collect();
    assert_eq!(logins[..3], [json!("cleo"), json!("cleo"), json!("dan")]);
    assert_eq!(world.upstream_requests().len(), 3);
}
