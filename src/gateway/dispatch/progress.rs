//! The progress of a request: its cost so far, and its cancellation. The sending task and the task
//! that watches the client share it.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;

use crate::api::ResourceName;
use crate::clock::{Moment, Timestamp};
use crate::decision::{AccountId, LimitDenied, LimitKind, Until};

use crate::gateway::environment::Environment;
use crate::gateway::upstream::fetch::FetchError;
use crate::telemetry::{Chosen, Event, LogText, STEPS_MAX, Step, WaitCause};
use crate::tokens::TokenId;
use crate::writes::WriteId;

/// A shorter wait is a step of the program, and counts only as time: no limit held the request.
const HOLD_MIN: Duration = Duration::from_millis(1);

/// The progress of one request. Clones share their state.
#[derive(Clone, Default)]
pub struct RequestProgress(Arc<Mutex<Tracked>>);

#[derive(Default)]
struct Tracked {
    /// From the first byte to the end of the attempt; else in a queue or between two attempts.
    is_on_wire: bool,
    /// The client has left, so nothing more may be sent.
    cancelled: bool,
    was_sent: bool,
    /// Tokens that the upstream rejected, perhaps by mistake. At most two for each attempt.
    suspected: Vec<TokenId>,
    figures: Figures,
    holding: Option<(Hold, Moment)>,
    /// Its steps so far, at most [`STEPS_MAX`]; none for an answer from the cache.
    steps: Vec<(Moment, Happened)>,
    /// The duration of the hold in `figures`.
    held_for: Duration,
}

/// A step of a request, as it happens.
#[derive(Clone, Debug)]
pub enum Happened {
    Held(Hold, Duration),
    Denied(Hold),
    Queued(WriteId),
    Sent(AccountId, ResourceName, Chosen),
    Answered(StatusCode, Duration, Option<LogText>),
    Failed(String, Duration),
}

/// The reason of a wait or a limit denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub by: HeldBy,
    /// The account of the limit, if it has one.
    pub account: Option<AccountId>,
    pub until: Until,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    Limit(LimitKind),
    /// Earlier writes of the same client to the same resource (SPECIFICATION, "Promises" 4).
    Turn,
    Mint,
}

impl HeldBy {
    /// The word in metrics, logs and spans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit(limit) => limit.name(),
            Self::Turn => "turn",
            Self::Mint => "mint",
        }
    }
}

impl Hold {
    pub const TURN: Self = Self { by: HeldBy::Turn, account: None, until: Until::Event };
    pub const MINT: Self = Self { by: HeldBy::Mint, account: None, until: Until::Event };

    pub fn for_log(self, env: &Environment) -> WaitCause {
        let until = if let Until::Time(until) = self.until { Some(until) } else { None };
        let account = self.account.map(|account| Arc::clone(env.shared_name(account)));
        WaitCause { by: self.by.name(), account, until }
    }
}

impl From<&LimitDenied> for Hold {
    fn from(denied: &LimitDenied) -> Self {
        Self { by: HeldBy::Limit(denied.limit), account: denied.account, until: denied.until }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub attempts: u32,
    /// Units of the budget that these attempts spent, or may have spent.
    pub cost: u32,
    /// Request id of the upstream's last answer.
    pub upstream_request_id: Option<LogText>,
    pub upstream: Duration,
    /// The time spent waiting for a turn and for admission.
    pub queue: Duration,
    pub account: Option<AccountId>,
    pub resource: Option<ResourceName>,
    /// The longest wait, or the limit that ended the request.
    pub held: Option<Hold>,
    /// The limit in shadow mode that would have denied or held it.
    pub shadowed: Option<&'static str>,
    pub error: Option<String>,
    /// The answer that the upstream was asked for; `None` if it may not be shared.
    pub asked_for: Option<AskedFor>,
}

/// The key of an answer and its query, for the log.
#[derive(Clone, Debug)]
pub struct AskedFor {
    /// Number that stands for the key.
    pub key: u64,
    /// Name of a GraphQL query's operation.
    pub operation: Option<LogText>,
}

/// The consequence of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The request was stopped before it was sent or between two attempts.
    Stopped,
    /// The request is on its way: the quota ledger, the lane and the cache need its outcome.
    OnWire,
}

