//! `cache.revalidate_at_most`: an answer that was just confirmed is served without asking
//! (SPECIFICATION D3).

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::support::switched::Mode::Answers;
use crate::support::switched::Switched;
use crate::support::{Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUE: &str = "/repos/acme/widgets/issues/3";
const LIST: &str = "/repos/acme/widgets/issues?per_page=5";
const ISSUES: &str = "/repos/acme/widgets/issues";
const AT_MOST: &str = "revalidate_at_most = \"1s\"";

async fn world() -> World {
    Setup::new().manual_clock().unspaced_writes().cache(AT_MOST).start().await
}

#[tokio::test]
async fn a_confirmed_answer_is_served_for_its_time() {
    let world = world().await;
    world.get(REPOSITORY).await.assert_status(200);
    for _ in 0..3 {
        world.clock.advance(Duration::from_millis(999));
        world.get(REPOSITORY).await.assert_hit();
        world.clock.advance(Duration::from_millis(1));
        world.get(REPOSITORY).await.assert_revalidated();
    }
}

#[tokio::test]
async fn polls_of_one_list_ask_once_in_that_time() {
    const SECONDS: usize = 5;
    for (config, expected) in [("", 100 * SECONDS), (AT_MOST, SECONDS)] {
        let high = "rest_points_per_minute = 100000\ncpu_seconds_per_minute = 6000";
        let setup = Setup::new().manual_clock().cache(config).limits(high);
        let world = setup.start().await;
        for _ in 0..SECONDS {
            for _ in 0..100 {
                world.get(LIST).await.assert_status(200);
                world.clock.advance(Duration::from_millis(10));
            }
        }
        let requests = world.upstream_requests();
        assert_eq!(
            requests.iter().filter(|request| request.path.starts_with(ISSUES)).count(),
            expected
        );
    }
}

#[tokio::test]
async fn a_write_through_the_gateway_ends_a_confirmation() {
    let world = world().await;
    for path in [ISSUE, LIST] {
        world.get(path).await.assert_status(200);
        world.get(path).await.assert_hit();
    }
    let title = json!({ "title": "changed" }).to_string();
    world.send(Method::PATCH, ISSUE, &[], &title).await.assert_status(200);
    assert_eq!(world.get(ISSUE).await.json()["title"], "changed");
    assert_ne!(world.get(LIST).await.cache_status(), "weir; hit");
}

#[tokio::test]
async fn a_client_may_have_a_confirmation_of_its_own() {
    let world = world().await;
    world.get(REPOSITORY).await.assert_status(200);
    world.get_with(REPOSITORY, &[("cache-control", "no-cache")]).await.assert_revalidated();
}

#[tokio::test]
async fn an_answer_that_is_never_fresh_is_always_confirmed() {
    // Its answers have no lifetime of their own.
    let upstream = Switched::start(Answers).await;
    let setup = Setup::new().manual_clock().upstream(upstream.url()).cache(AT_MOST);
    let world = setup.start().await;
    for requests in 1..=3 {
        world.get(REPOSITORY).await.assert_status(200);
        assert_eq!(upstream.requests(), requests);
    }
}

#[tokio::test]
async fn a_lifetime_shorter_than_the_setting_counts() {
    let at_most = "revalidate_at_most = \"10m\"";
    let world = Setup::new().manual_clock().cache(at_most).start().await;
    world.get(REPOSITORY).await.assert_status(200);
    world.clock.advance(Duration::from_secs(59));
    world.get(REPOSITORY).await.assert_hit();
    world.clock.advance(Duration::from_secs(1));
    world.get(REPOSITORY).await.assert_revalidated();
}

#[tokio::test]
async fn a_confirmation_never_outlasts_the_ttl_of_a_rule() {
    let world = Setup::new()
        .manual_clock()
        .cache("revalidate_at_most = \"50s\"")
        .cache_ttl("/repos/{owner}/{repo}", "1s")
        .start()
        .await;
    world.get(REPOSITORY).await.assert_status(200);
    world.advance_both(Duration::from_millis(999));
    world.get(REPOSITORY).await.assert_hit();
    world.advance_both(Duration::from_millis(1));
    world.get(REPOSITORY).await.assert_revalidated();
}
