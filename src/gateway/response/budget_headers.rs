//! The budget headers, as clients and `/rate_limit` show a budget.

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::BudgetView;
use crate::gateway::http::head_writer::Fields;
use serde_json::json;

/// The five budget headers of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateView {
    pub(super) limit: u32,
    pub(super) remaining: u32,
    pub(super) used: u32,
    pub(super) reset: u64,
}

impl RateView {
    /// The view for a served answer. `remaining` is at least 1, because some clients stop at 0
    /// (SPECIFICATION, "Client libraries" 3).
    pub fn served(view: &BudgetView, now: Timestamp) -> Self {
        let remaining = view.remaining.max(1);
        Self {
            limit: view.limit.max(1),
            remaining,
            used: view.limit.max(1).saturating_sub(remaining),
            reset: view.reset.as_secs_ceil().max(now.as_secs() + 1),
        }
    }

    /// The exact view, which may be empty.
    pub fn plain(view: &BudgetView, now: Timestamp) -> Self {
        let used = view.limit.saturating_sub(view.remaining);
        Self {
            limit: view.limit,
            remaining: view.remaining,
            used,
            reset: view.reset.as_secs_ceil().max(now.as_secs() + 1),
        }
    }

    /// The value of a resource in `GET /rate_limit`.
    pub fn json(self) -> serde_json::Value {
        json!({ "limit": self.limit, "remaining": self.remaining, "used": self.used, "reset": self.reset })
    }

    /// Adds the headers, each exactly once.
    pub fn write(self, head: &mut impl Fields, resource: &ResourceName) {
        use crate::api::headers::{
            RATE_LIMIT, RATE_REMAINING, RATE_RESET, RATE_RESOURCE, RATE_USED,
        };
        let numbers = [
            (RATE_LIMIT, u64::from(self.limit)),
            (RATE_REMAINING, u64::from(self.remaining)),
            (RATE_USED, u64::from(self.used)),
            (RATE_RESET, self.reset),
        ];
        for (name, number) in numbers {
            head.say_number(name, number);
        }
        head.say(RATE_RESOURCE, resource.as_str().as_bytes());
    }
}
