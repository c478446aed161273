//! Requests that the gateway gives up: the upstream may go on with them, so their slots stay taken
//! for a grace period (SPECIFICATION D5).

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use weir::decision::QuotaLedger;

use crate::support::raw::Connection;
use crate::support::scripted::ScriptedUpstream;
use crate::support::{KEY, Reply, Setup, World, eventually};

/// The grace period of the service: it ends a request after 10 s.
const GRACE: Duration = Duration::from_secs(10);
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
    X-RateLimit-Limit: 5000\r\nX-RateLimit-Remaining: 4000\r\nX-RateLimit-Used: 1000\r\n\
    X-RateLimit-Reset: 1800003600\r\nX-RateLimit-Resource: core\r\nConnection: close\r\n\r\n{}";

/// A gateway with a single slot and a known budget, and its upstream.
struct Fixture {
    world: Arc<World>,
    upstream: ScriptedUpstream,
}

impl Fixture {
    async fn new(response_timeout: &str) -> Self {
        let upstream = ScriptedUpstream::start().await;
        let keys = format!("response_timeout = \"{response_timeout}\"");
        let setup = Setup::new().manual_clock().upstream(upstream.url()).upstream_keys(&keys);
        let world = Arc::new(setup.limits("concurrency = 1").start().await);
        let fixture = Self { world, upstream };
        let first = fixture.spawn_get("/repos/acme/first");
        fixture.upstream.next().await.send(ANSWER).await;
        first.await.unwrap().assert_status(200);
        fixture
    }

    fn spawn_get(&self, path: &'static str) -> JoinHandle<Reply> {
        let world = Arc::clone(&self.world);
        tokio::spawn(async move { world.get(path).await })
    }

    /// A request that waits for the only slot.
    async fn spawn_waiter(&self) -> JoinHandle<Reply> {
        let waiter = self.spawn_get("/repos/acme/waiting");
        eventually(|| self.world.gateway.dispatcher.admissions().waiting() >= 1).await;
        waiter
    }

    fn open_leases(&self) -> usize {
        let admissions = self.world.gateway.dispatcher.admissions();
        admissions.with_ledger(|ledger, _| ledger.open_leases())
    }

    fn slots_in_use(&self) -> u32 {
        let admissions = self.world.gateway.dispatcher.admissions();
        let snapshot = admissions.with_ledger(QuotaLedger::snapshot);
        snapshot[0].secondary[0].in_use
    }

    /// Asserts that the slot of a request that was given up is free only after the grace period.
    async fn assert_freed_after_grace(&self, waiter: JoinHandle<Reply>) {
        eventually(|| self.open_leases() == 0).await;
        assert_eq!(self.slots_in_use(), 1);
        assert!(self.world.gateway.dispatcher.admissions().waiting() >= 1);
        self.world.clock.advance(GRACE);
        tokio::select! {
            answer = waiter => answer.unwrap().assert_status(200),
            () = self.answer_all() => {}
        }
    }

    async fn answer_all(&self) {
        loop {
            self.upstream.next().await.send(ANSWER).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_timed_out_keeps_its_slot_for_a_grace() {
    let fixture = Fixture::new("1s").await;
    let _hanging = fixture.spawn_get("/repos/acme/hanging");
    let _connection = fixture.upstream.next().await;
    let waiter = fixture.spawn_waiter().await;
    fixture.assert_freed_after_grace(waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_without_its_client_keeps_its_slot_for_a_grace() {
    let fixture = Fixture::new("5m").await;
    let mut client = Connection::open(fixture.world.address).await;
    let request = format!(
        "GET /repos/acme/hanging HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    );
    client.send(request.as_bytes()).await;
    let _connection = fixture.upstream.next().await;
    let waiter = fixture.spawn_waiter().await;
    drop(client);
    fixture.assert_freed_after_grace(waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_the_upstream_ended_frees_its_slot() {
    let fixture = Fixture::new("5m").await;
    let _broken = fixture.spawn_get("/repos/acme/broken");
    let connection = fixture.upstream.next().await;
    let waiter = fixture.spawn_waiter().await;
    drop(connection);
    tokio::select! {
        answer = waiter => answer.unwrap().assert_status(200),
        () = fixture.answer_all() => {}
    }
}