impl Tracked {
    fn note(&mut self, now: Moment, happened: Happened) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push((now, happened));
        }
    }
}

impl Happened {
    fn for_story(self, env: &Environment) -> Event {
        match self {
            Self::Held(hold, took) => Event::Held(hold.for_log(env), took),
            Self::Denied(hold) => Event::Denied(hold.for_log(env)),
            Self::Queued(id) => Event::Queued(id.to_string()),
            Self::Sent(account, resource, chosen) => Event::Sent {
                account: Arc::clone(env.shared_name(account)),
                resource: resource.as_str().into(),
                chosen,
            },
            Self::Answered(status, took, upstream_request_id) => {
                Event::Answered { status: status.as_u16(), took, upstream_request_id }
            }
            Self::Failed(error, took) => Event::Failed { error: LogText::error(&error), took },
        }
    }
}

impl RequestProgress {
    pub fn is_on_wire(&self) -> bool {
        self.0.lock().is_on_wire
    }

    /// True while a limit holds it, so that other requests may overtake it.
    pub fn is_in_wait_queue(&self) -> bool {
        self.0.lock().holding.is_some_and(|(hold, _)| matches!(hold.by, HeldBy::Limit(_)))
    }

    /// The limit or the turn that holds it now.
    pub fn hold(&self) -> Option<Hold> {
        self.0.lock().holding.map(|(hold, _)| hold)
    }

    /// True from its first byte to its answer, and between two attempts of which the last had none.
    pub fn awaits_answer(&self) -> bool {
        let state = self.0.lock();
        state.is_on_wire || state.holding.is_none() && state.figures.error.is_some()
    }

    /// Records that the upstream rejected this token; returns true if it did so before.
    pub fn suspects(&self, token: TokenId) -> bool {
        let suspected = &mut self.0.lock().suspected;
        let is_repeated = suspected.contains(&token);
        if !is_repeated {
            suspected.push(token);
        }
        is_repeated
    }

    pub fn attempts(&self) -> u32 {
        self.0.lock().figures.attempts
    }

    pub fn was_sent(&self) -> bool {
        self.0.lock().was_sent
    }

    pub fn cancel(&self) -> CancelOutcome {
        let mut state = self.0.lock();
        state.cancelled = true;
        if state.is_on_wire { CancelOutcome::OnWire } else { CancelOutcome::Stopped }
    }

    /// A copy of the figures; a wait in progress counts up to `now`.
    pub fn figures(&self, now: Moment) -> Figures {
        let state = self.0.lock();
        let mut figures = state.figures.clone();
        if let Some((hold, since)) = state.holding {
            figures.queue += now.since(since);
            figures.held = Some(hold);
        }
        figures
    }

    /// The time spent waiting for a turn and for admission, without a wait in progress.
    pub fn queued(&self) -> Duration {
        self.0.lock().figures.queue
    }

    pub fn held(&self, now: Moment, hold: Hold) {
        self.0.lock().holding = Some((hold, now));
    }

    /// Ends a wait, if there is one; returns its reason and duration, unless it was too short to
    /// count as held.
    pub fn released(&self, now: Moment) -> Option<(HeldBy, Duration)> {
        let state = &mut *self.0.lock();
        let (hold, since) = state.holding.take()?;
        let waited = now.since(since);
        state.figures.queue += waited;
        if waited < HOLD_MIN {
            return None;
        }
        state.note(since, Happened::Held(hold, waited));
        if waited >= state.held_for {
            state.held_for = waited;
            state.figures.held = Some(hold);
        }
        Some((hold.by, waited))
    }

    /// Records a limit denial, which outweighs earlier waits.
    pub fn denied(&self, now: Moment, hold: Hold) {
        let state = &mut *self.0.lock();
        state.figures.held = Some(hold);
        state.note(now, Happened::Denied(hold));
    }

    /// Records a limit in shadow mode that would have denied or held it; the first stays.
    pub fn shadowed(&self, limit: LimitKind) {
        self.0.lock().figures.shadowed.get_or_insert(limit.name());
    }

