//! Faults of Redis under load: the upstream refuses nothing, and all is well again soon after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

use weir::state::Reach;

use super::{Replicas, is_away};
use crate::support::redis_server::RedisServer;
use crate::support::{Setup, eventually};

const BUDGET: usize = 400;
const REPLICAS: usize = 3;
/// The replicas use Redis again this soon after it is back.
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// Requests through all replicas without a pause.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    bots: Vec<JoinHandle<()>>,
}

impl Load {
    fn begin(replicas: &Arc<Replicas>) -> Self {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let bots = (0..2 * REPLICAS).map(|bot| {
            let (replicas, stop) = (Arc::clone(replicas), Arc::clone(&stop));
            let served = Arc::clone(&served);
            tokio::spawn(async move {
                for page in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let path = format!("/repos/acme/widgets/issues?page={page}&bot={bot}");
                    if replicas.get(bot % REPLICAS, &path).await.status == 200 {
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        });
        Self { bots: bots.collect(), stop, served }
    }

    async fn served(&self, count: usize) {
        eventually(|| self.served.load(Ordering::SeqCst) >= count).await;
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        for bot in self.bots {
            bot.await.unwrap();
        }
        self.served.load(Ordering::SeqCst)
    }
}

/// Plays a fault in the middle of a budget. `end` repairs it.
async fn survives(
    arguments: &[&str],
    fault: impl FnOnce(&mut RedisServer),
    is_noticed: bool,
    end: impl FnOnce(&mut RedisServer),
) {
    let setup = Setup::new().client("max_wait = \"1s\"");
    let mut replicas = Replicas::start_with(setup, REPLICAS, arguments).await;
    replicas.world.set_limits(&json!({ "core.user": BUDGET }));
    let mut redis = replicas.redis.take().unwrap();
    let replicas = Arc::new(replicas);
    let load = Load::begin(&replicas);
    load.served(BUDGET / 4).await;
    fault(&mut redis);
    if is_noticed {
        eventually(|| replicas.all().any(|current| is_away(current))).await;
    }
    end(&mut redis);
    let is_back = eventually(|| replicas.all().all(|current| is_in_reach(current)));
    tokio::time::timeout(BACK_WITHIN, is_back).await.expect("Redis is used again");
    load.served(BUDGET * 8 / 10).await;
    let served = load.end().await;
    let seen = replicas.world.upstream_requests();
    let refused: Vec<_> = seen.iter().filter(|entry| entry.refused.is_some()).collect();
    assert!(refused.is_empty(), "{served} served, refused: {refused:#?}");
    eventually(|| replicas.all().all(|current| is_in_reach(current))).await;
}

fn is_in_reach(current: &weir::gateway::Current) -> bool {
    let gateway = current.gateway();
    gateway.env.replica.as_ref().is_some_and(|replica| {
        replica.look(gateway.env.clock.now());
        replica.reach() == Reach::In
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_redis_without_its_data() {
    survives(&[], RedisServer::kill, true, RedisServer::revive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_redis_with_its_data() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    survives(&arguments, RedisServer::kill, true, RedisServer::revive).await;
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
    survives(&[], fault, true, |redis| _ = redis.run("CONFIG SET maxmemory 0")).await;
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
