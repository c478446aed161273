//! Limits of several replicas together: the upstream sees one gateway. Times depend on the machine;
//! on an idle one `SILENT_WITHIN_MS=20` holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::json;

use super::Replicas;
use crate::support::{Setup, eventually};

const ISSUES: &str = "/repos/acme/widgets/issues";

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_forty_carries_exactly_forty_of_120_requests() {
    let setup = Setup::new().client("max_wait = \"5s\"");
    let replicas = Replicas::start(setup, 3).await;
    replicas.world.set_limits(&json!({ "core.user": 40 }));
    let answers = join_all((0..120).map(|n| {
        let replicas = &replicas;
        async move { replicas.get(n % 3, &format!("{ISSUES}?per_page=1&page={n}")).await }
    }))
    .await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    let seen = replicas.world.upstream_requests();
    assert!(seen.iter().all(|entry| entry.refused.is_none()), "{seen:#?}");
    assert_eq!(served, 40);
    let now = replicas.world.clock.now().as_secs();
    let denied = answers.iter().filter(|answer| answer.status != 200);
    denied.for_each(|answer| answer.assert_rate_limited(now));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secondary_refusal_silences_all_replicas() {
    let setup = Setup::new().client("max_wait = \"1ms\"");
    let replicas = Arc::new(Replicas::start(setup, 3).await);
    let stop = Arc::new(AtomicBool::new(false));
    let bots = (0..6).map(|bot| {
        let (replicas, stop) = (Arc::clone(&replicas), Arc::clone(&stop));
        tokio::spawn(async move {
            for page in 0.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let path = format!("{ISSUES}?per_page=1&page={page}&bot={bot}");
                replicas.get(bot % 3, &path).await;
            }
        })
    });
    let bots: Vec<_> = bots.collect();
    let seen = || replicas.world.upstream_requests();
    eventually(|| seen().len() > 60).await;
    replicas
        .world
        .arm(&json!({ "fault": "secondary", "retry_after": 60, "match": { "times": 1 } }));
    let refusal = || seen().into_iter().find(|entry| entry.refused.is_some());
    eventually(|| refusal().is_some()).await;
    let refused_at = refusal().unwrap().at_millis;
    let now = || replicas.world.clock.now().as_millis();
    eventually(|| now() > refused_at + 1_000).await;
    stop.store(true, Ordering::SeqCst);
    join_all(bots).await;
    let last = seen().iter().map(|entry| entry.at_millis).max().unwrap() - refused_at;
    println!("the last request came {last} ms after the refusal");
    let within = std::env::var("SILENT_WITHIN_MS").map_or(500, |millis| millis.parse().unwrap());
    assert!(last <= within, "{last} ms after the refusal another request was sent");
}
