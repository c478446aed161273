//! Answers of the upstream: read alike at any cut; the facts in their headers are bounded, and
//! nothing of an account reaches a client.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pieces::plans;
use crate::api::headers::{ACCEPTED_OAUTH_SCOPES, OAUTH_SCOPES, RATE_HEADERS, RETRY_AFTER};
use crate::api::{
    Denial, Dialect, RateHeaders, UpstreamLimitKind, accepted_permission, rate_remaining,
    rate_reset, retry_after, stated_budgets, upstream_limit,
};
use crate::clock::Timestamp;
use crate::decision::Mode;
use crate::decision::cache::arrived::Arrived;
use crate::decision::cache::cache_control::{initial_age, poll_interval, vary_names};
use crate::decision::cache::pagination::{Page, PageSizes, continues_list};
use crate::gateway::address::Root;
use crate::gateway::http::headers::{list_items, to_client};
use crate::gateway::upstream::http1::{Broken, Connection};
use crate::gateway::url_rewrite::map::{Origin, UrlMap};

/// In 2027.
const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Interval that is believed (`cache_control.rs`).
const POLL_INTERVAL_MAX: Duration = Duration::from_hours(1);

/// Plans with more pieces take too long.
const PIECES_MAX: usize = 400;

/// The result of reading an answer.
#[derive(Debug, PartialEq)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    /// With the reason why it is not whole.
    body: Result<Vec<u8>, String>,
}

/// An answer does not depend on its pieces, and its facts hold.
pub fn upstream_head(input: &[u8]) {
    for method in [Method::GET, Method::HEAD] {
        let (whole, is_reusable) = read(&method, &[input]);
        // The head is parsed anew after each piece.
        for plan in plans(input).iter().filter(|plan| plan.len() <= PIECES_MAX) {
            let (answer, is_reusable_then) = read(&method, plan);
            assert_eq!(answer, whole, "{method}: an answer depends on its pieces");
            assert!(!is_reusable || is_reusable_then, "another request may follow, and may not");
        }
        let Ok(Answer { status, headers, body }) = whole else { continue };
        let has_body = method == Method::GET
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        assert!(!status.is_informational(), "{status} is no final answer");
        assert!(has_body || body == Ok(Vec::new()), "a body that there is none of");
        let body = body.unwrap_or_default();
        assert!(body.len() <= input.len());
        limits(status, &headers, &body);
        cached(status, &headers, &body);
        for mode in [Mode::Revalidate, Mode::Rfc9111] {
            for_client(&headers, mode);
        }
        links(&headers);
    }
}

fn read(method: &Method, pieces: &[&[u8]]) -> (Result<Answer, String>, bool) {
    let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
    let mut connection = Connection::new(Box::new(Pieces(pieces)));
    let answer = async {
        let sent = connection.send(method, b"head", b"", 0, None).await;
        assert!(matches!(sent, Ok(None)));
        let (status, headers) = connection.read_head(None).await.map_err(Broken::into_text)?;
        let mut body = Vec::new();
        let body = loop {
            match connection.read_body().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break Ok(body),
                Err(broken) => break Err(broken.into_text()),
            }
        };
        Ok(Answer { status, headers, body })
    };
    let answer = answer.now_or_never().expect("all bytes are there");
    (answer, connection.is_reusable())
}

/// A connection that brings one piece for each read, and takes everything.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let rest = piece.split_off(piece.len().min(into.remaining()));
            into.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(from.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Rate headers are read as they are written. A limit has a status that can report one, and its
/// time does not grow while it passes.
fn limits(status: StatusCode, headers: &HeaderMap, body: &[u8]) {
    if let Some(rate) = RateHeaders::parse(headers) {
        let mut written = HeaderMap::new();
        let mut write = |name: &'static str, value: String| {
            written.insert(name, value.parse().expect("digits and names are header values"));
        };
        write(RATE_HEADERS[0], rate.limit.to_string());
        write(RATE_HEADERS[1], rate.remaining.to_string());
        write(RATE_HEADERS[3], rate.reset.as_secs().to_string());
        if let Some(used) = rate.used {
            write(RATE_HEADERS[2], used.to_string());
        }
        if let Some(resource) = &rate.resource {
            write(RATE_HEADERS[4], resource.as_str().to_owned());
        }
        assert_eq!(RateHeaders::parse(&written).as_ref(), Some(&rate));
        assert_eq!(rate_remaining(headers), Some(rate.remaining));
        assert_eq!(rate_reset(headers), Some(rate.reset));
    }
    let wait = retry_after(headers, NOW);
    let later = retry_after(headers, NOW + Duration::from_secs(60));
    assert!(later <= wait && wait.is_some() == later.is_some(), "{wait:?}, then {later:?}");
    let reversed =
        headers.get_all(RETRY_AFTER).iter().rev().fold(HeaderMap::new(), |mut map, line| {
            map.append(RETRY_AFTER, line.clone());
            map
        });
    assert_eq!(retry_after(&reversed, NOW), wait, "the order of lines counts");
    let limit = upstream_limit(status, headers, body, NOW);
    match &limit {
        Some(limit) => {
            assert!(matches!(status.as_u16(), 200 | 403 | 429), "a limit by {status}");
            assert_eq!((limit.retry_after, limit.remaining), (wait, rate_remaining(headers)));
            // Times of limits are added to the present.
            assert!(NOW + limit.retry_after.unwrap_or_default() >= NOW);
        }
        None => assert!(status != StatusCode::TOO_MANY_REQUESTS, "a 429 that is no limit"),
    }
    let is_primary = limit.is_some_and(|limit| limit.kind == UpstreamLimitKind::Primary);
    assert!(
        !is_primary
            || status.is_success()
            || !body.is_empty()
            || rate_remaining(headers) == Some(0)
    );
    let denial = Denial::read(status, headers, body);
    assert_eq!(denial.is_some(), matches!(status.as_u16(), 403 | 404));
    for dialect in [Dialect::Github, Dialect::Service] {
        let permission = accepted_permission(headers, dialect);
        assert!(permission.is_none_or(|found| !found.name.is_empty() && !found.name.contains(',')));
    }
    for (name, stated) in stated_budgets(body).unwrap_or_default() {
        assert!(stated.limit > 0 && !name.as_str().is_empty());
        assert!(stated.reset.as_secs() < 10_000_000_000);
    }
}

