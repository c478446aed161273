//! An upstream that is down, breaks off or never answers: a clear error, no repeated write, no
//! leaked lease (SPECIFICATION D6, D7).

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tokio::net::TcpListener;
use weir::decision::QuotaLedger;

use crate::support::broken::Behaviour::{Close, DiesIdle, Keeps, Sends, Silence};
use crate::support::broken::Broken;
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, eventually};

const ISSUES: &str = "/repos/acme/widgets/issues";
const HALF_BODY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":";
const GARBAGE: &str = "this is not HTTP\r\n\r\n";
const SERVER_ERROR: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_dead_upstream_is_a_502_naming_nothing_as_executed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let world =
        Setup::new().upstream(url).unspaced_writes().writes("max_attempts = 2").start().await;
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let answer = world.send(method, ISSUES, &[], "").await;
        answer.assert_status(502);
        assert!(answer.json()["message"].as_str().unwrap().contains("nothing was executed"));
    }
    assert_eq!(world.gateway.writes.turns().writes(), 0);
}

#[tokio::test]
async fn a_post_with_a_lost_response_is_unknown_and_not_repeated() {
    for behaviour in [Close, Silence, Sends(HALF_BODY), Sends(GARBAGE), Sends(SERVER_ERROR)] {
        let upstream = Broken::start(behaviour).await;
        let world = upstream.world().await;
        let answer = world.send(Method::POST, ISSUES, &[], "{\"title\":\"once\"}").await;
        answer.assert_status(502);
        assert!(
            answer.json()["message"]
                .as_str()
                .unwrap()
                .contains("unknown whether this request was executed"),
            "{answer:?}"
        );
        assert_eq!(upstream.requests(), 1);
    }
}

#[tokio::test]
async fn a_put_or_delete_with_a_lost_response_uses_max_attempts() {
    for method in [Method::PUT, Method::DELETE] {
        let upstream = Broken::start(Close).await;
        let world = upstream.world().await;
        world.send(method, "/repos/acme/widgets/issues/1/lock", &[], "").await.assert_status(502);
        assert_eq!(upstream.requests(), 2);
    }
}

#[tokio::test]
async fn dead_idle_connections_do_not_multiply_attempts() {
    let upstream = Broken::start(DiesIdle("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")).await;
    let world = upstream.world().await;
    join_all((0..8).map(|n| {
        let world = &world;
        async move { world.get(&format!("{ISSUES}/{n}")).await }
    }))
    .await;
    let before = upstream.requests();
    // A POST never uses such a connection.
    world.post(ISSUES, json!({ "title": "once" })).await.assert_status(200);
    assert_eq!(upstream.requests() - before, 1);
    let before = upstream.requests();
    // The idle connection dies under the first attempt; the second opens its own.
    world.send(Method::PUT, "/repos/acme/widgets/issues/1/lock", &[], "").await.assert_status(200);
    assert!(upstream.requests() - before <= 2);
}

#[tokio::test]
async fn a_write_allowed_once_is_sent_once_over_any_connection() {
    let upstream = Broken::start(DiesIdle("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")).await;
    let world = upstream.setup().unspaced_writes().writes("max_attempts = 1").start().await;
    for method in [Method::PUT, Method::DELETE] {
        // Leaves a connection that dies under its next request.
        world.get(&format!("{ISSUES}/{method}")).await.assert_status(200);
        let before = upstream.requests();
        world.send(method, "/repos/acme/widgets/issues/1/lock", &[], "").await.assert_status(200);
        assert_eq!(upstream.requests() - before, 1);
    }
}

#[tokio::test]
async fn a_read_is_retried_and_then_gets_a_clear_error() {
    for (behaviour, status) in
        [(Close, 502), (Sends(HALF_BODY), 502), (Sends(GARBAGE), 502), (Silence, 504)]
    {
        let upstream = Broken::start(behaviour).await;
        let world = upstream.world().await;
        let answer = world.get(ISSUES).await;
        answer.assert_status(status);
        assert!(answer.json()["message"].is_string());
        assert_eq!(upstream.requests(), 3);
    }
}

#[tokio::test]
async fn a_lost_response_counts_as_spent_and_leaves_no_lease() {
    let upstream = Broken::start(Close).await;
    let world = upstream.world().await;
    world.get(ISSUES).await.assert_status(502);
    let snapshot = world.gateway.dispatcher.admissions().with_ledger(QuotaLedger::snapshot);
    assert!(snapshot[0].windows.iter().all(|window| window.reserved == 0), "{snapshot:?}");
    assert!(
        snapshot[0]
            .secondary
            .iter()
            .filter(|limit| limit.limit.name() == "concurrency")
            .all(|limit| limit.in_use == 0)
    );
}