    /// Records a limit denial without a known account; a known one stays.
    pub fn denied_somewhere(&self, limit: LimitKind, until: Timestamp) {
        let held = &mut self.0.lock().figures.held;
        if held.is_none_or(|hold| hold.by != HeldBy::Limit(limit)) {
            *held =
                Some(Hold { by: HeldBy::Limit(limit), account: None, until: Until::Time(until) });
        }
    }

    /// Counts an attempt. Returns the number of those before it.
    pub fn attempted(
        &self,
        now: Moment,
        account: AccountId,
        resource: &ResourceName,
        chosen: Chosen,
    ) -> u32 {
        let state = &mut *self.0.lock();
        state.note(now, Happened::Sent(account, resource.clone(), chosen));
        let figures = &mut state.figures;
        let before = figures.attempts;
        figures.attempts += 1;
        figures.account = Some(account);
        figures.resource = Some(resource.clone());
        before
    }

    pub fn spent(&self, units: u32) {
        self.0.lock().figures.cost += units;
    }

    /// Records the upstream's own id of an answered request.
    pub fn answered_as(&self, upstream_request_id: LogText) {
        self.0.lock().figures.upstream_request_id = Some(upstream_request_id);
    }

    /// Adds a step to its story.
    pub fn note(&self, now: Moment, happened: Happened) {
        self.0.lock().note(now, happened);
    }

    /// Takes the steps of its story, with their times since its head had come.
    pub fn story(&self, came: Moment, env: &Environment) -> Vec<Step> {
        // The requests of one fetch share its story.
        let steps = self.0.lock().steps.clone();
        let step = |(at, happened): (Moment, Happened)| Step {
            after: at.since(came),
            event: happened.for_story(env),
        };
        steps.into_iter().map(step).collect()
    }

    /// Records the answer that the upstream is asked for.
    pub fn asks_for(&self, asked_for: AskedFor) {
        self.0.lock().figures.asked_for = Some(asked_for);
    }

    /// Records the account of the delivered answer, which may not be the last one tried.
    pub fn answered_by(&self, account: AccountId) {
        self.0.lock().figures.account = Some(account);
    }

    /// Marks the request as sent; false if it was cancelled and must not be sent.
    pub fn may_send(&self) -> bool {
        let mut state = self.0.lock();
        if !state.cancelled {
            state.is_on_wire = true;
            state.was_sent = true;
        }
        !state.cancelled
    }

    pub fn ended(&self, took: Duration) {
        let mut state = self.0.lock();
        state.is_on_wire = false;
        state.figures.upstream += took;
    }

    pub fn failed(&self, error: &FetchError) {
        self.0.lock().figures.error = Some(error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_request_on_the_wire_is_not_sent_again() {
        let progress = RequestProgress::default();
        assert!(progress.may_send());
        assert_eq!(progress.cancel(), CancelOutcome::OnWire);
        progress.ended(Duration::ZERO);
        assert!(!progress.may_send());
        assert!(progress.was_sent() && !progress.is_on_wire());
    }

    #[test]
    fn the_current_or_else_the_longest_wait_is_reported() {
        let progress = RequestProgress::default();
        let (start, limit) = (Moment::default(), |limit| Hold {
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
            "the current wait is reported"
        );
        progress.released(after(7));
        let figures = progress.figures(after(9));
        assert_eq!((figures.queue, figures.held), (Duration::from_secs(7), Some(Hold::TURN)));
        progress.denied(after(8), limit(LimitKind::Primary));
        assert_eq!(
            progress.figures(after(9)).held,
            Some(limit(LimitKind::Primary)),
            "a denial outweighs waits"
        );
    }

    #[test]
    fn a_wait_below_a_millisecond_is_time_but_no_hold() {
        let (progress, start) = (RequestProgress::default(), Moment::default());
        let now = start + Duration::from_micros(999);
        progress.held(start, Hold::TURN);
        assert_eq!(progress.released(now), None);
        assert_eq!(progress.figures(now).held, None);
        assert_eq!(progress.released(now), None);
    }

    #[test]
    fn a_request_between_two_attempts_can_be_cancelled() {
        let progress = RequestProgress::default();
        assert!(progress.may_send());
        progress.ended(Duration::ZERO);
        assert_eq!(progress.cancel(), CancelOutcome::Stopped);
        assert!(!progress.may_send());
    }
}
