//! Whether a webhook can be relied upon: its list of deliveries is compared with what arrived here,
//! and what did not arrive is asked for again.
//!
//! A webhook is alive for as long as the last check proves that no delivery was lost; while one is
//! missing it is not. Nothing is concluded from the upstream's clock: its times are compared with
//! each other alone. What was lost before the first check is of no account, because nothing that
//! was asked for before it is covered. Asking is the gateway's (`gateway/hooks.rs`), what the
//! upstream's answers say is read in `listing.rs`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Timestamp;

use super::listing::{Listed, Terms};

/// What is listed and has not arrived after so long is missing. Ours: a delivery that is answered
/// at all is within 10 s (UPSTREAM.md, Webhooks).
const GRACE: Duration = Duration::from_secs(15);
/// Beyond two checks, for a check's own time: an answer is older than a lost change by no more than
/// these together.
pub const SLACK: Duration = Duration::from_secs(30);
/// What was asked for so soon after a change that nobody heard of may show what was before
/// (UPSTREAM.md, Conditional requests: replicas lag).
const LAG: Duration = Duration::from_secs(10);
/// The same delivery is asked for again after so long. Ours.
const ASK_AGAIN: Duration = Duration::from_mins(5);
/// And so often. Ours: what has not come within half an hour will not; what it would have told is
/// then not relied upon.
const ASKS_MAX: u32 = 6;
/// So many deliveries are waited for, and asked for at once, at most. Ours: a check that finds more
/// relies on nothing from before.
const OPEN_MAX: usize = 1_000;
const ASKED_AT_ONCE_MAX: usize = 20;
/// The next check while something is missing: its arrival is noticed sooner.
const MISSING_CHECK: Duration = Duration::from_secs(10);
/// Deliveries may appear in the list this much later than their time says. Ours.
const OVERLAP_SECS: u64 = 60;

/// One webhook, as the checks have found it.
#[derive(Debug)]
pub struct Watch {
    check_every: Duration,
    terms: Option<Terms>,
    /// Nothing that was asked for before is covered.
    covered_from: Timestamp,
    /// When the last successful check began.
    checked_at: Option<Timestamp>,
    /// Up to here the list was looked through, in the upstream's seconds.
    listed_until: u64,
    /// Deliveries that are of no account any more, with their times.
    settled: BTreeMap<String, u64>,
    /// Those that have not arrived.
    open: BTreeMap<String, OpenDelivery>,
}

#[derive(Debug)]
struct OpenDelivery {
    id: u64,
    /// A check that did not show it yet: what it tells of happened later.
    after: Timestamp,
    seen_at: Timestamp,
    missing: bool,
    asked: u32,
    asked_at: Timestamp,
}

/// What one check has read.
#[derive(Debug)]
pub struct Check {
    /// When its first request left.
    pub began_at: Timestamp,
    /// When its last answer was there.
    pub ended_at: Timestamp,
    /// How the webhook is set.
    pub terms: Terms,
    /// The newest first, as far back as [`Watch::goes_back_enough`] wants it.
    pub deliveries: Vec<Listed>,
    /// Whether they go back as far as that.
    pub complete: bool,
}

/// What a check has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The events of deliveries that are found missing now.
    pub missed: Vec<Cow<'static, str>>,
    /// Deliveries that arrived after all.
    pub recovered: usize,
    /// Those that are not waited for any more.
    pub given_up: usize,
}

