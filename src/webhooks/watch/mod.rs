//! The reliability of a webhook: its list of deliveries is compared with the received ones, and
//! missing ones are requested again.
//!
//! A webhook is healthy while the last check proves that no delivery was lost. The upstream's times
//! are compared only with each other. Losses before the first check do not matter, because no
//! earlier request is covered. Left out: the requests (the gateway's webhook monitor), and the
//! parsing of answers (`listing`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Timestamp;

use super::listing::{HookSettings, ListedDelivery};

/// A delivery listed for this long without arriving is missing. Our choice: the upstream waits 10 s
/// for an answer (SPECIFICATION, "Webhooks in practice").
const GRACE: Duration = Duration::from_secs(15);
/// Added to two check intervals for a check's own time: the age of an answer after a lost change
/// stays below the sum.
pub const SLACK: Duration = Duration::from_secs(30);
/// A request this soon after an unseen change may still show the old state, because the upstream's
/// replicas lag (SPECIFICATION, "Conditional requests in practice").
const LAG: Duration = Duration::from_secs(10);
/// Interval of redelivery requests for the same delivery. Our choice.
const REDELIVERY_INTERVAL: Duration = Duration::from_mins(5);
/// Most such requests. Our choice: a delivery that is missing for half an hour will not come; what
/// it would have announced is then not relied upon.
const REDELIVERIES_MAX: u32 = 6;
/// Most deliveries waited for, and most requested at once. Our choice: a check that finds more
/// relies on nothing from before.
const OPEN_MAX: usize = 1_000;
const REDELIVERIES_AT_ONCE_MAX: usize = 20;
/// Check interval while a delivery is missing, so that its arrival is noticed sooner.
const MISSING_CHECK: Duration = Duration::from_secs(10);
/// Deliveries may appear in the list this much later than their own time. Our choice.
const OVERLAP_SECS: u64 = 60;

/// State of one webhook after its checks.
#[derive(Debug)]
pub struct Watch {
    check_every: Duration,
    settings: Option<HookSettings>,
    /// Requests before this time are not covered.
    covered_from: Timestamp,
    /// Start of the last successful check.
    checked_at: Option<Timestamp>,
    /// End of the examined part of the list, in the upstream's seconds.
    listed_until: u64,
    /// Deliveries that no longer matter, with their times.
    settled: BTreeMap<String, u64>,
    /// Deliveries that have not arrived.
    open: BTreeMap<String, OpenDelivery>,
    /// Time and problem of the last check, if it failed.
    failed: Option<(Timestamp, String)>,
}

/// State of a webhook for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    /// Start of the last successful check; `None` before the first.
    pub checked_at: Option<Timestamp>,
    /// Time and problem of the last check, if it failed.
    pub failed: Option<(Timestamp, String)>,
    /// Deliveries that the upstream lists, and that have not arrived for some seconds.
    pub missing: usize,
}

#[derive(Debug)]
struct OpenDelivery {
    id: u64,
    event: Cow<'static, str>,
    /// A check that did not list it: its event happened later.
    after: Timestamp,
    seen_at: Timestamp,
    missing: bool,
    requests: u32,
    last_requested_at: Timestamp,
}

/// Data of one check.
#[derive(Debug)]
pub struct Check {
    /// Time of its first request.
    pub began_at: Timestamp,
    /// Time of its last answer.
    pub ended_at: Timestamp,
    /// Settings of the webhook.
    pub settings: HookSettings,
    /// Deliveries, the newest first, as far back as [`Watch::goes_back_enough`] requires.
    pub deliveries: Vec<ListedDelivery>,
    /// True if they go back that far.
    pub complete: bool,
}

/// Result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Events of deliveries that are missing from now on.
    pub missed: Vec<Cow<'static, str>>,
    /// Missing deliveries that arrived.
    pub recovered: usize,
    /// Deliveries that are no longer waited for.
    pub given_up: usize,
}

impl Watch {
    /// Creates a watch that was never checked and covers nothing.
    pub fn new(check_every: Duration) -> Self {
        Self {
            check_every,
            settings: None,
            covered_from: Timestamp::FAR_FUTURE,
            checked_at: None,
            listed_until: 0,
            settled: BTreeMap::new(),
            open: BTreeMap::new(),
            failed: None,
        }
    }

    /// Returns true if these pages, the newest first, suffice for a check.
    pub fn goes_back_enough(&self, deliveries: &[ListedDelivery]) -> bool {
        let until = if self.checked_at.is_some() { self.listed_until } else { newest(deliveries) };
        deliveries.iter().any(|delivery| delivery.delivered_at < until.saturating_sub(OVERLAP_SECS))
    }

