//! Denials: the combination of the blocks of several accounts into one, and the cause of a wait.

use smallvec::SmallVec;

use super::candidates::Closed;
use super::limits::block::Block;
use super::{CHECKED_EACH_MAX, QuotaLedger, place};
use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::types::{
    AccountId, ClientId, LimitDenied, LimitKind, Shadowed, Until, WriteSpacing,
};

/// Accounts of one denial whose state may be asked for. Ours: the further ones follow with the next
/// denials.
const IN_QUESTION_MAX: usize = 16;

/// Denial, with the time of the next check.
#[derive(Clone, Debug)]
pub struct Blocked {
    pub refusal: LimitDenied,
    pub scope: Scope,
    /// True when another client might have been admitted.
    pub is_by_share: bool,
    /// State of the list, when none of its accounts was open.
    pub closed: Option<Closed>,
    pub wake: Option<Timestamp>,
}

impl Blocked {
    /// The effect that it would have had on a request with this deadline.
    pub fn shadowed(&self, deadline: Timestamp) -> Shadowed {
        let is_denial = matches!(self.refusal.until, Until::Time(until) if until > deadline);
        Shadowed { limit: self.refusal.limit, is_denial }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Other endpoints have their own points, and other costs and times may fit.
    Endpoint,
    /// All requests that count in the same windows.
    All,
}

/// The blocks of a request's accounts, combined.
pub struct Blocks {
    /// Account that opens first, and the time of the next check.
    pub nearest: Option<(AccountId, Block)>,
    pub scope: Scope,
    is_by_share: bool,
    pub cost: u32,
    /// Accounts whose state the upstream may be asked for.
    pub in_question: SmallVec<[AccountId; 1]>,
}

impl Blocks {
    pub fn new(cost: u32) -> Self {
        Self {
            nearest: None,
            scope: Scope::All,
            is_by_share: false,
            cost,
            in_question: SmallVec::new(),
        }
    }

    pub fn add(&mut self, id: AccountId, block: Block) {
        if matches!(block.limit, LimitKind::Probe | LimitKind::Primary)
            && self.in_question.len() < IN_QUESTION_MAX
        {
            self.in_question.push(id);
        }
        // A window with too few units until its end may serve a cheaper request.
        let is_too_dear = self.cost > 1
            && block.limit == LimitKind::Primary
            && matches!(block.until, Until::Time(_));
        // Requests in flight hold too much for this endpoint, for as long as they like. Another
        // endpoint may need less. Time that was spent becomes free soon, and keeps the order.
        let is_held_up = matches!(block.limit, LimitKind::Cpu | LimitKind::GraphqlCpu)
            && block.until == Until::Event;
        if block.limit == LimitKind::Points || is_too_dear || is_held_up {
            self.scope = Scope::Endpoint;
        }
        self.is_by_share |= block.limit == LimitKind::ClientShare;
        self.nearest = Some(match self.nearest {
            None => (id, block),
            Some((before, nearest)) => {
                let both = nearest.or(block);
                let is_before = (both.limit, both.until) == (nearest.limit, nearest.until);
                (if is_before { before } else { id }, both)
            }
        });
    }

    pub fn blocked(self, wake: Option<Timestamp>, resource: ResourceName) -> Blocked {
        let Some((account, block)) = self.nearest else { return no_account(resource) };
        let refusal = LimitDenied {
            limit: block.limit,
            account: Some(account),
            resource,
            until: block.until,
            is_unanswered: block.limit == LimitKind::Probe,
        };
        Blocked {
            refusal,
            scope: self.scope,
            is_by_share: self.is_by_share,
            closed: None,
            wake: [block.wake, wake].into_iter().flatten().min(),
        }
    }
}

pub fn no_account(resource: ResourceName) -> Blocked {
    let until = Until::Time(Timestamp::FAR_FUTURE);
    Blocked {
        refusal: LimitDenied {
            limit: LimitKind::NoAccount,
            account: None,
            resource,
            until,
            is_unanswered: false,
        },
        scope: Scope::All,
        is_by_share: false,
        closed: None,
        wake: None,
    }
}

impl QuotaLedger {
    /// Returns true if the upstream has answered no request of this account since a time, nor taken
    /// a part of a body. An answer that waits for its reader is one.
    pub fn is_silent_since(&self, account: AccountId, time: Timestamp) -> bool {
        !self.slow_readers.contains_key(&account)
            && self
                .accounts
                .get(place(account))
                .is_none_or(|account| account.silence.answered_at() < time)
    }

    /// Returns true if a request for these accounts that waited since then, and was denied so, was
    /// held by requests that got no answer. A wait for a known time is due to the limit itself,
    /// unless such requests took the turns or slots before it.
    pub fn is_unanswered(
        &self,
        now: Timestamp,
        since: Timestamp,
        denied: &LimitDenied,
        candidates: &[AccountId],
        client: ClientId,
        write: WriteSpacing,
    ) -> bool {
        let is_held_by_requests = match denied.limit {
            LimitKind::Probe => return true,
            LimitKind::QueueFull | LimitKind::NoAccount => false,
            LimitKind::Spacing | LimitKind::Concurrency | LimitKind::ClientShare => true,
            _ => denied.until == Until::Event,
        };
        let is_silent = |id: &AccountId| {
            // An answer that waits for its reader is one.
            !self.slow_readers.contains_key(id)
                && self
                    .accounts
                    .get(place(*id))
                    .is_some_and(|account| account.is_unanswered(now, since, denied, client, write))
        };
        is_held_by_requests && candidates.iter().take(CHECKED_EACH_MAX).all(is_silent)
    }
}
