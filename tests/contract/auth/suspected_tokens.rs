//! Suspected tokens: a 401 is confirmed or cleared by a free `GET /rate_limit`, and readiness looks
//! at every token that way (SPECIFICATION, "Admin listener").

use futures_util::future::join_all;
use http::Method;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use weir::admin::Admin;

use crate::support::{KEY, OTHER_KEY, Reply, Setup, World, config};

const REPOSITORY: &str = "/repos/acme/widgets";
const ADMIN: &str = "admin = \"127.0.0.1:0\"";

fn arm_401(world: &World, times: u64) {
    let bad = json!({ "message": "Bad credentials" });
    world.arm(&json!({ "fault": "status", "status": 401, "body": bad, "match": { "path": "/repos/*", "times": times } }));
}

fn requests(world: &World, path: &str) -> usize {
    world.upstream_requests().iter().filter(|entry| entry.path == path).count()
}

async fn readiness(world: &World) -> (u16, String) {
    let admin = Admin::open(&world.current).unwrap().address().unwrap();
    let http: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let reply = http.get(format!("http://{admin}/readyz").parse().unwrap()).await.unwrap();
    let reply = Reply::read(reply).await;
    (reply.status.as_u16(), String::from_utf8_lossy(&reply.body).into_owned())
}

#[tokio::test]
async fn a_single_401_does_not_bench_the_only_token() {
    let world = Setup::new().start().await;
    arm_401(&world, 1);
    world.get(REPOSITORY).await.assert_status(200);
    world.get("/repos/acme/widgets/issues").await.assert_status(200);
    assert!(world.gateway.dispatcher.has_usable_token());
    assert_eq!(requests(&world, "/rate_limit"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_401s_is_cleared_by_few_asks() {
    let world = Setup::new().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    arm_401(&world, 20);
    let answers = join_all((1..=20).map(|page| {
        let (world, path) = (&world, format!("{REPOSITORY}/issues?per_page=1&page={page}"));
        async move { world.get(&path).await }
    }))
    .await;
    assert!(answers.iter().any(|answer| answer.status == 200), "{answers:?}");
    // A 401 that comes during a question needs the next one.
    assert!(requests(&world, "/rate_limit") <= 10, "{}", requests(&world, "/rate_limit"));
    world.get(&format!("{REPOSITORY}/labels")).await.assert_status(200);
}

#[tokio::test]
async fn a_confirmed_401_benches_the_token() {
    let world = Setup::new().start().await;
    world.arm(&json!({ "fault": "revoke", "match": { "path": "/repos/*", "nth": 1 } }));
    world.get(REPOSITORY).await.assert_status(502);
    assert!(!world.gateway.dispatcher.has_usable_token());
    assert_eq!(requests(&world, "/rate_limit"), 1);
}

#[tokio::test]
async fn an_answer_from_before_the_401_clears_no_token() {
    let world = Setup::new().listen(ADMIN).start().await;
    assert_eq!(readiness(&world).await.0, 200);
    world.arm(&json!({ "fault": "revoke", "match": { "path": "/repos/*", "nth": 1 } }));
    world.get(REPOSITORY).await.assert_status(502);
    assert!(!world.gateway.dispatcher.has_usable_token());
}

#[tokio::test]
async fn a_401_of_one_route_alone_is_not_the_tokens_fault() {
    let world = Setup::new().start().await;
    arm_401(&world, 100);
    let refused = world.get(REPOSITORY).await;
    assert!(matches!(refused.status.as_u16(), 403 | 502), "{refused:?}");
    assert!(requests(&world, REPOSITORY) <= 3);
    assert!(world.gateway.dispatcher.has_usable_token());
    world.get("/users/ada").await.assert_status(200);
}

#[tokio::test]
async fn a_repeated_401_benches_where_the_state_cannot_be_asked() {
    for (times, status) in [(1, 200), (100, 502)] {
        let world = Setup::new().start().await;
        let not_found = json!({ "message": "Not Found" });
        world.arm(&json!({ "fault": "status", "status": 404, "body": not_found, "match": { "path": "/rate_limit" } }));
        arm_401(&world, times);
        world.get(REPOSITORY).await.assert_status(status);
        assert_eq!(world.gateway.dispatcher.has_usable_token(), status == 200);
    }
}

#[tokio::test]
async fn a_dead_token_is_not_ready_before_any_request() {
    let world = Setup::new().listen(ADMIN).broken_token(0).start().await;
    let (status, text) = readiness(&world).await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("account-0, token 0: benched"), "{text}");
    assert_eq!(requests(&world, "/rate_limit"), 2);
}

#[tokio::test]
async fn a_single_401_of_the_first_look_does_not_matter() {
    let world = Setup::new().listen(ADMIN).start().await;
    let bad = json!({ "message": "Bad credentials" });
    world.arm(&json!({ "fault": "status", "status": 401, "body": bad, "match": { "path": "/rate_limit", "times": 1 } }));
    let (status, text) = readiness(&world).await;
    assert_eq!((status, text.as_str()), (200, "ok\n"));
}

#[tokio::test]
async fn a_pool_with_one_good_token_is_ready() {
    let world = Setup::new().listen(ADMIN).accounts(3).broken_token(2).start().await;
    let (status, text) = readiness(&world).await;
    assert_eq!((status, text.as_str()), (200, "ok\n1 of 3 upstream tokens benched, 0 minting\n"));
}

#[tokio::test]
async fn a_start_with_a_dead_token_of_writes_is_not_ready() {
    let world = Setup::new().listen(ADMIN).accounts(2).broken_token(0).start().await;
    for _ in 0..2 {
        let (status, text) = readiness(&world).await;
        assert_eq!(status, 503, "{text}");
        assert!(text.starts_with("writes by account-0: no upstream token can be used\n"), "{text}");
        assert!(text.contains("account-0, token 0: benched"), "{text}");
    }
}

#[tokio::test]
async fn a_token_of_writes_that_dies_later_leaves_the_rest_ready() {
    let setup = Setup::new().listen(ADMIN).accounts(2).limits("concurrency = 50");
    let world = setup.start().await;
    assert_eq!(readiness(&world).await.0, 200);
    world.arm(
        &json!({ "fault": "revoke", "match": { "path": "/repos/*", "method": "POST", "nth": 1 } }),
    );
    let issue = json!({ "title": "an issue" });
    world.post("/repos/acme/widgets/issues", issue).await.assert_status(502);
    let (status, text) = readiness(&world).await;
    assert_eq!((status, text.as_str()), (200, "ok\n1 of 2 upstream tokens benched, 0 minting\n"));
    // Nor does a reload make it a start.
    world.reload(|text| text.replace("concurrency = 50", "concurrency = 40"));
    assert_eq!(readiness(&world).await.0, 200);
}

#[tokio::test]
async fn a_pool_without_a_working_token_is_not_ready() {
    let emulated = Setup::new().start().await.tokens[0].token.clone();
    let text = config::user("good", &emulated)
        + &config::user("dead", "emu_unknown_token")
        + &config::pool("alive", &["good"])
        + &config::pool("empty", &["dead"])
        + &config::client("ci", KEY, "reads = \"alive\"")
        + &config::client("other", OTHER_KEY, "reads = \"empty\"");
    let world = Setup::new().credentials(text).listen(ADMIN).start().await;
    let (status, text) = readiness(&world).await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("pool empty") && text.contains("dead, token 1: benched"), "{text}");
    assert!(!text.contains("good, token"), "{text}");
}

#[tokio::test]
async fn a_restored_token_becomes_ready_without_a_request() {
    let world = Setup::new().listen(ADMIN).manual_clock().start().await;
    let bad = json!({ "message": "Bad credentials" });
    world.arm(&json!({ "fault": "status", "status": 401, "body": bad, "match": { "path": "*" } }));
    assert_eq!(readiness(&world).await.0, 503);
    world.clock.advance(std::time::Duration::from_mins(6));
    assert_eq!(readiness(&world).await.0, 503, "its pause is over, and it is still dead");
    world.ask_emulator(Method::DELETE, "/_emulator/faults", &Value::Null);
    world.clock.advance(std::time::Duration::from_mins(11));
    let (status, text) = readiness(&world).await;
    assert_eq!(status, 200, "{text}");
}
