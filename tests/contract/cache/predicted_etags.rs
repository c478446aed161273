//! `predicted_etags`: a token revalidates with the `ETag` that it would have received, on routes
//! where the prediction has proven right and nowhere else (SPECIFICATION D3).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use parking_lot::Mutex;
use weir::clock::Timestamp;
use weir::config::digest_hex;

use crate::auth::apps;
use crate::support::origin::{Exchange, Origin, header, token};
use crate::support::{Reply, Setup, World};

const PREDICTED: &str = "[cache]\npredicted_etags = true";
const DATE: &str = "Tue, 01 Jul 2025 00:00:00 GMT";
/// The number of responses that prove a route.
const PROVED_BY: usize = 5;
/// A list that no request has named before.
const NEVER_FETCHED: &str = "/repos/acme/widgets/labels?per_page=7";
/// The token of the first account, with little budget left after its first response.
const POOR: &str = "token-of-poor";
/// The token of the other account, which serves everything else.
const RICH: &str = "token-of-rich";

/// The behaviour of the upstream.
#[derive(Clone)]
struct Manner {
    /// The text of the `ETag` for a request and a body.
    form: fn(&HeaderMap, &[u8]) -> String,
    /// The body of a path for a token.
    body: fn(&str, &str) -> String,
    dated: bool,
    /// The `ETag` of its 304s; `None` for that of the response.
    named: Option<&'static str>,
    /// Every `ETag` matches.
    always_304: bool,
    remaining_of_rich: u32,
}

impl Manner {
    fn observed() -> Self {
        Self {
            form: observed,
            body: same_for_all,
            dated: false,
            named: None,
            always_304: false,
            remaining_of_rich: 4_000,
        }
    }

    fn answer(&self, request: &Request<()>, now: Timestamp) -> Response<Bytes> {
        let (headers, path) = (request.headers(), request.uri().to_string());
        let body = (self.body)(&path, token(headers));
        let etag = format!("\"{}\"", (self.form)(headers, body.as_bytes()));
        let condition = header(headers, "if-none-match");
        let is_known = if condition.is_empty() {
            self.dated && header(headers, "if-modified-since") == DATE
        } else {
            self.always_304 || condition == etag
        };
        let remaining = if token(headers) == POOR { 900 } else { self.remaining_of_rich };
        let mut response = Response::builder()
            .status(if is_known { 304 } else { 200 })
            .header("x-ratelimit-limit", "5000")
            .header("x-ratelimit-remaining", remaining)
            .header("x-ratelimit-used", "1")
            .header("x-ratelimit-reset", now.as_secs() + 3_600)
            .header("x-ratelimit-resource", "core");
        let named = if is_known { self.named.map_or(etag, str::to_owned) } else { etag };
        if !named.is_empty() {
            response = response.header("etag", named);
        }
        if self.dated {
            response = response.header("last-modified", DATE);
        }
        if !is_known {
            response = response.header("content-type", "application/json");
        }
        response.body(if is_known { Bytes::new() } else { body.into() }).unwrap()
    }
}

/// The observed form (SPECIFICATION, "Conditional requests in practice").
fn observed(request: &HeaderMap, body: &[u8]) -> String {
    let present =
        ["accept", "authorization", "cookie"].iter().filter_map(|name| request.get(*name));
    let mut text: Vec<u8> = present.flat_map(|value| [value.as_bytes(), b":"].concat()).collect();
    text.extend_from_slice(body);
    digest_hex(&text)
}

/// A form that depends on the token in another way.
fn another(request: &HeaderMap, body: &[u8]) -> String {
    digest_hex(&[body, header(request, "authorization").as_bytes()].concat())
}

