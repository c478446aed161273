//! The waiting request of a queued write. It reports the write's waits, costs and outcome like
//! those of any other request (SPECIFICATION, "Promises" and "Metrics").

use std::sync::Arc;

use crate::clock::Timestamp;

use crate::gateway::counted::Counted;
use crate::gateway::dispatch::progress::{Hold, RequestProgress};
use crate::gateway::http::interim::Interims;

/// The request that a write is executed for. Without a waiter it has only its progress.
#[derive(Default)]
pub struct SyncWaiter {
    /// Shared by all waiters.
    pub request_progress: RequestProgress,
    /// The first waiter's span, for the spans of attempts.
    pub span: Option<tracing::Span>,
    pub interims: Option<Arc<Interims>>,
    /// Counts its client as waiting until its turn.
    pub waits: Option<Counted>,
    /// True while other writes go first.
    pub is_held: bool,
}

impl SyncWaiter {
    /// Creates it for a request that is about to wait.
    pub fn new(
        request_progress: RequestProgress,
        span: tracing::Span,
        interims: Option<Arc<Interims>>,
        waits: Option<Counted>,
    ) -> Self {
        Self { request_progress, span: Some(span), interims, waits, is_held: false }
    }

    /// Begins the wait for its turn, once.
    pub fn is_behind(&mut self, now: Timestamp) {
        if !self.is_held {
            self.is_held = true;
            self.request_progress.held(now, Hold::TURN);
        }
    }
}
