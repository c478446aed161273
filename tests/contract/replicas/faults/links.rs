//! Faults of the network between replicas and Redis.

use http::Method;
use serde_json::json;
use weir::decision::fleet::HELD_FOR;

use super::{BUDGET, Pace, REPLICAS, Stage, is_away, is_in_reach};
use crate::replicas::Replicas;
use crate::support::link::{Link, Passage};
use crate::support::redis_server::RedisServer;
use crate::support::{Setup, eventually};

/// Bytes of a reply that arrive before its connection ends: within its length, at the begin of a
/// record, in its middle.
const CUTS: [usize; 4] = [2, 9, 60, 300];

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_end_in_the_middle_of_a_reply() {
    let redis = RedisServer::start(&[]);
    let link = Link::start(redis.port()).await;
    let stage = Stage::begin_each(redis, &vec![(link.url(), None); REPLICAS]).await;
    for at in CUTS {
        let before = link.cuts();
        link.set(Passage::CutsReplies(at));
        eventually(|| link.cuts() >= before + 2 * REPLICAS).await;
        link.set(Passage::Open);
        stage.is_used_again().await;
    }
    stage.end().await;
}

/// Cuts off the last replica, and returns when it has found out.
async fn cut_off(passage: Passage) -> (Stage, Link) {
    let redis = RedisServer::start(&[]);
    let link = Link::start(redis.port()).await;
    let mut each = vec![(redis.url(), None); REPLICAS];
    each[REPLICAS - 1].0 = link.url();
    let stage = Stage::begin_each(redis, &each).await;
    link.set(passage);
    eventually(|| stage.replicas.all().last().is_some_and(|last| is_away(last))).await;
    eventually(|| stage.replicas.all().take(REPLICAS - 1).all(|other| is_in_reach(other))).await;
    (stage, link)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_alone_cannot_reach_redis() {
    let (stage, link) = cut_off(Passage::Closed).await;
    stage.load.served(BUDGET * 6 / 10).await;
    link.set(Passage::Open);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_cut_off_for_longer_than_its_parts_last() {
    let (stage, link) = cut_off(Passage::Silent).await;
    stage.load.set(Pace::Paused);
    let clock = &stage.replicas.world.clock;
    clock.reach(clock.now() + HELD_FOR).await;
    stage.load.set(Pace::Full);
    stage.load.served(BUDGET * 6 / 10).await;
    link.set(Passage::Open);
    stage.end().await;
}

const REPO: &str = "/repos/acme/widgets";
const ISSUE: &str = "/repos/acme/widgets/issues/1";

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_cut_off_shows_no_old_answer() {
    const LAST: usize = REPLICAS - 1;
    let setup = Setup::new()
        .unspaced_writes()
        .cache_ttl("/repos/{owner}/{repo}", "1h")
        .cache_ttl("/repos/{owner}/{repo}/issues/{issue_number}", "1h");
    let redis = RedisServer::start(&[]);
    let link = Link::start(redis.port()).await;
    let mut each = vec![(redis.url(), None); REPLICAS];
    each[LAST].0 = link.url();
    let replicas = Replicas::start_each(setup, redis, REPLICAS, &each).await;
    for path in [REPO, ISSUE] {
        replicas.get(LAST, path).await.assert_status(200);
        replicas.get(LAST, path).await.assert_hit();
    }
    link.set(Passage::Silent);
    for (path, change) in
        [(REPO, json!({ "description": "new" })), (ISSUE, json!({ "title": "new" }))]
    {
        replicas.send(0, Method::PATCH, path, &change.to_string()).await.assert_status(200);
    }
    let meanwhile = replicas.get(LAST, REPO).await;
    assert_eq!(meanwhile.json()["description"], "new", "{meanwhile:?}");
    link.set(Passage::Open);
    eventually(|| replicas.all().all(|current| !is_away(current))).await;
    let later = replicas.get(LAST, ISSUE).await;
    assert_eq!(later.json()["title"], "new", "{later:?}");
}
