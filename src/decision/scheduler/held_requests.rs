//! The waiting requests by the limit that holds them, for an operator.

use super::Admission;
use crate::api::ResourceName;
use crate::decision::types::{AccountId, HashMap, LimitKind, Until};

/// Requests that one limit of one account holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRequests {
    /// The limit at the last attempt to admit them.
    pub limit: LimitKind,
    /// Account of the limit; of several accounts the one that opens first. `None`: no account.
    pub account: Option<AccountId>,
    /// Resource that they count against.
    pub resource: ResourceName,
    /// Earliest end of the limit.
    pub until: Until,
    /// Their number.
    pub requests: usize,
}

impl Admission {
    /// The waiting requests by limit, account and resource, most first.
    pub fn held_requests(&self) -> Vec<HeldRequests> {
        let mut held = HashMap::<_, HeldRequests>::default();
        for (requests, by) in self.queue.held_groups() {
            let key = (by.limit, by.account, by.resource.clone());
            let sum = held.entry(key).or_insert_with(|| HeldRequests {
                limit: by.limit,
                account: by.account,
                resource: by.resource.clone(),
                until: by.until,
                requests: 0,
            });
            sum.requests += requests;
            sum.until = earlier(sum.until, by.until);
        }
        let mut held: Vec<_> = held.into_values().collect();
        held.sort_unstable_by(|one, other| {
            let key = |held: &HeldRequests| (held.limit, held.account);
            other.requests.cmp(&one.requests).then_with(|| key(one).cmp(&key(other)))
        });
        held
    }
}

/// A known time comes before an unknown one.
fn earlier(one: Until, other: Until) -> Until {
    match (one, other) {
        (Until::Time(one), Until::Time(other)) => Until::Time(one.min(other)),
        (Until::Event, known) | (known, Until::Event) => known,
    }
}
