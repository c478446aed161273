//! Freshness by headers: it only ever ends, and a stricter header never allows more.

use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::pieces::headers_and_rest;
use crate::clock::Timestamp;
use crate::decision::Mode;
use crate::decision::cache::arrived::Arrived;
use crate::decision::cache::cache_control::{CacheControl, initial_age, vary_names};
use crate::decision::cache::conditional::{self, Outcome, evaluate};
use crate::decision::cache::freshness::{Plan, Stored};
use crate::decision::cache::request_directives::RequestDirectives;
use crate::decision::cache::settling::Trust;
use crate::decision::types::TokenKey;

/// In 2027.
const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Seconds after the answer, in order.
const AFTER: [u64; 14] =
    [0, 1, 2, 29, 30, 59, 60, 61, 119, 3_599, 3_600, 86_400, 4_294_967_295, 8_589_934_592];
const MODES: [Mode; 2] = [Mode::Revalidate, Mode::Rfc9111];
const TOKEN: Option<TokenKey> = Some(TokenKey(1));

/// The input is the head of an answer, an empty line, and the head of a request.
pub fn cache_control(input: &[u8]) {
    let (answer, rest) = headers_and_rest(input);
    let (request, _) = headers_and_rest(rest);
    directives(&answer);
    vary(&answer);
    age(&answer);
    for ttl in [None, Some(Duration::from_secs(30))] {
        for mode in MODES {
            let stored = Stored::new(mode, NOW, StatusCode::OK, &answer, TOKEN, ttl);
            freshness(&stored, mode);
            serving(&stored, &answer, &request, mode);
            revalidated(&stored, &answer, ttl);
        }
    }
    conditions(&answer, &request);
}

fn with(headers: &HeaderMap, name: HeaderName, line: &'static str) -> HeaderMap {
    let mut headers = headers.clone();
    headers.append(name, HeaderValue::from_static(line));
    headers
}

fn arrived(headers: &HeaderMap, mode: Mode) -> Arrived<'_> {
    Arrived { status: StatusCode::OK, headers, at: NOW, mode }
}

fn lifetime(headers: &HeaderMap, mode: Mode) -> Duration {
    let arrived = arrived(headers, mode);
    arrived.lifetime(&arrived.control(), headers.get(header::LAST_MODIFIED))
}

/// A further prohibition only prohibits. Case, lines and unknown directives have no meaning.
fn directives(answer: &HeaderMap) {
    let stricter = |line| with(answer, header::CACHE_CONTROL, line);
    assert!(!arrived(&stricter("no-store"), Mode::Revalidate).is_storable());
    for line in ["no-store", "no-cache", "max-age=x", "max-age=60, max-age=61", "a=\""] {
        assert!(lifetime(&stricter(line), Mode::Revalidate).is_zero(), "{line}");
    }
    for line in ["must-revalidate", "proxy-revalidate", "no-cache", "no-store", "s-maxage=60"] {
        assert!(CacheControl::parse(&stricter(line)).forbids_stale(), "{line}");
    }
    let bounded = CacheControl::parse(&stricter("stale-if-error=1, stale-while-revalidate=1"));
    for bound in [bounded.stale_if_error, bounded.stale_while_revalidate] {
        assert!(bound.is_some_and(|bound| bound <= Duration::from_secs(1)));
    }
    for mode in MODES {
        assert!(lifetime(&stricter("private"), mode) <= lifetime(answer, mode));
    }
    targeted(answer);
    let read = CacheControl::parse(answer);
    assert_eq!(CacheControl::parse(&stricter("x-ext=\"no-store, max-age=1\", y")), read);
    let lines = answer.get_all(header::CACHE_CONTROL);
    let texts: Vec<_> = lines.iter().filter_map(|line| line.to_str().ok()).collect();
    if texts.len() != lines.iter().count() {
        return;
    }
    let of = |lines: &[String]| CacheControl::of_lines(lines.iter().map(String::as_bytes));
    let mut owned: Vec<_> = texts.iter().map(|line| line.to_ascii_uppercase()).collect();
    assert_eq!(of(&owned), read, "case counts");
    owned.reverse();
    let reversed = of(&owned);
    let lifetimes = (reversed.confused, reversed.no_store, reversed.no_cache, reversed.private);
    assert_eq!(lifetimes, (read.confused, read.no_store, read.no_cache, read.private));
    // Quotes may reach over the end of a line once the lines are one.
    if !texts.iter().any(|line| line.contains('"')) {
        assert_eq!(of(&[texts.join(", ")]), read, "a list in several lines is another list");
    }
}

