//! GraphQL queries as reads: their keys, and the changes that end a stored answer (SPECIFICATION,
//! "GraphQL").
//!
//! A query's address does not tell it apart, its body and headers do. The paths that a write or an
//! event changes do not name a query either: its answer counts as changed with the resources that
//! it names.

use std::borrow::Cow;

use http::{HeaderMap, header};
use ring::digest::{Context, SHA256};

use crate::api::{GraphqlRequest, each_text, meaning, node_path, paths_of_page};
use crate::clock::Timestamp;
use crate::decision::cache::key::{CacheKey, Scope};
use crate::decision::cache::settling::Trust;
use crate::gateway::address::path_of;
use crate::gateway::cache::invalidation::log::PathKeys;
use crate::gateway::cache::lookup::{CacheRequest, Query};
use crate::gateway::cache::named::Named;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::store::Entry;
use crate::gateway::http::headers;

/// The path of all queries.
const PATH: &str = "/graphql";
/// Longest name of an operation that shows in the path. Chosen here: people write shorter ones.
const NAME_BYTES_MAX: usize = 100;
/// Longest answer that is searched for names; any change invalidates a longer one. Chosen here: a
/// few milliseconds, once.
const SEARCHED_BYTES_MAX: usize = 256 * 1024;
/// Most keys of the things that an answer names; any change invalidates an answer with more. Chosen
/// here: a list of a thousand issues by id and URL has fewer.
const KEYS_MAX: usize = 16 * 1024;

/// Headers that leave the answer of a query alone, or that the key has in another form. A condition
/// makes another answer only of another status, which nobody else gets.
const NOT_IN_KEY: [header::HeaderName; 10] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_TYPE,
    header::USER_AGENT,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
];

/// Words in the names of headers by which tools follow a single request, such as `X-B3-TraceId` and
/// `X-Client-Request-Id`. With them no two queries would be equal.
const OF_ONE_REQUEST: [&str; 8] =
    ["b3", "correlation", "datadog", "newrelic", "request", "span", "trace", "traceparent"];