fn same_for_all(path: &str, _: &str) -> String {
    format!(r#"[{{"name":"{path}"}}]"#)
}

fn different_for_each(path: &str, token: &str) -> String {
    format!(r#"[{{"name":"{path}","permissions":"{}"}}]"#, token.len() * usize::from(token == POOR))
}

fn changed(path: &str, _: &str) -> String {
    format!(r#"[{{"name":"{path}","color":"red"}}]"#)
}

fn with_secret(path: &str, _: &str) -> String {
    format!(r#"[{{"name":"{path}","temp_clone_token":"AB12"}}]"#)
}

/// The list of this path is empty.
fn one_empty(path: &str, token: &str) -> String {
    if path == NEVER_FETCHED { "[]".to_owned() } else { same_for_all(path, token) }
}

fn all_empty(_: &str, _: &str) -> String {
    "[]".to_owned()
}

fn objects(path: &str, _: &str) -> String {
    if path == NEVER_FETCHED { "[]".to_owned() } else { format!(r#"{{"name":"{path}"}}"#) }
}

fn page(number: usize) -> String {
    format!("/repos/acme/widgets/labels?page={number}")
}

/// A gateway with a pool of two tokens, and the upstream behind it.
struct Pair {
    world: World,
    origin: Origin,
    manner: Arc<Mutex<Manner>>,
}

impl Pair {
    async fn new(config: &str, manner: Manner) -> Self {
        let manner = Arc::new(Mutex::new(manner));
        let theirs = Arc::clone(&manner);
        let now = weir::clock::Clock::system().now();
        let origin = Origin::start(move |request| {
            let response = theirs.lock().answer(&request, now);
            async { response }
        })
        .await;
        let setup = Setup::new()
            .upstream(origin.url())
            .holder("poor", "user", &[("classic", POOR)], "")
            .holder("rich", "user", &[("classic", RICH)], "");
        Self { world: setup.config(config).start().await, origin, manner }
    }

    /// The same once the route is proven: the one token has fetched the first page, the other
    /// further ones.
    async fn after_proof(config: &str, manner: Manner) -> Self {
        let pair = Self::new(config, manner).await;
        for number in 1..=PROVED_BY {
            pair.world.get(&page(number)).await.assert_status(200);
        }
        let tokens: Vec<_> =
            pair.origin.exchanges().iter().map(|exchange| exchange.token().to_owned()).collect();
        assert_eq!(
            (tokens[0].as_str(), &tokens[1..]),
            (POOR, &[RICH; PROVED_BY - 1].map(str::to_owned)[..])
        );
        pair
    }

    /// Reads the first page again, by the other token. Returns the reply and the last upstream
    /// exchange.
    async fn first_page_again(&self) -> (Reply, Exchange) {
        let answer = self.world.get(&page(1)).await;
        let exchange = self.origin.last();
        assert_eq!(exchange.token(), RICH);
        (answer, exchange)
    }

    /// Reads a page that the other token fetched, by the first token, which now has more budget
    /// left. Returns the upstream exchange.
    async fn second_page_by_the_poor(&self) -> Exchange {
        self.change(|manner| manner.remaining_of_rich = 50);
        self.world.get(&page(99)).await.assert_status(200);
        self.world.get(&page(2)).await.assert_status(200);
        let exchange = self.origin.last();
        assert_eq!(exchange.token(), POOR);
        exchange
    }

    fn change(&self, change: impl FnOnce(&mut Manner)) {
        change(&mut self.manner.lock());
    }

    fn counted(&self, outcome: &str) -> bool {
        let series = format!(
            "weir_predicted_etags_total{{endpoint=\"/repos/{{owner}}/{{repo}}/labels\",outcome=\"{outcome}\"}} 1"
        );
        self.world.gateway.env.metrics.encode().lines().any(|line| line == series)
    }
}

#[tokio::test]
async fn nothing_is_predicted_unless_configured() {
    let pair = Pair::after_proof("", Manner::observed()).await;
    let (answer, exchange) = pair.first_page_again().await;
    assert_eq!(
        (exchange.header("if-none-match"), exchange.status, answer.cache_status()),
        ("", 200, "weir; fwd=stale; fwd-status=200")
    );
}

#[tokio::test]
async fn a_token_without_an_etag_revalidates_with_a_predicted_one() {
    let pair = Pair::after_proof(PREDICTED, Manner::observed()).await;
    let (answer, exchange) = pair.first_page_again().await;
    let predicted = exchange.header("if-none-match").to_owned();
    assert!(exchange.status == 304 && !predicted.is_empty(), "{exchange:?}");
    assert_eq!(
        (answer.cache_status(), answer.body.as_ref()),
        ("weir; fwd=stale; fwd-status=304", same_for_all(&page(1), "").as_bytes())
    );
    assert!(pair.counted("confirmed"));
    // Clients do not see the upstream's digest of a token.
    assert!(
        !format!("{answer:?}").contains(predicted.trim_matches('"'))
            && !answer.header("etag").unwrap().contains(&predicted)
    );
    // Now the `ETag` belongs to the token.
    let (_, again) = pair.first_page_again().await;
    assert_eq!((again.header("if-none-match"), again.status), (predicted.as_str(), 304));
    assert!(pair.counted("confirmed"), "it was predicted once");
}

#[tokio::test]
async fn a_304_without_an_etag_teaches_the_predicted_one() {
    let pair = Pair::after_proof(PREDICTED, Manner { named: Some(""), ..Manner::observed() }).await;
    let (_, exchange) = pair.first_page_again().await;
    let (_, again) = pair.first_page_again().await;
    assert_eq!(
        (exchange.status, again.status, again.header("if-none-match")),
        (304, 304, exchange.header("if-none-match"))
    );
    assert!(pair.counted("confirmed"));
}

#[tokio::test]
async fn no_prediction_is_sent_before_a_route_is_proven() {
    let pair = Pair::new(PREDICTED, Manner::observed()).await;
    for number in 1..PROVED_BY {
        pair.world.get(&page(number)).await.assert_status(200);
    }
    let (_, exchange) = pair.first_page_again().await;
    assert_eq!(exchange.header("if-none-match"), "");
}

#[tokio::test]
async fn other_etag_forms_are_never_predicted() {
    let pair = Pair::after_proof(PREDICTED, Manner { form: another, ..Manner::observed() }).await;
    for number in PROVED_BY + 1..40 {
        pair.world.get(&page(number)).await.assert_status(200);
    }
    let (answer, exchange) = pair.first_page_again().await;
    assert_eq!(
        (exchange.header("if-none-match"), exchange.status, answer.status.as_u16()),
        ("", 200, 200)
    );
}

#[tokio::test]
async fn a_wrong_prediction_is_the_last_of_its_route() {
    let pair = Pair::after_proof(PREDICTED, Manner::observed()).await;
    pair.change(|manner| manner.form = another);
    let (answer, exchange) = pair.first_page_again().await;
    assert!(exchange.status == 200 && !exchange.header("if-none-match").is_empty(), "{exchange:?}");
    assert_eq!(answer.body, same_for_all(&page(1), ""));
    assert!(pair.counted("wrong"));
    // Even if the old form returns, for hours.
    pair.change(|manner| manner.form = observed);
    let exchange = pair.second_page_by_the_poor().await;
    assert_eq!((exchange.header("if-none-match"), exchange.status), ("", 200));
    assert!(!pair.counted("confirmed"));
}

#[tokio::test]
async fn a_prediction_for_a_changed_resource_disproves_nothing() {
    let pair = Pair::after_proof(PREDICTED, Manner::observed()).await;
    pair.change(|manner| manner.body = changed);
    let (answer, exchange) = pair.first_page_again().await;
    assert!(exchange.status == 200 && !exchange.header("if-none-match").is_empty(), "{exchange:?}");
    assert_eq!(answer.body, changed(&page(1), ""));
    assert!(pair.counted("changed") && !pair.counted("wrong"));
}

#[tokio::test]
async fn a_304_for_another_etag_than_predicted_revalidates_nothing() {
    let pair = Pair::after_proof(
        PREDICTED,
        Manner { named: Some("\"something-else\""), always_304: true, ..Manner::observed() },
    )
    .await;
    pair.change(|manner| manner.body = changed);
    let (answer, exchange) = pair.first_page_again().await;
    answer.assert_status(200);
    assert_eq!(answer.body, changed(&page(1), ""), "the old one was taken for confirmed");
    assert_eq!((exchange.header("if-none-match"), exchange.status), ("", 200));
    assert!(pair.counted("wrong"));
}

#[tokio::test]
async fn a_prediction_revalidates_beside_a_date_too() {
    let pair = Pair::after_proof(PREDICTED, Manner { dated: true, ..Manner::observed() }).await;
    let (_, exchange) = pair.first_page_again().await;
    assert_eq!((exchange.status, exchange.header("if-modified-since")), (304, DATE));
    assert!(!exchange.header("if-none-match").is_empty());
}

#[tokio::test]
async fn only_the_date_is_sent_where_bodies_differ_by_account() {
    let pair = Pair::after_proof(
        PREDICTED,
        Manner { dated: true, body: different_for_each, ..Manner::observed() },
    )
    .await;
    let (_, exchange) = pair.first_page_again().await;
    assert!(exchange.status == 200 && !exchange.header("if-none-match").is_empty(), "{exchange:?}");
    assert!(pair.counted("changed") && !pair.counted("wrong"));
    let exchange = pair.second_page_by_the_poor().await;
    assert_eq!(
        (exchange.header("if-none-match"), exchange.header("if-modified-since"), exchange.status),
        ("", DATE, 304)
    );
}

#[tokio::test]
async fn a_body_stored_in_changed_form_is_not_predicted() {
    let pair =
        Pair::after_proof(PREDICTED, Manner { body: with_secret, ..Manner::observed() }).await;
    let (answer, exchange) = pair.first_page_again().await;
    assert_eq!((exchange.header("if-none-match"), exchange.status), ("", 200));
    assert!(!String::from_utf8_lossy(&answer.body).contains("AB12"));
}

#[tokio::test]
async fn a_renewed_token_revalidates_its_predecessors_responses() {
    let world = apps::setup().config(PREDICTED).manual_clock().start().await;
    let list = |number: usize| format!("{}/labels?per_page=1&page={number}", apps::REPOSITORY);
    for number in 1..=PROVED_BY {
        world.get(&list(number)).await.assert_status(200);
    }
    // The token has expired unused.
    world.clock.advance(Duration::from_hours(2));
    let answer = world.get(&list(1)).await;
    assert_eq!(apps::mints(&world).len(), 2);
    let exchange = world.upstream_requests().pop().unwrap();
    assert_eq!(
        (exchange.status, exchange.cost, exchange.conditional),
        (304, 0, "etag"),
        "{exchange:?}"
    );
    answer.assert_revalidated();
}

#[tokio::test]
async fn an_empty_list_costs_nothing_where_predictions_proved_right() {
    for named in [None, Some("")] {
        let manner = Manner { body: one_empty, named, ..Manner::observed() };
        let pair = Pair::after_proof(PREDICTED, manner).await;
        let answer = pair.world.get(NEVER_FETCHED).await;
        let exchange = pair.origin.last();
        assert!(exchange.status == 304 && !exchange.header("if-none-match").is_empty());
        answer.assert_status(200);
        assert_eq!(
            (answer.body.as_ref(), answer.header("content-type"), answer.cache_status()),
            (
                &b"[]"[..],
                Some("application/json; charset=utf-8"),
                "weir; fwd=uri-miss; fwd-status=304; stored"
            )
        );
        assert_eq!(answer.header("x-from-cache"), Some("1"));
        let etag = answer.header("etag").unwrap().to_owned();
        assert!(pair.counted("confirmed"));
        // It is stored like any other, with the validator of its token.
        let again = pair.world.get_with(NEVER_FETCHED, &[("if-none-match", &etag)]).await;
        again.assert_status(304);
        assert_eq!(pair.origin.last().status, 304);
        let head = pair.world.send(Method::HEAD, NEVER_FETCHED, &[], "").await;
        assert_eq!((head.status.as_u16(), head.header("content-length")), (200, Some("2")));
        // Once it has an item, its own validator shows that.
        pair.change(|manner| manner.body = same_for_all);
        let filled = pair.world.get(NEVER_FETCHED).await;
        assert_eq!(filled.body, same_for_all(NEVER_FETCHED, ""));
    }
}

#[tokio::test]
async fn a_client_with_conditions_of_its_own_learns_of_an_empty_list() {
    let pair = Pair::after_proof(PREDICTED, Manner { body: one_empty, ..Manner::observed() }).await;
    let own = [("if-none-match", "\"of-the-client\"")];
    let answer = pair.world.get_with(NEVER_FETCHED, &own).await;
    assert_eq!((pair.origin.last().status, answer.status.as_u16()), (304, 200));
    assert_eq!(answer.body, "[]");
}

#[tokio::test]
async fn a_list_with_items_comes_whole_at_the_first_request() {
    let pair = Pair::after_proof(PREDICTED, Manner::observed()).await;
    let before = pair.origin.exchanges().len();
    let answer = pair.world.get(NEVER_FETCHED).await;
    assert_eq!(
        (answer.body.as_ref(), answer.cache_status()),
        (same_for_all(NEVER_FETCHED, "").as_bytes(), "weir; fwd=uri-miss; stored")
    );
    assert!(!pair.origin.last().header("if-none-match").is_empty());
    assert_eq!(pair.origin.exchanges().len(), before + 1);
    assert!(pair.counted("not_empty") && !pair.counted("wrong"));
    let (_, exchange) = pair.first_page_again().await;
    assert_eq!(exchange.status, 304, "the route stays proved");
}

#[tokio::test]
async fn only_the_beginning_of_a_list_is_tried_as_empty() {
    let pair = Pair::after_proof(PREDICTED, Manner { body: all_empty, ..Manner::observed() }).await;
    for query in ["page=9", "after=x", "before=x", "since=7"] {
        // Beyond the end a list is empty too, and its links would be missing.
        pair.world.get(&format!("/repos/acme/widgets/labels?{query}")).await.assert_status(200);
        assert_eq!(pair.origin.last().header("if-none-match"), "", "{query}");
    }
    pair.world.get("/repos/acme/widgets/labels?since=2026-07-01T00:00:00Z").await;
    assert_eq!(pair.origin.last().status, 304);
}

#[tokio::test]
async fn an_answer_that_is_no_list_is_not_tried_as_empty() {
    let pair = Pair::after_proof(PREDICTED, Manner { body: objects, ..Manner::observed() }).await;
    let answer = pair.world.get(NEVER_FETCHED).await;
    assert_eq!(
        (pair.origin.last().header("if-none-match"), answer.body.as_ref()),
        ("", &b"[]"[..])
    );
    let pair = Pair::after_proof(PREDICTED, Manner { body: one_empty, ..Manner::observed() }).await;
    let html = [("accept", "application/vnd.github.html")];
    pair.world.get_with(NEVER_FETCHED, &html).await.assert_status(200);
    assert_eq!(pair.origin.last().header("if-none-match"), "", "of another media type");
}

#[tokio::test]
async fn no_empty_list_is_tried_unless_proved_and_configured() {
    for (config, proof) in [("", PROVED_BY), (PREDICTED, PROVED_BY - 1)] {
        let pair = Pair::new(config, Manner { body: one_empty, ..Manner::observed() }).await;
        for number in 1..=proof {
            pair.world.get(&page(number)).await.assert_status(200);
        }
        let answer = pair.world.get(NEVER_FETCHED).await;
        assert_eq!(
            (pair.origin.last().header("if-none-match"), answer.body.as_ref()),
            ("", &b"[]"[..])
        );
    }
}

#[tokio::test]
async fn a_wrong_try_of_an_empty_list_closes_its_route() {
    let pair = Pair::after_proof(PREDICTED, Manner { body: one_empty, ..Manner::observed() }).await;
    pair.change(|manner| manner.form = another);
    let answer = pair.world.get(NEVER_FETCHED).await;
    assert_eq!((pair.origin.last().status, answer.body.as_ref()), (200, &b"[]"[..]));
    assert!(pair.counted("wrong"));
    let (_, exchange) = pair.first_page_again().await;
    assert_eq!(exchange.header("if-none-match"), "");
}

#[tokio::test]
async fn a_304_for_another_etag_makes_no_empty_list() {
    let pair = Pair::after_proof(
        PREDICTED,
        Manner { named: Some("\"something-else\""), always_304: true, ..Manner::observed() },
    )
    .await;
    let answer = pair.world.get(NEVER_FETCHED).await;
    assert_eq!(answer.body, same_for_all(NEVER_FETCHED, ""));
    assert_eq!((pair.origin.last().header("if-none-match"), pair.origin.last().status), ("", 200));
    assert!(pair.counted("wrong"));
}

#[tokio::test]
async fn an_empty_list_of_the_emulator_spends_no_unit() {
    let world = Setup::new().config(PREDICTED).start().await;
    let issues = |query: &str| format!("/repos/acme/widgets/issues?{query}");
    for number in 1..=PROVED_BY {
        world.get(&issues(&format!("per_page={number}"))).await.assert_status(200);
    }
    for day in 1..4 {
        let answer = world.get(&issues(&format!("since=2090-07-0{day}T00:00:00Z"))).await;
        answer.assert_status(200);
        assert_eq!(answer.body, "[]");
        let exchange = world.upstream_requests().pop().unwrap();
        assert_eq!((exchange.status, exchange.cost), (304, 0), "{exchange:?}");
        for name in ["cache-control", "vary", "etag", "x-github-media-type"] {
            assert!(answer.header(name).is_some(), "{name}: {answer:?}");
        }
    }
}
