//! What is told to the store when something changed: by a write through this gateway, or by an
//! event that a webhook tells of.
//!
//! What a write or an event changes is a fact of the API (`api/stale.rs`, `api/events.rs`); how
//! long that leaves stored answers doubtful is decided in `decision/freshness/settling.rs`.

use http::{Method, header};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::api::{Invalidation, stale_after_write, stale_by_milestone};
use crate::clock::Timestamp;

use crate::gateway::address::path_of;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::dispatch::job::Job;
use crate::gateway::http::media_type::is_json;

/// What a write's answer shows of the thing that was written.
#[derive(Default, Deserialize)]
struct Shown {
    /// Its address, which has names where the request may have had numbers, and the new one where
    /// it was renamed.
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    milestone: Option<IgnoredAny>,
}

impl ReadCache {
    /// After a write that was, or may have been, executed.
    pub fn invalidate(&self, job: &Job) {
        self.invalidate_paths(
            &stale_after_write(&job.request.method, path_of(&job.request.target)),
            self.env.clock.now(),
        );
    }

    /// After a write that was answered so: what it says that it made or changed (RFC 9111 §4.4),
    /// where that is the upstream's own.
    pub fn invalidate_named(&self, job: &Job, answer: &Answer) {
        let (is_done, now) = (answer.status.is_success(), self.env.clock.now());
        if !is_done && !answer.status.is_redirection() {
            return;
        }
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let reference = answer.headers.get(name).and_then(|value| value.to_str().ok());
            match reference
                .and_then(|reference| self.env.urls.named_path(&job.request.target, reference))
            {
                // Until now there may have been nothing there, nor below it.
                Some(path) if is_done && is_deep(&path) => self.store.invalidate_prefix(&path, now),
                Some(path) => self.store.written(&path, now),
                None => {}
            }
        }
        if is_done {
            self.invalidate_shown(&job.request.target, &shown(answer), now);
        }
    }

    /// What was written is the same by its other address.
    fn invalidate_shown(&self, target: &str, shown: &Shown, now: Timestamp) {
        let target_path = path_of(target);
        let other = shown.url.as_ref().and_then(|url| self.env.urls.named_path(target, url));
        let other = other.filter(|path| is_deep(path) && !path.eq_ignore_ascii_case(target_path));
        if let Some(path) = &other {
            self.invalidate_paths(&stale_after_write(&Method::PATCH, path), now);
        }
        if shown.milestone.is_some() {
            for path in [Some(target_path), other.as_deref()].into_iter().flatten() {
                self.invalidate_paths(&stale_by_milestone(path), now);
            }
        }
    }

    /// Something changed at `now`.
    pub fn invalidate_paths(&self, stale: &[Invalidation], now: Timestamp) {
        for stale in stale {
            match stale {
                Invalidation::Exactly(path) => self.store.written(path, now),
                Invalidation::Below(path) => self.store.invalidate_prefix(path, now),
                Invalidation::Everything => self.store.invalidate_prefix("/", now),
            }
        }
    }
}

/// Nothing where the answer is no object, or none that is held.
fn shown(answer: &Answer) -> Shown {
    match &answer.body {
        AnswerBody::Whole(bytes) if is_json(&answer.headers) => {
            serde_json::from_slice(bytes).unwrap_or_default()
        }
        _ => Shown::default(),
    }
}

/// Whether a path names one thing, and not all that is of a kind.
fn is_deep(path: &str) -> bool {
    path.trim_end_matches('/').bytes().filter(|byte| *byte == b'/').count() >= 2
}
