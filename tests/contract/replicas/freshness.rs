//! What one replica changes, no other serves any more.

use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use weir::state::TOUCH;

use super::{Replicas, is_away};
use crate::support::setup::gateway_by;
use crate::support::{Setup, all_have_status, eventually};

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
    let seen = replicas.world.upstream_requests();
    assert_eq!(seen.iter().filter(|entry| entry.path == REPO).count(), 1);
    let collapsed = answers.iter().filter(|answer| answer.cache_status().contains("collapsed"));
    assert_eq!(collapsed.count(), 99);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_replica_pays_for_nothing_that_is_unchanged() {
    let replicas = Replicas::start(Setup::new(), 1).await;
    let list = replicas.get(0, "/repos/acme/widgets/issues?state=all&per_page=100").await.json();
    let issues: Vec<_> = list.as_array().unwrap().iter().map(|issue| &issue["number"]).collect();
    assert!(issues.len() > 20);
    let path = |number| format!("/repos/acme/widgets/issues/{number}");
    for number in &issues {
        replicas.get(0, &path(number)).await.assert_status(200);
    }
    let redis = replicas.redis.as_ref().unwrap();
    let copies = || redis.run("EVAL \"return #redis.call('KEYS', '*:kept:*')\" 0");
    eventually(|| copies() >= format!(":{}", issues.len())).await;
    let before = replicas.world.upstream_requests().len();
    let (new, listening) = gateway_by(&replicas.world.text, &replicas.world.clock);
    eventually(|| !is_away(&new)).await;
    for number in &issues {
        let (world, address) = (&replicas.world, listening.addresses[0]);
        let answer = world.send_to(address, Method::GET, &path(number), &[], "").await;
        answer.assert_status(200);
        assert!(answer.cache_status().contains("fwd-status=304"), "{answer:?}");
    }
    let seen = replicas.world.upstream_requests();
    let paid = seen[before..].iter().filter(|entry| entry.status == 200);
    assert_eq!(paid.filter(|entry| entry.path.contains("/issues/")).count(), 0);
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
    let heard = || replicas.world.gateway.env.replica.as_ref().unwrap().peers.count();
    eventually(|| heard() == 2).await;
    let begun = replicas.world.clock.now();
    replicas.send(0, Method::PATCH, REPO, &body).await.assert_status(200);
    let waited = replicas.world.clock.now().since(begun);
    assert!(waited >= TOUCH, "the answer came after {waited:?}, before the other one is silent");
}
