//! The times at which an account's state is asked of the upstream by `GET /rate_limit`.
//!
//! The question is free of the primary limit and counts for secondary limits (SPECIFICATION, "Rate
//! limit headers"). So there is one per account at a time, at a distance from the one before:
//!
//! - while requests wait for the answer that shows an unknown window, after a second;
//! - while a budget is used up, at distances that grow from half a minute to five minutes: the
//!   upstream may raise it or give it back;
//! - at once when an operator says so.
//!
//! The gateway sends the question. An upstream without an answer to it is left alone for a while.

use std::collections::BTreeSet;
use std::time::Duration;

use smallvec::SmallVec;

use super::limits::primary::{Asked, Mark};
use super::{QuotaLedger, place};
use crate::api::{ResourceName, StatedBudget};
use crate::clock::Timestamp;
use crate::decision::types::{AccountId, HashMap};

/// Time for which requests wait for a probe before the state is asked. Ours: longer than usual
/// answers, and short for a client.
const PROBE_SLOW: Duration = Duration::from_secs(1);
/// Distances of the questions about a used-up budget. Ours: seldom enough to be nothing beside the
/// points of a minute, and soon enough for an operator who has a limit raised.
const USED_UP_MIN: Duration = Duration::from_secs(30);
const USED_UP_MAX: Duration = Duration::from_mins(5);
/// Least distance of two questions about one account. Ours.
const SPACING: Duration = Duration::from_secs(1);
/// Pause after an answer that shows that the upstream does not know the question. Ours.
const UNKNOWN_PAUSE: Duration = Duration::from_mins(10);

/// The result of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stated {
    /// The budgets that the upstream lists.
    Budgets(Vec<(ResourceName, StatedBudget)>),
    /// No answer about budgets.
    Nothing {
        /// True if the upstream does not know the question.
        is_unknown_route: bool,
    },
}

/// A question under way. It names the state of the ledger at its beginning.
#[derive(Clone, Debug)]
pub struct Question {
    /// The account that it is about.
    pub account: AccountId,
    /// Of each window, in their order.
    marks: SmallVec<[Mark; 2]>,
    asked_at: Timestamp,
    asked: Asked,
}

impl Question {
    /// The same by order of an operator: its answer may be tried at once.
    pub fn by_operator(self) -> Self {
        Self { asked: Asked::ByOperator, ..self }
    }
}

#[derive(Debug, Default)]
pub(super) struct Asks {
    by_account: HashMap<AccountId, State>,
    due: BTreeSet<(Timestamp, AccountId)>,
}

#[derive(Debug)]
struct State {
    due: Option<Timestamp>,
    is_under_way: bool,
    /// No question before this time.
    not_before: Timestamp,
    /// Distance of the next question about a used-up budget.
    distance: Duration,
}

impl Default for State {
    fn default() -> Self {
        Self { due: None, is_under_way: false, not_before: Timestamp::EPOCH, distance: USED_UP_MIN }
    }
}

impl Asks {
    /// Wants a question at this time, or earlier if one is due earlier.
    fn want(&mut self, account: AccountId, at: Timestamp) {
        let state = self.by_account.entry(account).or_default();
        let at = at.max(state.not_before);
        if !state.is_under_way && state.due.is_none_or(|due| at < due) {
            if let Some(due) = state.due.replace(at) {
                self.due.remove(&(due, account));
            }
            self.due.insert((at, account));
        }
    }

    fn is_wanted(&self, account: AccountId) -> bool {
        let state = self.by_account.get(&account);
        state.is_some_and(|state| state.is_under_way || state.due.is_some())
    }

    fn drop_due(&mut self, account: AccountId) {
        let state = self.by_account.get_mut(&account);
        if let Some(due) = state.and_then(|state| state.due.take()) {
            self.due.remove(&(due, account));
        }
    }

    fn begin(&mut self, account: AccountId) {
        self.drop_due(account);
        self.by_account.entry(account).or_default().is_under_way = true;
    }

    fn end(&mut self, account: AccountId, not_before: Timestamp, is_used_up: bool) {
        let Some(state) = self.by_account.get_mut(&account) else { return };
        state.is_under_way = false;
        state.not_before = not_before;
        if is_used_up {
            let distance = state.distance;
            state.distance = (distance * 2).min(USED_UP_MAX);
            self.want(account, not_before + distance);
        } else {
            state.distance = USED_UP_MIN;
        }
    }
}

