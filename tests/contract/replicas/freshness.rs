//! What one replica changes, no other serves any more.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use weir::clock::timer_now;
use weir::state::TOUCH;

use super::{Replicas, is_away};
use crate::support::link::{Link, Passage};
use crate::support::redis_server::RedisServer;
use crate::support::setup::gateway_by;
use crate::support::{Reply, Setup, all_have_status, eventually};

const REPO: &str = "/repos/acme/widgets";

#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_one_replica_shows_in_all() {
    let limits = "rest_points_per_minute = 1000000\ncontent_per_minute = 100000\n\
        content_per_hour = 100000\ncpu_seconds_per_minute = 1000000";
    let setup = Setup::new().unspaced_writes().limits(limits);
    let setup = setup.cache_ttl("/repos/{owner}/{repo}", "1h");
    let replicas = Replicas::start(setup, 3).await;
    replicas.world.set_limits(&json!({ "core.user": 100_000, "points.rest": 1_000_000, "content.minute": 100_000, "content.hour": 100_000 }));
    // For a figure: `ROUNDS=334` are a thousand reads.
    let rounds = std::env::var("ROUNDS").map_or(20, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        for replica in 0..3 {
            replicas.get(replica, REPO).await.assert_status(200);
        }
        let description = format!("round {round}");
        let body = json!({ "description": description }).to_string();
        replicas.send(round % 3, Method::PATCH, REPO, &body).await.assert_status(200);
        for replica in 0..3 {
            let seen = replicas.get(replica, REPO).await;
            assert_eq!(seen.json()["description"], description.as_str(), "replica {replica}");
        }
    }
    let hits = replicas.get(1, REPO).await;
    assert!(hits.cache_status().contains("hit"), "{hits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reads_of_one_thing_are_one_request() {
    let replicas = Replicas::start(Setup::new(), 3).await;
    assert_read_once(&replicas).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reads_of_a_changed_thing_are_one_request() {
    let replicas = Replicas::start(Setup::new().unspaced_writes(), 3).await;
    for replica in 0..3 {
        replicas.get(replica, REPO).await.assert_status(200);
    }
    let change = async |description| {
        let body = json!({ "description": description }).to_string();
        replicas.send(0, Method::PATCH, REPO, &body).await.assert_status(200);
    };
    change("first").await;
    // Newer than what the other two have, and older than the next change.
    replicas.get(1, REPO).await.assert_status(200);
    change("second").await;
    // The time of another's answer is known to some milliseconds.
    let changed_at = timer_now();
    eventually(|| changed_at.elapsed() >= TOUCH / 10).await;
    let answers = assert_read_once(&replicas).await;
    assert_eq!(answers[0].json()["description"], "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_one_replica_finds_is_paid_for_once() {
    let replicas = Replicas::start(Setup::new().unspaced_writes(), 3).await;
    for replica in 0..3 {
        replicas.get(replica, REPO).await.assert_status(200);
    }
    replicas.world.ask_emulator(Method::PATCH, REPO, &json!({ "description": "elsewhere" }));
    // A date of the present second is no validator.
    let clock = &replicas.world.clock;
    clock.reach(clock.now() + 3 * TOUCH).await;
    eventually(|| replicas.all().all(|current| !is_away(current))).await;
    let mut messages = replicas.redis.as_ref().unwrap().connect();
    messages.run("SUBSCRIBE weir:messages");
    let first = replicas.get(0, REPO).await;
    assert_eq!(first.json()["description"], "elsewhere");
    while !messages.line().contains("copied") {}
    // All hear the messages in one order, and a write ends after all have heard of it.
    let other = "/repos/acme/gadgets";
    replicas.send(0, Method::PATCH, other, r#"{"description":"x"}"#).await.assert_status(200);
    let before = replicas.world.upstream_requests().len();
    for replica in 1..3 {
        let answer = replicas.get(replica, REPO).await;
        assert_eq!(answer.json()["description"], "elsewhere");
        assert!(answer.cache_status().contains("fwd-status=304"), "{answer:?}");
    }
    let seen = replicas.world.upstream_requests().split_off(before);
    assert_eq!(seen.iter().map(|entry| entry.cost).sum::<u32>(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_the_fetch_of_another_replica_is_no_limit() {
    let replicas = Replicas::start(Setup::new(), 2).await;
    let gate = replicas.world.close_gate("GET", REPO);
    let (own, leader) = (replicas.get(0, REPO), async {
        replicas.world.held(gate, 1).await;
        replicas.get(1, REPO).await
    });
    let follower = async {
        let flights = || replicas.all().map(|one| one.gateway().cache.single_flight().waiters());
        eventually(|| flights().sum::<usize>() == 2).await;
        let (to, prefer) = (replicas.address(1), [("prefer", "wait=1")]);
        let answer = replicas.world.send_to(to, Method::GET, REPO, &prefer, "").await;
        replicas.world.open_gate(gate);
        answer
    };
    let (own, led, refused) = tokio::join!(own, leader, follower);
    all_have_status(&[own, led], 200);
    refused.assert_status(504);
}

/// Reads one thing a hundred times at once, through all of three replicas.
async fn assert_read_once(replicas: &Replicas) -> Vec<Reply> {
    let before = replicas.world.upstream_requests().len();
    let gate = replicas.world.close_gate("GET", REPO);
    let reads = join_all((0..100).map(|read| replicas.get(read % 3, REPO)));
    let opens = async {
        replicas.world.held(gate, 1).await;
        let waiting =
            || replicas.all().map(|current| current.gateway().cache.single_flight().waiters());
        eventually(|| waiting().sum::<usize>() == 100).await;
        replicas.world.open_gate(gate);
    };
    let (answers, ()) = tokio::join!(reads, opens);
    all_have_status(&answers, 200);
    assert!(answers.iter().all(|answer| answer.json()["id"] == answers[0].json()["id"]));
    let seen = replicas.world.upstream_requests().split_off(before);
    assert_eq!(seen.iter().filter(|entry| entry.path == REPO).count(), 1);
    let collapsed = answers.iter().filter(|answer| answer.cache_status().contains("collapsed"));
    assert_eq!(collapsed.count(), 99);
    answers
}

/// Lists of each issue.
const LISTS: [&str; 5] = ["comments", "labels", "events", "timeline", "reactions"];
/// Sizes of their pages. None is full: a full last page is paid for, because a 304 may hide the
/// next one.
const PAGES: [usize; 3] = [100, 70, 50];

/// So many different paths about issues.
fn paths(issues: &Value, count: usize) -> Vec<String> {
    let numbers = || issues.as_array().unwrap().iter().map(|issue| &issue["number"]);
    let mut paths: Vec<_> = numbers().map(|number| format!("{REPO}/issues/{number}")).collect();
    for (size, list) in PAGES.iter().flat_map(|size| LISTS.map(|list| (size, list))) {
        let path = |number| format!("{REPO}/issues/{number}/{list}?per_page={size}");
        paths.extend(numbers().map(path));
    }
    assert!(paths.len() >= count, "too few issues");
    paths.truncate(count);
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_replica_pays_for_nothing_that_is_unchanged() {
    let limits = "rest_points_per_minute = 1000000\ncpu_seconds_per_minute = 1000000";
    let replicas = Replicas::start(Setup::new().limits(limits), 1).await;
    let (world, high) = (&replicas.world, 1_000_000);
    world.set_limits(&json!({ "points.rest": high, "cpu": high, "cpu.burst": high }));
    let list = world.get("/repos/acme/widgets/issues?state=all&per_page=100").await.json();
    // For a figure: `READS=1000`.
    let reads = std::env::var("READS").map_or(100, |reads| reads.parse().unwrap());
    let paths = paths(&list, reads);
    for path in &paths {
        replicas.get(0, path).await.assert_status(200);
    }
    let redis = replicas.redis.as_ref().unwrap();
    let copies = || {
        let count = redis.run("EVAL \"return #redis.call('KEYS', '*:kept:*')\" 0");
        count.trim_start_matches(':').parse::<usize>().unwrap()
    };
    eventually(|| copies() > reads).await;
    let before = world.upstream_requests().len();
    let (new, listening) = gateway_by(&world.text, &world.clock);
    eventually(|| !is_away(&new)).await;
    for path in &paths {
        let answer = world.send_to(listening.addresses[0], Method::GET, path, &[], "").await;
        answer.assert_status(200);
        assert!(answer.cache_status().contains("fwd-status=304"), "{path}: {answer:?}");
    }
    let seen = world.upstream_requests().split_off(before);
    assert_eq!(seen.len(), reads);
    println!("{} units for {reads} reads", seen.iter().map(|entry| entry.cost).sum::<u32>());
    assert!(seen.iter().all(|entry| entry.cost == 0), "{seen:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_no_other_heard_of_is_hidden_by_no_stored_answer() {
    const PATHS: [&str; 2] = [REPO, "/repos/acme/widgets?page=1"];
    let redis = RedisServer::start(&[]);
    let link = Link::start(redis.port()).await;
    let each = [(redis.url(), None), (link.url(), None)];
    let setup = Setup::new().unspaced_writes().cache_ttl("/repos/{owner}/{repo}", "1h");
    let replicas = Replicas::start_each(setup, redis, 2, &each).await;
    // It trusts nothing that it has asked for just after its begin.
    let clock = &replicas.world.clock;
    clock.reach(clock.now() + 16 * TOUCH).await;
    for path in PATHS {
        replicas.get(0, path).await.assert_status(200);
        assert!(replicas.get(0, path).await.cache_status().contains("hit"));
    }
    // The other one loses Redis while its write is on its way.
    let gate = replicas.world.close_gate("PATCH", REPO);
    let body = json!({ "description": "new" }).to_string();
    let write = replicas.send(1, Method::PATCH, REPO, &body);
    let cut = async {
        replicas.world.held(gate, 1).await;
        link.set(Passage::Silent);
        let cut_at = clock.now();
        replicas.world.open_gate(gate);
        cut_at
    };
    let (written, cut_at) = tokio::join!(write, cut);
    written.assert_status(200);
    assert_eq!(replicas.get(0, PATHS[0]).await.json()["description"], "new");
    // By then it is none any more for the first one.
    clock.reach(cut_at + 16 * TOUCH).await;
    assert_eq!(replicas.get(0, PATHS[1]).await.json()["description"], "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_waits_for_a_replica_that_has_not_noted_it() {
    let replicas = Replicas::start(Setup::new().unspaced_writes(), 1).await;
    let redis = replicas.redis.as_ref().unwrap();
    let body = json!({ "description": "new" }).to_string();
    // From then on, a write takes milliseconds.
    replicas.send(0, Method::PATCH, REPO, &body).await.assert_status(200);
    // Another replica is there, and never notes anything.
    let message = "{\\\"from\\\":7,\\\"content\\\":{\\\"here\\\":1}}";
    assert_eq!(redis.run(&format!("PUBLISH weir:messages \"{message}\"")), ":1");
    let heard = || replicas.world.gateway.env.replica.as_ref().unwrap().peers.count(timer_now());
    eventually(|| heard() == 2).await;
    let begun = replicas.world.clock.now();
    replicas.send(0, Method::PATCH, REPO, &body).await.assert_status(200);
    let waited = replicas.world.clock.now().since(begun);
    assert!(waited >= TOUCH, "the answer came after {waited:?}, before the other one is silent");
}