/// Directives for shared caches replace the others, unless they are malformed.
fn targeted(answer: &HeaderMap) {
    let name = HeaderName::from_static("cdn-cache-control");
    let of = |headers: &HeaderMap| CacheControl::of(StatusCode::OK, headers, Mode::Rfc9111);
    assert!(!of(&with(answer, name.clone(), "a=(")).is_targeted, "a malformed field counts");
    if of(answer).is_targeted {
        let last = of(&with(answer, name.clone(), "no-store, max-age=7"));
        assert!(last.no_store && last.max_age == Some(Duration::from_secs(7)));
        let other = with(answer, header::CACHE_CONTROL, "no-store, max-age=7");
        assert_eq!(of(&other), of(answer));
    }
}

fn vary(answer: &HeaderMap) {
    let names = vary_names(answer);
    assert_eq!(vary_names(&with(answer, header::VARY, "accept, *")), None);
    assert!(names.is_some() || MODES.iter().all(|mode| !arrived(answer, *mode).is_storable()));
    let Some(names) = names else { return };
    assert!(names.windows(2).all(|two| two[0].as_str() < two[1].as_str()), "{names:?}");
    let line = names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(" ,\t");
    let line = HeaderValue::from_str(&line).expect("names are a header value");
    let again = vary_names(&HeaderMap::from_iter([(header::VARY, line)]));
    assert_eq!(again, Some(names), "the names of a list are others");
}

/// An older answer is never fresher. The first of several ages counts.
fn age(answer: &HeaderMap) {
    let age = initial_age(answer);
    if answer.contains_key(header::AGE) {
        assert_eq!(initial_age(&with(answer, header::AGE, "7")), age);
        return;
    }
    assert!(age.is_zero());
    for mode in MODES {
        let fresh = |age: &'static str| {
            let aged = with(answer, header::AGE, age);
            let stored = Stored::new(mode, NOW, StatusCode::OK, &aged, TOKEN, None);
            AFTER.map(|after| stored.is_fresh(NOW + Duration::from_secs(after), mode))
        };
        let ages = ["-1", "0", "1", "59", "60", "4294967295"].map(fresh);
        for two in ages.windows(2) {
            assert!(two[0].iter().zip(two[1]).all(|(younger, older)| *younger || !older));
        }
    }
}

/// Freshness ends once, and a plan without it has the validators of the answer.
fn freshness(stored: &Stored, mode: Mode) {
    let fresh = AFTER.map(|after| stored.is_fresh(NOW + Duration::from_secs(after), mode));
    assert!(fresh.is_sorted_by(|earlier, later| *earlier || !later), "fresh again: {fresh:?}");
    for after in AFTER {
        let now = NOW + Duration::from_secs(after);
        for token in [None, TOKEN, Some(TokenKey(2))] {
            let plan = stored.plan(now, mode, token);
            assert_eq!(plan == Plan::Serve, stored.is_fresh(now, mode));
            if let Plan::Revalidate(validators) = plan {
                assert!(
                    validators.if_none_match.is_none() || token == TOKEN,
                    "the validator of another token"
                );
                assert!(
                    validators.if_none_match.is_some() || validators.if_modified_since.is_some()
                );
            }
        }
    }
    let mut invalidated = stored.clone();
    invalidated.invalidate();
    assert!(!invalidated.is_fresh(NOW, mode), "fresh after a change");
}