impl QuotaLedger {
    /// Time of the next question.
    pub(in crate::decision) fn next_question(&self) -> Option<Timestamp> {
        self.asks.due.first().map(|(at, _)| *at)
    }

    /// Begins the next question that is due. [`QuotaLedger::stated`] ends it.
    pub(in crate::decision) fn due_question(&mut self, now: Timestamp) -> Option<Question> {
        loop {
            let (_, account) = self.asks.due.first().copied().filter(|(at, _)| *at <= now)?;
            if self.is_question_needed(now, account) {
                return Some(self.begin_question(now, account));
            }
            self.asks.drop_due(account);
            // A newer probe has its second, too.
            self.want_questions(now, &[account]);
        }
    }

    /// Begins a question about this account, due or not. One that is under way goes on beside it.
    pub(in crate::decision) fn begin_question(
        &mut self,
        now: Timestamp,
        account: AccountId,
    ) -> Question {
        self.asks.begin(account);
        let windows = self.accounts.get(place(account)).map(|account| &account.windows);
        let marks = windows.into_iter().flatten().map(|(_, window)| window.mark(now)).collect();
        Question { account, marks, asked_at: now, asked: Asked::Routinely }
    }

    /// Ends a question and updates the windows of the account. Returns true if more may be admitted
    /// than before.
    pub(in crate::decision) fn stated(
        &mut self,
        now: Timestamp,
        question: &Question,
        stated: &Stated,
    ) -> bool {
        let Question { account: id, marks, asked_at, asked } = question;
        let mut is_raised = false;
        let mut is_used_up = false;
        if let Some(account) = self.accounts.get_mut(place(*id)) {
            let terms = account.terms;
            match stated {
                Stated::Budgets(budgets) => {
                    for (resource, budget) in budgets {
                        // An untouched budget that no request has used needs no window.
                        if account.window(resource).is_none() && budget.remaining >= budget.limit {
                            continue;
                        }
                        let at = account.window_index(resource);
                        let begun = marks.get(at.index()).copied();
                        if let Some(window) = account.window_at(at) {
                            let mark = begun.unwrap_or_else(|| Mark::before_all(*asked_at));
                            is_raised |= window.stated(now, mark, *budget, terms, *asked);
                        }
                    }
                }
                Stated::Nothing { .. } => {
                    for (_, window) in &mut account.windows {
                        is_raised |= window.not_stated(now);
                    }
                }
            }
            is_used_up = account.is_used_up(now);
            self.candidates.changed(now, *id, account);
        }
        let is_unknown_route = matches!(stated, Stated::Nothing { is_unknown_route: true });
        let pause = if is_unknown_route { UNKNOWN_PAUSE } else { SPACING };
        self.asks.end(*id, now + pause, is_used_up);
        is_raised
    }

    /// Wants the questions that follow from denials of these accounts.
    pub(super) fn want_questions(&mut self, now: Timestamp, denied: &[AccountId]) {
        for id in denied.iter().filter(|id| !self.layout.is_dynamic(**id)) {
            let Some(account) = self.accounts.get(place(*id)) else { continue };
            if let Some(since) = account.probed_since(now) {
                self.asks.want(*id, since + PROBE_SLOW);
            }
            if account.is_used_up(now) && !self.asks.is_wanted(*id) {
                self.asks.want(*id, now + USED_UP_MIN);
            }
        }
    }

