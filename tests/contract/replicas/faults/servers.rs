//! Faults of the Redis server itself.

use std::sync::atomic::Ordering;

use serde_json::json;
use weir::decision::fleet::{HELD_FOR, HeldPart};
use weir::state::TOUCH;

use futures_util::future::join_all;

use super::{Stage, assert_none_refused, setup};
use crate::replicas::{Replicas, is_away};
use crate::support::link::{Link, Passage};
use crate::support::redis_server::RedisServer;
use crate::support::{bounded, eventually};

const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
/// Bytes at the end of a log that hold some of the last records.
const LOST: u64 = 10_000;

/// Plays a fault in the middle of a budget. `end` repairs it.
async fn survives(
    arguments: &[&str],
    fault: impl FnOnce(&mut RedisServer),
    is_noticed: bool,
    end: impl FnOnce(&mut RedisServer),
) {
    let mut stage = Stage::begin(arguments).await;
    fault(&mut stage.redis);
    if is_noticed {
        stage.is_noticed().await;
    }
    end(&mut stage.redis);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_redis_without_its_data() {
    survives(&[], RedisServer::kill, true, RedisServer::revive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_redis_with_its_data() {
    survives(&DURABLE, RedisServer::kill, true, RedisServer::revive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_redis_that_tears_its_log() {
    let arguments = [&DURABLE[..], &["--aof-load-truncated", "yes"]].concat();
    let end = |redis: &mut RedisServer| {
        // The end of a command, and with the second cut many more.
        redis.cut_log(7);
        redis.revive();
        assert_eq!(redis.info("aof_enabled"), "1");
        redis.kill();
        redis.cut_log(LOST);
        redis.revive();
    };
    survives(&arguments, RedisServer::kill, true, end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stands_still() {
    survives(&[], |redis| redis.freeze(), true, |redis| redis.thaw()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_emptied() {
    survives(&[], |redis| _ = redis.run("FLUSHALL"), false, |_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgets_its_scripts() {
    survives(&[], |redis| _ = redis.run("SCRIPT FLUSH"), false, |_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_becomes_read_only() {
    let end = |redis: &mut RedisServer| _ = redis.run("REPLICAOF NO ONE");
    survives(&[], |redis| _ = redis.run("REPLICAOF 127.0.0.1 1"), true, end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_enough_copies() {
    let fault = |redis: &mut RedisServer| _ = redis.run("CONFIG SET min-replicas-to-write 1");
    let end = |redis: &mut RedisServer| _ = redis.run("CONFIG SET min-replicas-to-write 0");
    survives(&[], fault, true, end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_pauses_writes() {
    survives(&[], |redis| _ = redis.run("CLIENT PAUSE 500 WRITE"), true, |_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_closes_all_connections() {
    survives(&[], |redis| _ = redis.run("CLIENT KILL TYPE normal"), false, |_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_memory() {
    let fault = |redis: &mut RedisServer| _ = redis.run("CONFIG SET maxmemory 1");
    survives(&[], fault, false, |redis| _ = redis.run("CONFIG SET maxmemory 0")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_room_for_connections() {
    // With one place, that of the test, nobody else comes in.
    let operator = std::cell::OnceCell::new();
    let fault = |redis: &mut RedisServer| {
        let mut connection = redis.connect();
        connection.run("CONFIG SET maxclients 1");
        connection.run("CLIENT KILL TYPE normal");
        connection.run("CLIENT KILL TYPE pubsub");
        assert!(operator.set(std::cell::RefCell::new(connection)).is_ok());
    };
    let end = |_: &mut RedisServer| {
        operator.get().unwrap().borrow_mut().run("CONFIG SET maxclients 1000");
    };
    survives(&[], fault, true, end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_busy_with_a_script() {
    let fault = |redis: &mut RedisServer| {
        redis.run("CONFIG SET busy-reply-threshold 1");
        let mut connection = redis.connect();
        connection.send("EVAL \"while true do end\" 0");
        std::mem::forget(connection);
    };
    let end = |redis: &mut RedisServer| while redis.run("SCRIPT KILL") != "+OK" {};
    survives(&[], fault, false, end).await;
}

/// Sends so many requests at once. Returns how many were served.
async fn burst(replicas: &Replicas, replica: usize, first: usize, count: usize) -> usize {
    let path = |page| format!("/repos/acme/widgets/issues?per_page=1&page={page}");
    let read = async |page| replicas.get(replica, &path(page)).await.status == 200;
    let served = join_all((first..first + count).map(read)).await;
    served.into_iter().filter(|is_served| *is_served).count()
}

/// Waits until a replica has used so much of the budget and holds so much more.
async fn holds_spare(replicas: &Replicas, replica: usize, used: u32, spare: u32) {
    let gateway = replicas.all().nth(replica).unwrap().gateway();
    let replica = gateway.env.replica.as_ref().unwrap();
    let holds_spare = async || {
        let (record, _) = replica.home().record("ada").await.unwrap();
        let of_core = |part: &HeldPart| part.limit == "budget core" && part.replica == replica.id();
        let part = record.unwrap().parts().find(of_core);
        part.is_some_and(|part| part.in_use == used && part.held >= used + spare)
    };
    bounded(async { while !holds_spare().await {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_replica_keeps_its_part_of_an_emptied_redis() {
    a_quiet_replica_keeps_its_part(|redis| _ = redis.run("FLUSHALL")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_comes_back_with_an_older_state() {
    a_quiet_replica_keeps_its_part(|redis| {
        redis.kill();
        redis.revive();
    })
    .await;
}

/// Plays a fault that loses what Redis knows of a replica.
async fn a_quiet_replica_keeps_its_part(fault: impl FnOnce(&mut RedisServer)) {
    const ALL: usize = 190;
    let redis = RedisServer::start(&[]);
    let each = vec![(redis.url(), None); 2];
    let mut replicas = Replicas::start_each(setup("10s"), redis, 2, &each).await;
    replicas.world.set_limits(&json!({ "core.user": ALL }));
    let mut served = burst(&replicas, 0, 0, 3).await;
    served += burst(&replicas, 1, 1_000, 5).await;
    replicas.redis.as_ref().unwrap().run("SAVE");
    served += burst(&replicas, 1, 1_100, 55).await;
    holds_spare(&replicas, 1, 60, 20).await;
    fault(replicas.redis.as_mut().unwrap());
    eventually(|| replicas.all().all(|current| !is_away(current))).await;
    let (busy, back) = tokio::join!(burst(&replicas, 0, 2_000, ALL), async {
        // New parts have been granted.
        eventually(|| replicas.world.upstream_requests().len() > 100).await;
        burst(&replicas, 1, 3_000, ALL).await
    });
    served += busy + back;
    assert_none_refused(&replicas);
    assert!(served >= ALL * 95 / 100, "{served}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_answer_needs_no_wait_for_redis() {
    const REPO: &str = "/repos/acme/widgets";
    let redis = RedisServer::start(&[]);
    let each = [(redis.url(), None)];
    let mut replicas = Replicas::start_each(setup("10m"), redis, 1, &each).await;
    // So few that the replica has no floor of them.
    replicas.world.set_limits(&json!({ "core.user": 5 }));
    replicas.get(0, REPO).await.assert_status(200);
    replicas.redis.as_mut().unwrap().kill();
    let clock = &replicas.world.clock;
    clock.reach(clock.now() + HELD_FOR).await;
    let stale = bounded(replicas.get(0, REPO)).await;
    stale.assert_status(200);
    let how = stale.header("cache-status").unwrap();
    assert!(how.contains("stale-if-limited"), "{how}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_outage_of_redis_brings_no_stale_answer() {
    const REPO: &str = "/repos/acme/widgets";
    const LIST: &str = "/repos/acme/widgets/issues";
    let redis = RedisServer::start(&[]);
    let each = [(redis.url(), None)];
    let one_at_once = setup("10m").config("[limits]\nconcurrency = 1\n");
    let mut replicas = Replicas::start_each(one_at_once, redis, 1, &each).await;
    let mut redis = replicas.redis.take().unwrap();
    replicas.get(0, REPO).await.assert_status(200);
    let gate = replicas.world.close_gate("GET", LIST);
    let slow = async {
        bounded(replicas.get(0, LIST)).await.assert_status(200);
    };
    let in_outage = async {
        replicas.world.held(gate, 1).await;
        redis.kill();
        eventually(|| is_away(replicas.all().next().unwrap())).await;
        let read = async { bounded(replicas.get(0, REPO)).await };
        let later = async {
            let clock = &replicas.world.clock;
            clock.reach(clock.now() + TOUCH).await;
            replicas.world.open_gate(gate);
        };
        tokio::join!(read, later).0
    };
    let ((), read) = tokio::join!(slow, in_outage);
    read.assert_status(200);
    assert!(read.cache_status().contains("fwd-status=304"), "{}", read.cache_status());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waited_is_not_sent_while_redis_is_away() {
    const LIST: &str = "/repos/acme/widgets/issues";
    let redis = RedisServer::start(&[]);
    let link = Link::start(redis.port()).await;
    let one_at_once = setup("1m").unspaced_writes().config("[limits]\nconcurrency = 1\n");
    let each = [(link.url(), None)];
    let replicas = Replicas::start_each(one_at_once, redis, 1, &each).await;
    // It has parts of all limits from then on.
    for text in ["first", "second"] {
        replicas.comment(0, text, &[]).await.assert_status(201);
    }
    let gate = replicas.world.close_gate("GET", LIST);
    let slow = replicas.get(0, LIST);
    let write = async {
        replicas.world.held(gate, 1).await;
        replicas.comment(0, "late", &[]).await
    };
    let outage = async {
        let waiting = || replicas.world.gateway.dispatcher.waiting().iter();
        let is_waiting = || waiting().any(|count| count.load(Ordering::Relaxed) > 0);
        replicas.world.held(gate, 1).await;
        eventually(is_waiting).await;
        link.set(Passage::Silent);
        eventually(|| replicas.all().all(|current| is_away(current))).await;
        let clock = &replicas.world.clock;
        clock.reach(clock.now() + TOUCH).await;
        replicas.world.open_gate(gate);
        clock.reach(clock.now() + TOUCH).await;
        let seen = replicas.world.upstream_requests();
        link.set(Passage::Open);
        seen.iter().filter(|entry| entry.method == "POST").count()
    };
    let (slow, written, in_outage) = tokio::join!(slow, write, outage);
    slow.assert_status(200);
    assert_eq!(in_outage, 2, "nobody could have heard of it");
    written.assert_status(201);
    assert_eq!(replicas.made().await, ["first", "second", "late"]);
}