/// True for the path of a query's key.
pub fn is_query(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl ReadCache {
    /// The query with this body and these headers for the upstream.
    pub fn query(&self, request: &GraphqlRequest, body: &[u8], headers: &HeaderMap) -> Query {
        let name = request.name.as_deref();
        let version = self.env.config.upstream.dialect.version_header();
        let mut digest = Context::new(&SHA256);
        let mut add = |part: &[u8]| {
            // The length keeps two parts from being read as one.
            digest.update(&part.len().to_le_bytes());
            digest.update(part);
        };
        add(&meaning(body));
        let is_in_key = |name: &&header::HeaderName| {
            let mut words = name.as_str().split('-');
            !NOT_IN_KEY.contains(name)
                && *name != version
                && !words.any(|word| OF_ONE_REQUEST.contains(&word))
        };
        let mut in_key: Vec<_> = headers.keys().filter(is_in_key).collect();
        in_key.sort_unstable_by_key(|name| name.as_str());
        for name in in_key {
            for value in headers.get_all(name) {
                add(name.as_str().as_bytes());
                add(value.as_bytes());
            }
        }
        let mut rules = self.env.config.cache.query_rules.iter();
        let named = name.filter(|name| name.len() <= NAME_BYTES_MAX);
        let mut query = Query {
            name: named.map(Into::into),
            path: named.map_or_else(|| PATH.to_owned(), |name| format!("{PATH}/{name}")),
            digest: [0; 32],
            ttl: rules.find(|rule| rule.covers(name)).map(|rule| rule.ttl),
        };
        query.digest.copy_from_slice(digest.finish().as_ref());
        query
    }

    /// The key of a request's address, before any variant.
    pub(super) fn address_of(&self, cache_request: &CacheRequest) -> CacheKey {
        let CacheRequest { job, scope, query, .. } = cache_request;
        let headers = cache_request.headers();
        match query {
            Some(query) => self.key_of_query(*scope, query, headers),
            None => self.cache_key(*scope, job.request.service, &job.request.target, headers),
        }
    }

    fn key_of_query(&self, scope: Scope, query: &Query, to_upstream: &HeaderMap) -> CacheKey {
        let accept = headers::accept_of(to_upstream);
        let address = CacheKey::new(scope, &query.path, &accept, self.version_of(to_upstream));
        address.variant([&query.digest[..]].into_iter())
    }

    /// Rates the answer to this request that was requested at `requested_at`. `found` is the
    /// answer; an unknown answer may show any change.
    pub(super) fn trust(
        &self,
        cache_request: &CacheRequest,
        found: Option<&Entry>,
        requested_at: Timestamp,
    ) -> Trust {
        if self.may_have_missed(requested_at, self.env.clock.now()) {
            return Trust::Invalidated;
        }
        self.known_trust(cache_request, found, requested_at)
    }

    /// The same by what is known here, which may not be all.
    pub(super) fn known_trust(
        &self,
        cache_request: &CacheRequest,
        found: Option<&Entry>,
        requested_at: Timestamp,
    ) -> Trust {
        match &cache_request.query {
            Some(query) => self.trust_in_query(cache_request, query, found, requested_at),
            None => self.store.trust(path_of(&cache_request.job.request.target), requested_at),
        }
    }

    fn trust_in_query(
        &self,
        cache_request: &CacheRequest,
        query: &Query,
        found: Option<&Entry>,
        requested_at: Timestamp,
    ) -> Trust {
        let log = &self.store.log;
        let after_any = Trust::after(log.latest(), requested_at);
        // A purge is in no log.
        let by_path = self.store.trust(&query.path, requested_at);
        if by_path == Trust::Invalidated || after_any == Trust::Settled {
            return by_path;
        }
        let named = found.and_then(|found| {
            let address = self.key_of_query(cache_request.scope, query, cache_request.headers());
            self.store.named(&address, found)
        });
        named.map_or(after_any, |named| Trust::after(named.last_change(log), requested_at))
    }

    /// The things that an answer names, and the query itself; `None` if they are too many or the
    /// answer cannot be read.
    pub(super) fn named_in(&self, query: &Query, answer: &Entry) -> Option<Named> {
        let text = answer.body.text();
        if text.len() > SEARCHED_BYTES_MAX {
            return None;
        }
        let mut keys = PathKeys::default();
        self.store.log.add_keys(&query.path, &mut keys);
        let is_read = each_text(text, &mut |text| {
            if keys.len() <= KEYS_MAX {
                self.each_path_named(text, |path| self.store.log.add_keys(path, &mut keys));
            }
        });
        (is_read && keys.len() <= KEYS_MAX).then(|| Named::new(answer.requested_at(), text, keys))
    }

    /// Calls `named` with the paths of what a text names: a node id, the address of a resource or
    /// of its page.
    fn each_path_named(&self, text: &str, mut named: impl FnMut(&str)) {
        let page = if let Some((_, rest)) = text.split_once("://") {
            if let Some(path) = self.env.urls.named_path(PATH, text) {
                return named(&path);
            }
            rest.find('/').map_or("", |at| &rest[at..])
        } else if text.starts_with('/') {
            named(path_of(text));
            text
        } else {
            return node_path(text).as_deref().map_or((), named);
        };
        for path in paths_of_page(page) {
            named(&path);
        }
    }
}

/// The key of a long answer: that to a query is for requests with equal headers.
pub(super) fn shared_body_key<'k>(
    key: &'k CacheKey,
    cache_request: &CacheRequest,
) -> Cow<'k, CacheKey> {
    match &cache_request.query {
        Some(_) => Cow::Owned(with_headers(key, cache_request.headers())),
        None => Cow::Borrowed(key),
    }
}

/// The key of `key`'s fetches with these headers.
pub(super) fn with_headers(key: &CacheKey, headers: &HeaderMap) -> CacheKey {
    let lines = headers.iter().map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]);
    key.variant(lines.flatten())
}
