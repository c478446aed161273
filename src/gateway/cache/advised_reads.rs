//! The fetches that a rule may have saved, for the advice to operators (SPECIFICATION, "Commands").

use std::hash::BuildHasher;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::decision::advice::{Advisor, Found, Subject, UpstreamRead};
use crate::decision::cache::freshness::Mode;
use crate::decision::cache::key::CacheKey;
use crate::decision::cache::request_directives::RequestDirectives;
use crate::gateway::address::path_of;
use crate::gateway::cache::lookup::CacheRequest;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::single_flight::FetchResult;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::progress::AskedFor;
use crate::telemetry::{Fetch, LogText};

/// Bound of the time for which a confirmation may count.
const LIFETIME_MAX: Duration = Duration::from_hours(1);

impl ReadCache {
    /// The answer that a fetch asks for.
    pub(super) fn asked_for(&self, key: &CacheKey, cache_request: &CacheRequest) -> AskedFor {
        let name = cache_request.query.as_ref().and_then(|query| query.name.as_deref());
        let operation = name.map(LogText::operation);
        AskedFor { key: self.key_numbers.hash_one(key), operation }
    }

    /// Notes the result of a fetch that a rule may have saved. Routes and queries with a rule, and
    /// answers that may not be stored, need no advice.
    pub(super) fn note_read(
        &self,
        key: u64,
        cache_request: &CacheRequest,
        before: Option<&Entry>,
        fetched: &FetchResult,
    ) {
        let FetchResult::Entry(entry, fetch) = fetched else { return };
        let (job, query) = (&cache_request.job, &cache_request.query);
        if self.has_rule(cache_request) || entry.status().is_server_error() {
            return;
        }
        let found = match fetch {
            Fetch::Revalidated | Fetch::Requested { status: 304 } => Found::Unchanged,
            Fetch::Changed { .. } | Fetch::Requested { .. }
                if before.is_some_and(|before| before.has_same_content(entry)) =>
            {
                Found::Unchanged
            }
            Fetch::Changed { .. } | Fetch::Requested { .. } => Found::Changed,
            Fetch::Stored
            | Fetch::OtherVariant { stored: true }
            | Fetch::EmptyList { is_stored: true } => Found::New,
            Fetch::Shared => Found::Content(self.key_numbers.hash_one(entry.body.text())),
            _ => return,
        };
        let (subject, path) = if let Some(query) = query {
            (Subject::Query(query.name.clone()), query.path.as_str())
        } else {
            let route = job.route.endpoint.template.as_str();
            (Subject::Route(route), path_of(&job.request.target))
        };
        let may_count = self.env.mode == Mode::Revalidate && query.is_none();
        let lifetime = entry.validated().confirmed_for(LIFETIME_MAX, self.env.mode);
        let read = UpstreamRead {
            subject,
            key,
            at: entry.requested_at(),
            cost: if fetch.is_free() { 0 } else { job.route.cost },
            found,
            is_forced: cache_request.directives != RequestDirectives::default(),
            lifetime: lifetime.filter(|_| may_count),
        };
        self.advisor.lock().note(&read, |since| self.store.log.last_change(path, since));
    }

    fn has_rule(&self, cache_request: &CacheRequest) -> bool {
        match &cache_request.query {
            Some(query) => query.ttl.is_some(),
            None => self.rule(cache_request).is_some(),
        }
    }

    /// The counts of this process's fetches that a rule may have saved.
    pub fn advisor(&self) -> MutexGuard<'_, Advisor> {
        self.advisor.lock()
    }
}
