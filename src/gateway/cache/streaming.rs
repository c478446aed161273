//! Bodies too large to hold, shared by the requests that ask for one at the same time.

use crate::decision::cache::cache_control::CacheControl;
use crate::decision::cache::key::CacheKey;
use crate::gateway::address::path_of;
use crate::gateway::cache::cache_request::CacheRequest;
use crate::gateway::cache::lookup::ReadAnswer;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::shared_body::{Landing, SharedBody};
use crate::gateway::cache::shared_body_reader::{Reader, Resume};
use crate::gateway::cache::single_flight::Role;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::answer::Answer;
use crate::telemetry::{CacheOutcome, Fetch};
use std::sync::Arc;
use std::time::Duration;

/// The age of a body that others may join. Chosen here: a slowly read body grows old.
const JOINED_AFTER_MAX: Duration = Duration::from_secs(2);

impl ReadCache {
    /// Shares a large body with its fetch's waiters, and with later requests while it is young.
    pub fn begin_shared_body(
        &self,
        key: CacheKey,
        cache_request: &CacheRequest,
        answer: Answer,
    ) -> Arc<Landing> {
        let vary = Entry::vary_of(&answer.headers, &cache_request.asked);
        // RFC 9111 §5.2.2.5.
        let is_for_others = !CacheControl::parse(&answer.headers).no_store;
        let is_failure = answer.status.is_server_error();
        let stream = Arc::new(SharedBody::new(answer, vary, is_for_others));
        if is_for_others && !is_failure {
            self.registry.begun(key, &stream);
        }
        Arc::new(Landing(stream))
    }

    /// Joins another request's shared body, if it fits and its beginning is kept.
    pub fn join_shared_body(
        &self,
        key: &CacheKey,
        cache_request: &Arc<CacheRequest>,
    ) -> Option<ReadAnswer> {
        let stream = self.registry.find(key).filter(|stream| stream.fits(&cache_request.asked))?;
        let (now, requested_at) = (self.env.clock.now(), stream.head.requested_at);
        let is_new = now.since(requested_at) <= JOINED_AFTER_MAX;
        let is_right = is_new
            && self
                .store
                .trust(path_of(&cache_request.job.request.target), requested_at)
                .holds(now);
        if is_right { self.streamed(&stream, cache_request, Role::Follower) } else { None }
    }

    pub fn streamed(
        &self,
        stream: &Arc<SharedBody>,
        cache_request: &Arc<CacheRequest>,
        role: Role,
    ) -> Option<ReadAnswer> {
        let again = Resume {
            dispatcher: Arc::clone(&self.dispatcher),
            cache_request: Arc::clone(cache_request),
        };
        let reader = Reader::join(stream, Some(again))?;
        let cache = match role {
            Role::Leader => CacheOutcome::Fetched(Fetch::TooLarge),
            Role::Follower => CacheOutcome::Collapsed(Fetch::TooLarge),
        };
        Some(ReadAnswer::Streamed(Box::new(reader), cache))
    }
}
