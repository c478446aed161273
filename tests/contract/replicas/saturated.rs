//! Each limit of the upstream alone, saturated through all replicas: none is exceeded, and 95 % of
//! each is used.

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::iter;
use http::Method;
use serde_json::{Value, json};

use super::Replicas;
use crate::support::Setup;

const REPO: &str = "/repos/acme/widgets";
/// Clients at once, far more than the slots of one account.
const AT_ONCE: usize = 300;

/// A request of a saturating workload: method, path, body.
type Wanted = (Method, String, String);

fn read(number: usize) -> Wanted {
    (Method::GET, format!("{REPO}/issues?per_page=1&page={number}"), String::new())
}

fn query(number: usize) -> Wanted {
    let query = format!("query Q{number} {{ viewer {{ login }} }}");
    (Method::POST, "/graphql".to_owned(), json!({ "query": query }).to_string())
}

/// A comment on one of twenty issues, which have lanes of their own.
fn comment(number: usize) -> Wanted {
    let path = format!("{REPO}/issues/{}/comments", number % 20 + 1);
    (Method::POST, path, json!({ "body": format!("number {number}") }).to_string())
}

/// Limits that this limit must not meet.
const HIGH: &str = "rest_points_per_minute = 1000000\ngraphql_points_per_minute = 1000000\n\
    cpu_seconds_per_minute = 1000000\ngraphql_cpu_seconds_per_minute = 1000000\n";

/// Sends `count` requests through three replicas, and asserts that the upstream takes `limit`.
async fn saturates(
    limit: usize,
    count: usize,
    limits: &str,
    theirs: &Value,
    of: fn(usize) -> Wanted,
) {
    let setup = Setup::new().unspaced_writes().limits(limits).client("max_wait = \"5s\"");
    let replicas = Replicas::start(setup, 3).await;
    replicas.world.set_limits(&json!({ "core.user": 1_000_000 }));
    replicas.world.set_limits(theirs);
    let begun = replicas.world.upstream_requests().len();
    let sent = iter(0..count).map(|number| {
        let (replicas, (method, path, body)) = (&replicas, of(number));
        async move { replicas.send(number % 3, method, &path, &body).await.status }
    });
    let served = sent.buffer_unordered(AT_ONCE).filter(|status| {
        let is_served = status.is_success();
        async move { is_served }
    });
    let served = served.count().await;
    let seen = &replicas.world.upstream_requests()[begun..];
    let refused: Vec<_> = seen.iter().filter(|entry| entry.refused.is_some()).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    println!("{served} of {limit} used, {count} wanted");
    assert!(served <= limit && served * 100 >= limit * 95, "{served} of {limit} used");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_points_of_an_endpoint_are_used_up() {
    let limits = HIGH.replace("rest_points_per_minute = 1000000", "rest_points_per_minute = 900");
    saturates(900, 1_300, &limits, &json!({ "points.rest": 900 }), read).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_points_of_graphql_are_used_up() {
    let limits =
        HIGH.replace("graphql_points_per_minute = 1000000", "graphql_points_per_minute = 2000");
    saturates(2_000, 2_600, &limits, &json!({ "points.graphql": 2_000 }), query).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_content_of_a_minute_is_used_up() {
    let limits = format!("{HIGH}content_per_minute = 80");
    let theirs = json!({ "points.rest": 1_000_000, "content.minute": 80 });
    saturates(80, 160, &limits, &theirs, comment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_content_of_an_hour_is_used_up() {
    let limits = format!("{HIGH}content_per_minute = 100000\ncontent_per_hour = 500");
    let theirs =
        json!({ "points.rest": 1_000_000, "content.minute": 100_000, "content.hour": 500 });
    saturates(500, 700, &limits, &theirs, comment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slots_of_an_account_are_used() {
    let setup = Setup::new().limits(HIGH).client("max_wait = \"30s\"");
    let replicas = Replicas::start(setup, 3).await;
    replicas.world.set_limits(&json!({ "points.rest": 1_000_000, "concurrency": 100 }));
    let gate = replicas.world.close_gate("GET", "/repos/acme/widgets/issues");
    let reads = join_all((0..300).map(|number| {
        let (replicas, (_, path, _)) = (&replicas, read(number));
        async move { replicas.get(number % 3, &path).await.status }
    }));
    let opens = async {
        replicas.world.held(gate, 95).await;
        replicas.world.open_gate(gate);
    };
    let (statuses, ()) = tokio::join!(reads, opens);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let seen = replicas.world.upstream_requests();
    assert!(seen.iter().all(|entry| entry.refused.is_none()));
}
