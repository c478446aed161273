//! Each limit of the upstream alone, saturated through all replicas: none is exceeded, and 95 % of
//! each is used.

use std::ops::Range;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::iter;
use http::Method;
use serde_json::{Value, json};
use weir::emulator::Entry;

use super::Replicas;
use crate::support::{KEY, Setup, config};

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

/// A workload beside the limit that it saturates.
struct Workload<'a> {
    setup: Setup,
    /// Lines of `[limits]`.
    limits: &'a str,
    /// The upstream's limits that differ from the usual ones.
    theirs: &'a Value,
    of: fn(usize) -> Wanted,
}

impl Workload<'_> {
    async fn start(self) -> (Replicas, fn(usize) -> Wanted) {
        let setup = self.setup.unspaced_writes().limits(self.limits);
        let replicas = Replicas::start(setup, 3).await;
        replicas.world.set_limits(&json!({ "core.user": 1_000_000, "core": 1_000_000 }));
        replicas.world.set_limits(self.theirs);
        (replicas, self.of)
    }
}

/// Sends `count` requests through three replicas. Returns how many are served, and what the
/// upstream has seen of them.
async fn send(
    replicas: &Replicas,
    numbers: Range<usize>,
    of: fn(usize) -> Wanted,
) -> (usize, Vec<Entry>) {
    let begun = replicas.world.upstream_requests().len();
    let sent = iter(numbers).map(|number| {
        let (method, path, body) = of(number);
        async move { replicas.send(number % 3, method, &path, &body).await.status }
    });
    let served = sent.buffer_unordered(AT_ONCE).filter(|status| {
        let is_served = status.is_success();
        async move { is_served }
    });
    let served = served.count().await;
    let seen = replicas.world.upstream_requests().split_off(begun);
    let refused: Vec<_> = seen.iter().filter(|entry| entry.refused.is_some()).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    (served, seen)
}

fn assert_saturated(used: usize, limit: usize) {
    println!("{used} of {limit} used");
    assert!(used <= limit && used * 100 >= limit * 95, "{used} of {limit} used");
}

/// Sends `count` requests through three replicas, and asserts that the upstream takes `limit`.
async fn saturates(
    limit: usize,
    count: usize,
    limits: &str,
    theirs: &Value,
    of: fn(usize) -> Wanted,
) {
    let setup = Setup::new().client("max_wait = \"5s\"");
    let (replicas, of) = Workload { setup, limits, theirs, of }.start().await;
    let (served, _) = send(&replicas, 0..count, of).await;
    assert_saturated(served, limit);
}

/// Time of an answer: the upstream's CPU time, which the gateway measures by it. In seconds. Less
/// than twice the 300 ms that a query is taken for before its time is known: an answer that takes
/// longer counts as held up on its way, and not whole.
const COMPUTED: f64 = 0.55;
const COMPUTED_MICROS: usize = 550_000;
/// Requests before the saturation, so that each replica knows the time of an answer.
const FIRST: usize = 3;

/// Saturates a limit of CPU seconds in a minute.
async fn saturates_cpu(seconds: usize, limits: &str, count: usize, of: fn(usize) -> Wanted) {
    let theirs = json!({
        "points.rest": 1_000_000, "points.graphql": 1_000_000, "cpu.burst": 1_000_000,
        "cpu-micros.read": COMPUTED_MICROS, "cpu-micros.graphql": COMPUTED_MICROS,
        "cpu-micros.item": 0,
    });
    let setup = Setup::new().client("max_wait = \"8s\"");
    let (replicas, of) = Workload { setup, limits, theirs: &theirs, of }.start().await;
    replicas.world.arm(&json!({ "fault": "stall", "seconds": COMPUTED, "executed": true }));
    let (first, mut seen) = send(&replicas, 0..FIRST, of).await;
    assert_eq!(first, FIRST);
    seen.extend(send(&replicas, FIRST..count, of).await.1);
    let micros: u64 = seen.iter().map(|entry| entry.cpu_micros).sum();
    let (used, limit) = (usize::try_from(micros / 1_000).unwrap(), 1_000 * seconds);
    println!("{used} of {limit} used");
    // A busy machine delays answers, which count by their time. For a figure: `USED_AT_LEAST=95`.
    let least = std::env::var("USED_AT_LEAST").map_or(60, |percent| percent.parse().unwrap());
    assert!(used <= limit && used * 100 >= limit * least, "{used} of {limit} used");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cpu_time_of_reads_is_used_up() {
    let limits = "rest_points_per_minute = 1000000\ncpu_seconds_per_ten_seconds = 90";
    saturates_cpu(90, limits, 220, read).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cpu_time_of_graphql_is_used_up() {
    let limits = "graphql_points_per_minute = 1000000\ncpu_seconds_per_ten_seconds = 90";
    saturates_cpu(60, limits, 160, query).await;
}

/// A request about a token of an app, by the app.
fn token_check(_: usize) -> Wanted {
    let path = "/applications/emu_client_id/token".to_owned();
    (Method::POST, path, json!({ "access_token": "emu_oauth_ada" }).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_requests_of_an_app_are_used_up() {
    let credentials = config::account("app", "oauth-app", "")
        + &config::token("app", "basic", "emu_client_id:emu_client_secret")
        + &config::client("ci", KEY, "writes = \"app\"\nmax_wait = \"5s\"");
    let setup = Setup::new().credentials(credentials);
    let limits = format!("{HIGH}content_per_minute = 100000\ncontent_per_hour = 100000");
    let theirs = json!({
        "points.rest": 1_000_000, "content.minute": 100_000, "content.hour": 100_000,
        "cpu": 1_000_000, "cpu.burst": 1_000_000,
    });
    let workload = Workload { setup, limits: &limits, theirs: &theirs, of: token_check };
    let (replicas, of) = workload.start().await;
    let (served, _) = send(&replicas, 0..2_200, of).await;
    assert_saturated(served, 2_000);
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
