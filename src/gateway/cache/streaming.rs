//! Bodies too large to hold: shared by concurrent requests, and stored on disk where the config
//! says so.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header;

use crate::decision::cache::arrived::is_storable_status;
use crate::decision::cache::cache_control::CacheControl;
use crate::decision::cache::key::CacheKey;
use crate::gateway::cache::lookup::{CacheRequest, ReadAnswer};
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::shared_body::{JoinGuard, Keep, Reader, SharedBody};
use crate::gateway::cache::single_flight::Role;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::answer::UpstreamAnswer;
use crate::gateway::http::decoding::weak;
use crate::gateway::http::media_type::{has_json_type, is_json};
use crate::gateway::url_rewrite::map::Body;
use crate::telemetry::Fetch;

/// The age of a complete body that others may join while it has readers. Chosen here: a slowly read
/// body grows old.
const JOINED_AFTER_MAX: Duration = Duration::from_secs(60);
/// The age of a body that a request joins although it asks for a newer answer than a stored one.
/// Chosen here: it shares a fetch that has just begun, as with any other answer.
const COLLAPSED_AFTER_MAX: Duration = Duration::from_secs(2);

impl ReadCache {
    /// Shares a large body with its fetch's waiters, and with later requests while it is read.
    pub fn begin_shared_body(
        &self,
        key: CacheKey,
        cache_request: &CacheRequest,
        answer: UpstreamAnswer,
    ) -> Arc<JoinGuard> {
        let vary = Entry::vary_of(&answer.headers, cache_request.headers());
        // RFC 9111 §5.2.2.5.
        let control = CacheControl::of(answer.status, &answer.headers, self.env.mode);
        let is_for_others = !control.no_store;
        // Any other status may be about the headers of this request.
        let suits_others = is_for_others && is_storable_status(answer.status);
        // Secrets in encoded JSON cannot be blanked.
        let may_hold_secrets = has_json_type(&answer.headers) && !is_json(&answer.headers);
        let keep = self.way_to_disk(&key, cache_request, &answer);
        let body =
            Arc::new(SharedBody::new(answer, vary, is_for_others, keep, &self.env.spool_space));
        if may_hold_secrets || control.no_store {
            body.keep_in_memory();
        }
        if suits_others {
            self.registry.insert(key, &body);
        }
        Arc::new(JoinGuard(body))
    }

    /// The way of a large answer into the store; `None` if it may not be stored on disk.
    fn way_to_disk(
        &self,
        key: &CacheKey,
        cache_request: &CacheRequest,
        answer: &UpstreamAnswer,
    ) -> Option<Keep> {
        let bytes_max = self.env.config.cache.spool_keep;
        let may_be_kept = bytes_max > 0
            && cache_request.query.is_none()
            && !cache_request.directives.no_store
            && is_storable_status(answer.status)
            && self.may_store(answer);
        if !may_be_kept {
            return None;
        }
        let entry = self.entry_on_disk(cache_request, answer);
        let (store, key) = (Arc::clone(&self.store), key.clone());
        let put = move |file| {
            let entry = Entry { body: Body::on_disk(file), ..entry };
            store.put(key, Arc::new(entry));
        };
        Some(Keep { bytes_max, put: Box::new(put) })
    }

    /// Joins another request's shared body, if it fits and its beginning is kept.
    pub fn join_shared_body(
        &self,
        key: &CacheKey,
        cache_request: &CacheRequest,
    ) -> Option<ReadAnswer> {
        let body = self.registry.find(key).filter(|body| body.fits(cache_request.headers()))?;
        let (now, requested_at) = (self.env.clock.now(), body.head.requested_at);
        let (age, directives) = (now.since(requested_at), &cache_request.directives);
        let is_new_enough =
            !directives.no_cache && directives.max_age.is_none_or(|max_age| age <= max_age);
        let may_join = age <= COLLAPSED_AFTER_MAX
            || is_new_enough && (body.is_arriving() || age <= JOINED_AFTER_MAX);
        // A body that nobody reads is joined by nobody: it is stored, or gone.
        let may_join = may_join
            && body.is_in_use()
            && self.trust(cache_request, None, requested_at).holds(now);
        may_join.then(|| read_shared(&body, cache_request, Role::Follower, Some(age)))?
    }
}

/// The `ETag` for clients of an answer that is passed on as it comes. Rewritten bytes differ from
/// client to client (RFC 9110 §8.8.1).
pub fn streamed_etag(answer: &http::HeaderMap) -> Option<HeaderValue> {
    let etag = answer.get(header::ETAG)?;
    Some(if is_json(answer) { weak(etag) } else { etag.clone() })
}

/// Adds this request as a reader; `None` if the beginning is dropped. `age` is that of a body that
/// it did not wait for.
pub fn read_shared(
    body: &Arc<SharedBody>,
    cache_request: &CacheRequest,
    role: Role,
    age: Option<Duration>,
) -> Option<ReadAnswer> {
    let mut reader = Reader::join(body, cache_request.directives.no_store)?;
    reader.age = age;
    let fetch = if body.is_to_be_kept() { Fetch::Stored } else { Fetch::TooLarge };
    Some(ReadAnswer::Streamed(Box::new(reader), role.outcome(fetch)))
}
