//! GraphQL requests, classified by their effect whatever their form (SPECIFICATION, "Promises" 2
//! and 3).

use std::time::Duration;

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use weir::api::{GraphqlEffect, GraphqlRequest};

use crate::support::broken::{Behaviour, Broken};
use crate::support::{Setup, World, eventually};

const NODE: &str = "{ repository(owner: \"acme\", name: \"widgets\") { issue(number: 1) { id } } }";
const ADD: &str = "mutation($id: ID!) { addComment(input: { subjectId: $id, body: \"said\" }) { clientMutationId } }";
const CLOSE: &str =
    "mutation($id: ID!) { closeIssue(input: { issueId: $id }) { clientMutationId } }";
/// A hundred comments of each of a hundred issues, five times: 5 units.
const DEAR: &str = "query($n: Int) { repository(owner: \"acme\", name: \"widgets\") { \
    a: issues(first: 100) { nodes { comments(first: 1) { totalCount } } } b: issues(first: 100) { nodes { comments(first: 1) { totalCount } } } \
    c: issues(first: 100) { nodes { comments(first: 1) { totalCount } } } d: issues(first: 100) { nodes { comments(first: 1) { totalCount } } } \
    e: issues(first: $n) { nodes { comments(first: 1) { totalCount } } } } rateLimit { cost } }";

async fn issue_id(world: &World) -> Value {
    world.post("/graphql", json!({ "query": NODE })).await.json()["data"]["repository"]["issue"]["id"].clone()
}

#[tokio::test]
async fn no_mutation_is_classified_as_a_query() {
    let world = Setup::new().unspaced_writes().limits("content_per_minute = 1000").start().await;
    let both = "query A { viewer { login } } mutation B { closeIssue(input: { issueId: \"x\" }) { clientMutationId } }";
    let request = |query: &str| json!({ "query": query }).to_string();
    let named = |name: Value| json!({ "query": both, "operationName": name }).to_string();
    let bodies = [
        request("{ viewer { login } }"),
        request("#mutation\nquery mutation { viewer { mutation: login } }"),
        request("query($a: String = \"mutation{\") { a: user(login: $a) { login } b: user(login: \"\"\"} mutation {\"\"\") { login } }"),
        request("\u{feff}{ viewer { ...mutation } } fragment mutation on User { login }"),
        request("#\rmutation { closeIssue(input: { issueId: \"x\" }) { clientMutationId } }"),
        request("fragment F on Mutation { closeIssue(input: { issueId: \"x\" }) { clientMutationId } } mutation M { ...F }"),
        request("mutation { closeIssue(input: { issueId: \"\"\"x\"\"\" }) { clientMutationId } }").replace("mut", "\\u006dut"),
        named(json!("A")),
        named(json!("B")),
        named(json!("")),
        named(json!(null)),
        named(json!("C")),
        format!("[{}]", request("mutation { x }")),
        "{\"query\":\"{viewer{login}}\",\"query\":\"mutation{closeIssue(input:{issueId:\\\"x\\\"}){clientMutationId}}\"}".to_owned(),
        "{\"id\":\"persisted\"}".to_owned(),
        "query={viewer{login}}".to_owned(),
        String::new(),
    ];
    for body in &bodies {
        let before = world.upstream_requests().len();
        world.send(Method::POST, "/graphql", &[], body).await;
        let sent = world.upstream_requests()[before..].to_vec();
        let [entry] = &sent[..] else { panic!("{} requests for {body}", sent.len()) };
        let read =
            GraphqlRequest::read(&Method::POST, None, &HeaderMap::new(), body.as_bytes()).effect;
        if entry.points == 5 {
            assert_ne!(read, GraphqlEffect::Query, "{body}");
        }
    }
    let points = world.upstream_requests().iter().map(|entry| entry.points).collect::<Vec<_>>();
    assert_eq!(points[..9], [1, 1, 1, 1, 5, 5, 5, 1, 5]);
    let queries = bodies.iter().filter(|body| {
        GraphqlRequest::read(&Method::POST, None, &HeaderMap::new(), body.as_bytes()).effect
            == GraphqlEffect::Query
    });
    assert_eq!(queries.count(), 5);
}

