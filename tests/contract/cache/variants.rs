//! Variants of one URL: `Vary`, also in a 304 or with a large body, `no-store`, and the conditions
//! that the upstream evaluates.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::support::origin::{Origin, header};
use crate::support::{KEY, OTHER_KEY, Reply, Setup, World};

pub(super) const PLAIN: &str = "[cache]\nfreshness = \"rfc9111\"\nmax_object = \"4KiB\"";
pub(super) const REVALIDATED: &str = "[cache]\nmax_object = \"4KiB\"\nstale_if_error = \"1h\"";
pub(super) const LABELS: &str = "/repos/acme/widgets/labels";

/// An upstream that waits for permission to answer.
pub(super) struct GatedUpstream {
    pub(super) world: World,
    pub(super) origin: Origin,
    pub(super) turns: Arc<Semaphore>,
}

impl GatedUpstream {
    pub(super) async fn new(
        config: &str,
        turns: usize,
        answer: impl Fn(&HeaderMap) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        let (answer, turns) = (Arc::new(answer), Arc::new(Semaphore::new(turns)));
        let theirs = Arc::clone(&turns);
        let origin = Origin::start(move |request: Request<()>| {
            let (answer, turns) = (Arc::clone(&answer), Arc::clone(&theirs));
            async move {
                turns.acquire().await.unwrap().forget();
                answer(request.headers())
            }
        })
        .await;
        let world = Setup::new().upstream(origin.url()).manual_clock().config(config).start().await;
        Self { world, origin, turns }
    }

    /// An upstream that answers at once.
    async fn free(
        config: &str,
        answer: impl Fn(&HeaderMap) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        Self::new(config, Semaphore::MAX_PERMITS, answer).await
    }

    async fn get(&self, language: &str) -> Reply {
        self.world.get_with(LABELS, &[("accept-language", language)]).await
    }
}

/// Sends a request in its own task.
pub(super) fn spawn_get(
    world: &Arc<GatedUpstream>,
    headers: &'static [(&'static str, &'static str)],
) -> JoinHandle<Reply> {
    let gated = Arc::clone(world);
    tokio::spawn(async move { gated.world.get_with(LABELS, headers).await })
}

pub(super) fn text(reply: &Reply) -> &str {
    std::str::from_utf8(&reply.body).unwrap()
}

/// A response in the language of the request, or a 304 for its `ETag`.
fn varying(
    headers: &HeaderMap,
    vary_of_200: &str,
    vary_of_304: &str,
    more: &str,
) -> Response<Bytes> {
    let language = header(headers, "accept-language").to_owned();
    let is_known = header(headers, "if-none-match") == "\"it\"";
    let vary = if is_known { vary_of_304 } else { vary_of_200 };
    let response = Response::builder()
        .status(if is_known { 304 } else { 200 })
        .header("etag", "\"it\"")
        .header("cache-control", more);
    let response = if vary.is_empty() { response } else { response.header("vary", vary) };
    response.body(if is_known { Bytes::new() } else { language.into() }).unwrap()
}

#[tokio::test]
async fn the_vary_of_a_304_holds_from_then_on() {
    for (config, vary, cache_control) in [
        (PLAIN, "Accept-Language", "max-age=60"),
        (PLAIN, "*", "max-age=60"),
        (REVALIDATED, "Accept-Language", "private"),
        (REVALIDATED, "*", "private"),
    ] {
        let gated =
            GatedUpstream::free(config, move |headers| varying(headers, "", vary, cache_control))
                .await;
        assert_eq!(text(&gated.get("en").await), "en", "{vary}");
        gated.world.clock.advance(Duration::from_mins(2));
        assert_eq!(text(&gated.get("en").await), "en", "{vary}");
        assert_eq!(gated.origin.last().status, 304, "{config} {vary}");
        assert_eq!(text(&gated.get("de").await), "de", "{config} {vary}");
    }
}

#[tokio::test]
async fn a_follower_fetches_itself_when_a_304_changes_vary() {
    let gated = Arc::new(
        GatedUpstream::new(REVALIDATED, 1, |headers| {
            varying(headers, "", "Accept-Language", "private")
        })
        .await,
    );
    gated.get("en").await;
    let english = spawn_get(&gated, &[("accept-language", "en")]);
    let german = spawn_get(&gated, &[("accept-language", "de")]);
    gated.world.all_waiting_for_one_fetch(2).await;
    gated.turns.add_permits(2);
    assert_eq!((text(&english.await.unwrap()), text(&german.await.unwrap())), ("en", "de"));
}