    fn is_question_needed(&self, now: Timestamp, id: AccountId) -> bool {
        let account = self.accounts.get(place(id));
        account.is_some_and(|account| {
            account.probed_since(now).is_some_and(|since| since + PROBE_SLOW <= now)
                || account.is_used_up(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RateHeaders;
    use crate::decision::AccountSettings;
    use crate::decision::scheduler::{Admission, Decision};
    use crate::decision::types::{Demand, Grant, Settings, Settlement};

    const NOW: Timestamp = Timestamp::from_secs(10_000);
    const RESET: Timestamp = Timestamp::from_secs(13_600);
    const SECOND: Duration = Duration::from_secs(1);
    const ACCOUNT: AccountId = AccountId(0);

    fn admission() -> Admission {
        let account = AccountSettings {
            is_shared: false,
            name: "a".into(),
            kind: crate::api::AccountKind::User,
            reserve: 0,
            also_spends: None,
        };
        Admission::new(Settings { accounts: vec![account], ..Settings::default() })
    }

    fn request(admission: &mut Admission, now: Timestamp) -> Decision {
        admission.request(now, Demand::read([ACCOUNT], "/repos/a/b"), now + SECOND * 30)
    }

    fn granted(decision: &Decision) -> Grant {
        if let Decision::Granted(grant) = decision { *grant } else { panic!("{decision:?}") }
    }

    fn answer(admission: &mut Admission, now: Timestamp, grant: Grant, remaining: u32) {
        let rate = RateHeaders { limit: 100, remaining, used: None, reset: RESET, resource: None };
        let status = http::StatusCode::OK;
        let answered = Settlement::Answered { status, rate: Some(&rate), refusal: None };
        admission.settle(now, grant.lease, answered, 0.0);
    }

    fn stated(remaining: u32) -> Stated {
        let budget = StatedBudget { limit: 100, remaining, reset: RESET };
        Stated::Budgets(vec![(ResourceName::core(), budget)])
    }

    #[test]
    fn a_slow_probe_is_asked_about_after_a_second() {
        let mut admission = admission();
        let _probe = granted(&request(&mut admission, NOW));
        assert_eq!(admission.next_question(), None, "nobody waits");
        for _ in 0..3 {
            assert!(matches!(request(&mut admission, NOW), Decision::Waiting { .. }));
        }
        assert_eq!(admission.next_question(), Some(NOW + SECOND));
        assert!(admission.due_question(NOW).is_none());
        let question = admission.due_question(NOW + SECOND).expect("due");
        assert!(admission.due_question(NOW + SECOND).is_none(), "one at a time");
        admission.stated(NOW + SECOND, &question, &stated(100));
        assert_eq!(admission.take_decided().count(), 3);
    }

    #[test]
    fn a_question_without_an_answer_lets_one_more_request_go() {
        let mut admission = admission();
        let _probe = granted(&request(&mut admission, NOW));
        for _ in 0..3 {
            request(&mut admission, NOW);
        }
        let question = admission.due_question(NOW + SECOND).expect("due");
        let nothing = Stated::Nothing { is_unknown_route: true };
        admission.stated(NOW + SECOND, &question, &nothing);
        assert_eq!(admission.take_decided().count(), 1);
    }

    #[test]
    fn an_answer_in_time_needs_no_question() {
        let mut admission = admission();
        let probe = granted(&request(&mut admission, NOW));
        request(&mut admission, NOW);
        answer(&mut admission, NOW, probe, 50);
        assert!(admission.due_question(NOW + SECOND * 2).is_none());
        assert_eq!(admission.next_question(), None);
    }

    #[test]
    fn a_used_up_budget_is_asked_about_at_growing_distances() {
        let mut admission = admission();
        let probe = granted(&request(&mut admission, NOW));
        answer(&mut admission, NOW, probe, 0);
        let mut asked = Vec::new();
        while let Some(at) = admission.next_question() {
            assert!(at < NOW + Duration::from_hours(3), "{asked:?}");
            if let Some(question) = admission.due_question(at) {
                asked.push(at.since(NOW).as_secs());
                admission.stated(at, &question, &stated(0));
            }
        }
        assert_eq!(asked[..4], [30, 61, 122, 243]);
        assert!((13..=16).contains(&asked.len()) && asked[asked.len() - 1] < 3_602, "{asked:?}");
    }

    #[test]
    fn a_returned_budget_admits_what_waits() {
        let mut admission = admission();
        let probe = granted(&request(&mut admission, NOW));
        answer(&mut admission, NOW, probe, 0);
        let later = NOW + SECOND * 30;
        let demand = Demand::read([ACCOUNT], "/repos/a/b");
        let waits = admission.request(NOW, demand, NOW + Duration::from_hours(2));
        assert!(matches!(waits, Decision::Waiting { .. }));
        let question = admission.due_question(later).expect("due");
        admission.stated(later, &question, &stated(40));
        assert_eq!(admission.take_decided().count(), 1);
        assert_eq!(admission.next_question(), None);
    }
}
