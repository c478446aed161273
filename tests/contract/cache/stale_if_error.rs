//! `stale-if-error` of the upstream and of clients (RFC 5861 §4). The config's `stale_if_error` is
//! tested in `variants.rs`; here it is zero and allows nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};

use crate::support::broken::{Behaviour, Broken};
use crate::support::origin::Origin;
use crate::support::{Reply, Setup, World};

const LABELS: &str = "/repos/acme/widgets/labels";
const MODES: [&str; 2] = ["revalidate", "rfc9111"];
const SERVED_STALE: &str = "weir; hit; detail=stale-if-error";

/// An upstream that succeeds until it is switched to failures, and a gateway in front of it.
struct Failing {
    world: World,
    status: Arc<AtomicU16>,
}

impl Failing {
    /// Stores a good response with this `Cache-Control`.
    async fn after_an_answer(mode: &str, cache_control: &'static str) -> Self {
        let status = Arc::new(AtomicU16::new(200));
        let current_status = Arc::clone(&status);
        let origin = Origin::start(move |_| {
            let answer = Response::builder()
                .status(current_status.load(Ordering::SeqCst))
                .header("cache-control", cache_control);
            async move { answer.body(Bytes::from_static(b"it is so")).unwrap() }
        });
        let config = format!("[cache]\nfreshness = \"{mode}\"\nstale_if_error = \"0s\"");
        let world =
            Setup::new().upstream(origin.await.url()).manual_clock().config(&config).start().await;
        world.get(LABELS).await.assert_status(200);
        Self { world, status }
    }

    async fn later(&self, seconds: u64, status: u16, headers: &[(&str, &str)]) -> Reply {
        self.world.clock.advance(Duration::from_secs(seconds));
        self.status.store(status, Ordering::SeqCst);
        // A retried read would wait for the clock.
        let headers = [headers, &[("prefer", "wait=0")]].concat();
        self.world.get_with(LABELS, &headers).await
    }
}

#[tokio::test]
async fn stale_if_error_of_a_response_holds_until_it_expires() {
    for mode in MODES {
        for error in [500, 502, 503, 504] {
            let failing = Failing::after_an_answer(mode, "max-age=60, stale-if-error=30").await;
            let stale = failing.later(90, error, &[]).await;
            assert_eq!(
                (stale.status.as_u16(), stale.cache_status()),
                (200, SERVED_STALE),
                "{mode} {error}"
            );
            assert_eq!((stale.header("age"), &stale.body[..]), (Some("90"), &b"it is so"[..]));
            failing.later(1, error, &[]).await.assert_status(error);
            let again = failing.later(0, 200, &[]).await;
            assert!(
                again.cache_status().ends_with("fwd-status=200"),
                "{mode}: the truth as soon as it can be had: {again:?}"
            );
        }
    }
}

#[tokio::test]
async fn other_failures_and_statuses_are_delivered() {
    for mode in MODES {
        for status in [501, 505, 404] {
            let failing = Failing::after_an_answer(mode, "max-age=60, stale-if-error=600").await;
            failing.later(90, status, &[]).await.assert_status(status);
        }
    }
}

#[tokio::test]
async fn a_silent_upstream_counts_as_an_error() {
    let response = "HTTP/1.1 200 OK\r\nCache-Control: max-age=1, stale-if-error=600\r\nContent-Length: 2\r\n\r\nhi";
    for mode in MODES {
        let upstream = Broken::start(Behaviour::Sends(response)).await;
        let config = format!("[cache]\nfreshness = \"{mode}\"\nstale_if_error = \"0s\"");
        let world = upstream.setup().manual_clock().config(&config).start().await;
        world.get(LABELS).await.assert_status(200);
        upstream.stops_answering();
        world.clock.advance(Duration::from_secs(90));
        let stale = world.get_with(LABELS, &[("prefer", "wait=0")]).await;
        assert_eq!((stale.status.as_u16(), stale.cache_status()), (200, SERVED_STALE), "{mode}");
        world.clock.advance(Duration::from_secs(600));
        world.get_with(LABELS, &[("prefer", "wait=0")]).await.assert_status(504);
    }
}

