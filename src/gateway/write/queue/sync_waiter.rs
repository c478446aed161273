//! Whoever waits for a write in the queue: what the write waits for, costs and comes to is said of
//! that request as of any other (CONTRACT §3, §6).

use std::sync::Arc;

use crate::clock::Timestamp;

use crate::gateway::counted::Counted;
use crate::gateway::dispatch::progress::{Hold, RequestProgress};
use crate::gateway::http::interim::Interims;

/// The request that a write is carried out for; of one that nobody waits for, nothing but its
/// effort.
#[derive(Default)]
pub struct SyncWaiter {
    /// Shared by all requests that wait for the write.
    pub request_progress: RequestProgress,
    /// The first one's span, for those of the attempts.
    pub span: Option<tracing::Span>,
    /// Where informational answers go.
    pub interims: Option<Arc<Interims>>,
    /// Counts its client among those that wait, until its turn has come.
    pub waits: Option<Counted>,
    /// Others go first.
    pub is_held: bool,
}

impl SyncWaiter {
    /// Of a request that is about to wait.
    pub fn new(
        request_progress: RequestProgress,
        span: tracing::Span,
        interims: Option<Arc<Interims>>,
        waits: Option<Counted>,
    ) -> Self {
        Self { request_progress, span: Some(span), interims, waits, is_held: false }
    }

    /// Others go first from now on, unless they did so before.
    pub fn is_behind(&mut self, now: Timestamp) {
        if !self.is_held {
            self.is_held = true;
            self.request_progress.held(now, Hold::TURN);
        }
    }
}
