//! The ground truth by the emulator's own counts: windows of primary budgets, use within a minute
//! or an hour, and denials.
//!
//! The gateway's ledger has no part in it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::report::{AccountReport, BudgetReport, LimitReport, fuller};
use super::sliding::Sliding;
use crate::clock::Timestamp;
use crate::decision::SecondaryLimits;
use crate::emulator::{BudgetWindow, Entry};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Properties of a request that the emulator does not record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub graphql: bool,
    pub content: bool,
    pub token_request: bool,
}

/// The ground truth about one account.
#[derive(Debug)]
pub(super) struct Truth {
    /// Name in the plan.
    pub name: String,
    /// Name at the emulator, once a request has shown it.
    pub login: String,
    /// By resource: the end of the current window, and the complete windows.
    budgets: BTreeMap<&'static str, Budget>,
    endpoints: BTreeMap<String, Sliding>,
    graphql: Sliding,
    content: [Sliding; 2],
    cpu: [Sliding; 2],
    tokens: Sliding,
    concurrency_max: u32,
    busy: Duration,
    sent: u64,
    refusals: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct Budget {
    ends: Timestamp,
    windows: u64,
    used: u64,
    limit: u64,
    fullest: (u64, u64),
}

impl Truth {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            login: String::new(),
            budgets: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            graphql: Sliding::new(MINUTE),
            content: [Sliding::new(MINUTE), Sliding::new(HOUR)],
            cpu: [Sliding::new(MINUTE), Sliding::new(MINUTE)],
            tokens: Sliding::new(HOUR),
            concurrency_max: 0,
            busy: Duration::ZERO,
            sent: 0,
            refusals: BTreeMap::new(),
        }
    }

    /// Records a request that arrived at `now`. Returns true if a window of its budget seems to
    /// begin with it.
    pub fn note(&mut self, now: Timestamp, entry: &Entry, kind: Kind, is_ours: bool) -> bool {
        if self.login.is_empty() {
            self.login.clone_from(&entry.account);
        }
        self.sent += u64::from(is_ours);
        self.concurrency_max = self.concurrency_max.max(entry.concurrency + 1);
        if let Some(limit) = entry.refused.filter(|_| is_ours) {
            *self.refusals.entry(limit.to_owned()).or_default() += 1;
        }
        if !entry.executed {
            return false;
        }
        let points = u64::from(entry.points);
        if kind.graphql {
            self.graphql.add(now, points);
            self.cpu[1].add(now, entry.cpu_micros);
        } else {
            if !self.endpoints.contains_key(&entry.endpoint) {
                self.endpoints.insert(entry.endpoint.clone(), Sliding::new(MINUTE));
            }
            if let Some(endpoint) = self.endpoints.get_mut(&entry.endpoint) {
                endpoint.add(now, points);
            }
        }
        self.cpu[0].add(now, entry.cpu_micros);
        if kind.content {
            self.content.iter_mut().for_each(|window| window.add(now, 1));
        }
        if kind.token_request {
            self.tokens.add(now, 1);
        }
        entry.cost > 0 && now >= self.budgets.entry(entry.resource).or_default().ends
    }

    /// Records the end of the current window of a budget.
    pub fn window_began(&mut self, window: &BudgetWindow) {
        self.budgets.entry(window.resource).or_default().ends = window.reset;
    }

    /// Records a complete window.
    pub fn window_ended(&mut self, window: &BudgetWindow) {
        let budget = self.budgets.entry(window.resource).or_default();
        budget.windows += 1;
        budget.used += u64::from(window.used.min(window.limit));
        budget.limit += u64::from(window.limit);
        let used = window.used.min(window.limit);
        budget.fullest = fuller(budget.fullest, (used.into(), window.limit.into()));
    }

    /// Adds the duration of a request at the upstream.
    pub fn was_busy(&mut self, time: Duration) {
        self.busy += time;
    }

    /// Returns the figures of a run of this length.
    pub fn report(self, length: Duration, limits: &SecondaryLimits) -> AccountReport {
        let per = |name: &str, sliding: &Sliding, max: u64, scale: u64| LimitReport {
            limit: name.to_owned(),
            max,
            most: sliding.most.div_ceil(scale),
            total: sliding.total / scale,
            seconds: sliding.window.as_secs(),
            run_seconds: length.as_secs(),
        };
        let mut kept = vec![LimitReport {
            limit: "concurrency".to_owned(),
            max: limits.concurrency.into(),
            most: self.concurrency_max.into(),
            // The duration of all requests together, as if in windows of a second.
            total: self.busy.as_secs(),
            seconds: 1,
            run_seconds: length.as_secs(),
        }];
        let fullest = self.endpoints.values().max_by_key(|sliding| (sliding.most, sliding.total));
        kept.extend(fullest.map(|sliding| {
            per("points of the busiest endpoint", sliding, limits.rest_points_per_minute.into(), 1)
        }));
        let (micros, graphql_cpu) = (1_000_000, limits.graphql_cpu_seconds_per_minute.into());
        let others = [
            per("graphql points", &self.graphql, limits.graphql_points_per_minute.into(), 1),
            per("content per minute", &self.content[0], limits.content_per_minute.into(), 1),
            per("content per hour", &self.content[1], limits.content_per_hour.into(), 1),
            per("cpu seconds", &self.cpu[0], limits.cpu_seconds_per_minute.into(), micros),
            per("graphql cpu seconds", &self.cpu[1], graphql_cpu, micros),
            per("oauth token requests", &self.tokens, limits.oauth_tokens_per_hour.into(), 1),
        ];
        kept.extend(others.into_iter().filter(|limit| limit.most > 0));
        let budgets = self.budgets.into_iter().filter(|(_, budget)| budget.windows > 0);
        AccountReport {
            name: self.name,
            sent: self.sent,
            budgets: budgets
                .map(|(resource, budget)| BudgetReport {
                    resource: resource.to_owned(),
                    windows: budget.windows,
                    used: budget.used,
                    limit: budget.limit,
                    fullest: budget.fullest,
                })
                .collect(),
            limits: kept,
            refusals: self.refusals,
        }
    }
}
