//! A primary window of which several replicas spend parts (`decision::fleet`).

use std::time::Duration;

use super::{PrimaryWindow, Seen, WOBBLE, WindowState};
use crate::clock::Timestamp;
use crate::decision::fleet::Sight;

/// A reset that others know to be later by less than this is the same. Ours: less than the second
/// in which the upstream counts.
const MOVED: Duration = Duration::from_millis(500);

impl PrimaryWindow {
    /// Returns true while no answer has shown the window.
    pub fn is_unknown(&self, now: Timestamp) -> bool {
        self.current(now) == WindowState::Unknown
    }

    pub fn is_unmetered(&self) -> bool {
        self.state == WindowState::Unmetered
    }

    /// The window as last seen, and what this replica has spent in it, with its requests in flight.
    pub fn spent_by_us(&self) -> Option<(Sight, u32)> {
        let WindowState::Seen(Seen { limit, remaining, reset }) = self.state else { return None };
        Some((Sight { limit, remaining, reset }, self.evidence.charged()))
    }

    /// Units of requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.leased_units()
    }

    /// Rest of a closure by an upstream limit.
    pub fn closed_for(&self, now: Timestamp) -> Duration {
        self.closed_until.since(now)
    }

    /// Takes over what the answers to other replicas have shown.
    pub fn reported(&mut self, now: Timestamp, seen: Sight) {
        let new = Seen { limit: seen.limit, remaining: seen.remaining, reset: seen.reset };
        match self.state {
            WindowState::Seen(old) if new.reset + WOBBLE < old.reset => return,
            WindowState::Seen(old) if new.reset <= old.reset + WOBBLE => {
                // The way to the others and back moves a reset a little each time.
                let is_same = new.reset < old.reset + MOVED;
                let reset = if is_same { old.reset } else { new.reset };
                self.state = WindowState::Seen(old.merged(Seen { reset, ..new }));
            }
            _ => {
                self.state = WindowState::Seen(new);
                self.evidence.new_window(now, self.leased_units());
            }
        }
        if !self.is_unknown(now) {
            self.probes.learned();
        }
    }

    /// The answers to other replicas have shown that nothing is counted.
    pub fn reported_unmetered(&mut self) {
        if self.state == WindowState::Unknown {
            self.state = WindowState::Unmetered;
        }
    }

    /// Another replica was refused.
    pub fn reported_closed(&mut self, until: Timestamp) {
        self.closed_until = self.closed_until.max(until);
    }
}
