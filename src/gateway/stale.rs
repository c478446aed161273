//! What is told to the store when something changed: by a write through this gateway, or by an event that a webhook tells of.
//!
//! What a write or an event changes is a fact of the API (`api/stale.rs`, `api/events.rs`); how long that leaves stored answers doubtful is decided in
//! `decision/freshness/settling.rs`.

use http::header;

use crate::api::{Stale, stale_after_write};
use crate::clock::Timestamp;

use super::Gateway;
use super::attempt::Answer;

impl Gateway {
    /// After a write to `target` that was, or may have been, executed.
    pub fn invalidate(&self, target: &str) {
        self.make_doubtful(&stale_after_write(path_of(target)), self.clock.now());
    }

    /// After a write that was answered so: what it says that it made or changed (RFC 9111 §4.4), where that is the upstream's own.
    pub fn invalidate_named(&self, target: &str, answer: &Answer) {
        if !(answer.status.is_success() || answer.status.is_redirection()) {
            return;
        }
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let reference = answer.headers.get(name).and_then(|value| value.to_str().ok());
            if let Some(path) = reference.and_then(|reference| self.urls.named_path(target, reference)) {
                self.store.written(&path, self.clock.now());
            }
        }
    }

    /// Something changed at `now`.
    pub fn make_doubtful(&self, stale: &[Stale], now: Timestamp) {
        for stale in stale {
            match stale {
                Stale::Exactly(path) => self.store.written(path, now),
                Stale::Below(path) => self.store.make_doubtful_below(path, now),
                Stale::Everything => self.store.make_doubtful_below("/", now),
            }
        }
    }
}

/// A target without its query.
pub fn path_of(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or(target)
}
