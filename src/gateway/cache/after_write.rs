//! Invalidates stored answers after a write through this gateway or a webhook event.
//!
//! `api/invalidation/write_effects.rs` and `api/invalidation/events/mod.rs` know the effects of
//! writes and events. `decision/cache/settling.rs` decides how long entries stay invalidated.

use std::time::Duration;

use http::{Method, header};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use crate::api::{Invalidation, any_node, node_path, stale_after_write, stale_by_milestone};
use crate::clock::Timestamp;

use crate::gateway::address::path_of;
use crate::gateway::cache::invalidation::purge::{Prefix, Purged};
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::job::Job;
use crate::gateway::http::media_type::is_json;
use crate::state::Change;

/// The longest time for which the answer to a write waits for the other replicas. Ours: a failover
/// of Redis takes less.
const NOTED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct WrittenResource {
    /// Its URL, with names in place of numbers, and the new name after a rename.
    url: Option<String>,
    /// Its id in answers to GraphQL queries.
    node_id: Option<String>,
    milestone: Option<IgnoredAny>,
}

/// The names of changed things in the answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Paths, by which alone GraphQL answers cannot be found.
    Paths,
    /// The node id of each changed thing.
    Nodes,
}

impl ReadCache {
    /// Invalidates after a write that was, or may have been, executed. Unless `names` are those of
    /// all changed things, any node id may be that of one.
    pub fn invalidate(&self, job: &Job, names: Names) {
        let now = self.env.clock.now();
        let mut stale = stale_after_write(&job.request.method, path_of(&job.request.target));
        if names == Names::Paths && !stale.is_empty() {
            stale.push(any_node());
        }
        self.invalidate_paths(&stale, now);
    }

    /// Invalidates upstream resources named in a write's answer (RFC 9111 §4.4).
    pub fn invalidate_named(&self, job: &Job, answer: &UpstreamAnswer) -> Names {
        let (is_done, now) = (answer.status.is_success(), self.env.clock.now());
        if !is_done && !answer.status.is_redirection() {
            return Names::Paths;
        }
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let reference = answer.headers.get(name).and_then(|value| value.to_str().ok());
            match reference
                .and_then(|reference| self.env.urls.named_path(&job.request.target, reference))
            {
                // The path may be new: until now, lookups there and below may have found nothing.
                Some(path) if is_done && is_deep(&path) => {
                    self.invalidate_paths(&[Invalidation::Below(path)], now);
                }
                Some(path) => self.invalidate_paths(&[Invalidation::Exactly(path)], now),
                None => {}
            }
        }
        if is_done { self.invalidate_written(job, answer, now) } else { Names::Paths }
    }

    /// Invalidates the written resource under its other address and its node id.
    fn invalidate_written(&self, job: &Job, answer: &UpstreamAnswer, now: Timestamp) -> Names {
        let target = &*job.request.target;
        let AnswerBody::Whole(bytes) = &answer.body else { return Names::Paths };
        if !is_json(&answer.headers) {
            return Names::Paths;
        }
        let Ok(written) = serde_json::from_slice::<WrittenResource>(bytes) else {
            return Names::Paths;
        };
        let node = written.node_id.as_deref().and_then(node_path);
        if let Some(path) = &node {
            self.invalidate_paths(&[Invalidation::Exactly(path.clone())], now);
        }
        let target_path = path_of(target);
        let other = written.url.as_ref().and_then(|url| self.env.urls.named_path(target, url));
        let other = other.filter(|path| is_deep(path) && !path.eq_ignore_ascii_case(target_path));
        if let Some(path) = &other {
            self.invalidate_paths(&stale_after_write(&Method::PATCH, path), now);
        }
        if written.milestone.is_some() {
            for path in [Some(target_path), other.as_deref()].into_iter().flatten() {
                self.invalidate_paths(&stale_by_milestone(path), now);
            }
        }
        // The answer to a POST shows the new thing, not those that it was added to.
        let is_of_target = job.request.method == Method::PATCH && written.milestone.is_none();
        if node.is_some() && is_of_target { Names::Nodes } else { Names::Paths }
    }

    /// Invalidates here, and lets the other replicas know.
    pub fn invalidate_paths(&self, stale: &[Invalidation], now: Timestamp) {
        self.store.log.note(stale, now);
        let Some(replica) = &self.env.replica else { return };
        for stale in stale {
            replica.changes.note(match stale {
                Invalidation::Exactly(path) => Change::Exactly(path.clone()),
                Invalidation::Below(path) => Change::Below(path.clone()),
                Invalidation::Everything => Change::Below("/".to_owned()),
            });
        }
    }

    /// Removes all stored answers under a prefix, here and in the other replicas.
    pub fn purge(&self, prefix: &Prefix, now: Timestamp) -> Purged {
        if let Some(replica) = &self.env.replica {
            replica.changes.note(Change::Purged(prefix.as_str().to_owned()));
        }
        self.store.purge(prefix, now)
    }

    /// Waits until all replicas have noted what was invalidated here.
    pub async fn all_noted(&self) {
        let Some(replica) = &self.env.replica else { return };
        if timeout(NOTED_WITHIN, replica.changes.all_noted()).await.is_err() {
            tracing::warn!(
                "Redis went out of reach during a write: the other replicas were not told what it changed"
            );
        }
    }

    /// True if another replica may have changed what was requested here at `at`.
    pub fn may_have_missed(&self, at: Timestamp, now: Timestamp) -> bool {
        self.env.replica.as_ref().is_some_and(|replica| replica.may_have_missed(at, now))
    }

    /// True if this replica does not hear what it says to the others.
    pub fn is_out_of_touch(&self, now: Timestamp) -> bool {
        self.env.replica.as_ref().is_some_and(|replica| replica.is_out_of_touch(now))
    }
}

/// True if a path names one resource rather than a collection.
fn is_deep(path: &str) -> bool {
    path.trim_end_matches('/').bytes().filter(|byte| *byte == b'/').count() >= 2
}
