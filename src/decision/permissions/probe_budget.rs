//! The probe budget of permission retries: frequent where they find something, rare where they do
//! not.
//!
//! Each endpoint has a credit. A retry costs credit, a successful one pays back more than its cost,
//! and a denial without a retry earns a little, so that a change is noticed. A crawler that
//! requests 100 missing resources costs 10 more requests, not 100 more.

use std::collections::HashMap;

use crate::api::EndpointId;

/// Cost of a retry, in credits. Ours.
const COST: u32 = 20;
/// Credit at the start and at most: five unsuccessful retries in a row.
const CREDIT_MAX: u32 = 5 * COST;
/// Credit for a successful retry: retries go on while one in four succeeds.
const FOUND: u32 = 4 * COST;
/// Credit for a denial without a retry: of unsuccessful ones, every twentieth is retried.
const UNRETRIED: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryResult {
    /// An answer other than a denial.
    Something,
    /// Another denial, or no answer.
    Nothing,
    /// Not sent: no account was free.
    NotSent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Given,
    /// The results of retries in progress decide.
    Awaited,
    Refused,
}

/// Credit of each endpoint; no more entries than the table has endpoints.
#[derive(Debug, Default)]
pub(super) struct ProbeBudget(HashMap<EndpointId, Account>);

#[derive(Debug)]
struct Account {
    credit: u32,
    under_way: u32,
}

impl ProbeBudget {
    /// Grants a retry if the credit allows; its end must be reported.
    pub(super) fn take(&mut self, endpoint: EndpointId) -> Pass {
        let account = self.account(endpoint);
        if account.credit >= COST {
            return self.take_anyway(endpoint);
        }
        // Many at once would spend the credit before the first can pay back.
        if account.under_way > 0 {
            return Pass::Awaited;
        }
        account.credit += UNRETRIED;
        Pass::Refused
    }

    /// Grants a retry that almost certainly succeeds.
    pub(super) fn take_anyway(&mut self, endpoint: EndpointId) -> Pass {
        let account = self.account(endpoint);
        account.credit = account.credit.saturating_sub(COST);
        account.under_way += 1;
        Pass::Given
    }

    pub(super) fn ended(&mut self, endpoint: EndpointId, found: RetryResult) {
        let paid = match found {
            RetryResult::Something => FOUND,
            RetryResult::Nothing => 0,
            RetryResult::NotSent => COST,
        };
        let account = self.account(endpoint);
        account.credit = account.credit.saturating_add(paid).min(CREDIT_MAX);
        account.under_way = account.under_way.saturating_sub(1);
    }

    fn account(&mut self, endpoint: EndpointId) -> &mut Account {
        self.0.entry(endpoint).or_insert(Account { credit: CREDIT_MAX, under_way: 0 })
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::api::{Dialect, Table};

    fn endpoint() -> EndpointId {
        Table::embedded(Dialect::Service).classify(&Method::GET, "/repos/o/r").endpoint.id
    }

    /// Number of retries of `denials` when every `finds`th finds something.
    fn retries_of(denials: u32, finds: Option<u32>) -> u32 {
        let mut probe_budget = ProbeBudget::default();
        let mut made = 0;
        for _ in 0..denials {
            if probe_budget.take(endpoint()) == Pass::Given {
                made += 1;
                let found = if finds.is_some_and(|finds| made % finds == 0) {
                    RetryResult::Something
                } else {
                    RetryResult::Nothing
                };
                probe_budget.ended(endpoint(), found);
            }
        }
        made
    }

    #[test]
    fn unsuccessful_retries_become_rare_but_do_not_end() {
        assert!(retries_of(100, None) <= 10, "{}", retries_of(100, None));
        let later = retries_of(10_100, None) - retries_of(100, None);
        assert!((400..=500).contains(&later), "{later}");
    }

    #[test]
    fn retries_go_on_while_one_in_four_succeeds() {
        assert_eq!(retries_of(1_000, Some(1)), 1_000);
        assert_eq!(retries_of(1_000, Some(4)), 1_000);
        assert!(retries_of(1_000, Some(20)) < 200);
    }

    #[test]
    fn an_unsent_retry_costs_nothing() {
        let mut probe_budget = ProbeBudget::default();
        for _ in 0..100 {
            assert_eq!(probe_budget.take(endpoint()), Pass::Given);
            probe_budget.ended(endpoint(), RetryResult::NotSent);
        }
    }

    #[test]
    fn simultaneous_retries_beyond_the_credit_wait_for_results() {
        let mut probe_budget = ProbeBudget::default();
        let mut passes = (0..8).map(|_| probe_budget.take(endpoint())).collect::<Vec<_>>();
        assert_eq!(passes.split_off(5), [Pass::Awaited; 3]);
        assert_eq!(passes, [Pass::Given; 5]);
        probe_budget.ended(endpoint(), RetryResult::Something);
        let passes = (0..5).map(|_| probe_budget.take(endpoint())).collect::<Vec<_>>();
        assert_eq!(passes, [Pass::Given, Pass::Given, Pass::Given, Pass::Given, Pass::Awaited]);
        (0..8).for_each(|_| probe_budget.ended(endpoint(), RetryResult::Nothing));
        assert_eq!(probe_budget.take(endpoint()), Pass::Refused);
    }
}