    /// Applies a check; `arrived` returns true for a delivery, by its GUID and event, that was
    /// received here.
    pub fn checked(&mut self, check: Check, arrived: impl Fn(&str, &str) -> bool) -> Findings {
        let mut findings = Findings::default();
        let is_first = self.checked_at.is_none();
        let before = self.open.len();
        self.open.retain(|guid, open| !arrived(guid, &open.event));
        findings.recovered = before - self.open.len();
        let mut relied =
            !is_first && check.complete && self.settings.as_ref() == Some(&check.settings);
        let since = if is_first { 0 } else { self.listed_until.saturating_sub(OVERLAP_SECS) };
        for delivery in check.deliveries.iter().filter(|delivery| delivery.delivered_at >= since) {
            if arrived(&delivery.guid, &delivery.event) || self.settled.contains_key(&delivery.guid)
            {
                continue;
            }
            if is_first {
                self.settled.insert(delivery.guid.clone(), delivery.delivered_at);
            } else if self.open.len() < OPEN_MAX || self.open.contains_key(&delivery.guid) {
                findings.missed.extend(self.note(delivery, check.ended_at));
            } else {
                relied = false;
                findings.given_up += 1;
                self.settled.insert(delivery.guid.clone(), delivery.delivered_at);
            }
        }
        self.listed_until = self.listed_until.max(newest(&check.deliveries));
        findings.given_up += self.give_up(check.ended_at);
        let until = self.listed_until.saturating_sub(OVERLAP_SECS);
        self.settled.retain(|_, at| *at >= until);
        if !relied || findings.given_up > 0 {
            self.covered_from = check.ended_at + LAG;
        }
        self.settings = Some(check.settings);
        self.checked_at = Some(check.began_at);
        self.failed = None;
        findings
    }

    /// Notes a check that failed.
    pub fn check_failed(&mut self, now: Timestamp, problem: String) {
        self.failed = Some((now, problem));
    }

    /// Returns the state for an operator.
    pub fn status(&self) -> WatchStatus {
        WatchStatus {
            checked_at: self.checked_at,
            failed: self.failed.clone(),
            missing: self.open.values().filter(|open| open.missing).count(),
        }
    }

    /// Records a delivery that has not arrived. Returns its event if it is missing from now on.
    fn note(&mut self, delivery: &ListedDelivery, now: Timestamp) -> Option<Cow<'static, str>> {
        let after = self.checked_at.unwrap_or(now);
        let open = self.open.entry(delivery.guid.clone()).or_insert_with(|| OpenDelivery {
            id: delivery.id,
            event: delivery.event.clone(),
            after,
            seen_at: now,
            missing: false,
            requests: 0,
            last_requested_at: Timestamp::EPOCH,
        });
        // Redelivery uses the latest attempt, because the upstream forgets the oldest first.
        open.id = open.id.max(delivery.id);
        let is_missing = delivery.failed || now.since(open.seen_at) >= GRACE;
        let is_news = is_missing && !open.missing;
        open.missing |= is_missing;
        is_news.then(|| delivery.event.clone())
    }

    /// Drops deliveries that were requested in vain, and returns their number.
    fn give_up(&mut self, now: Timestamp) -> usize {
        let before = self.open.len();
        let (settled, listed_until) = (&mut self.settled, self.listed_until);
        self.open.retain(|guid, open| {
            // A known delivery counts even when it is no longer listed.
            open.missing |= now.since(open.seen_at) >= GRACE;
            let in_vain = open.requests >= REDELIVERIES_MAX
                && now.since(open.last_requested_at) >= REDELIVERY_INTERVAL;
            if in_vain {
                settled.insert(guid.clone(), listed_until);
            }
            !in_vain
        });
        before - self.open.len()
    }

    /// Returns the attempts to repeat now, and counts them as requested.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<u64> {
        let is_due = |open: &&mut OpenDelivery| {
            open.missing
                && open.requests < REDELIVERIES_MAX
                && (open.requests == 0 || now.since(open.last_requested_at) >= REDELIVERY_INTERVAL)
        };
        let due = self.open.values_mut().filter(is_due).take(REDELIVERIES_AT_ONCE_MAX);
        due.map(|open| {
            open.requests += 1;
            open.last_requested_at = now;
            open.id
        })
        .collect()
    }

    /// Returns the pause before the next check.
    pub fn pause(&self) -> Duration {
        if self.open.is_empty() { self.check_every } else { self.check_every.min(MISSING_CHECK) }
    }

    /// Returns true if by `now` the webhook has certainly announced every one of these events since
    /// `requested_at`.
    pub fn covers(&self, events: &[&str], requested_at: Timestamp, now: Timestamp) -> bool {
        let Some(checked_at) = self.checked_at else { return false };
        let proved = self.open.values().map(|open| open.after).fold(checked_at, Timestamp::min);
        requested_at >= self.covered_from
            && now < proved + self.check_every * 2 + SLACK
            && self.open.values().all(|open| !open.missing)
            && self.settings.as_ref().is_some_and(|settings| settings.announces(events))
    }
}

fn newest(deliveries: &[ListedDelivery]) -> u64 {
    deliveries.iter().map(|delivery| delivery.delivered_at).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
