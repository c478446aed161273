//! Admission across a restart: what the next process begins with, and what this one spends beside
//! it.

use super::Admission;
use crate::api::EndpointId;
use crate::clock::Timestamp;
use crate::decision::quota::{SavedLedger, SpendingMark, Spent};
use crate::decision::types::Recovered;

impl Admission {
    /// Returns the state of the ledger for a file.
    pub(crate) fn saved(&self, now: Timestamp, name: &dyn Fn(EndpointId) -> String) -> SavedLedger {
        self.ledger.saved(now, name)
    }

    /// Takes over the state of an earlier process, and decides again.
    pub(crate) fn restore(
        &mut self,
        now: Timestamp,
        saved: &SavedLedger,
        recovered: Recovered,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
    ) {
        self.ledger.restore(now, saved, recovered, endpoint);
        self.retry_all(now);
    }

    /// A mark for a successor that has the state of this time.
    pub(crate) fn spending_mark(&self, now: Timestamp) -> SpendingMark {
        self.ledger.spending_mark(now)
    }

    /// Returns what was spent since the last message, for a successor.
    pub(crate) fn spent_since(
        &self,
        now: Timestamp,
        mark: &mut SpendingMark,
        name: &dyn Fn(EndpointId) -> String,
    ) -> Spent {
        self.ledger.spent_since(now, mark, name)
    }

    /// Adds what a predecessor has spent, and decides again.
    pub(crate) fn add_spent(
        &mut self,
        now: Timestamp,
        spent: &Spent,
        endpoint: &dyn Fn(&str) -> Option<EndpointId>,
    ) {
        self.ledger.add_spent(now, spent, endpoint);
        self.retry_all(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::cases::cases;
    use crate::decision::scheduler::Decision;
    use crate::decision::scheduler::tests::{NOW, SECOND, answer, demand, queue};
    use crate::decision::types::{LeaseId, LimitKind, SecondaryLimits};

    /// The time between two messages of a predecessor.
    const STEP: Duration = Duration::from_millis(100);
    /// Steps of the snapshot, and of the beginning of the drain.
    const SNAPSHOT_AT: usize = 40;
    const READY_AT: usize = 60;
    const POINTS: u32 = 12;

    fn name(endpoint: EndpointId) -> String {
        format!("{endpoint:?}")
    }

    fn of_demand(named: &str) -> Option<EndpointId> {
        let endpoint = demand(1).endpoint;
        (named == name(endpoint)).then_some(endpoint)
    }

    /// A gateway with one account.
    struct Process {
        admission: Admission,
        /// Requests at the upstream, with the steps that their answers take.
        open: Vec<(LeaseId, usize)>,
    }

    impl Process {
        fn new(slots: u32) -> Self {
            let limits = SecondaryLimits {
                concurrency: slots,
                rest_points_per_minute: POINTS,
                ..SecondaryLimits::default()
            };
            Self { admission: queue(1, limits), open: Vec::new() }
        }

        /// A new request, if there is one, and all answers that are due. Returns the number of
        /// requests that were sent.
        fn step(
            &mut self,
            now: Timestamp,
            is_asked: bool,
            lasts: usize,
            patience: Duration,
        ) -> usize {
            let mut sent = 0;
            if is_asked
                && let Decision::Granted(grant) =
                    self.admission.request(now, demand(1), now + patience)
            {
                self.open.push((grant.lease, lasts));
                sent += 1;
            }
            let (over, open): (Vec<_>, Vec<_>) =
                self.open.drain(..).partition(|(_, left)| *left == 0);
            self.open = open;
            for (lease, _) in over {
                answer(&mut self.admission, now, lease, 4_000);
            }
            self.open.iter_mut().for_each(|(_, left)| *left -= 1);
            self.admission.tick(now);
            for (_, decision) in self.admission.take_decided() {
                self.open.push((decision.unwrap().lease, lasts));
                sent += 1;
            }
            sent
        }
    }

    /// Points that an account has used.
    fn points(admission: &Admission, now: Timestamp) -> u32 {
        let accounts = admission.ledger().snapshot(now);
        let mut limits = accounts.iter().flat_map(|account| &account.secondary);
        limits.find(|limit| limit.limit == LimitKind::Points).map_or(0, |limit| limit.in_use)
    }

    #[test]
    fn many_handovers_count_nothing_twice() {
        let process = || {
            let limits =
                SecondaryLimits { rest_points_per_minute: 1_000, ..SecondaryLimits::default() };
            queue(1, limits)
        };
        let mut now = NOW;
        let mut count = 0;
        let mut send = |admission: &mut Admission, now| {
            let Decision::Granted(grant) = admission.request(now, demand(1), now) else {
                panic!("not granted")
            };
            count += 1;
            (grant.lease, count)
        };
        let mut old = process();
        let (lease, _) = send(&mut old, now);
        answer(&mut old, now, lease, 4_000);
        for _ in 0..60 {
            // In flight during the change, and answered after it.
            let (lease, _) = send(&mut old, now);
            let mut mark = old.spending_mark(now);
            let saved = old.saved(now, &name);
            let mut new = process();
            new.restore(now, &saved, Recovered::Last, &of_demand);
            now = now + STEP;
            let (last, count) = send(&mut old, now);
            for lease in [Some(lease), Some(last), None] {
                if let Some(lease) = lease {
                    answer(&mut old, now, lease, 4_000);
                }
                let spent = old.spent_since(now, &mut mark, &name);
                new.add_spent(now, &spent, &of_demand);
                now = now + STEP;
            }
            assert!(points(&new, now) <= count, "{} of {count}", points(&new, now));
            old = new;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: cases(32), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn two_processes_of_a_handover_keep_the_limits(
            slots in prop_oneof![Just(3_u32), Just(20)],
            requests in prop::collection::vec((prop::bool::weighted(0.3), 0..12_usize), 1_200..1_300)
        ) {
            let (mut old, mut new) = (Process::new(slots), Process::new(slots));
            let mut mark = SpendingMark::beginning();
            let mut sent_at = Vec::new();
            for (step, (is_asked, lasts)) in requests.into_iter().enumerate() {
                let now = NOW + STEP * u32::try_from(step).unwrap();
                let sent = if step < READY_AT {
                    old.step(now, is_asked, lasts, Duration::ZERO)
                } else {
                    old.step(now, false, lasts, Duration::ZERO)
                        + new.step(now, is_asked, lasts, SECOND * 600)
                };
                sent_at.extend([now].repeat(sent));
                if step == SNAPSHOT_AT {
                    mark = old.admission.spending_mark(now);
                    let saved = old.admission.saved(now, &name);
                    new.admission.restore(now, &saved, Recovered::Last, &of_demand);
                }
                if step + 1 >= READY_AT {
                    let spent = old.admission.spent_since(now, &mut mark, &name);
                    let text = serde_json::to_string(&spent).unwrap();
                    new.admission.add_spent(now, &serde_json::from_str(&text).unwrap(), &of_demand);
                }
                let open = old.open.len() + new.open.len();
                prop_assert!(open <= slots as usize, "{open} at once in step {step}");
                let minute = sent_at.iter().filter(|at| **at + SECOND * 60 > now).count();
                prop_assert!(minute <= POINTS as usize, "{minute} in a minute in step {step}");
                prop_assert_eq!(new.admission.audit(), []);
            }
            prop_assert!(sent_at.len() >= 18, "the limits are used: {}", sent_at.len());
        }
    }
}
