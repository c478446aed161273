//! Bodies too large to hold, shared by concurrent requests.

use std::sync::Arc;
use std::time::Duration;

use crate::decision::cache::cache_control::{CacheControl, is_storable_status};
use crate::decision::cache::key::CacheKey;
use crate::gateway::address::path_of;
use crate::gateway::cache::lookup::{CacheRequest, ReadAnswer};
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::shared_body::{JoinGuard, Reader, SharedBody};
use crate::gateway::cache::single_flight::Role;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::answer::UpstreamAnswer;
use crate::gateway::http::media_type::{has_json_type, is_json};
use crate::telemetry::Fetch;

/// The age of a body that others may join. Chosen here: a slowly read body grows old.
const JOINED_AFTER_MAX: Duration = Duration::from_secs(2);

impl ReadCache {
    /// Shares a large body with its fetch's waiters, and with later requests while it is young.
    pub fn begin_shared_body(
        &self,
        key: CacheKey,
        cache_request: &CacheRequest,
        answer: UpstreamAnswer,
    ) -> Arc<JoinGuard> {
        let vary = Entry::vary_of(&answer.headers, cache_request.headers());
        // RFC 9111 §5.2.2.5.
        let is_for_others = !CacheControl::parse(&answer.headers).no_store;
        // Any other status may be about the headers of this request.
        let suits_others = is_for_others && is_storable_status(answer.status);
        // Secrets in encoded JSON cannot be blanked.
        let may_hold_secrets = has_json_type(&answer.headers) && !is_json(&answer.headers);
        let body = Arc::new(SharedBody::new(answer, vary, is_for_others));
        if may_hold_secrets {
            body.keep_in_memory();
        }
        if suits_others {
            self.registry.insert(key, &body);
        }
        Arc::new(JoinGuard(body))
    }

    /// Joins another request's shared body, if it fits and its beginning is kept.
    pub fn join_shared_body(
        &self,
        key: &CacheKey,
        cache_request: &CacheRequest,
    ) -> Option<ReadAnswer> {
        let body = self.registry.find(key).filter(|body| body.fits(cache_request.headers()))?;
        let (now, requested_at) = (self.env.clock.now(), body.head.requested_at);
        let path = path_of(&cache_request.job.request.target);
        let may_join = now.since(requested_at) <= JOINED_AFTER_MAX
            && self.store.trust(path, requested_at).holds(now);
        if may_join { read_shared(&body, cache_request, Role::Follower) } else { None }
    }
}

/// Adds this request as a reader; `None` if the beginning is dropped.
pub fn read_shared(
    body: &Arc<SharedBody>,
    cache_request: &CacheRequest,
    role: Role,
) -> Option<ReadAnswer> {
    let reader = Reader::join(body, cache_request.directives.no_store)?;
    Some(ReadAnswer::Streamed(Box::new(reader), role.outcome(Fetch::TooLarge)))
}
