//! Faults of replicas: a process that is killed, or stopped for longer than its parts last.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use weir::clock::timer_now;
use weir::decision::fleet::{HELD_FOR, HeldPart};
use weir::state::Replica;

use super::{BUDGET, Load, REPLICAS, assert_none_refused, setup};
use crate::replicas::Replicas;
use crate::support::process::{Process, serve};
use crate::support::raw::Connection;
use crate::support::redis_server::RedisServer;
use crate::support::{KEY, Setup, bounded, eventually};

const ISSUES: &str = "/repos/acme/widgets/issues";
/// Slots of the account, so few that the stopped process had a large part of them.
const SLOTS: usize = 20;
/// Requests that wait in the process for a slot.
const WAITING: usize = 10;
/// The others leave a slot to a replica that is silent, as its floor.
const SLOTS_OF_OTHERS: usize = SLOTS - 1;

/// Two replicas in this process, and one in a process of its own.
struct Stage {
    replicas: Arc<Replicas>,
    process: Process,
    /// The address of the process.
    address: SocketAddr,
    _folder: TempDir,
}

impl Stage {
    async fn start(setup: Setup) -> Self {
        let redis = RedisServer::start(&[]);
        let each = vec![(redis.url(), None); REPLICAS - 1];
        let replicas = Replicas::start_each(setup, redis, REPLICAS, &each).await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("weir.toml");
        std::fs::write(&config, &replicas.world.text).unwrap();
        let process = Process::start(serve(&config));
        let address = process.address("listening").await;
        let stage = Self { replicas: Arc::new(replicas), process, address, _folder: folder };
        eventually(|| stage.any_here().peers.count(timer_now()) == REPLICAS).await;
        stage
    }

    fn any_here(&self) -> Arc<Replica> {
        self.all_here().remove(0)
    }

    fn all_here(&self) -> Vec<Arc<Replica>> {
        let here = |current: &Arc<weir::gateway::Current>| {
            Arc::clone(current.gateway().env.replica.as_ref().unwrap())
        };
        self.replicas.all().map(here).collect()
    }

    /// The part of a limit that the process has.
    async fn part(&self, limit: &str) -> Option<HeldPart> {
        let here = self.all_here();
        let (record, _) = here[0].home().record("ada").await.unwrap();
        let record = record?;
        let is_here = |part: &HeldPart| here.iter().any(|replica| replica.id() == part.replica);
        record.parts().find(|part| part.limit == limit && !is_here(part))
    }

    /// Sends a read to the process, which need not be able to take it.
    async fn read(&self, page: usize) -> Connection {
        let mut connection = Connection::open(self.address).await;
        let request = format!(
            "GET {ISSUES}?page={page} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        );
        connection.send(request.as_bytes()).await;
        connection
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_killed_with_its_parts() {
    let stage = Stage::start(setup("1s")).await;
    let world = &stage.replicas.world;
    world.set_limits(&json!({ "core.user": BUDGET }));
    let addresses = [stage.replicas.address(0), stage.replicas.address(1), stage.address];
    let load = Load::begin(&stage.replicas, &addresses);
    load.served(BUDGET / 4).await;
    stage.process.signal(Signal::KILL);
    let part = stage.part("budget core").await.expect("a part of the process");
    assert!(part.held > 0, "{part:?}");
    world.clock.reach(world.clock.now() + HELD_FOR).await;
    load.end(BUDGET * 8 / 10).await;
    assert_none_refused(&stage.replicas);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_stopped_for_longer_than_its_lease() {
    let limits = format!(
        "concurrency = {SLOTS}\nrest_points_per_minute = 1000000\ncpu_seconds_per_minute = 1000000"
    );
    let stage = Stage::start(setup("60s").limits(&limits)).await;
    let world = &stage.replicas.world;
    world.set_limits(&json!({ "concurrency": SLOTS }));
    let gate = world.close_gate("GET", ISSUES);
    let reads = join_all((0..SLOTS + WAITING).map(|page| stage.read(page))).await;
    world.held(gate, SLOTS).await;
    let part = stage.part("concurrency").await.expect("a part of the process");
    assert_eq!(part.held as usize, SLOTS, "{part:?}");
    stage.process.stop();
    world.open_gate(gate);

    // The others get its slots as soon as they count no more.
    let gate = world.close_gate("GET", ISSUES);
    let elsewhere = (100..100 + SLOTS_OF_OTHERS).map(|page| {
        let replicas = &stage.replicas;
        async move { replicas.get(page % (REPLICAS - 1), &format!("{ISSUES}?page={page}")).await }
    });
    let continues = async {
        world.held(gate, SLOTS_OF_OTHERS).await;
        let continued_at = stage.any_here().home().record("ada").await.unwrap().1;
        // It has all its answers now, and requests that wait for their slots.
        stage.process.signal(Signal::CONT);
        let is_back = |part: HeldPart| part.reported_at >= Some(continued_at) && part.wants > 0;
        bounded(async { while !stage.part("concurrency").await.is_some_and(is_back) {} }).await;
        world.open_gate(gate);
    };
    let (served, ()) = tokio::join!(join_all(elsewhere), continues);
    assert!(served.iter().all(|answer| answer.status == 200), "{served:#?}");
    for mut read in reads {
        let head = read.read_head().await;
        // A refusal by the upstream says most.
        assert_none_refused(&stage.replicas);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
}