#[tokio::test]
async fn an_upstream_limit_without_a_time_causes_no_retry_loop() {
    for refusal in [
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 403 Forbidden\r\nRetry-After: Tue, 01 Jul 2025 00:00:00 GMT\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nx-ratelimit-resource: search\r\nContent-Type: application/json\r\nContent-Length: 38\r\n\r\n{\"message\":\"API rate limit exceeded.\"}\n",
    ] {
        let upstream = Broken::start(Keeps(refusal)).await;
        let world = upstream.world().await;
        world.get_with(ISSUES, &[("prefer", "wait=0")]).await.assert_status(403);
        assert!(upstream.requests() <= 2, "{} requests for {refusal}", upstream.requests());
    }
}

#[tokio::test]
async fn a_partly_executed_mutation_is_not_repeated() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 73\r\n\r\n{\"data\":{\"a\":{\"id\":1},\"b\":null},\"errors\":[{\"type\":\"RATE_LIMITED\",\"x\":1}]}";
    let upstream = Broken::start(Keeps(answer)).await;
    let world = upstream.world().await;
    let given = world.post("/graphql", json!({ "query": "mutation { a b }" })).await;
    given.assert_status(200);
    assert_eq!(given.json()["data"]["a"]["id"], 1);
    assert_eq!(upstream.requests(), 1);
}

#[tokio::test]
async fn a_limited_write_is_not_resent_after_its_client_leaves() {
    let upstream = Broken::start(Keeps(
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\nContent-Length: 2\r\n\r\n{}",
    ))
    .await;
    let world = upstream.setup().manual_clock().unspaced_writes().start().await;
    let mut connection = Connection::open(world.address).await;
    connection
        .send(format!("POST {ISSUES} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes())
        .await;
    eventually(|| upstream.requests() == 1 && world.gateway.dispatcher.admissions().waiting() == 1)
        .await;
    drop(connection);
    eventually(|| world.gateway.writes.turns().writes() == 0).await;
    world.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!((upstream.requests(), world.gateway.dispatcher.admissions().waiting()), (1, 0));
}

#[tokio::test]
async fn an_upload_refused_at_its_head_delivers_the_refusal() {
    let upstream = Broken::start(Sends(
        "HTTP/1.1 413 Payload Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    ))
    .await;
    let world = upstream.setup().unspaced_writes().writes("max_body = \"1KiB\"").start().await;
    world.send(Method::POST, ISSUES, &[], &"x".repeat(8 * 1024 * 1024)).await.assert_status(413);
}

#[tokio::test]
async fn a_vary_star_response_is_for_its_requester_alone() {
    let upstream =
        Broken::start(Keeps("HTTP/1.1 200 OK\r\nVary: *\r\nContent-Length: 2\r\n\r\n{}")).await;
    let world = upstream.world().await;
    let answers = join_all((0..3).map(|_| world.get(ISSUES))).await;
    assert!(
        answers.iter().all(|answer| answer.cache_status() == "weir; fwd=uri-miss"),
        "{answers:?}"
    );
    assert_eq!(upstream.requests(), 3);
}

#[tokio::test]
async fn a_redirect_to_another_host_passes_unchanged() {
    let upstream =
        Broken::start(Keeps("HTTP/1.1 302 Found\r\nLocation: https://codeload.example.com/a.tar.gz?token=x\r\nContent-Length: 0\r\n\r\n"))
            .await;
    let world = upstream.world().await;
    let answer = world.get("/repos/acme/widgets/tarball").await;
    answer.assert_status(302);
    assert_eq!(answer.header("location"), Some("https://codeload.example.com/a.tar.gz?token=x"));
}

#[tokio::test]
async fn a_401_about_the_route_benches_no_token() {
    let upstream = Broken::start(Keeps("HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 52\r\n\r\n{\"message\":\"A JSON web token could not be decoded\"} ")).await;
    let world = upstream.world().await;
    let answer = world.get("/repos/acme/widgets/traffic/views").await;
    answer.assert_status(403);
    assert!(answer.json()["message"].as_str().unwrap().contains("another kind of credential"));
    assert!(world.gateway.dispatcher.has_usable_token());
}

#[tokio::test]
async fn a_write_that_may_have_run_is_never_limit_denied() {
    let upstream = Broken::start(Close).await;
    let world = upstream
        .setup()
        .client("max_wait = \"2s\"")
        .writes("spacing = \"5s\"\nnotify_spacing = \"5s\"")
        .start()
        .await;
    let answer = world.send(Method::DELETE, "/repos/acme/widgets/issues/1/lock", &[], "").await;
    answer.assert_status(502);
    assert!(answer.json()["message"].as_str().unwrap().contains("unknown whether"), "{answer:?}");
}
