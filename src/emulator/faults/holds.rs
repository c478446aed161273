//! Responses that a fault holds back: until a time, until later responses overtake them, or until
//! the fault is deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::FaultId;
use super::wire::Departure;
use crate::clock::Timestamp;
use crate::emulator::limits::RequestId;

/// The most later responses to track; beyond it, only the time-out ends the wait.
const LATER_MAX: usize = 10_000;

#[derive(Debug)]
struct HeldResponse {
    fault: FaultId,
    until: Timestamp,
    overtaking: Option<Overtaking>,
}

/// Later responses of one account, and how many of them have yet to leave.
#[derive(Debug)]
struct Overtaking {
    account: String,
    remaining: u32,
    later: BTreeSet<RequestId>,
}

#[derive(Debug, Default)]
pub struct Holds {
    held: BTreeMap<RequestId, HeldResponse>,
}

impl Holds {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn stall(&mut self, request: RequestId, fault: FaultId, until: Timestamp) {
        self.held.insert(request, HeldResponse { fault, until, overtaking: None });
    }

    /// Holds a response back until `after` later ones of this account have left, or until a time.
    pub fn reorder(
        &mut self,
        request: RequestId,
        fault: FaultId,
        until: Timestamp,
        account: &str,
        after: u32,
    ) {
        let overtaking =
            Overtaking { account: account.to_owned(), remaining: after, later: BTreeSet::new() };
        self.held.insert(request, HeldResponse { fault, until, overtaking: Some(overtaking) });
    }

    pub fn is_held(&self, request: RequestId, now: Timestamp) -> bool {
        self.held.get(&request).is_some_and(|held| held.until > now)
    }

    /// Registers a request of this account, the departure of which may release earlier responses.
    pub fn arrived(&mut self, request: RequestId, account: &str) -> Departure {
        let mut departure = Departure::Unwatched;
        for (id, held) in &mut self.held {
            if let Some(overtaking) = &mut held.overtaking
                && *id < request
                && overtaking.account == account
                && overtaking.later.len() < LATER_MAX
            {
                overtaking.later.insert(request);
                departure = Departure::Watched;
            }
        }
        departure
    }

    /// Registers a departure and releases responses that enough later ones have overtaken.
    pub fn departed(&mut self, request: RequestId) {
        self.held.retain(|_, held| {
            let Some(overtaking) = &mut held.overtaking else { return true };
            if overtaking.later.remove(&request) {
                overtaking.remaining = overtaking.remaining.saturating_sub(1);
            }
            overtaking.remaining > 0
        });
    }

    pub fn release(&mut self, request: RequestId) {
        self.held.remove(&request);
    }

    pub fn release_all_of(&mut self, fault: FaultId) -> usize {
        let before = self.held.len();
        self.held.retain(|_, held| held.fault != fault);
        before - self.held.len()
    }

    pub fn count(&self, fault: FaultId) -> usize {
        self.held.values().filter(|held| held.fault == fault).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(100);
    const LATER: Timestamp = Timestamp::from_secs(110);
    const FAULT: FaultId = FaultId(1);

    #[test]
    fn a_reordered_response_leaves_after_enough_later_ones() {
        let mut holds = Holds::default();
        holds.reorder(RequestId(5), FAULT, LATER, "ada", 2);
        assert_eq!(holds.arrived(RequestId(4), "ada"), Departure::Unwatched, "it came before");
        assert_eq!(holds.arrived(RequestId(6), "ben"), Departure::Unwatched);
        for id in [7, 8] {
            assert_eq!(holds.arrived(RequestId(id), "ada"), Departure::Watched);
        }
        holds.departed(RequestId(7));
        holds.departed(RequestId(7));
        assert!(holds.is_held(RequestId(5), NOW), "one answer leaves once");
        holds.departed(RequestId(8));
        assert!(!holds.is_held(RequestId(5), NOW));
    }

    #[test]
    fn a_hold_ends_with_its_time_or_its_fault() {
        let mut holds = Holds::default();
        holds.stall(RequestId(1), FAULT, LATER);
        holds.stall(RequestId(2), FAULT, Timestamp::FAR_FUTURE);
        assert!(holds.is_held(RequestId(1), NOW) && !holds.is_held(RequestId(1), LATER));
        assert_eq!(holds.count(FAULT), 2);
        assert_eq!(holds.release_all_of(FAULT), 2);
        assert!(!holds.is_held(RequestId(2), NOW));
    }
}
