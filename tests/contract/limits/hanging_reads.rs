//! Reads without an answer: one client with many of them leaves a slot to the others
//! (SPECIFICATION D5).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{OTHER_KEY, Reply, Setup, World, eventually};

const WAITING: u64 = 25;

/// Asks for a page of a list that does not answer.
fn hanging(world: &Arc<World>, page: u64) -> JoinHandle<Reply> {
    let world = Arc::clone(world);
    let path = format!("/repos/acme/widgets/issues?per_page=1&page={page}");
    tokio::spawn(async move { world.get(&path).await })
}

async fn other_get(world: &World, path: &str) -> Reply {
    let authorization = format!("Bearer {OTHER_KEY}");
    world.get_with(path, &[("authorization", &authorization)]).await
}

/// A client asks for 25 more pages than it may have slots. `asks_first`: the others have asked too.
async fn assert_others_are_served(slots: u64, of_one: u64, asks_first: bool) {
    let setup = Setup::new().manual_clock().limits(&format!("concurrency = {slots}"));
    let world = Arc::new(setup.client("max_wait = \"9s\"").start().await);
    world.get("/repos/acme/widgets").await.assert_status(200);
    if asks_first {
        other_get(&world, "/repos/acme/sprockets").await.assert_status(200);
    }
    let path = json!({ "path": "/repos/acme/widgets/issues" });
    let fault = json!({ "fault": "stall", "seconds": 600, "match": path });
    world.ask_emulator(Method::POST, "/_emulator/faults", &fault);
    let asked = of_one + WAITING;
    let reads: Vec<_> = (0..asked).map(|page| hanging(&world, page)).collect();
    let waiting = || world.gateway.dispatcher.waiting()[0].load(Ordering::Relaxed);
    eventually(|| waiting() >= WAITING).await;
    for name in ["labels", "commits", "pulls", "milestones"] {
        other_get(&world, &format!("/repos/acme/widgets/{name}")).await.assert_status(200);
    }
    assert_eq!(waiting(), WAITING, "the first client gets no further slot");
    world.clock.advance(Duration::from_secs(9));
    for read in reads {
        read.await.unwrap().assert_status(504);
    }
    // The upstream may go on with the reads that were given up.
    other_get(&world, "/repos/acme/widgets/branches").await.assert_status(200);
    let metrics = world.gateway.env.metrics.scrape(|_| ());
    let refused: Vec<_> = metrics.lines().filter(|line| line.contains("_refused_total{")).collect();
    let expected = r#"weir_refused_total{client="ci",reason="upstream_timeout"}"#;
    assert_eq!(refused, [format!("{expected} {asked}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_reads_hang_leaves_slots_to_latecomers() {
    assert_others_are_served(100, 97, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_reads_hang_leaves_one_of_few_slots() {
    assert_others_are_served(10, 9, true).await;
}