#[tokio::test]
async fn a_shared_body_is_joined_only_by_matching_requests() {
    let long = |headers: &HeaderMap| {
        let body = header(headers, "accept-language").repeat(10_000);
        Response::builder().header("vary", "Accept-Language").body(body.into()).unwrap()
    };
    for config in [PLAIN, REVALIDATED] {
        let gated = Arc::new(GatedUpstream::new(config, 0, long).await);
        let english = spawn_get(&gated, &[("accept-language", "en")]);
        gated.world.all_waiting_for_one_fetch(1).await;
        let german = spawn_get(&gated, &[("accept-language", "de")]);
        gated.world.all_waiting_for_one_fetch(2).await;
        english.abort();
        gated.world.all_waiting_for_one_fetch(1).await;
        gated.turns.add_permits(2);
        assert!(text(&german.await.unwrap()).starts_with("de"), "{config}");
    }
}

#[tokio::test]
async fn a_no_store_response_serves_its_requester_only() {
    for config in [PLAIN, REVALIDATED] {
        let gated = GatedUpstream::new(config, 0, |headers| {
            let response = Response::builder()
                .header("cache-control", "private, no-store")
                .header("set-cookie", "session=1");
            response.body(header(headers, "accept-language").to_owned().into()).unwrap()
        });
        let gated = Arc::new(gated.await);
        let one = spawn_get(&gated, &[("accept-language", "one")]);
        gated.world.all_waiting_for_one_fetch(1).await;
        let other = spawn_get(&gated, &[("accept-language", "other")]);
        gated.world.all_waiting_for_one_fetch(2).await;
        gated.turns.add_permits(2);
        assert_eq!(
            (text(&one.await.unwrap()), text(&other.await.unwrap())),
            ("one", "other"),
            "{config}"
        );
        assert_eq!(gated.origin.exchanges().len(), 2);
    }
}

#[tokio::test]
async fn vary_selects_by_every_header_that_the_upstream_sees() {
    for (name, values) in [
        ("x-requested-with", ["a", "b"]),
        ("x-github-otp", ["123", "456"]),
        ("x-github-api-version", ["2022-11-28", "2026-03-10"]),
        ("x-service-api-version", ["2022-11-28", "2026-03-10"]),
        ("accept-language", ["en", "de"]),
    ] {
        let gated = GatedUpstream::free(PLAIN, move |headers| {
            let body = format!("seen: {}", header(headers, name));
            Response::builder()
                .header("vary", name)
                .header("cache-control", "max-age=60")
                .body(body.into())
                .unwrap()
        })
        .await;
        let mut seen = Vec::new();
        for value in values {
            let reply = gated.world.get_with(LABELS, &[(name, value)]).await;
            seen.push((text(&reply).to_owned(), format!("seen: {value}")));
        }
        let is_distinguished = seen.iter().all(|(got, own)| got == own);
        assert!(
            is_distinguished || seen.iter().all(|(got, _)| got == "seen: "),
            "{name}: {seen:?}"
        );
    }
}

#[tokio::test]
async fn the_conditions_of_a_write_reach_the_upstream() {
    let gated = GatedUpstream::free(REVALIDATED, |_| {
        Response::builder().status(412).body(Bytes::new()).unwrap()
    })
    .await;
    for (name, value) in [
        ("if-match", "\"old\""),
        ("if-none-match", "*"),
        ("if-unmodified-since", "Tue, 01 Jul 2025 00:00:00 GMT"),
    ] {
        for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::POST] {
            let headers = [("authorization", &*format!("Bearer {KEY}")), (name, value)];
            // The spacing of writes passes.
            gated.world.clock.advance(Duration::from_secs(10));
            gated
                .world
                .send(method.clone(), "/repos/acme/widgets/contents/a", &headers, "{}")
                .await
                .assert_status(412);
            assert_eq!(gated.origin.last().header(name), value, "{method}");
        }
    }
}

