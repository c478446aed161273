//! The true versions of each subject over time, and the oldest one that a response may show.
//!
//! The test makes every change itself, so it knows the truth: versions are numbered, and the text
//! contains the number. Two clocks give the order. Ticks mark the beginning and end of each
//! request; virtual time gives ages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use weir::clock::Timestamp;

/// A position in the order of all beginnings and ends.
pub type Tick = u64;

/// The path of a change to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the gateway, which therefore knows of it.
    Through,
    /// Past the gateway.
    Around,
}

/// One change; its position in the list, from 1, is the version that it makes.
#[derive(Clone, Debug)]
struct Change {
    way: Way,
    begun: Tick,
    /// The end of the change, by both clocks.
    over: Option<(Tick, Timestamp)>,
    /// The time at which the gateway had accepted a webhook about it.
    reported: Option<(Tick, Timestamp)>,
}

/// A resource that changes: a title, a description, a list of comments.
#[derive(Debug, Default)]
pub struct Subject {
    changes: Mutex<Vec<Change>>,
    is_being_changed: Mutex<bool>,
}

/// The permitted age of a response, by its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every change completed before the request shows.
    Nothing,
    /// Changes made around the gateway may stay hidden this long.
    Ttl(Duration),
    /// Changes that no webhook reported may stay hidden this long.
    Unreported(Duration),
}

/// The properties of a request that bound the age of its response.
#[derive(Clone, Copy, Debug)]
pub struct RequestStart {
    /// Its beginning.
    pub tick: Tick,
    /// The virtual time of its beginning.
    pub at: Timestamp,
    /// The time for which replicas of the upstream may hide a change.
    pub lag: Duration,
    /// The earliest beginning of the upstream request behind the response. A follower shares its
    /// leader's response, and the gateway learns nothing of changes around it meanwhile. A change
    /// through the gateway ends such sharing.
    pub since: Tick,
}

/// A response requested 10 s after a change is trusted (SPECIFICATION, "Conditional requests in
/// practice").
const UNCERTAINTY: Duration = Duration::from_secs(10);

/// The source of ticks.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    pub fn next(&self) -> Tick {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

impl Subject {
    /// Begins the next change and returns its version, or nothing while another change is under
    /// way: two at once would have no order.
    pub fn begin(&self, way: Way, ticks: &Ticks) -> Option<usize> {
        let mut is_being_changed = self.is_being_changed.lock();
        if *is_being_changed {
            return None;
        }
        *is_being_changed = true;
        let mut changes = self.changes.lock();
        changes.push(Change { way, begun: ticks.next(), over: None, reported: None });
        Some(changes.len())
    }

    /// Completes the change under way.
    pub fn end(&self, ticks: &Ticks, now: Timestamp) {
        if let Some(change) = self.changes.lock().last_mut() {
            change.over = Some((ticks.next(), now));
        }
        *self.is_being_changed.lock() = false;
    }

    /// Drops the change under way, which was never made.
    pub fn undo(&self) {
        self.changes.lock().pop();
        *self.is_being_changed.lock() = false;
    }

    /// Records that the gateway accepted a webhook that shows this version.
    pub fn reported(&self, version: usize, ticks: &Ticks, now: Timestamp) {
        let reported = (ticks.next(), now);
        for change in self.changes.lock().iter_mut().take(version) {
            change.reported.get_or_insert(reported);
        }
    }

    /// The oldest version that a response to the request may show.
    pub fn least(&self, started: RequestStart, allowed: Allowed) -> usize {
        let changes = self.changes.lock();
        changes
            .iter()
            .rposition(|change| change.must_show(started, allowed))
            .map_or(0, |index| index + 1)
    }

    /// True if a response read at `tick` may show this version: its change had begun.
    pub fn may_exist(&self, version: usize, tick: Tick) -> bool {
        version == 0
            || self.changes.lock().get(version - 1).is_some_and(|change| change.begun < tick)
    }
}

impl Change {
    fn must_show(&self, started: RequestStart, allowed: Allowed) -> bool {
        let Some(over) = self.over else { return false };
        // The gateway refetches what it knows to have changed; with lagging replicas, several
        // times.
        let is_known = |(tick, at): (Tick, Timestamp)| {
            tick < started.tick && (started.lag.is_zero() || at + UNCERTAINTY <= started.at)
        };
        let before = if self.way == Way::Around { started.since } else { started.tick };
        let has_passed =
            |wait: Duration| over.0 < before && over.1 + wait + started.lag <= started.at;
        match allowed {
            Allowed::Nothing => has_passed(Duration::ZERO),
            Allowed::Ttl(ttl) => self.way == Way::Through && is_known(over) || has_passed(ttl),
            Allowed::Unreported(unknown) => {
                self.way == Way::Through && is_known(over)
                    || self.reported.is_some_and(is_known)
                    || has_passed(unknown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn later(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    fn started(ticks: &Ticks, seconds: u64, lag: u64) -> RequestStart {
        let tick = ticks.next();
        RequestStart { tick, at: later(seconds), lag: Duration::from_secs(lag), since: tick }
    }

    /// A subject with two changes at once: through the gateway, then around it.
    fn subject(ticks: &Ticks) -> Subject {
        let subject = Subject::default();
        for way in [Way::Through, Way::Around] {
            subject.begin(way, ticks).unwrap();
            subject.end(ticks, START);
        }
        subject
    }

    #[test]
    fn with_no_slack_only_completed_changes_must_show() {
        let ticks = Ticks::default();
        let before = started(&ticks, 0, 0);
        let subject = subject(&ticks);
        assert_eq!(subject.least(before, Allowed::Nothing), 0);
        assert_eq!(subject.least(started(&ticks, 0, 0), Allowed::Nothing), 2);
        assert_eq!(subject.least(started(&ticks, 4, 5), Allowed::Nothing), 0);
        assert_eq!(subject.least(started(&ticks, 5, 5), Allowed::Nothing), 2);
    }

    #[test]
    fn a_response_in_transit_may_hide_only_outside_changes() {
        let ticks = Ticks::default();
        let early = ticks.next();
        let subject = subject(&ticks);
        assert_eq!(
            subject.least(RequestStart { since: early, ..started(&ticks, 0, 0) }, Allowed::Nothing),
            1
        );
    }

    #[test]
    fn a_ttl_hides_outside_changes_and_none_through_the_gateway() {
        let ticks = Ticks::default();
        let subject = subject(&ticks);
        let ttl = Allowed::Ttl(Duration::from_secs(30));
        assert_eq!(subject.least(started(&ticks, 29, 0), ttl), 1);
        assert_eq!(subject.least(started(&ticks, 30, 0), ttl), 2);
        assert_eq!(subject.least(started(&ticks, 9, 5), ttl), 0);
        assert_eq!(subject.least(started(&ticks, 10, 5), ttl), 1);
    }

    #[test]
    fn a_webhook_ends_the_slack() {
        let ticks = Ticks::default();
        let subject = subject(&ticks);
        let unreported = Allowed::Unreported(Duration::from_secs(600));
        assert_eq!(subject.least(started(&ticks, 20, 0), unreported), 1);
        subject.reported(2, &ticks, later(20));
        assert_eq!(subject.least(started(&ticks, 20, 0), unreported), 2);
        assert_eq!(subject.least(started(&ticks, 29, 5), unreported), 1);
    }
}