#[tokio::test]
async fn a_reader_may_run_a_query_beside_a_mutation() {
    let world = Setup::new().reader().start().await;
    let both = "query A { viewer { login } } mutation B { closeIssue(input: { issueId: \"x\" }) { clientMutationId } }";
    let named = |name: &str| json!({ "query": both, "operationName": name });
    world.post("/graphql", named("A")).await.assert_status(200);
    for name in ["B", "", "C"] {
        world.post("/graphql", named(name)).await.assert_status(403);
    }
    world
        .send(Method::GET, "/graphql?query=%7Bviewer%7Blogin%7D%7D", &[], "")
        .await
        .assert_status(403);
    world
        .send(
            Method::POST,
            "/graphql?operationName=B",
            &[],
            &json!({ "query": "{ viewer { login } }" }).to_string(),
        )
        .await
        .assert_status(403);
    assert_eq!(world.upstream_requests().len(), 1);
}

#[tokio::test]
async fn a_rule_for_reads_permits_no_operation_by_get() {
    let world = Setup::new().client("allow = [\"GET *\"]").start().await;
    for target in [
        "/graphql?query=mutation%7BcloseIssue%7D",
        "/graphql?query=%7Bviewer%7Blogin%7D%7D",
        "/api/v3/graphql?operationName=A",
    ] {
        for method in [Method::GET, Method::HEAD] {
            let answer = world.send(method, target, &[], "").await;
            answer.assert_status(403);
            assert!(answer.header("x-weir-account").is_none(), "{target}");
        }
    }
    assert!(world.upstream_requests().is_empty());
    // The schema is a read.
    assert_ne!(world.get("/graphql").await.status, 403);
    let writer = Setup::new().client("allow = [\"POST /graphql\"]").start().await;
    writer.get("/graphql?query=mutation%7BcloseIssue%7D").await;
    assert_eq!(writer.upstream_requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_content_mutations_count_against_the_content_limit() {
    let world = Setup::new()
        .manual_clock()
        .unspaced_writes()
        .limits("content_per_minute = 1")
        .start()
        .await;
    let id = issue_id(&world).await;
    let run = |query: &str| json!({ "query": query, "variables": { "id": id } }).to_string();
    let ask = async |query: &str| {
        world.send(Method::POST, "/graphql", &[("prefer", "wait=0")], &run(query)).await
    };
    ask(ADD).await.assert_status(200);
    ask(ADD).await.assert_secondary_limited();
    world
        .send(Method::POST, "/graphql", &[("prefer", "wait=0")], "{\"id\":\"persisted\"}")
        .await
        .assert_secondary_limited();
    ask(CLOSE).await.assert_status(200);
    ask("{ viewer { login } }").await.assert_status(200);
    world.clock.advance(Duration::from_secs(61));
    ask(ADD).await.assert_status(200);
    assert_eq!(world.upstream_requests().iter().filter(|entry| entry.points == 5).count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutations_are_spaced_and_queries_are_not() {
    let world = Setup::new()
        .manual_clock()
        .writes("spacing = \"1s\"\nnotify_spacing = \"3s\"")
        .start()
        .await;
    let id = issue_id(&world).await;
    let run = |query: &str| json!({ "query": query, "variables": { "id": id } });
    world.post("/graphql", run(ADD)).await.assert_status(200);
    world.post("/graphql", json!({ "query": NODE })).await.assert_status(200);
    let second = world.post("/graphql", run(ADD));
    let time = async {
        eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
        world.clock.advance(Duration::from_secs(1));
        world.post("/graphql", json!({ "query": NODE })).await.assert_status(200);
        assert_eq!(
            world.gateway.dispatcher.admissions().waiting(),
            1,
            "people are notified of it: one second is not enough"
        );
        world.clock.advance(Duration::from_secs(2));
    };
    tokio::join!(second, time).0.assert_status(200);
}

#[tokio::test]
async fn the_cost_of_an_operation_is_reserved_the_next_time() {
    let world = Setup::new().start().await;
    world.set_limits(&json!({ "graphql": 12 }));
    let ask =
        async || world.post("/graphql", json!({ "query": DEAR, "variables": { "n": 100 } })).await;
    for _ in 0..2 {
        let answer = ask().await;
        answer.assert_status(200);
        assert_eq!(answer.json()["data"]["rateLimit"]["cost"], 5, "{answer:?}");
    }
    // Two units are left: enough for a query, too few for this one.
    ask().await.assert_rate_limited(world.clock.now().as_secs());
    world.post("/graphql", json!({ "query": "{ viewer { login } }" })).await.assert_status(200);
    let sent = world.upstream_requests();
    assert_eq!(sent.iter().map(|entry| entry.cost).collect::<Vec<_>>(), [5, 5, 1]);
    assert!(sent.iter().all(|entry| entry.refused.is_none()));
}

#[tokio::test]
async fn a_mutation_in_a_query_string_is_sent_once() {
    const MUTATION: &str = "/graphql?query=mutation%7Ba%7D";
    for method in [Method::GET, Method::POST] {
        for behaviour in [
            Behaviour::Close,
            Behaviour::Sends("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\n{}"),
        ] {
            let upstream = Broken::start(behaviour).await;
            let world = upstream.world().await;
            let reply = world.send(method.clone(), MUTATION, &[], "").await;
            reply.assert_status(502);
            assert!(
                reply.json()["message"].as_str().unwrap().contains("unknown whether"),
                "{method}: {reply:?}"
            );
            assert_eq!(upstream.requests(), 1, "{method}");
            let accepted =
                world.send(method.clone(), MUTATION, &[("prefer", "respond-async")], "").await;
            accepted.assert_status(202);
            let end = world
                .get_with(accepted.header("location").unwrap(), &[("prefer", "wait=30")])
                .await
                .json();
            assert_eq!(
                (&end["state"], &end["attempts"]),
                (&json!("unknown"), &json!(1)),
                "{method}: {end}"
            );
            assert_eq!(upstream.requests(), 2, "{method}");
        }
    }
}

#[tokio::test]
async fn the_cost_is_learned_by_the_headers_of_a_lone_query() {
    let world = Setup::new().start().await;
    world.set_limits(&json!({ "graphql": 18 }));
    let dear = DEAR.replace("rateLimit { cost } }", "}");
    let ask =
        async || world.post("/graphql", json!({ "query": dear, "variables": { "n": 100 } })).await;
    // The first answer shows the count, the second what the query costs.
    for _ in 0..3 {
        let answer = ask().await;
        answer.assert_status(200);
        assert!(answer.json()["errors"].is_null(), "{answer:?}");
    }
    ask().await.assert_rate_limited(world.clock.now().as_secs());
    world.post("/graphql", json!({ "query": "{ viewer { login } }" })).await.assert_status(200);
    let sent = world.upstream_requests();
    assert_eq!(sent.iter().map(|entry| entry.cost).collect::<Vec<_>>(), [5, 5, 5, 1]);
    assert!(sent.iter().all(|entry| entry.refused.is_none()));
}

#[tokio::test]
async fn overlapping_queries_learn_nothing_from_each_other() {
    let world = Setup::new().start().await;
    world.set_limits(&json!({ "graphql": 10 }));
    let dear = DEAR.replace("rateLimit { cost } }", "}");
    let cheap = async |name: &str| {
        let query = format!("query {name} {{ viewer {{ login }} }}");
        world.post("/graphql", json!({ "query": query })).await
    };
    cheap("Known").await.assert_status(200);
    let gate = world.close_gate("POST", "/graphql");
    let dear = world.post("/graphql", json!({ "query": dear, "variables": { "n": 100 } }));
    let others = async {
        world.held(gate, 1).await;
        let open = async {
            world.held(gate, 2).await;
            world.open_gate(gate);
        };
        tokio::join!(cheap("Other"), open).0.assert_status(200);
    };
    tokio::join!(dear, others).0.assert_status(200);
    // Three units are left: a price of 5 or 6 would deny it.
    cheap("Other").await.assert_status(200);
    assert!(world.upstream_requests().iter().all(|entry| entry.refused.is_none()));
}
