//! Limits of several replicas together: the upstream sees one gateway. Times depend on the machine;
//! on an idle one `SILENT_WITHIN_MS=20` holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use weir::state::Reach;

use super::{Replicas, is_away};
use crate::admin::operator::{ADMIN, Operator};
use crate::support::{Setup, bounded, eventually};

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
async fn a_clients_budget_is_spent_at_all_replicas() {
    // A part of the account's budget comes in time for clients that do not wait, too.
    let setup = Setup::new().client("max_wait = \"1ms\"\nbudget = { core = \"10/h\" }");
    let replicas = Replicas::start(setup, 2).await;
    let read = async |replica, page| {
        replicas.get(replica, &format!("{ISSUES}?per_page=1&page={page}")).await
    };
    // An empty record gives no parts at first: another one may have been lost.
    bounded(async { while read(0, 0).await.status != 200 {} }).await;
    for page in 1..6 {
        read(0, page).await.assert_status(200);
    }
    let remaining = async |replica| {
        let limits = replicas.get(replica, "/rate_limit").await.json();
        limits["resources"]["core"]["remaining"].as_u64().unwrap()
    };
    bounded(async { while remaining(1).await != 4 {} }).await;
    for page in 6..10 {
        read(1, page).await.assert_status(200);
    }
    bounded(async { while remaining(0).await != 0 {} }).await;
    let now = replicas.world.clock.now().as_secs();
    read(0, 10).await.assert_rate_limited(now);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secondary_refusal_silences_all_replicas() {
    let setup = Setup::new().client("max_wait = \"100ms\"");
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

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_the_parts_of_all_replicas() {
    let mut replicas = Replicas::start(Setup::new().listen(ADMIN), 2).await;
    for replica in 0..2 {
        replicas.get(replica, ISSUES).await.assert_status(200);
    }
    replicas.world.current.begin_look();
    let operator = Operator::of(&replicas.world);
    let fleet = operator.get("/api/replicas").await.json();
    assert_eq!((&fleet["redis"], &fleet["heard"]), (&json!("in_reach"), &json!(2)), "{fleet}");
    let parts = fleet["accounts"][0]["parts"].as_array().unwrap();
    let holders = parts.iter().filter(|part| part["limit"] == "budget core");
    assert!(holders.clone().count() > 0, "{fleet}");
    assert!(holders.clone().all(|part| part["held"].as_u64() >= part["in_use"].as_u64()));
    assert_eq!(operator.budgets().await["replicas"]["redis"], "in_reach");
    assert_eq!(operator.metric("weir_redis_up").await, Some(1.0));
    assert_eq!(operator.metric("weir_replicas_heard").await, Some(2.0));
    let part = "weir_replica_part{account=\"account-0\",limit=\"budget core\"}";
    assert!(operator.metric(part).await.is_some());
    let admin = operator.address.to_string();
    let printed = operator.weir("replicas", &["--admin", &admin], None).await;
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("2 replicas heard, Redis is in reach"), "{printed}");
    assert!(printed.contains("account-0  budget core"), "{printed}");
    replicas.redis.take();
    eventually(|| replicas.all().all(|current| is_away(current))).await;
    operator.ask(Method::GET, "/api/replicas", None).await.assert_status(503);
    eventually(|| is_out(&replicas)).await;
    let ready = operator.get("/readyz").await;
    ready.assert_status(200);
    let text = String::from_utf8(ready.body.to_vec()).unwrap();
    assert!(text.contains("Redis is out of reach for"), "{text}");
}

fn is_out(replicas: &Replicas) -> bool {
    let env = &replicas.world.current.gateway().env;
    matches!(env.replica.as_ref().unwrap().reach(), Reach::Out(..))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_redis_is_not_ready() {
    let state = "[state]\nredis = \"redis://127.0.0.1:1\"";
    let world = Setup::new().listen(ADMIN).config(state).client("max_wait = \"1ms\"").start().await;
    world.current.begin_look();
    let operator = Operator::of(&world);
    let ready = operator.ask(Method::GET, "/readyz", None).await;
    ready.assert_status(503);
    let text = String::from_utf8(ready.body.to_vec()).unwrap();
    assert!(text.contains("Redis has not been reached yet"), "{text}");
    assert_ne!(world.get(ISSUES).await.status, 200, "nothing may be sent");
    assert_eq!(world.upstream_requests().iter().filter(|entry| entry.path == ISSUES).count(), 0);
}
