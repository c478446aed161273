//! The mode `rfc9111` as today's public suite wants it: storable statuses, lifetimes, targeted
//! directives, revalidation in the background, shared views, parts, `Date` and `Via`. Policy has
//! its tests in `src/decision/cache/`; these show that it is in force.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::support::origin::{Origin, header};
use crate::support::{KEY, OTHER_KEY, Reply, Setup, World, config, eventually};

const ISSUES: &str = "/repos/acme/widgets/issues";
const LABELS: &str = "/repos/acme/widgets/labels";
const FILE: &str = "/repos/acme/widgets/contents/a";

type Pairs = &'static [(&'static str, &'static str)];

/// A response with these headers.
fn reply(status: u16, headers: Pairs, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

/// A gateway of this setup before an upstream that answers by the head of each request.
async fn behind(
    setup: Setup,
    answer: impl Fn(&Method, &HeaderMap) -> Response<Bytes> + Send + Sync + 'static,
) -> (World, Origin) {
    let answer = Arc::new(answer);
    let origin = Origin::start(move |request: Request<()>| {
        let answer = Arc::clone(&answer);
        async move { answer(request.method(), request.headers()) }
    })
    .await;
    let world = setup.upstream(origin.url()).manual_clock().unspaced_writes().start().await;
    (world, origin)
}

/// The same for a shared cache before one constant response.
async fn constant(status: u16, headers: Pairs) -> (World, Origin) {
    behind(Setup::new().rfc9111(), move |_, _| reply(status, headers, "it")).await
}

/// The requests upstream for two of a client.
async fn requests_for_two(status: u16, headers: Pairs) -> usize {
    let (world, origin) = constant(status, headers).await;
    for _ in 0..2 {
        world.get(ISSUES).await.assert_status(status);
    }
    origin.exchanges().len()
}

#[tokio::test]
async fn a_final_status_with_a_lifetime_is_stored() {
    for status in [200, 203, 299, 301, 302, 307, 400, 404, 410, 499, 500, 503, 599] {
        assert_eq!(
            requests_for_two(status, &[("cache-control", "max-age=60")]).await,
            1,
            "{status}"
        );
    }
    for status in [299, 302, 400, 500, 599] {
        assert_eq!(requests_for_two(status, &[]).await, 2, "{status}");
    }
    let understood: Pairs = &[("cache-control", "max-age=60, no-store, must-understand")];
    assert_eq!(requests_for_two(200, understood).await, 1);
    assert_eq!(requests_for_two(599, understood).await, 2);
}

#[tokio::test]
async fn a_failure_with_a_lifetime_replaces_no_success() {
    let setup = Setup::new().rfc9111();
    let (world, origin) = behind(setup, |_, headers| match header(headers, "if-none-match") {
        "" => reply(200, &[("cache-control", "max-age=60"), ("etag", "\"a\"")], "it"),
        _ => reply(503, &[("cache-control", "max-age=600")], "down"),
    })
    .await;
    world.get(ISSUES).await.assert_status(200);
    for requests in 2..4 {
        world.clock.advance(Duration::from_mins(2));
        world.get(ISSUES).await.assert_status(503);
        assert_eq!(origin.exchanges().len(), requests, "the answer with its validator is kept");
    }
}

#[tokio::test]
async fn an_age_that_is_no_number_is_ignored() {
    for (age, requests) in
        [("abc", 1), ("-1", 1), ("7200.0", 1), ("0, 7200", 1), ("7200", 2), ("7200, 0", 2)]
    {
        let headers: Pairs = Box::leak(Box::new([("cache-control", "max-age=3600"), ("age", age)]));
        assert_eq!(requests_for_two(200, headers).await, requests, "{age}");
    }
}

#[tokio::test]
async fn a_targeted_field_replaces_cache_control() {
    const TARGET: &str = "cdn-cache-control";
    for (headers, requests) in [
        (&[(TARGET, "max-age=60"), ("cache-control", "no-store")][..], 1),
        (&[(TARGET, "max-age=60;x=1, y=(1 2)"), ("cache-control", "max-age=0")], 1),
        (&[(TARGET, "max-age=0"), (TARGET, "max-age=60")], 1),
        (&[(TARGET, "no-store"), ("cache-control", "max-age=60")], 2),
        (&[(TARGET, "private"), ("cache-control", "max-age=60")], 2),
        (&[(TARGET, "max-age=60, &"), ("cache-control", "no-store")], 2),
    ] {
        assert_eq!(requests_for_two(200, headers).await, requests, "{headers:?}");
    }
    let (world, origin) = behind(Setup::new(), |_, _| {
        reply(200, &[("cdn-cache-control", "max-age=60"), ("cache-control", "no-store")], "it")
    })
    .await;
    for _ in 0..2 {
        assert_eq!(world.get(ISSUES).await.cache_status(), "weir; fwd=uri-miss");
    }
    assert_eq!(origin.exchanges().len(), 2, "it has no meaning in the mode revalidate");
}

#[tokio::test]
async fn a_304_changes_no_targeted_lifetime_by_cache_control() {
    let setup = Setup::new().rfc9111();
    let (world, origin) = behind(setup, |_, headers| match header(headers, "if-none-match") {
        "" => {
            let headers: Pairs = &[("cdn-cache-control", "max-age=60"), ("etag", "\"a\"")];
            reply(200, headers, "it")
        }
        _ => reply(304, &[("cache-control", "max-age=0")], ""),
    })
    .await;
    for requests in [1, 1, 2, 2] {
        world.get(ISSUES).await.assert_status(200);
        assert_eq!(origin.exchanges().len(), requests);
        world.clock.advance(Duration::from_secs(30));
    }
}

#[tokio::test]
async fn a_lifetime_is_guessed_only_by_a_shared_cache() {
    let changed: Pairs = &[("last-modified", "Tue, 01 Jul 2025 00:00:00 GMT"), ("etag", "\"a\"")];
    assert_eq!(requests_for_two(200, changed).await, 1);
    assert_eq!(requests_for_two(404, changed).await, 1);
    let private: Pairs = Box::leak(Box::new([changed[0], ("cache-control", "private")]));
    assert_eq!(requests_for_two(200, private).await, 2);
    let (world, origin) = behind(Setup::new(), move |_, _| reply(200, changed, "it")).await;
    for _ in 0..2 {
        world.get(ISSUES).await.assert_status(200);
    }
    assert_eq!(origin.exchanges().len(), 2);
}

/// An upstream with `stale-while-revalidate`, which waits for permission from the second request
/// on.
async fn lingering() -> (Arc<World>, Arc<Origin>, Arc<Semaphore>) {
    let turns = Arc::new(Semaphore::new(1));
    let theirs = Arc::clone(&turns);
    let origin = Origin::start(move |_| {
        let turns = Arc::clone(&theirs);
        async move {
            turns.acquire().await.unwrap().forget();
            reply(200, &[("cache-control", "max-age=10, stale-while-revalidate=60")], "it")
        }
    })
    .await;
    let setup = Setup::new().rfc9111().upstream(origin.url()).manual_clock().unspaced_writes();
    (Arc::new(setup.start().await), Arc::new(origin), turns)
}

const STALE: &str = "weir; hit; detail=stale-while-revalidate";

#[tokio::test]
async fn a_stale_response_is_served_while_it_is_revalidated() {
    let (world, origin, turns) = lingering().await;
    world.get(ISSUES).await.assert_fetched_and_stored();
    world.clock.advance(Duration::from_secs(20));
    for _ in 0..5 {
        let stale = world.get(ISSUES).await;
        assert_eq!((stale.cache_status(), stale.header("age")), (STALE, Some("20")));
        assert_eq!(stale.header("x-from-cache"), Some("1"));
    }
    turns.add_permits(1);
    eventually(|| origin.exchanges().len() == 2).await;
    // The stored response is replaced a moment after the upstream has sent it.
    while world.get(ISSUES).await.cache_status() != "weir; hit" {}
    assert_eq!(origin.exchanges().len(), 2, "one revalidation for all");
    let metrics = world.gateway.env.metrics.encode();
    assert!(metrics.contains("weir_background_revalidations_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_stale_response_is_not_served_after_its_window() {
    let (world, origin, turns) = lingering().await;
    turns.add_permits(10);
    world.get(ISSUES).await.assert_fetched_and_stored();
    world.clock.advance(Duration::from_secs(71));
    assert_eq!(world.get(ISSUES).await.cache_status(), "weir; fwd=stale; fwd-status=200");
    world.clock.advance(Duration::from_secs(20));
    // A client may insist, and a write of its own may have changed the response.
    for directive in ["no-cache", "max-age=5", "min-fresh=1"] {
        let strict = world.get_with(ISSUES, &[("cache-control", directive)]).await;
        assert_ne!(strict.cache_status(), STALE, "{directive}");
        world.clock.advance(Duration::from_secs(20));
    }
    let before = origin.exchanges().len();
    world.send(Method::POST, ISSUES, &[], "{}").await.assert_status(200);
    assert_eq!(world.get(ISSUES).await.cache_status(), "weir; fwd=stale; fwd-status=200");
    assert_eq!(origin.exchanges().len(), before + 2);
}

#[tokio::test]
async fn the_date_of_a_stored_response_is_the_upstreams() {
    const FIRST: &str = "Fri, 15 Jan 2027 08:00:00 GMT";
    const SECOND: &str = "Fri, 15 Jan 2027 08:02:00 GMT";
    let setup = Setup::new().rfc9111();
    let (world, _) = behind(setup, |_, headers| match header(headers, "if-none-match") {
        "" => {
            let headers: Pairs =
                &[("cache-control", "max-age=60"), ("etag", "\"a\""), ("date", FIRST)];
            reply(200, headers, "it")
        }
        _ => reply(304, &[("date", SECOND)], ""),
    })
    .await;
    let date = |reply: Reply| {
        assert_eq!(reply.headers.get_all("date").iter().count(), 1);
        reply.header("date").unwrap().to_owned()
    };
    for _ in 0..2 {
        assert_eq!(date(world.get(ISSUES).await), FIRST);
    }
    assert_eq!(date(world.get_with(ISSUES, &[("if-none-match", "\"a\"")]).await), FIRST);
    world.clock.advance(Duration::from_mins(2));
    for _ in 0..2 {
        assert_eq!(date(world.get(ISSUES).await), SECOND, "a 304 brings its own");
    }
    let refused = world.get_with(ISSUES, &[("if-match", "\"b\"")]).await;
    assert_eq!(refused.status, 412);
    assert_ne!(date(refused), SECOND, "the refusal is the gateway's");
}

#[tokio::test]
async fn messages_carry_the_via_of_a_shared_cache() {
    let (world, origin) =
        constant(200, &[("cache-control", "max-age=60"), ("via", "1.1 cdn")]).await;
    for _ in 0..2 {
        let reply = world.get_with(ISSUES, &[("via", "1.1 office")]).await;
        let via: Vec<_> = reply.headers.get_all("via").iter().collect();
        assert_eq!(via, ["1.1 cdn", "1.1 weir"]);
    }
    assert_eq!(origin.last().header("via"), "1.1 weir");
    let (world, origin) = behind(Setup::new(), |_, _| reply(200, &[], "it")).await;
    assert_eq!(world.get(ISSUES).await.header("via"), None);
    assert_eq!(origin.last().header("via"), "");
}

#[tokio::test]
async fn selecting_headers_are_compared_by_meaning() {
    for (vary, one, other, requests) in [
        ("foo", "1,2", " 1 , 2", 1),
        ("foo", "1", "2", 2),
        ("accept-language", "en, de", "de,  EN", 1),
        ("accept-language", "en, de", "fr;q=0.5, de", 1),
        ("accept-language", "en, de", "fr, de;q=0.5", 2),
    ] {
        let headers: Pairs = Box::leak(Box::new([
            ("cache-control", "max-age=60"),
            ("vary", vary),
            ("content-language", "de"),
        ]));
        let (world, origin) = constant(200, headers).await;
        for value in [one, other] {
            world.get_with(ISSUES, &[(vary, value)]).await.assert_status(200);
        }
        assert_eq!(origin.exchanges().len(), requests, "{vary}: {one}; {other}");
    }
}

#[tokio::test]
async fn an_error_response_to_a_write_invalidates_nothing() {
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        for status in [400, 422, 500, 503] {
            let answer = move |method: &Method, _: &HeaderMap| match *method {
                Method::GET => reply(200, &[("cache-control", "max-age=60")], "it"),
                _ => reply(status, &[], "no"),
            };
            let (world, origin) = behind(Setup::new().rfc9111(), answer).await;
            world.get(FILE).await.assert_status(200);
            world.send(method.clone(), FILE, &[], "{}").await.assert_status(status);
            world.get(FILE).await.assert_hit();
            assert_eq!(origin.exchanges().len(), 2, "{method} {status}");
        }
    }
}

/// The credentials of two clients of their own, and the pool.
const OWN: [&str; 2] = ["Bearer one", "Bearer two"];

async fn get_as(world: &World, path: &str, credential: &str) -> Reply {
    world.get_with(path, &[("x-weir-key", KEY), ("authorization", credential)]).await
}

#[tokio::test]
async fn a_response_meant_for_all_is_shared_between_views() {
    for (cache_control, shared) in [
        ("max-age=60, public", true),
        ("max-age=60, must-revalidate", true),
        ("s-maxage=60", true),
        ("max-age=60", false),
        ("max-age=60, private", false),
        ("s-maxage=60, private", false),
        ("max-age=60, public, no-store", false),
        ("max-age=0, public", false),
    ] {
        for (path, vary, shared) in [
            (LABELS, "accept", shared),
            (LABELS, "Accept, Authorization", false),
            ("/user", "accept", false),
            ("/user/issues", "accept", false),
        ] {
            let headers: Pairs =
                Box::leak(Box::new([("cache-control", cache_control), ("vary", vary)]));
            let setup = Setup::new().rfc9111().config("[passthrough]\nenabled = true");
            let (world, origin) = behind(setup, move |_, sent| {
                reply(200, headers, header(sent, "authorization").to_owned())
            })
            .await;
            assert_eq!(get_as(&world, path, OWN[0]).await.body, OWN[0]);
            let other = get_as(&world, path, OWN[1]).await.body;
            let expected = if shared { OWN[0] } else { OWN[1] };
            assert_eq!(other, expected, "{path}: {cache_control}");
            let pools = world.get(path).await.body;
            assert_eq!(pools == OWN[0], shared, "{path}: {cache_control}");
            assert_ne!(pools, OWN[1], "{path}: {cache_control}");
            assert_eq!(origin.exchanges().len(), if shared { 1 } else { 3 });
        }
    }
}

#[tokio::test]
async fn a_response_that_becomes_private_is_shared_no_more() {
    let is_public = Arc::new(Mutex::new(true));
    let theirs = Arc::clone(&is_public);
    let setup = Setup::new().rfc9111().config("[passthrough]\nenabled = true");
    let (world, _) = behind(setup, move |_, sent| {
        let control = if *theirs.lock() { "max-age=60, public" } else { "max-age=60, private" };
        let body = Bytes::from(header(sent, "authorization").to_owned());
        Response::builder().header("cache-control", control).body(body).unwrap()
    })
    .await;
    assert_eq!(get_as(&world, LABELS, OWN[0]).await.body, OWN[0]);
    *is_public.lock() = false;
    let again = [("x-weir-key", KEY), ("authorization", OWN[0]), ("cache-control", "no-cache")];
    assert_eq!(world.get_with(LABELS, &again).await.body, OWN[0]);
    assert_eq!(get_as(&world, LABELS, OWN[1]).await.body, OWN[1]);
}

/// The second response to a client that asks again with these directives.
const WITHDRAWALS: [(&str, u16, Pairs, &str); 5] = [
    ("no-cache", 304, &[("etag", "\"1\""), ("cache-control", "no-store")], ""),
    ("no-cache", 304, &[("etag", "\"1\""), ("vary", "*")], ""),
    ("no-cache, no-store", 304, &[("etag", "\"1\""), ("cache-control", "private")], ""),
    ("no-cache, no-store", 200, &[("cache-control", "private")], "new"),
    ("no-cache", 200, &[("cache-control", "private")], LONG),
];
/// Too long to be stored.
const LONG: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn a_withdrawn_response_is_shared_no_more() {
    for (directives, status, headers, body) in WITHDRAWALS {
        let asked = Arc::new(Mutex::new(0));
        let setup = Setup::new().rfc9111().cache("max_object = \"24B\"");
        let (world, _) = behind(setup.config("[passthrough]\nenabled = true"), move |_, _| {
            *asked.lock() += 1;
            match *asked.lock() {
                1 => {
                    let first: Pairs =
                        &[("cache-control", "public, max-age=60"), ("etag", "\"1\"")];
                    reply(200, first, "old")
                }
                2 => reply(status, headers, body),
                _ => reply(200, &[("cache-control", "private")], "newest"),
            }
        })
        .await;
        assert_eq!(get_as(&world, LABELS, OWN[0]).await.body, "old");
        let again = [("x-weir-key", KEY), ("authorization", OWN[0]), ("cache-control", directives)];
        world.get_with(LABELS, &again).await.assert_status(200);
        let other = get_as(&world, LABELS, OWN[1]).await.body;
        assert_eq!(other, "newest", "{directives}: {status} {headers:?}");
        // A response that is private now stays in the view that it was confirmed for.
        let own = get_as(&world, LABELS, OWN[0]).await.body;
        let expected =
            if headers[1..] == [("cache-control", "private")] { "old" } else { "newest" };
        assert_eq!(own, expected, "{directives}: {status} {headers:?}");
    }
}

#[tokio::test]
async fn a_cache_status_tells_why_a_request_went_upstream() {
    let setup = Setup::new().rfc9111();
    let (world, _) = behind(setup, |_, headers| {
        let known: Pairs =
            &[("cache-control", "max-age=60"), ("etag", "\"a\""), ("vary", "x-kind")];
        reply(if header(headers, "if-none-match") == "\"a\"" { 304 } else { 200 }, known, "it")
    })
    .await;
    for (name, value, status) in [
        ("x-kind", "one", "weir; fwd=uri-miss; stored"),
        ("x-kind", "one", "weir; hit"),
        ("x-kind", "two", "weir; fwd=vary-miss; stored"),
        ("x-kind", "two", "weir; hit"),
        ("cache-control", "no-cache", "weir; fwd=vary-miss; stored"),
        ("cache-control", "no-cache", "weir; fwd=request; fwd-status=304"),
    ] {
        assert_eq!(world.get_with(ISSUES, &[(name, value)]).await.cache_status(), status);
    }
    world.clock.advance(Duration::from_mins(2));
    let stale = world.get_with(ISSUES, &[("cache-control", "no-cache")]).await;
    assert_eq!(stale.cache_status(), "weir; fwd=stale; fwd-status=304");
}

#[tokio::test]
async fn an_anonymous_response_stays_in_its_view() {
    let text = config::user("ada", "token-of-ada")
        + &config::account("nobody", "anonymous", "")
        + &config::pool("members", &["ada"])
        + &config::pool("others", &["nobody"])
        + &config::client("ci", KEY, "reads = \"members\"")
        + &config::client("other", OTHER_KEY, "reads = \"others\"");
    let credential = "Bearer token-of-ada";
    let (world, origin) = behind(Setup::new().rfc9111().credentials(text), |_, sent| {
        let headers: Pairs = match header(sent, "authorization") {
            "" => &[("cache-control", "public, max-age=60"), ("vary", "Accept")],
            _ => &[("cache-control", "private, s-maxage=60"), ("vary", "Accept, Authorization")],
        };
        reply(200, headers, header(sent, "authorization").to_owned())
    })
    .await;
    let other_key = format!("Bearer {OTHER_KEY}");
    let anonymous = [("authorization", other_key.as_str())];
    for _ in 0..2 {
        assert_eq!(world.get_with(ISSUES, &anonymous).await.body, "");
        assert_eq!(world.get(ISSUES).await.body, credential);
    }
    assert_eq!(origin.exchanges().len(), 2, "each view stores its own");
}

#[tokio::test]
async fn a_part_is_stored_and_serves_ranges_within_it() {
    let (world, origin) =
        behind(Setup::new().rfc9111(), |_, headers| match header(headers, "range") {
            "bytes=4-" => {
                let headers: Pairs =
                    &[("cache-control", "max-age=60"), ("content-range", "bytes 4-9/10")];
                reply(206, headers, "456789")
            }
            _ => reply(200, &[("cache-control", "max-age=60")], "0123456789"),
        })
        .await;
    for (range, bytes, named, requests) in [
        ("bytes=4-", "456789", "bytes 4-9/10", 1),
        ("bytes=4-", "456789", "bytes 4-9/10", 1),
        ("bytes=6-8", "678", "bytes 6-8/10", 1),
        ("bytes=-1", "9", "bytes 9-9/10", 1),
        ("bytes=3-4", "34", "bytes 3-4/10", 2),
        ("bytes=0-1", "01", "bytes 0-1/10", 2),
    ] {
        let part = world.get_with(FILE, &[("range", range)]).await;
        assert_eq!((part.status.as_u16(), &part.body[..]), (206, bytes.as_bytes()), "{range}");
        assert_eq!(part.header("content-range"), Some(named));
        assert_eq!(part.number("content-length"), bytes.len() as u64);
        assert_eq!(origin.exchanges().len(), requests, "{range}");
    }
    let whole = world.get(FILE).await;
    assert_eq!((whole.status.as_u16(), &whole.body[..]), (200, &b"0123456789"[..]));
    assert_eq!(origin.exchanges().len(), 2, "the upstream sent it for the fifth range");
}

#[tokio::test]
async fn a_part_never_answers_a_request_for_the_whole() {
    let (world, origin) = behind(Setup::new().rfc9111(), |_, headers| {
        if header(headers, "range").is_empty() {
            return reply(200, &[("cache-control", "max-age=60")], "0123456789");
        }
        let part: Pairs = &[("cache-control", "max-age=60"), ("content-range", "bytes 4-5/10")];
        reply(206, part, "45")
    })
    .await;
    world.get_with(FILE, &[("range", "bytes=4-5")]).await.assert_status(206);
    assert_eq!(&world.get(FILE).await.body[..], b"0123456789");
    let part = world.get_with(FILE, &[("range", "bytes=1-2")]).await;
    assert_eq!((&part.body[..], origin.exchanges().len()), (&b"12"[..], 2));
    // A condition may ask for the whole, and a write ends a part like any other response.
    let (path, range) = ("/repos/acme/widgets/contents/b", ("range", "bytes=4-5"));
    world.get_with(path, &[range, ("if-range", "\"a\"")]).await.assert_status(200);
    assert_eq!(origin.last().header("range"), "");
    let path = "/repos/acme/widgets/contents/c";
    world.get_with(path, &[range]).await.assert_status(206);
    world.get_with(path, &[range]).await.assert_hit();
    world.send(Method::PUT, path, &[], "{}").await.assert_status(200);
    assert_ne!(world.get_with(path, &[range]).await.cache_status(), "weir; hit");
}

#[tokio::test]
async fn a_304_of_a_stored_part_has_no_content_range() {
    let (world, origin) = behind(Setup::new().rfc9111(), |_, _| {
        let part: Pairs = &[
            ("cache-control", "max-age=60"),
            ("content-range", "bytes 4-9/10"),
            ("etag", "\"a\""),
        ];
        reply(206, part, "456789")
    })
    .await;
    for _ in 0..2 {
        let part = world.get_with(FILE, &[("range", "bytes=4-9")]).await;
        assert_eq!(&part.body[..], b"456789");
    }
    let condition = [("range", "bytes=4-9"), ("if-none-match", "\"a\"")];
    let unchanged = world.get_with(FILE, &condition).await;
    assert_eq!((unchanged.status.as_u16(), unchanged.header("content-range")), (304, None));
    assert_eq!(origin.exchanges().len(), 1);
}

#[tokio::test]
async fn a_part_of_json_is_replaced_by_the_whole() {
    const SECRET: &str = r#"{"temp_clone_token":"secret","a":1}"#;
    let (world, origin) = behind(Setup::new().rfc9111(), |_, headers| {
        let json: Pairs = &[("content-type", "application/json"), ("cache-control", "max-age=60")];
        if header(headers, "range").is_empty() {
            return reply(200, json, SECRET);
        }
        let mut part = reply(206, json, &SECRET[20..30]);
        part.headers_mut().insert("content-range", "bytes 20-29/35".parse().unwrap());
        part
    })
    .await;
    let part = world.get_with(FILE, &[("range", "bytes=20-29")]).await;
    part.assert_status(206);
    assert!(!String::from_utf8_lossy(&part.body).contains("secret"), "{part:?}");
    assert_eq!(origin.exchanges().len(), 2);
    let (world, origin) = behind(Setup::new(), |_, _| reply(200, &[], "0123456789")).await;
    world.get_with(FILE, &[("range", "bytes=4-5")]).await.assert_status(206);
    assert_eq!(origin.last().header("range"), "", "the mode revalidate fetches the whole");
}