/// A client with directives gets no answer later that it would not get earlier, none against a
/// prohibition, and none that was invalidated.
fn serving(stored: &Stored, answer: &HeaderMap, request: &HeaderMap, mode: Mode) {
    let mut request = request.clone();
    // It counts only without `Cache-Control`.
    request.remove(header::PRAGMA);
    let request = &request;
    let answered = |request: &HeaderMap, after: u64, trust: Trust, watched: Option<Duration>| {
        let directives = RequestDirectives::of(request, mode);
        let now = NOW + Duration::from_secs(after);
        stored.validated(NOW, NOW).answers(&directives, now, mode, || trust, watched)
    };
    let stricter = |line| with(request, header::CACHE_CONTROL, line);
    let is_polled = stored.is_polled(answer);
    let mut before = [true; 3];
    for after in AFTER {
        let watched = Some(Duration::from_secs(60));
        let served = answered(request, after, Trust::Settled, None);
        let trusted = answered(request, after, Trust::Until(NOW + Duration::from_secs(10)), None);
        let covered = answered(request, after, Trust::Settled, watched);
        for (served, before) in [served, trusted, covered].into_iter().zip(&mut before) {
            assert!(!served || *before, "served again after {after} s");
            *before = served;
        }
        assert!(!trusted || served, "less trust allows more");
        assert!(!served || covered, "a webhook allows less");
        assert!(!answered(request, after, Trust::Invalidated, watched), "an outdated answer");
        if is_polled {
            continue;
        }
        assert!(
            !answered(&stricter("no-cache"), after, Trust::Settled, None)
                || ignores_no_cache(request, mode)
        );
        assert!(!answered(&stricter("max-age=0"), after, Trust::Settled, None));
        for line in ["max-age=30", "min-fresh=30"] {
            let limited = answered(&stricter(line), after, Trust::Settled, None);
            assert!(
                !limited || answered(request, after, Trust::Settled, None),
                "{line} allows more"
            );
        }
        let directives = RequestDirectives::of(request, mode);
        let fresh = stored.is_fresh(NOW + Duration::from_secs(after), mode);
        assert!(fresh || !served || directives.max_stale.is_some(), "a stale answer is served");
        assert!(
            fresh || !served || !arrived(answer, mode).control().forbids_stale(),
            "a stale answer against its prohibition"
        );
    }
}

/// In this mode a client's `no-cache` beside a condition has no meaning.
fn ignores_no_cache(request: &HeaderMap, mode: Mode) -> bool {
    mode == Mode::Revalidate
        && [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE]
            .iter()
            .any(|name| request.contains_key(name))
}

/// A 304 with the same headers leaves the same freshness, counted from then on.
fn revalidated(stored: &Stored, answer: &HeaderMap, ttl: Option<Duration>) {
    const LATER: Duration = Duration::from_secs(1_000);
    let mut again = stored.clone();
    // A date of its own would be that of the arrival.
    let date = answer.get(header::DATE).and_then(|date| date.to_str().ok());
    if date.is_none_or(|date| httpdate::parse_http_date(date).is_err()) {
        return;
    }
    again.revalidate(NOW + LATER, answer, TOKEN, ttl);
    for mode in MODES {
        for after in AFTER {
            let after = Duration::from_secs(after);
            assert_eq!(
                again.is_fresh(NOW + LATER + after, mode),
                stored.is_fresh(NOW + after, mode)
            );
        }
    }
    assert_eq!(again.etags().collect::<Vec<_>>(), stored.etags().collect::<Vec<_>>());
    assert_eq!(again.last_modified(), stored.last_modified());
}

/// A client with the answer's own validator has the answer, and no other status is a 304.
fn conditions(answer: &HeaderMap, request: &HeaderMap) {
    let etag = answer.get(header::ETAG);
    let date = answer.get(header::LAST_MODIFIED);
    let outcome = |request: &HeaderMap, status| {
        evaluate(request, status, etag.into_iter().map(HeaderValue::as_bytes), date)
    };
    assert_eq!(outcome(request, StatusCode::NOT_FOUND), Outcome::Full);
    assert!(!conditional::fails(
        request,
        StatusCode::NOT_FOUND,
        etag.map(HeaderValue::as_bytes),
        date
    ));
    let any = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static("*"))]);
    assert_eq!(outcome(&any, StatusCode::OK), Outcome::NotModified);
    if let Some(date) = date {
        let since = HeaderMap::from_iter([(header::IF_MODIFIED_SINCE, date.clone())]);
        assert_eq!(outcome(&since, StatusCode::OK), Outcome::NotModified);
    }
    let quoted = |etag: &&HeaderValue| {
        let opaque = etag.as_bytes().strip_prefix(b"W/").unwrap_or(etag.as_bytes());
        opaque.len() > 1
            && opaque.starts_with(b"\"")
            && opaque.ends_with(b"\"")
            && !opaque[1..opaque.len() - 1].contains(&b'"')
    };
    if let Some(etag) = etag.filter(quoted) {
        let listed = [b"\"other, 1\" , W/\"x\",", etag.as_bytes(), b", \"y\""].concat();
        let listed = HeaderValue::from_bytes(&listed).expect("a list of header values");
        let listed = HeaderMap::from_iter([(header::IF_NONE_MATCH, listed)]);
        assert_eq!(outcome(&listed, StatusCode::OK), Outcome::NotModified, "{etag:?}");
    }
}
