//! A last page that is exactly full: its 304 does not reveal a new next page (SPECIFICATION D3).

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::support::{Reply, Setup, World};

const ISSUE: &str = "/repos/acme/widgets/issues/3";
const UNCHANGED: &str = "weir; fwd=stale; fwd-status=304";

fn page(number: u32) -> String {
    format!("{ISSUE}/comments?per_page=10&page={number}")
}

/// Adds a comment around the gateway, later.
fn comment(world: &World) {
    world.advance_both(Duration::from_secs(60));
    world.ask_emulator(Method::POST, &format!("{ISSUE}/comments"), &json!({ "body": "hello" }));
    world.advance_both(Duration::from_secs(60));
}

/// Stores a full page of ten comments; then an eleventh is added around the gateway.
async fn an_eleventh_comes(setup: Setup) -> World {
    let world = setup.manual_clock().start().await;
    let at_first = world.count_at_emulator(&format!("{ISSUE}/comments?a=b"));
    (at_first..10).for_each(|_| comment(&world));
    let first = world.get(&page(1)).await;
    assert_eq!((first.json().as_array().map(Vec::len), first.header("link")), (Some(10), None));
    world.get(ISSUE).await.assert_status(200);
    comment(&world);
    world
}

/// True if the first page, fetched now, links the second.
async fn links_the_next_page(world: &World) -> bool {
    let answer = world.get(&page(1)).await;
    answer.assert_status(200);
    assert_eq!(answer.json().as_array().map(Vec::len), Some(10));
    answer.header("link").is_some_and(|link| link.contains("rel=\"next\""))
}

#[tokio::test]
async fn a_parent_change_refetches_a_page_that_a_304_cannot_update() {
    let world = an_eleventh_comes(Setup::new()).await;
    let answer = world.get(&page(1)).await;
    assert_eq!(
        (answer.cache_status(), answer.header("link")),
        (UNCHANGED, None),
        "nobody can know"
    );
    assert_ne!(world.get(ISSUE).await.cache_status(), UNCHANGED, "the issue counts its comments");
    assert!(links_the_next_page(&world).await);
    world.advance_both(Duration::from_secs(60));
    assert_eq!(
        world.get(&page(1)).await.cache_status(),
        UNCHANGED,
        "and that was all there was to know"
    );
    assert!(links_the_next_page(&world).await);
}

#[tokio::test]
async fn a_next_page_that_appears_refetches_the_page_before() {
    let world = an_eleventh_comes(Setup::new()).await;
    assert_eq!(world.get(&page(2)).await.json().as_array().map(Vec::len), Some(1));
    assert!(links_the_next_page(&world).await);
}

#[tokio::test]
async fn an_empty_next_page_refetches_nothing() {
    let world = an_eleventh_comes(Setup::new()).await;
    world.get(&page(3)).await.assert_status(200);
    world.get(&page(1)).await.assert_revalidated();
}

#[tokio::test]
async fn a_changed_page_refetches_the_other_pages_of_its_list() {
    let world = an_eleventh_comes(Setup::new()).await;
    let all = format!("{ISSUE}/comments?per_page=100");
    world.get(&all).await.assert_status(200);
    world.get(&page(1)).await.assert_revalidated();
    comment(&world);
    assert_ne!(world.get(&all).await.cache_status(), UNCHANGED);
    assert!(links_the_next_page(&world).await);
}

#[tokio::test]
async fn a_write_refetches_a_full_last_page() {
    let world = an_eleventh_comes(Setup::new().unspaced_writes()).await;
    world
        .post(&format!("{ISSUE}/comments"), json!({ "body": "by a client" }))
        .await
        .assert_status(201);
    assert!(links_the_next_page(&world).await);
}

#[tokio::test]
async fn a_page_that_links_the_last_is_refetched_once_after_a_write() {
    let world = an_eleventh_comes(Setup::new().unspaced_writes()).await;
    let few = format!("{ISSUE}/comments?per_page=4&page=1");
    let last = |answer: &Reply| {
        answer.header("link").unwrap_or_default().contains("page=4>; rel=\"last\"")
    };
    assert!(!last(&world.get(&few).await), "three pages");
    for body in ["the twelfth", "the thirteenth"] {
        world.post(&format!("{ISSUE}/comments"), json!({ "body": body })).await.assert_status(201);
    }
    world.advance_both(Duration::from_millis(1));
    let answer = world.get(&few).await;
    assert!(last(&answer), "{:?}", answer.header("link"));
    world.get(&few).await.assert_revalidated();
}

#[tokio::test]
async fn a_client_holding_a_page_learns_of_a_new_next_page() {
    let world = an_eleventh_comes(Setup::new()).await;
    let held = world.get(&page(1)).await;
    assert_eq!(held.header("link"), None);
    let etag = held.header("etag").unwrap();
    world.get(ISSUE).await.assert_status(200);
    let answer = world.get_with(&page(1), &[("if-none-match", etag)]).await;
    answer.assert_status(200);
    assert!(answer.header("link").is_some_and(|link| link.contains("rel=\"next\"")));
    let etag = answer.header("etag").unwrap();
    world.get_with(&page(1), &[("if-none-match", etag)]).await.assert_status(304);
}

#[tokio::test]
async fn a_page_with_room_or_a_next_link_is_revalidated_for_free() {
    let world = an_eleventh_comes(Setup::new()).await;
    let few = format!("{ISSUE}/comments?per_page=4&page=1");
    let roomy = format!("{ISSUE}/comments?per_page=100&page=1");
    for path in [&few, &roomy, &page(1)] {
        world.get(path).await.assert_status(200);
    }
    world.get(&page(2)).await.assert_status(200);
    for path in [&few, &roomy] {
        assert_eq!(world.get(path).await.cache_status(), UNCHANGED, "{path}");
    }
}
