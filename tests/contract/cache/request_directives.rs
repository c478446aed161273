//! A client's `Cache-Control` and `Pragma` (RFC 9111 §5.2.1, §5.4) in both modes, never against the
//! upstream's poll interval.

use std::time::Duration;

use serde_json::json;

use crate::support::broken::{Behaviour, Broken};
use crate::support::{Reply, Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";
const THREADS: &str = "/notifications";
const PLAIN: &str = "[cache]\nfreshness = \"rfc9111\"";
const LONG_LIVED: &str = "[[cache.rules]]\nroute = \"/repos/{owner}/{repo}\"\nttl = \"1h\"";

const HIT: &str = "weir; hit";
const REVALIDATED: &str = "weir; fwd=stale; fwd-status=304";
/// The same for a response that a shared HTTP cache calls fresh.
const REQUESTED: &str = "weir; fwd=request; fwd-status=304";

/// A world in which the repository has a lifetime in either mode.
async fn fresh(config: &str) -> World {
    let world = Setup::new().manual_clock().config(config).start().await;
    world.get(REPOSITORY).await.assert_fetched_and_stored();
    world.get(REPOSITORY).await.assert_hit();
    world
}

async fn get_with_directive(world: &World, path: &str, line: &str) -> Reply {
    world.get_with(path, &[("cache-control", line), ("prefer", "wait=0")]).await
}

/// An RFC 9111 cache whose upstream sends this `Cache-Control`, with one stored response of this
/// age.
async fn aged(lifetime: &str, seconds: u64) -> (Broken, World) {
    let text =
        format!("HTTP/1.1 200 OK\r\nCache-Control: {lifetime}\r\nContent-Length: 2\r\n\r\nhi");
    let upstream = Broken::start(Behaviour::Keeps(text.leak())).await;
    let world = upstream.setup().rfc9111().manual_clock().start().await;
    world.get(ISSUES).await.assert_status(200);
    world.clock.advance(Duration::from_secs(seconds));
    (upstream, world)
}

/// Asserts that no stored response was available under `only-if-cached`.
#[track_caller]
fn assert_nothing_stored(answer: &Reply) {
    answer.assert_status(504);
    let body = answer.json();
    assert!(
        body["message"].as_str().is_some_and(|message| message.contains("only-if-cached")),
        "{answer:?}"
    );
    assert!(
        body["documentation_url"]
            .as_str()
            .is_some_and(|url| url.ends_with("/_weir/help#only_if_cached")),
        "{answer:?}"
    );
    assert!(
        answer.header("date").is_some() && answer.header("cache-status").is_none(),
        "{answer:?}"
    );
}

#[tokio::test]
async fn no_cache_revalidates_for_free_whatever_the_lifetime() {
    for (config, expected) in [(PLAIN, REQUESTED), (LONG_LIVED, REVALIDATED)] {
        let world = fresh(config).await;
        for header in [
            ("cache-control", "no-cache"),
            ("cache-control", "max-age=0"),
            ("cache-control", "max-age=x"),
            ("pragma", "no-cache"),
        ] {
            assert_eq!(
                world.get_with(REPOSITORY, &[header]).await.cache_status(),
                expected,
                "{header:?} {config}"
            );
        }
        assert!(
            world.upstream_requests().iter().skip(1).all(|entry| entry.cost == 0),
            "a 304 costs nothing"
        );
        let with_both = [("pragma", "no-cache"), ("cache-control", "nothing-of-the-kind")];
        assert_eq!(world.get_with(REPOSITORY, &with_both).await.cache_status(), HIT, "{config}");
        world.get(REPOSITORY).await.assert_hit();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cache_joins_a_fetch_under_way() {
    let world = fresh(PLAIN).await;
    let gate = world.close_gate("GET", REPOSITORY);
    // The second request waits for nothing but a fetch that has left already.
    let second = async {
        world.held(gate, 1).await;
        get_with_directive(&world, REPOSITORY, "no-cache").await
    };
    let opened = async {
        world.all_waiting_for_one_fetch(2).await;
        world.open_gate(gate);
    };
    let (one, other, ()) =
        tokio::join!(get_with_directive(&world, REPOSITORY, "no-cache"), second, opened);
    let mut reported = [one.cache_status(), other.cache_status()];
    reported.sort_unstable();
    assert_eq!(reported, [REQUESTED, "weir; fwd=request; fwd-status=304; collapsed"]);
    assert_eq!(world.upstream_requests().len(), 2);
}

#[tokio::test]
async fn no_store_stores_nothing_and_may_be_served_from_the_cache() {
    for config in [PLAIN, LONG_LIVED] {
        let world = Setup::new().manual_clock().config(config).start().await;
        for _ in 0..2 {
            let answer = get_with_directive(&world, REPOSITORY, "no-store").await;
            assert_eq!(
                (answer.status.as_u16(), answer.cache_status()),
                (200, "weir; fwd=uri-miss")
            );
        }
        world.get(REPOSITORY).await.assert_fetched_and_stored();
        get_with_directive(&world, REPOSITORY, "no-store").await.assert_hit();
        // A 304 changes nothing either: for others the response is as old as before.
        world.advance_both(Duration::from_hours(1));
        get_with_directive(&world, REPOSITORY, "no-store").await.assert_revalidated();
        world.get(REPOSITORY).await.assert_revalidated();
        world.get(REPOSITORY).await.assert_hit();
    }
}

#[tokio::test]
async fn a_change_seen_by_no_store_invalidates_the_stored_response() {
    let world = Setup::new().writes("spacing = \"0s\"").config(LONG_LIVED).start().await;
    let before = world.get(REPOSITORY).await;
    world.ask_emulator(http::Method::PATCH, REPOSITORY, &json!({ "description": "another" }));
    assert_eq!(world.get(REPOSITORY).await.body, before.body, "it has a lifetime");
    let newest = get_with_directive(&world, REPOSITORY, "no-store, no-cache").await;
    assert_eq!(
        (newest.cache_status(), &newest.json()["description"]),
        ("weir; fwd=stale; fwd-status=200", &json!("another"))
    );
    assert_eq!(world.get(REPOSITORY).await.json()["description"], json!("another"));
}

#[tokio::test]
async fn no_store_keeps_an_equal_stored_response_for_others() {
    let upstream =
        Broken::start(Behaviour::Keeps("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")).await;
    let world = upstream.setup().config(LONG_LIVED).manual_clock().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    assert_eq!(
        get_with_directive(&world, REPOSITORY, "no-store, no-cache").await.cache_status(),
        "weir; fwd=stale; fwd-status=200"
    );
    world.get(REPOSITORY).await.assert_hit();
    assert_eq!(upstream.requests(), 2);
}

#[tokio::test]
async fn no_store_keeps_the_upstreams_poll_interval() {
    let world = Setup::new().manual_clock().start().await;
    for sent in 1..3 {
        get_with_directive(&world, THREADS, "no-store").await.assert_status(200);
        for line in ["no-store", "no-store, no-cache", ""] {
            assert_eq!(
                get_with_directive(&world, THREADS, line).await.cache_status(),
                HIT,
                "{line}"
            );
        }
        assert_eq!(world.upstream_requests().len(), sent);
        world.clock.advance(Duration::from_mins(1));
    }
}

#[tokio::test]
async fn no_cache_added_by_runtimes_does_not_defeat_the_condition() {
    for (config, expected) in [(LONG_LIVED, HIT), (PLAIN, REQUESTED)] {
        let world = fresh(config).await;
        let etag = world.get(REPOSITORY).await.header("etag").unwrap().to_owned();
        let headers = [
            ("if-none-match", etag.as_str()),
            ("cache-control", "no-cache"),
            ("pragma", "no-cache"),
        ];
        let answer = world.get_with(REPOSITORY, &headers).await;
        assert_eq!((answer.status.as_u16(), answer.cache_status()), (304, expected), "{config}");
    }
    // The client does not want a failure where others get a stale response.
    let world = Setup::new().start().await;
    let etag = world.get(REPOSITORY).await.header("etag").unwrap().to_owned();
    world.arm(&json!({ "fault": "reset_before", "match": { "path": REPOSITORY } }));
    let answer = world
        .get_with(REPOSITORY, &[("if-none-match", &etag), ("cache-control", "no-cache")])
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.cache_status()),
        (304, "weir; hit; detail=stale-if-error")
    );
}

#[tokio::test]
async fn max_age_and_min_fresh_are_honoured() {
    for (line, sent) in [
        ("max-age=31", 0),
        ("max-age=29", 1),
        ("max-age=600", 0),
        ("min-fresh=29", 0),
        ("min-fresh=31", 1),
    ] {
        let (upstream, world) = aged("max-age=60", 30).await;
        get_with_directive(&world, ISSUES, line).await.assert_status(200);
        assert_eq!(upstream.requests(), 1 + sent, "{line}");
    }
}

#[tokio::test]
async fn max_stale_is_honoured_unless_the_response_forbids_it() {
    for (lifetime, line, sent) in [
        ("max-age=60", "max-stale=30", 0),
        ("max-age=60", "max-stale", 0),
        ("max-age=60", "max-stale=29", 1),
        ("max-age=60", "max-stale=x", 1),
        ("max-age=60", "max-stale, max-age=80", 1),
        ("max-age=60, must-revalidate", "max-stale", 1),
        ("max-age=60, proxy-revalidate", "max-stale", 1),
        ("s-maxage=60", "max-stale", 1),
        ("no-cache", "max-stale", 1),
    ] {
        let (upstream, world) = aged(lifetime, 90).await;
        let answer = get_with_directive(&world, ISSUES, line).await;
        answer.assert_status(200);
        assert_eq!(upstream.requests(), 1 + sent, "{lifetime}; {line}");
        assert_eq!(
            answer.header("age"),
            if sent == 0 { Some("90") } else { None },
            "{lifetime}; {line}"
        );
    }
}

#[tokio::test]
async fn max_stale_serves_nothing_that_a_write_invalidated() {
    let (upstream, world) = aged("max-age=60", 1).await;
    world
        .send(http::Method::POST, ISSUES, &[("content-type", "application/json")], "{}")
        .await
        .assert_status(200);
    let sent = upstream.requests();
    get_with_directive(&world, ISSUES, "max-stale").await.assert_status(200);
    assert_eq!(upstream.requests(), sent + 1);
}

#[tokio::test]
async fn only_if_cached_gets_the_stored_response_or_504() {
    for config in [PLAIN, LONG_LIVED] {
        let world = fresh(config).await;
        let sent = world.upstream_requests().len();
        get_with_directive(&world, REPOSITORY, "only-if-cached").await.assert_hit();
        for (path, line) in [
            (ISSUES, "only-if-cached"),
            (REPOSITORY, "only-if-cached, no-cache"),
            (REPOSITORY, "no-cache, Only-If-Cached"),
        ] {
            assert_nothing_stored(&get_with_directive(&world, path, line).await);
        }
        world.clock.advance(Duration::from_hours(1));
        assert_nothing_stored(&get_with_directive(&world, REPOSITORY, "only-if-cached").await);
        assert_eq!(world.upstream_requests().len(), sent);
    }
    let (upstream, world) = aged("max-age=60", 90).await;
    get_with_directive(&world, ISSUES, "only-if-cached, max-stale").await.assert_hit();
    assert_nothing_stored(&get_with_directive(&world, ISSUES, "only-if-cached").await);
    assert_eq!(upstream.requests(), 1);
}

#[tokio::test]
async fn the_poll_interval_overrides_request_directives() {
    let world = Setup::new().manual_clock().start().await;
    world.get(THREADS).await.assert_status(200);
    world.clock.advance(Duration::from_secs(59));
    for line in
        ["no-cache", "max-age=0", "max-age=1", "min-fresh=600", "only-if-cached", "no-store"]
    {
        assert_eq!(get_with_directive(&world, THREADS, line).await.cache_status(), HIT, "{line}");
    }
    world.clock.advance(Duration::from_secs(1));
    assert_nothing_stored(&get_with_directive(&world, THREADS, "only-if-cached").await);
    get_with_directive(&world, THREADS, "no-cache").await.assert_revalidated();
}

#[tokio::test]
async fn no_cache_gets_no_stale_response_on_a_failure() {
    let world = Setup::new().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    world.arm(&json!({ "fault": "reset_before", "match": { "path": REPOSITORY } }));
    for line in ["", "no-store", "max-stale", "max-stale=3600, max-age=3600"] {
        assert_eq!(
            get_with_directive(&world, REPOSITORY, line).await.cache_status(),
            "weir; hit; detail=stale-if-error",
            "{line}"
        );
    }
    for line in ["no-cache", "max-age=0", "max-age=3600", "min-fresh=1", "max-stale, no-cache"] {
        get_with_directive(&world, REPOSITORY, line).await.assert_status(502);
    }
}