impl Watch {
    /// One that was not checked yet and so covers nothing.
    pub fn new(check_every: Duration) -> Self {
        Self {
            check_every,
            terms: None,
            covered_from: Timestamp::FAR_FUTURE,
            checked_at: None,
            listed_until: 0,
            settled: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// Whether these pages, the newest first, show all that a check has to know.
    pub fn goes_back_enough(&self, deliveries: &[Listed]) -> bool {
        let until = if self.checked_at.is_some() { self.listed_until } else { newest(deliveries) };
        deliveries.iter().any(|delivery| delivery.delivered_at < until.saturating_sub(OVERLAP_SECS))
    }

    /// Takes over what a check has read; `arrived` says which deliveries were received here.
    pub fn checked(&mut self, check: Check, arrived: impl Fn(&str) -> bool) -> Findings {
        let mut findings = Findings::default();
        let is_first = self.checked_at.is_none();
        let before = self.open.len();
        self.open.retain(|guid, _| !arrived(guid));
        findings.recovered = before - self.open.len();
        let mut relied = !is_first && check.complete && self.terms.as_ref() == Some(&check.terms);
        let since = if is_first { 0 } else { self.listed_until.saturating_sub(OVERLAP_SECS) };
        for delivery in check.deliveries.iter().filter(|delivery| delivery.delivered_at >= since) {
            if arrived(&delivery.guid) || self.settled.contains_key(&delivery.guid) {
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
        self.terms = Some(check.terms);
        self.checked_at = Some(check.began_at);
        findings
    }

    /// One that has not arrived. Its event, if it is missing from now on.
    fn note(&mut self, delivery: &Listed, now: Timestamp) -> Option<Cow<'static, str>> {
        let after = self.checked_at.unwrap_or(now);
        let open = self.open.entry(delivery.guid.clone()).or_insert_with(|| OpenDelivery {
            id: delivery.id,
            after,
            seen_at: now,
            missing: false,
            asked: 0,
            asked_at: Timestamp::EPOCH,
        });
        // The latest attempt is the one to be repeated: the oldest are forgotten first.
        open.id = open.id.max(delivery.id);
        let is_missing = delivery.failed || now.since(open.seen_at) >= GRACE;
        let is_news = is_missing && !open.missing;
        open.missing |= is_missing;
        is_news.then(|| delivery.event.clone())
    }

    /// Forgets those that were asked for in vain, and returns how many these are.
    fn give_up(&mut self, now: Timestamp) -> usize {
        let before = self.open.len();
        let (settled, listed_until) = (&mut self.settled, self.listed_until);
        self.open.retain(|guid, open| {
            // What was noted before, and is not listed any more, counts too.
            open.missing |= now.since(open.seen_at) >= GRACE;
            let in_vain = open.asked >= ASKS_MAX && now.since(open.asked_at) >= ASK_AGAIN;
            if in_vain {
                settled.insert(guid.clone(), listed_until);
            }
            !in_vain
        });
        before - self.open.len()
    }

    /// The attempts that are to be repeated now; they count as asked for from now on.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<u64> {
        let is_due = |open: &&mut OpenDelivery| {
            open.missing
                && open.asked < ASKS_MAX
                && (open.asked == 0 || now.since(open.asked_at) >= ASK_AGAIN)
        };
        let due = self.open.values_mut().filter(is_due).take(ASKED_AT_ONCE_MAX);
        due.map(|open| {
            open.asked += 1;
            open.asked_at = now;
            open.id
        })
        .collect()
    }

    /// How long to rest before the next check.
    pub fn rest(&self) -> Duration {
        if self.open.is_empty() { self.check_every } else { self.check_every.min(MISSING_CHECK) }
    }

    /// Whether at `now` it would have told of every one of these events that happened since
    /// `requested_at`.
    pub fn covers(&self, events: &[&str], requested_at: Timestamp, now: Timestamp) -> bool {
        let Some(checked_at) = self.checked_at else { return false };
        let proved = self.open.values().map(|open| open.after).fold(checked_at, Timestamp::min);
        requested_at >= self.covered_from
            && now < proved + self.check_every * 2 + SLACK
            && self.open.values().all(|open| !open.missing)
            && self.terms.as_ref().is_some_and(|terms| terms.tells_of(events))
    }
}

fn newest(deliveries: &[Listed]) -> u64 {
    deliveries.iter().map(|delivery| delivery.delivered_at).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