/// Times are bounded, and names of `Vary` are sorted names.
fn cached(status: StatusCode, headers: &HeaderMap, body: &[u8]) {
    let largest = Duration::from_secs(u32::MAX.into());
    assert!(initial_age(headers) <= largest);
    assert!(poll_interval(headers).is_none_or(|interval| interval <= POLL_INTERVAL_MAX));
    let arrived = Arrived { status, headers, at: NOW, mode: Mode::Rfc9111 };
    let last_modified = headers.get(header::LAST_MODIFIED);
    assert!(NOW + arrived.lifetime(&arrived.control(), last_modified) >= NOW);
    let names = vary_names(headers);
    assert!(names.is_some() || !arrived.is_storable());
    if let Some(names) = names {
        assert!(names.windows(2).all(|two| two[0].as_str() < two[1].as_str()));
        assert!(!names.iter().any(|name| name == "*"));
    }
    let sizes = PageSizes { default: 30, max: 100 };
    let target = "/repos/acme/widgets/issues?per_page=1&page=2";
    let page = Page::of(target, sizes, headers, body);
    assert!(page == Page::Other || body.trim_ascii_start().starts_with(b"["));
    assert!(!continues_list("/user", body), "the first page continues nothing");
}

/// No header of the account, of the connection or of the budget passes, and no header comes of
/// nothing. A second gateway would change nothing.
fn for_client(headers: &HeaderMap, mode: Mode) {
    let passed = to_client(headers, mode);
    let hidden =
        [OAUTH_SCOPES, ACCEPTED_OAUTH_SCOPES, "transfer-encoding", "connection", "keep-alive"];
    for name in RATE_HEADERS.iter().chain(&hidden) {
        assert!(!passed.contains_key(*name), "{name} passes");
    }
    assert!(mode == Mode::Rfc9111 || !passed.contains_key(header::SET_COOKIE));
    for named in list_items(headers, header::CONNECTION) {
        assert!(!passed.contains_key(named), "{named} passes, which Connection names");
    }
    let exposes = header::ACCESS_CONTROL_EXPOSE_HEADERS;
    for (name, value) in passed.iter().filter(|(name, _)| **name != exposes) {
        assert!(headers.get_all(name).iter().any(|sent| sent == value), "{name} comes of nothing");
    }
    assert_eq!(to_client(&passed, mode), passed, "a second pass changes headers");
}

/// After rewriting no link leads upstream, a second rewriting changes nothing, and what is no link
/// stays.
fn links(headers: &HeaderMap) {
    const API: &str = "https://api.example.com";
    let map = UrlMap::new(API, "https://api.example.com/graphql", "https://uploads.example.com");
    let origin = Origin { base: "http://weir:8080".into(), root: Root::V3 };
    for line in headers.get_all(header::LINK).iter().filter_map(|line| line.to_str().ok()) {
        let rewritten = map.rewrite_link(line, &origin);
        assert_eq!(map.rewrite_link(&rewritten, &origin), rewritten, "rewritten twice");
        assert!(HeaderValue::from_str(&rewritten).is_ok());
        let leads_up = |target: &str| {
            let rest = target.get(..API.len()).filter(|start| start.eq_ignore_ascii_case(API));
            rest.is_some() && target[API.len()..].starts_with(['/', '?', '#', '>'])
        };
        assert!(!rewritten.split('<').skip(1).any(leads_up), "{rewritten}");
        let count = |text: &str, of: char| text.matches(of).count();
        assert_eq!(count(&rewritten, '<'), count(line, '<'));
        assert_eq!(count(&rewritten, '>'), count(line, '>'));
    }
    for name in [header::LOCATION, HeaderName::from_static("content-location")] {
        let Some(reference) = headers.get(name).and_then(|value| value.to_str().ok()) else {
            continue;
        };
        let Some(rewritten) = map.rewrite_reference(reference, &origin) else { continue };
        assert!(rewritten.starts_with(&origin.base), "{reference:?} became {rewritten:?}");
        if let Some(path) = map.named_path("/repos/acme/widgets?page=2", reference) {
            let dots = |segment: &str| segment == "." || segment == "..";
            assert!(!path.split('/').any(dots), "{reference:?} leads to {path:?}");
        }
    }
}
