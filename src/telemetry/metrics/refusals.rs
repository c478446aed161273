//! Gateway errors: their counters, and the latest ones for an operator.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Metrics;
use crate::clock::Timestamp;
use crate::telemetry::labels::{Name, RefusedLabels};
use crate::telemetry::outcome::{LogText, MethodName, Outcome, WaitCause};

/// Latest gateway errors in memory. Our choice: some pages; each is a few hundred bytes.
const RECENT_MAX: usize = 100;

/// One gateway error.
#[derive(Clone, Debug)]
pub struct RecentRefusal {
    /// Time of its end.
    pub at: Timestamp,
    /// `X-Request-Id`.
    pub request_id: LogText,
    /// Client name in the config; `None` when no key was accepted.
    pub client: Option<Arc<str>>,
    /// Request method.
    pub method: MethodName,
    /// Route template of the endpoint table.
    pub endpoint: &'static str,
    /// Status of the answer; 0 when the client left before there was one.
    pub status: u16,
    /// Reason, from a closed set.
    pub reason: &'static str,
    /// Limit that it met, if any.
    pub held: Option<WaitCause>,
    /// Error for the operator.
    pub error: Option<LogText>,
}

/// The latest gateway errors, the oldest first.
#[derive(Default)]
pub(super) struct RecentRefusals(Mutex<VecDeque<RecentRefusal>>);

impl Metrics {
    /// Counts a gateway error that ends without an [`Outcome`]; [`Metrics::record`] counts all
    /// others. `None` when no key was accepted.
    pub fn refused(&self, client: Option<&Arc<str>>, reason: &'static str) {
        self.count_refusal(Name::of_client(client), reason);
    }

    pub(super) fn count_refusal(&self, client: Name, reason: &'static str) {
        self.tally(&client).refused(reason);
        self.counts.refused.of(&RefusedLabels { client, reason }).inc();
    }

    /// Keeps a request that ended at this time among the latest gateway errors, if it is one.
    pub fn keep_refusal(&self, outcome: &Outcome, now: Timestamp) {
        let Some(reason) = outcome.refusal else { return };
        let refusal = RecentRefusal {
            at: now,
            request_id: outcome.request_id.clone(),
            client: outcome.client.clone(),
            method: outcome.method,
            endpoint: outcome.endpoint,
            status: outcome.status,
            reason,
            held: outcome.held.clone(),
            error: outcome.error.clone(),
        };
        let mut recent = self.recent.0.lock();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(refusal);
    }

    /// Returns the latest gateway errors, the latest first, at most a hundred.
    pub fn recent_refusals(&self) -> Vec<RecentRefusal> {
        self.recent.0.lock().iter().rev().cloned().collect()
    }
}
