//! The least number of accounts that serve a demand.
//!
//! Only denials that further accounts can prevent count: a client without an account for writes
//! lacks it however large the pool is.

use serde::Serialize;

use super::{Plan, Report, Unplayable, play};
use crate::decision::LimitKind;

/// Greatest tolerated fraction of requests that we deny. Our choice: one in a thousand causes no
/// complaint.
pub const TOLERATED: f64 = 0.001;
/// Most accounts tried.
pub const ACCOUNTS_MAX: u32 = 128;

/// A number of accounts, and how it served.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Number of accounts.
    pub accounts: u32,
    /// Fraction of requests denied for lack of accounts, 0 to 1.
    pub refused: f64,
    /// Median wait of the answered requests, in milliseconds.
    pub p50_millis: u64,
    /// The wait that 99 of 100 of them did not exceed.
    pub p99_millis: u64,
    /// The longest.
    pub max_millis: u64,
}

/// The numbers tried, and the result.
#[derive(Debug, Default, Serialize)]
pub struct Sizing {
    /// In the order tried.
    pub tried: Vec<Tried>,
    /// The least sufficient number; `None` when there is none, for example because twice as many
    /// accounts serve no more.
    pub enough: Option<u32>,
    /// Figures of the run with that number, or of the last run.
    pub report: Report,
}

impl Sizing {
    /// Returns true if the last doubling served no more than the number before it.
    pub fn is_useless(&self) -> bool {
        matches!(self.tried.as_slice(), [.., before, last] if last.refused >= before.refused)
    }
}

/// Doubles the accounts until they suffice, then searches the least number between.
pub fn size(plan_with: impl Fn(u32) -> Plan) -> Result<Sizing, Unplayable> {
    let mut sizing = Sizing::default();
    let try_with = |sizing: &mut Sizing, accounts: u32| -> Result<bool, Unplayable> {
        let report = play(&plan_with(accounts))?;
        let share = report.refused_share_but(LimitKind::NoAccount);
        let waits = report.waits();
        sizing.tried.push(Tried {
            accounts,
            refused: share,
            p50_millis: waits.percentile(50),
            p99_millis: waits.percentile(99),
            max_millis: waits.max(),
        });
        let is_enough = share <= TOLERATED;
        if is_enough || sizing.enough.is_none() {
            sizing.report = report;
        }
        if is_enough {
            sizing.enough = Some(accounts);
        }
        Ok(is_enough)
    };
    let (mut too_few, mut accounts) = (0, 1);
    while !try_with(&mut sizing, accounts)? {
        too_few = accounts;
        if accounts >= ACCOUNTS_MAX || sizing.is_useless() {
            return Ok(sizing);
        }
        accounts = (accounts * 2).min(ACCOUNTS_MAX);
    }
    let mut enough = accounts;
    while enough - too_few > 1 {
        let between = too_few + (enough - too_few) / 2;
        if try_with(&mut sizing, between)? {
            enough = between;
        } else {
            too_few = between;
        }
    }
    Ok(sizing)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::simulation::Workload;

    /// Plans bots whose clients have no account for writes.
    fn readers(workload: Workload, accounts: u32) -> Plan {
        let mut plan = Plan::new(workload, accounts, 8);
        plan.clients.iter_mut().for_each(|client| client.writes = None);
        plan.length = Duration::from_secs(900);
        plan
    }

    #[test]
    fn denials_that_accounts_cannot_prevent_do_not_count() {
        let sizing = size(|accounts| readers(Workload::Mixed, accounts)).unwrap();
        assert!(sizing.report.refused_share() > TOLERATED, "{:?}", sizing.tried);
        assert_eq!(sizing.enough, Some(1));
    }

    #[test]
    fn the_search_ends_when_more_accounts_serve_no_more() {
        // One account writes for all of them, at most once an hour.
        let plan = |accounts: u32| {
            let mut plan = readers(Workload::Content, accounts);
            plan.clients
                .iter_mut()
                .for_each(|client| client.writes = Some([crate::decision::AccountId(0)].into()));
            plan.clients.truncate(1);
            plan.settings.clients.truncate(1);
            plan.settings.spacing = Duration::from_secs(3_600);
            plan
        };
        let sizing = size(plan).unwrap();
        assert_eq!(
            (sizing.enough, sizing.tried.len(), sizing.is_useless()),
            (None, 2, true),
            "{:?}",
            sizing.tried
        );
    }
}
