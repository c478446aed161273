//! What a request has cost so far, and whether it may still be called back: shared by the task that spends and the one that watches the client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::ResourceName;
use crate::decision::AccountId;

use super::fetch::FetchError;

/// The effort of one request. Clones share their state.
#[derive(Clone, Default)]
pub struct Effort(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    place: Place,
    /// The client has left: nothing more may be sent.
    deserted: bool,
    /// Some attempt was sent, whatever became of it.
    was_sent: bool,
    figures: Figures,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// In a line, or between two attempts: it can be called back.
    #[default]
    Here,
    /// From the first byte until the attempt has ended.
    OnWire,
}

/// The figures of an [`Effort`].
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests sent upstream.
    pub attempts: u32,
    /// Time spent waiting for the upstream.
    pub upstream: Duration,
    /// Time spent waiting for a turn and for admission.
    pub queue: Duration,
    /// The last account.
    pub account: Option<AccountId>,
    /// The resource it was booked under.
    pub resource: Option<ResourceName>,
    /// The last thing that went wrong, in the words of the log.
    pub error: Option<String>,
}

/// Whether a request whose client has left is still to be brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was caught before anything was sent, or between two attempts: it will not be sent any more.
    CalledBack,
    /// It is on its way: the books, the lane and the cache need its outcome.
    OnWire,
}

impl Effort {
    /// Whether an attempt is on its way right now.
    pub fn is_on_wire(&self) -> bool {
        self.0.lock().place == Place::OnWire
    }

    /// Whether any attempt was ever sent.
    pub fn was_sent(&self) -> bool {
        self.0.lock().was_sent
    }

    /// The client has left.
    pub fn desert(&self) -> Fate {
        let mut state = self.0.lock();
        state.deserted = true;
        if state.place == Place::OnWire { Fate::OnWire } else { Fate::CalledBack }
    }

    /// A copy of the figures.
    pub fn figures(&self) -> Figures {
        self.0.lock().figures.clone()
    }

    /// Adds time spent waiting.
    pub fn queued(&self, waited: Duration) {
        self.0.lock().figures.queue += waited;
    }

    /// An attempt is about to be made.
    pub(super) fn attempted(&self, account: AccountId, resource: &ResourceName) {
        let figures = &mut self.0.lock().figures;
        figures.attempts += 1;
        figures.account = Some(account);
        figures.resource = Some(resource.clone());
    }

    /// The first byte is about to leave; `false`: it must not, the client has left.
    pub(super) fn may_send(&self) -> bool {
        let mut state = self.0.lock();
        if !state.deserted {
            state.place = Place::OnWire;
            state.was_sent = true;
        }
        !state.deserted
    }

    /// The attempt has ended.
    pub(super) fn ended(&self, took: Duration) {
        let mut state = self.0.lock();
        state.place = Place::Here;
        state.figures.upstream += took;
    }

    /// What went wrong, in the words of the log.
    pub(super) fn failed(&self, error: &FetchError) {
        self.0.lock().figures.error = Some(error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_is_brought_to_its_end_and_nothing_is_sent_after_it() {
        let effort = Effort::default();
        assert!(effort.may_send());
        assert_eq!(effort.desert(), Fate::OnWire);
        effort.ended(Duration::ZERO);
        assert!(!effort.may_send());
        assert!(effort.was_sent() && !effort.is_on_wire());
    }

    #[test]
    fn what_waits_is_called_back_also_between_two_attempts() {
        let effort = Effort::default();
        assert!(effort.may_send());
        effort.ended(Duration::ZERO);
        assert_eq!(effort.desert(), Fate::CalledBack);
        assert!(!effort.may_send());
    }
}
