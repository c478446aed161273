//! What a request has cost so far, and whether it may still be called back: shared by the task that
//! spends and the one that watches the client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::{AccountId, LimitDenied, LimitKind, Until};

use crate::gateway::environment::Environment;
use crate::gateway::upstream::fetch::FetchError;
use crate::telemetry::WaitCause;

/// The effort of one request. Clones share their state.
#[derive(Clone, Default)]
pub struct RequestProgress(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    place: Place,
    /// The client has left: nothing more may be sent.
    cancelled: bool,
    /// Some attempt was sent, whatever became of it.
    was_sent: bool,
    figures: Figures,
    /// What it waits for right now, and since when.
    holding: Option<(Hold, Timestamp)>,
    /// How long the hold in `figures` lasted.
    held_for: Duration,
}

/// What a request waits for, or was refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What stands in the way.
    pub by: HeldBy,
    /// Whose limit it is; `None` when it is no account's.
    pub account: Option<AccountId>,
    /// When that can end.
    pub until: Until,
}

/// What can hold a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// A limit of the books.
    Limit(LimitKind),
    /// Earlier writes of the same client to the same resource (CONTRACT §4, 4).
    Turn,
    /// A token that is being minted.
    Mint,
}

impl HeldBy {
    /// The word for it in metrics, logs and spans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit(limit) => limit.name(),
            Self::Turn => "turn",
            Self::Mint => "mint",
        }
    }
}

impl Hold {
    /// The turn of the lane.
    pub const TURN: Self = Self { by: HeldBy::Turn, account: None, until: Until::Event };
    /// No account has a token yet.
    pub const MINT: Self = Self { by: HeldBy::Mint, account: None, until: Until::Event };

    /// The hold in the words of the log.
    pub fn for_log(self, env: &Environment) -> WaitCause {
        let until = if let Until::Time(until) = self.until { Some(until) } else { None };
        let account = self.account.map(|account| Arc::clone(env.shared_name(account)));
        WaitCause { by: self.by.name(), account, until }
    }
}

impl From<&LimitDenied> for Hold {
    fn from(refusal: &LimitDenied) -> Self {
        Self { by: HeldBy::Limit(refusal.limit), account: refusal.account, until: refusal.until }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// In a line, or between two attempts: it can be called back.
    #[default]
    Here,
    /// From the first byte until the attempt has ended.
    OnWire,
}

/// The figures of an [`RequestProgress`].
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
    /// What it waited for longest, or what refused it.
    pub held: Option<Hold>,
    /// The last thing that went wrong, in the words of the log.
    pub error: Option<String>,
}

/// Whether a request whose client has left is still to be brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It was caught before anything was sent, or between two attempts: it will not be sent any
    /// more.
    Stopped,
    /// It is on its way: the books, the lane and the cache need its outcome.
    OnWire,
}

impl RequestProgress {
    /// Whether an attempt is on its way right now.
    pub fn is_on_wire(&self) -> bool {
        self.0.lock().place == Place::OnWire
    }

    /// Whether a limit holds it, so that others may go before it.
    pub fn waits_in_line(&self) -> bool {
        self.0.lock().holding.is_some_and(|(hold, _)| matches!(hold.by, HeldBy::Limit(_)))
    }

    /// Whether any attempt was ever sent.
    pub fn was_sent(&self) -> bool {
        self.0.lock().was_sent
    }

    /// The client has left.
    pub fn cancel(&self) -> CancelOutcome {
        let mut state = self.0.lock();
        state.cancelled = true;
        if state.place == Place::OnWire { CancelOutcome::OnWire } else { CancelOutcome::Stopped }
    }

    /// A copy of the figures; a wait that goes on counts up to `now`.
    pub fn figures(&self, now: Timestamp) -> Figures {
        let state = self.0.lock();
        let mut figures = state.figures.clone();
        if let Some((hold, since)) = state.holding {
            figures.queue += now.since(since);
            figures.held = Some(hold);
        }
        figures
    }

    /// A wait begins.
    pub fn held(&self, now: Timestamp, hold: Hold) {
        self.0.lock().holding = Some((hold, now));
    }

