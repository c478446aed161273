//! Writes in a Redis that loses its data, or has no memory for more.

use futures_util::future::join;
use http::Method;
use serde_json::json;

use super::writes::{ASYNC, COMMENTS, DURABLE, is_open, start, with_queue};
use super::{Replicas, is_away};
use crate::support::link::{Link, Passage};
use crate::support::redis_server::RedisServer;
use crate::support::{bounded, eventually};

impl Replicas {
    fn redis(&self) -> &RedisServer {
        self.redis.as_ref().unwrap()
    }

    /// The state of a write in the end, once a replica knows it again.
    async fn end_after_loss(&self, replica: usize, write: &str) -> String {
        let known =
            async { while self.send(replica, Method::GET, write, "").await.status == 503 {} };
        bounded(known).await;
        self.end(replica, write).await
    }

    /// Waits until a replica has so many writes in its lanes.
    async fn in_lanes(&self, replica: usize, count: usize) {
        let current = self.all().nth(replica).unwrap();
        eventually(|| current.gateway().writes.turns().writes() == count).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgets_writes_loses_none() {
    let replicas = start().await;
    let gate = replicas.world.close_gate("POST", COMMENTS);
    let key = [("idempotency-key", "once")];
    let keyed = replicas.comment(0, "first", &key);
    let waiting = async {
        replicas.world.held(gate, 1).await;
        let second = replicas.accept(1, "second").await;
        (second, replicas.comment(2, "third", &[]).await)
    };
    let course = async {
        replicas.in_lanes(2, 1).await;
        let fourth = replicas.accept(2, "fourth").await;
        replicas.redis().run("FLUSHALL");
        replicas.world.open_gate(gate);
        fourth
    };
    let (first, (waited, fourth)) = join(keyed, join(waiting, course)).await;
    first.assert_status(201);
    let (second, third) = waited;
    third.assert_status(201);
    for write in [second, fourth] {
        assert_eq!(replicas.end(0, &write).await, "done");
    }
    let again = replicas.comment(1, "first", &key).await;
    again.assert_status(201);
    assert_eq!(again.json()["id"], first.json()["id"]);
    assert_eq!(replicas.made().await, ["first", "second", "third", "fourth"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_starts_after_a_loss_waits_for_the_others() {
    let mut replicas = start().await;
    let gate = replicas.world.close_gate("POST", COMMENTS);
    replicas.accept(0, "first").await;
    replicas.world.held(gate, 1).await;
    let second = replicas.accept(0, "second").await;
    replicas.redis().run("FLUSHALL");
    replicas.join();
    eventually(|| replicas.all().all(is_open)).await;
    let third = replicas.comment(3, "third", &[]);
    let course = async {
        replicas.in_lanes(3, 1).await;
        let writes = "EVAL \"return #redis.call('KEYS', '*:write:*')\" 0";
        eventually(|| replicas.redis().run(writes) == ":2").await;
        replicas.world.open_gate(gate);
    };
    let (third, ()) = join(third, course).await;
    third.assert_status(201);
    assert_eq!(replicas.end(0, &second).await, "done");
    assert_eq!(replicas.made().await, ["first", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_lasts_in_a_redis_that_forgets_it() {
    let replicas = start().await;
    let gate = replicas.world.close_gate("POST", COMMENTS);
    let first = replicas.accept(0, "first").await;
    replicas.world.held(gate, 1).await;
    let key = [ASYNC, ("idempotency-key", "once")];
    let keyed = replicas.comment(0, "once", &key).await.header("location").unwrap().to_owned();
    replicas.redis().run("FLUSHALL");
    // It comes before its key is there again, and has to give way.
    replicas.comment(1, "once", &key).await.assert_status(202);
    replicas.world.open_gate(gate);
    for write in [first, keyed] {
        assert_eq!(replicas.end_after_loss(2, &write).await, "done");
    }
    for replica in 0..3 {
        replicas.in_lanes(replica, 0).await;
    }
    assert_eq!(replicas.made().await, ["first", "once"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_end_in_a_redis_without_memory() {
    let replicas = start().await;
    let gate = replicas.world.close_gate("POST", COMMENTS);
    let first = replicas.accept(0, "first").await;
    replicas.world.held(gate, 1).await;
    let second = replicas.accept(0, "second").await;
    let third = replicas.accept(1, "third").await;
    replicas.redis().run("CONFIG SET maxmemory 1");
    let refused = replicas.comment(0, "fourth", &[ASYNC]).await;
    refused.assert_status(503);
    replicas.send(0, Method::DELETE, &third, "").await.assert_status(204);
    replicas.world.open_gate(gate);
    for write in [first, second] {
        assert_eq!(replicas.end(2, &write).await, "done");
    }
    // A write without a record takes its turn all the same.
    replicas.comment(2, "fifth", &[]).await.assert_status(201);
    replicas.redis().run("CONFIG SET maxmemory 0");
    let sixth = replicas.accept(0, "sixth").await;
    assert_eq!(replicas.end(1, &sixth).await, "done");
    assert_eq!(replicas.made().await, ["first", "second", "fifth", "sixth"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_write_holds_up_no_others() {
    const LONG: usize = 8 * 1024 * 1024;
    let redis = RedisServer::start(&DURABLE);
    let link = Link::start(redis.port()).await;
    let replicas = Replicas::start_each(with_queue(), redis, 1, &[(link.url(), None)]).await;
    eventually(|| replicas.all().all(is_open)).await;
    link.set(Passage::HoldsLong(32 * 1024));
    let body = json!({ "body": "x", "padding": "x".repeat(LONG) }).to_string();
    let long = replicas.world.send_to(replicas.address(0), Method::POST, COMMENTS, &[ASYNC], &body);
    let short = async {
        replicas.in_lanes(0, 1).await;
        replicas.accept(0, "short").await;
        assert!(replicas.all().all(|current| !is_away(current)));
        link.set(Passage::Open);
    };
    let (accepted, ()) = join(long, short).await;
    accepted.assert_status(202);
    let long = accepted.header("location").unwrap().to_owned();
    assert_eq!(replicas.end(0, &long).await, "done");
}
