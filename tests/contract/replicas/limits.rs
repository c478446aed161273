//! Limits of several replicas together: the upstream sees one gateway.

use futures_util::future::join_all;
use serde_json::json;

use super::Replicas;
use crate::support::Setup;

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