    /// The wait has ended, if there was one: what for, and how long.
    pub fn released(&self, now: Timestamp) -> Option<(HeldBy, Duration)> {
        let state = &mut *self.0.lock();
        let (hold, since) = state.holding.take()?;
        let waited = now.since(since);
        if waited.is_zero() {
            return None;
        }
        state.figures.queue += waited;
        if waited >= state.held_for {
            state.held_for = waited;
            state.figures.held = Some(hold);
        }
        Some((hold.by, waited))
    }

    /// It is refused, which says more than what it waited for before.
    pub fn refused(&self, hold: Hold) {
        self.0.lock().figures.held = Some(hold);
    }

    /// It is refused for a limit by a part of the gateway that does not know whose it is; what is
    /// known already stands.
    pub fn refused_somewhere(&self, limit: LimitKind, until: Timestamp) {
        let held = &mut self.0.lock().figures.held;
        if held.is_none_or(|hold| hold.by != HeldBy::Limit(limit)) {
            *held =
                Some(Hold { by: HeldBy::Limit(limit), account: None, until: Until::Time(until) });
        }
    }

    /// An attempt is about to be made.
    pub fn attempted(&self, account: AccountId, resource: &ResourceName) {
        let figures = &mut self.0.lock().figures;
        figures.attempts += 1;
        figures.account = Some(account);
        figures.resource = Some(resource.clone());
    }

    /// The answer that counts is that of this account, which need not be the last one asked.
    pub fn answered_by(&self, account: AccountId) {
        self.0.lock().figures.account = Some(account);
    }

    /// The first byte is about to leave; `false`: it must not, the client has left.
    pub fn may_send(&self) -> bool {
        let mut state = self.0.lock();
        if !state.cancelled {
            state.place = Place::OnWire;
            state.was_sent = true;
        }
        !state.cancelled
    }

    /// The attempt has ended.
    pub fn ended(&self, took: Duration) {
        let mut state = self.0.lock();
        state.place = Place::Here;
        state.figures.upstream += took;
    }

    /// What went wrong, in the words of the log.
    pub fn failed(&self, error: &FetchError) {
        self.0.lock().figures.error = Some(error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_is_brought_to_its_end_and_nothing_is_sent_after_it() {
        let progress = RequestProgress::default();
        assert!(progress.may_send());
        assert_eq!(progress.cancel(), CancelOutcome::OnWire);
        progress.ended(Duration::ZERO);
        assert!(!progress.may_send());
        assert!(progress.was_sent() && !progress.is_on_wire());
    }

    #[test]
    fn of_several_waits_the_longest_is_told_and_one_that_goes_on_counts() {
        let progress = RequestProgress::default();
        let (start, limit) = (Timestamp::from_secs(100), |limit| Hold {
            by: HeldBy::Limit(limit),
            account: None,
            until: Until::Event,
        });
        let after = |secs| start + Duration::from_secs(secs);
        progress.held(start, Hold::TURN);
        assert_eq!(progress.figures(after(2)).queue, Duration::from_secs(2));
        assert_eq!(progress.released(after(5)), Some((HeldBy::Turn, Duration::from_secs(5))));
        progress.held(after(5), limit(LimitKind::Concurrency));
        assert_eq!(
            progress.figures(after(6)).held.map(|hold| hold.by.name()),
            Some("concurrency"),
            "it is what holds it now"
        );
        progress.released(after(7));
        let figures = progress.figures(after(9));
        assert_eq!((figures.queue, figures.held), (Duration::from_secs(7), Some(Hold::TURN)));
        progress.refused(limit(LimitKind::Primary));
        assert_eq!(
            progress.figures(after(9)).held,
            Some(limit(LimitKind::Primary)),
            "a refusal says more"
        );
    }

    #[test]
    fn a_wait_of_no_time_is_none() {
        let (progress, now) = (RequestProgress::default(), Timestamp::from_secs(100));
        progress.held(now, Hold::TURN);
        assert_eq!(progress.released(now), None);
        assert_eq!(progress.figures(now).held, None);
        assert_eq!(progress.released(now), None);
    }

    #[test]
    fn what_waits_is_called_back_also_between_two_attempts() {
        let progress = RequestProgress::default();
        assert!(progress.may_send());
        progress.ended(Duration::ZERO);
        assert_eq!(progress.cancel(), CancelOutcome::Stopped);
        assert!(!progress.may_send());
    }
}