#[tokio::test]
async fn cache_control_may_forbid_stale_if_error() {
    for mode in MODES {
        for forbids in [
            "max-age=60, stale-if-error=600, must-revalidate",
            "max-age=60, stale-if-error=600, proxy-revalidate",
            "stale-if-error=600, no-cache",
            "s-maxage=60, stale-if-error=600",
            "max-age=60, stale-if-error=600, stale-if-error=1",
            "max-age=60, stale-if-error",
        ] {
            let failing = Failing::after_an_answer(mode, forbids).await;
            failing.later(90, 503, &[]).await.assert_status(503);
            failing
                .later(0, 503, &[("cache-control", "stale-if-error=15")])
                .await
                .assert_status(503);
        }
    }
}

#[tokio::test]
async fn a_client_names_its_own_stale_if_error() {
    for mode in MODES {
        let failing = Failing::after_an_answer(mode, "max-age=60").await;
        failing.later(90, 503, &[]).await.assert_status(503);
        for (directive, status) in [
            ("stale-if-error=30", 200),
            ("stale-if-error=29", 503),
            ("stale-if-error", 503),
            ("max-age=0, stale-if-error=30", 200),
            ("no-cache", 503),
        ] {
            let answer = failing.later(0, 503, &[("cache-control", directive)]).await;
            answer.assert_status(status);
            assert_eq!(answer.cache_status() == SERVED_STALE, status == 200, "{mode} {directive}");
        }
        let failing = Failing::after_an_answer(mode, "max-age=60, stale-if-error=600").await;
        for (directive, status) in [
            ("stale-if-error=29", 503),
            ("no-cache", 503),
            ("max-age=10", 503),
            ("max-stale=29", 503),
            ("", 200),
        ] {
            failing
                .later(
                    if directive == "stale-if-error=29" { 90 } else { 0 },
                    503,
                    &[("cache-control", directive)],
                )
                .await
                .assert_status(status);
        }
    }
}

#[tokio::test]
async fn no_response_older_than_a_write_is_served_on_an_error() {
    for mode in MODES {
        let failing = Failing::after_an_answer(mode, "max-age=60, stale-if-error=600").await;
        failing
            .world
            .send(Method::PUT, LABELS, &[("content-type", "application/json")], "{}")
            .await
            .assert_status(200);
        failing.later(1, 503, &[]).await.assert_status(503);
    }
}

#[tokio::test]
async fn a_304_updates_stale_if_error() {
    for mode in MODES {
        let (status, unchanged) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicU16::new(0)));
        let (current_status, unmodified) = (Arc::clone(&status), Arc::clone(&unchanged));
        let origin = Origin::start(move |_| {
            let (status, n) =
                (current_status.load(Ordering::SeqCst), unmodified.load(Ordering::SeqCst));
            let cache_control = if n == 0 { "max-age=60" } else { "max-age=60, stale-if-error=60" };
            let answer = Response::builder()
                .status(status)
                .header("cache-control", cache_control)
                .header("etag", "\"a\"");
            async move {
                answer
                    .body(Bytes::from_static(if status == 304 { b"" } else { b"it is so" }))
                    .unwrap()
            }
        });
        let config = format!("[cache]\nfreshness = \"{mode}\"\nstale_if_error = \"0s\"");
        let world =
            Setup::new().upstream(origin.await.url()).manual_clock().config(&config).start().await;
        let at = |seconds, status_now| {
            world.clock.advance(Duration::from_secs(seconds));
            status.store(status_now, Ordering::SeqCst);
            world.get_with(LABELS, &[("prefer", "wait=0")])
        };
        at(0, 200).await.assert_status(200);
        at(90, 503).await.assert_status(503);
        unchanged.store(1, Ordering::SeqCst);
        at(0, 304).await.assert_status(200);
        assert_eq!(at(90, 503).await.cache_status(), SERVED_STALE, "{mode}");
    }
}
