//! Named workloads: the habits of their bots, and the conditions under which they show their
//! effect.

use std::time::Duration;

use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

use super::bots::Habit;
use super::plan::{Duty, Plan, SLOW_ANSWERS};
use crate::decision::AccountId;

/// A limit that no run reaches.
const NEVER_MET: u64 = 1_000_000_000;
/// The same in the gateway's own settings.
const FAR_ABOVE: u32 = 1_000_000;
/// CPU time of a request in the workloads that saturate it, in microseconds: so long that few
/// requests fill the minute.
const DEAR_MICROS: u64 = 300_000;

/// A named workload. `weir simulate --help` shows the comments, or the message of a variant that
/// has one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Workload {
    /// pollers of lists and notifications, crawlers over repositories, commenters, bursts
    Mixed,
    /// every bot always has another read ready: far more than the budgets allow
    Saturating,
    /// new issues and comments without end: 80 a minute and 500 an hour are the limits
    Content,
    /// one endpoint without end, with a primary budget that is never spent: 900 points a minute
    Points,
    /// GraphQL queries without end, with a budget that is never spent: 2,000 points a minute
    GraphqlPoints,
    /// GraphQL queries of 300 ms each without end: 60 s of CPU time a minute
    GraphqlCpu,
    /// reads of 300 ms each without end: 90 s of CPU time a minute
    Cpu,
    /// an app that asks for installation tokens without end: 2,000 an hour
    Oauth,
    /// answers that take seconds, and more bots than may be served at once: 100
    Concurrency,
    /// four clients of weights 1, 1, 2 and 4 that always have requests waiting
    Shares,
    /// saturating, and halfway the upstream refuses the first account for two minutes
    Secondary,
    /// Forty resources, polled while a few of them change.
    #[strum(
        message = "40 resources polled while 2 of them change each minute; played through other gateways' rules too, and compared"
    )]
    Polling,
    /// Five lists, polled each second.
    #[strum(
        message = "each bot polls one list, and one of four others, each second; an upstream nearby; compared in the same way"
    )]
    DensePolling,
}

impl Workload {
    /// All workloads.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns its description for the help.
    pub fn about(self) -> &'static str {
        self.get_message().or(self.get_documentation()).unwrap_or_default()
    }

    /// Returns true if it is played under other gateways' rules too.
    pub fn is_polling(self) -> bool {
        matches!(self, Self::Polling | Self::DensePolling)
    }

    /// Returns names and weights of the clients in a run without a config; `None`: one client per
    /// account.
    pub(super) const fn clients(self) -> Option<&'static [(&'static str, u32)]> {
        match self {
            Self::Mixed => {
                Some(&[("pollers", 1), ("crawlers", 1), ("commenters", 1), ("bursts", 1)])
            }
            Self::Shares => Some(&[("first", 1), ("second", 1), ("double", 2), ("fourfold", 4)]),
            Self::Saturating
            | Self::Points
            | Self::Cpu
            | Self::Concurrency
            | Self::Secondary
            | Self::Polling
            | Self::DensePolling => Some(&[("readers", 1)]),
            Self::Content | Self::GraphqlPoints | Self::GraphqlCpu | Self::Oauth => None,
        }
    }

    /// Returns the habits of its bots, assigned in turn. Polling bots follow a trace instead.
    pub(super) fn habits(self) -> Vec<Habit> {
        match self {
            Self::Mixed => vec![
                Habit::Poll { every: Duration::from_secs(60) },
                Habit::Crawl { pause: Duration::from_secs(10) },
                Habit::Comment { every: Duration::from_secs(300) },
                Habit::Burst { size: 40, every: Duration::from_secs(900) },
            ],
            Self::Saturating | Self::Secondary | Self::Concurrency => vec![Habit::ReadAnything],
            Self::Points | Self::Cpu => vec![Habit::ReadOneEndpoint],
            Self::Shares => vec![Habit::KeepWaiting { in_hand: 20 }],
            Self::Content => vec![Habit::Create],
            Self::GraphqlPoints | Self::GraphqlCpu => vec![Habit::Query],
            Self::Oauth => vec![Habit::Mint],
            Self::Polling | Self::DensePolling => Vec::new(),
        }
    }

    /// Applies its conditions: lifted limits, latencies, kinds of accounts.
    pub(super) fn prepare(self, plan: &mut Plan) {
        let mut lift = |names: &[&str]| {
            plan.upstream.limits.extend(names.iter().map(|name| ((*name).to_owned(), NEVER_MET)));
        };
        match self {
            Self::Mixed | Self::Saturating | Self::Polling | Self::DensePolling => {}
            Self::Content | Self::Points | Self::Shares => lift(&["core"]),
            Self::GraphqlPoints => lift(&["graphql"]),
            Self::GraphqlCpu => {
                // The upstream's limit per ten seconds is lifted, so that the minute limits.
                lift(&["graphql", "cpu.burst"]);
                plan.upstream.limits.push(("cpu-micros.graphql".to_owned(), DEAR_MICROS));
            }
            Self::Cpu => {
                lift(&["core", "cpu.burst"]);
                plan.upstream.limits.push(("cpu-micros.read".to_owned(), DEAR_MICROS));
            }
            Self::Oauth => {
                lift(&["core"]);
                plan.upstream
                    .accounts
                    .iter_mut()
                    .take(1)
                    .for_each(|account| account.duty = Duty::App);
                plan.clients
                    .iter_mut()
                    .for_each(|client| client.writes = Some([AccountId(0)].into()));
            }
            Self::Concurrency => {
                lift(&["core", "points.rest", "cpu", "cpu.burst"]);
                plan.upstream.answers_millis = SLOW_ANSWERS;
                // The gateway takes elapsed time for CPU time, and these answers are slow without
                // being expensive.
                plan.settings.limits.cpu_seconds_per_minute = FAR_ABOVE;
                plan.settings.limits.rest_points_per_minute = FAR_ABOVE;
            }
            Self::Secondary => plan.refuse_first_account_halfway(),
        }
        if matches!(
            self,
            Self::Points
                | Self::Shares
                | Self::GraphqlPoints
                | Self::Cpu
                | Self::GraphqlCpu
                | Self::DensePolling
        ) {
            // The gateway takes elapsed time for CPU time: with fast answers over a fast network
            // that is nearly right, and points limit first. Of polls, few meet a fetch in flight.
            plan.network.hurry();
            plan.upstream.answers_millis = (0, 3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_found_by_its_own_name() {
        for workload in Workload::ALL.iter().copied() {
            assert_eq!(workload.name().parse(), Ok(workload));
            assert_eq!(workload.habits().is_empty(), workload.is_polling());
        }
        assert!("other".parse::<Workload>().is_err());
    }
}
