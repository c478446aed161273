//! Queued writes in the Redis of all replicas: each is asked for, awaited, cancelled and ordered
//! anywhere.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tokio::time::timeout;
use weir::gateway::Current;

use super::Replicas;
use crate::support::{Reply, Setup, eventually};

pub(super) const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
pub(super) const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
pub(super) const ASYNC: (&str, &str) = ("prefer", "respond-async");

pub(super) fn with_queue() -> Setup {
    Setup::new().writes("store = \"redis\"").unspaced_writes()
}

/// True if a replica accepts queued writes.
pub(super) fn is_open(current: &Arc<Current>) -> bool {
    current.gateway().writes.queue().is_open()
}

pub(super) async fn start() -> Replicas {
    let replicas = Replicas::start_with(with_queue(), 3, &DURABLE).await;
    eventually(|| replicas.all().all(is_open)).await;
    replicas
}

impl Replicas {
    pub(super) async fn comment(
        &self,
        replica: usize,
        text: &str,
        headers: &[(&str, &str)],
    ) -> Reply {
        let body = json!({ "body": text }).to_string();
        let address = self.address(replica);
        self.world.send_to(address, Method::POST, COMMENTS, headers, &body).await
    }

    /// The path of an accepted write.
    pub(super) async fn accept(&self, replica: usize, text: &str) -> String {
        let accepted = self.comment(replica, text, &[ASYNC]).await;
        accepted.assert_status(202);
        accepted.header("location").unwrap().to_owned()
    }

    pub(super) async fn state(
        &self,
        replica: usize,
        write: &str,
        headers: &[(&str, &str)],
    ) -> String {
        let address = self.address(replica);
        let status = self.world.send_to(address, Method::GET, write, headers, "").await;
        status.assert_status(200);
        status.json()["state"].as_str().unwrap().to_owned()
    }

    /// The state of a write in the end.
    pub(super) async fn end(&self, replica: usize, write: &str) -> String {
        self.state(replica, write, &[("prefer", "wait=30")]).await
    }

    /// The texts of the comments that the upstream has made here, in order.
    pub(super) async fn made(&self) -> Vec<String> {
        let seen = self.world.upstream_requests();
        let made = seen.iter().filter(|entry| entry.method == "POST" && entry.executed).count();
        let listed = self.get(0, &format!("{COMMENTS}?per_page=100")).await.json();
        let texts = listed.as_array().unwrap().iter().map(|comment| comment["body"].as_str());
        let texts: Vec<String> = texts.map(|text| text.unwrap().to_owned()).collect();
        texts[texts.len() - made..].to_vec()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_replica_answers_for_a_queued_write() {
    let replicas = start().await;
    let gate = replicas.world.close_gate("POST", COMMENTS);
    let first = replicas.accept(0, "first").await;
    replicas.world.held(gate, 1).await;
    let second = replicas.accept(1, "second").await;
    for replica in 0..3 {
        assert_eq!(replicas.state(replica, &first, &[]).await, "sending");
        assert_eq!(replicas.state(replica, &second, &[]).await, "queued");
    }
    let refused = replicas.send(2, Method::DELETE, &first, "").await;
    refused.assert_status(409);
    replicas.send(2, Method::DELETE, &second, "").await.assert_status(204);
    let ends = join_all((0..3).map(|replica| replicas.end(replica, &first)));
    let opens = async { replicas.world.open_gate(gate) };
    let (ends, ()) = tokio::join!(ends, opens);
    assert_eq!(ends, ["done"; 3]);
    for replica in 0..3 {
        assert_eq!(replicas.state(replica, &second, &[]).await, "cancelled");
    }
    assert_eq!(replicas.made().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_keeps_its_order_over_replicas() {
    let replicas = start().await;
    let mut writes = Vec::new();
    for number in 0..30 {
        writes.push(replicas.accept(number * 7 % 3, &format!("number {number}")).await);
    }
    for write in &writes {
        assert_eq!(replicas.end(1, write).await, "done");
    }
    let expected: Vec<String> = (0..30).map(|number| format!("number {number}")).collect();
    assert_eq!(replicas.made().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_one_write_in_all_replicas() {
    let replicas = start().await;
    let key = ("idempotency-key", "once");
    let gate = replicas.world.close_gate("POST", COMMENTS);
    let first = replicas.comment(0, "once", &[key, ASYNC]).await;
    first.assert_status(202);
    let again = replicas.comment(1, "once", &[key, ASYNC]).await;
    assert_eq!(again.json()["id"], first.json()["id"]);
    replicas.comment(2, "another", &[key, ASYNC]).await.assert_status(422);
    let waiting = async { replicas.comment(2, "once", &[key]).await };
    let opens = async {
        replicas.world.held(gate, 1).await;
        replicas.world.open_gate(gate);
    };
    let (answer, ()) = tokio::join!(waiting, opens);
    answer.assert_status(201);
    assert_eq!(replicas.made().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_a_key_takes_two_round_trips() {
    let replicas = start().await;
    // Each of the queue's scripts that changes a write sets its fields once.
    let changes = || {
        let figures = replicas.redis.as_ref().unwrap().info("cmdstat_hset");
        let calls = figures.split(',').next().and_then(|calls| calls.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    // A Redis that has just begun may have lost writes, and gives nobody a turn for a while. A slow
    // machine may take an attempt back.
    let ten_in_a_row = async {
        let mut in_a_row = 0;
        for number in 0_usize.. {
            let (before, text) = (changes(), format!("number {number}"));
            let key = ("idempotency-key", &*text);
            replicas.comment(number % 3, &text, &[key]).await.assert_status(201);
            in_a_row = if changes() - before == 2 { in_a_row + 1 } else { 0 };
            if in_a_row == 10 {
                break;
            }
        }
    };
    timeout(Duration::from_secs(60), ten_in_a_row).await.expect("they take more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_write_goes_behind_queued_ones_elsewhere() {
    let replicas = start().await;
    let gate = replicas.world.close_gate("POST", COMMENTS);
    let queued = replicas.accept(0, "queued").await;
    replicas.world.held(gate, 1).await;
    let waiting = replicas.comment(1, "waiting", &[]);
    let opens = async {
        // It has asked for its turn when a later one stands behind it.
        let later = replicas.accept(2, "later").await;
        assert_eq!(replicas.world.upstream_requests().len(), 1);
        replicas.world.open_gate(gate);
        later
    };
    let (answer, later) = tokio::join!(waiting, opens);
    answer.assert_status(201);
    for write in [queued, later] {
        assert_eq!(replicas.end(1, &write).await, "done");
    }
    let made = replicas.made().await;
    assert_eq!((made.len(), &*made[0]), (3, "queued"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_write_lasts_in_a_redis_that_forgets_it() {
    let replicas = start().await;
    let key = [ASYNC, ("idempotency-key", "once")];
    let first = replicas.comment(0, "text", &key).await.header("location").unwrap().to_owned();
    assert_eq!(replicas.end(0, &first).await, "done");
    replicas.redis.as_ref().unwrap().run("FLUSHALL");
    let again = replicas.comment(0, "text", &key).await;
    assert_eq!(again.header("location"), Some(&*first));
    // The replica that had it has added it again.
    assert_eq!(replicas.end(1, &first).await, "done");
    assert_eq!(replicas.made().await.len(), 1);
}