#[tokio::test]
async fn a_client_with_a_large_body_gets_a_304() {
    let gated = GatedUpstream::free(REVALIDATED, |_| {
        Response::builder().header("etag", "\"long\"").body("x".repeat(10_000).into()).unwrap()
    })
    .await;
    let reply = gated.world.get_with(LABELS, &[("if-none-match", "\"long\"")]).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (304, 0));
    assert_eq!(
        gated.world.get_with(LABELS, &[("if-none-match", "\"other\"")]).await.body.len(),
        10_000
    );
}

#[tokio::test]
async fn a_stored_response_replaces_a_failure_where_configured() {
    for status in [500, 502, 503, 504] {
        let turns = Arc::new(Semaphore::new(1));
        let gated = GatedUpstream::free(REVALIDATED, move |_| {
            let is_well = turns.try_acquire().is_ok_and(|turn| {
                turn.forget();
                true
            });
            Response::builder()
                .status(if is_well { 200 } else { status })
                .body("it".into())
                .unwrap()
        })
        .await;
        gated.get("en").await.assert_status(200);
        let reply =
            gated.world.get_with(LABELS, &[("accept-language", "en"), ("prefer", "wait=0")]).await;
        assert_eq!(
            (reply.status.as_u16(), text(&reply), reply.cache_status()),
            (200, "it", "weir; hit; detail=stale-if-error"),
            "{status}"
        );
        // Another client without a stored response sees the failure.
        let other = [("authorization", &*format!("Bearer {OTHER_KEY}")), ("prefer", "wait=0")];
        gated
            .world
            .send(Method::GET, "/repos/acme/widgets/milestones", &other, "")
            .await
            .assert_status(status);
    }
}

#[tokio::test]
async fn transit_time_counts_as_age_in_rfc9111() {
    let gated = GatedUpstream::new(PLAIN, 0, |_| {
        Response::builder().header("cache-control", "max-age=2").body("it".into()).unwrap()
    })
    .await;
    let gated = Arc::new(gated);
    let slow = spawn_get(&gated, &[]);
    gated.world.all_waiting_for_one_fetch(1).await;
    gated.world.clock.advance(Duration::from_secs(3));
    gated.turns.add_permits(2);
    slow.await.unwrap().assert_status(200);
    gated.world.get(LABELS).await.assert_status(200);
    assert_eq!(gated.origin.exchanges().len(), 2, "it came too old to be used again");
}

#[tokio::test]
async fn a_set_cookie_is_not_repeated_in_rfc9111() {
    for (cache_control, is_repeated) in [
        ("max-age=60", true),
        ("private", false),
        ("private=\"Set-Cookie\", max-age=60", false),
        ("private, s-maxage=60", false),
    ] {
        let gated = GatedUpstream::free(PLAIN, move |_| {
            let response = Response::builder()
                .header("cache-control", cache_control)
                .header("set-cookie", "session=1");
            response.body("it".into()).unwrap()
        })
        .await;
        for _ in 0..2 {
            assert_eq!(
                gated.get("en").await.header("set-cookie").is_some(),
                is_repeated,
                "{cache_control}"
            );
        }
    }
}

#[tokio::test]
async fn each_variant_is_stored_and_revalidated_by_itself() {
    let respond =
        |headers: &HeaderMap| varying(headers, "Accept-Language", "Accept-Language", "private");
    let gated = GatedUpstream::free(REVALIDATED, respond).await;
    for round in 0..5 {
        for language in ["en", "de", "fr"] {
            assert_eq!(text(&gated.get(language).await), language);
            assert_eq!(
                gated.origin.last().status,
                if round == 0 { 200 } else { 304 },
                "{language}"
            );
        }
    }
    let gated = Arc::new(GatedUpstream::new(REVALIDATED, 1, respond).await);
    gated.get("en").await;
    let others =
        [[("accept-language", "de")], [("accept-language", "fr")], [("accept-language", "en")]]
            .map(|language| {
                let language: &'static [(&str, &str)] = Box::leak(Box::new(language));
                spawn_get(&gated, language)
            });
    // No request waits for another's: all are upstream at once.
    gated.turns.add_permits(2);
    crate::support::eventually(|| gated.origin.exchanges().len() == 3).await;
    gated.turns.add_permits(1);
    for other in others {
        other.await.unwrap().assert_status(200);
    }
    assert_eq!(gated.origin.exchanges().len(), 4);
}
