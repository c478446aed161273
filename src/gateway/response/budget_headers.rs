//! The budget headers, as clients and `/rate_limit` show a budget.

use serde::Serialize;

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::BudgetView;
use crate::gateway::http::head_writer::{Fields, with_digits};

/// The numbers of the five budget headers, and the value of a resource in `GET /rate_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
        Self::new(view.limit.max(1), view.remaining.max(1), view.reset, now)
    }

    /// The exact view, which may be empty.
    pub fn plain(view: &BudgetView, now: Timestamp) -> Self {
        Self::new(view.limit, view.remaining, view.reset, now)
    }

    fn new(limit: u32, remaining: u32, reset: Timestamp, now: Timestamp) -> Self {
        let used = limit.saturating_sub(remaining);
        Self { limit, remaining, used, reset: reset.as_secs_ceil().max(now.as_secs() + 1) }
    }

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
            with_digits(number, |digits| {
                // Each answer from upstream changes these two.
                if matches!(name, RATE_REMAINING | RATE_USED) {
                    head.set_varying(name, digits);
                } else {
                    head.set(name, digits);
                }
            });
        }
        head.set(RATE_RESOURCE, resource.as_str().as_bytes());
    }
}
