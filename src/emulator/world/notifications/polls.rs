//! The poll interval: `X-Poll-Interval` gives the seconds between polls. It can rise under load,
//! and clients must obey it.
//!
//! The upstream does not document its growth. Here each account has an interval for each path:
//! `poll.interval`, doubled for every `poll.patience` early polls in a row, up to
//! `poll.interval-max`. A poll that waits long enough resets it. `poll.load` multiplies every
//! interval, to simulate the load of others. Early polls are answered and charged as usual.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::emulator::accounts::AccountId;
use crate::emulator::limits::Limits;

/// At this size, entries with a passed interval are dropped, which changes nothing for them.
const POLLED_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct Polls {
    /// By account and a digest of the path.
    last: BTreeMap<(AccountId, u64), Poll>,
}

#[derive(Clone, Copy, Debug)]
struct Poll {
    /// A poll before this time is early.
    allowed_at: Timestamp,
    early_in_a_row: u64,
}

impl Polls {
    /// Records a poll of `path` and returns the seconds to wait before the next one.
    pub fn note(&mut self, now: Timestamp, account: AccountId, path: &str, limits: &Limits) -> u64 {
        if self.last.len() >= POLLED_MAX {
            self.last.retain(|_, poll| poll.allowed_at > now);
        }
        if self.last.len() >= POLLED_MAX {
            self.last.clear();
        }
        let mut digest = DefaultHasher::new();
        path.hash(&mut digest);
        let poll = self
            .last
            .entry((account, digest.finish()))
            .or_insert(Poll { allowed_at: now, early_in_a_row: 0 });
        poll.early_in_a_row =
            if now < poll.allowed_at { poll.early_in_a_row.saturating_add(1) } else { 0 };
        let interval_secs = interval_secs(limits, poll.early_in_a_row);
        poll.allowed_at = now + Duration::from_secs(interval_secs);
        interval_secs
    }
}

pub fn interval_secs(limits: &Limits, early_in_a_row: u64) -> u64 {
    let doublings = early_in_a_row / limits.get("poll.patience").max(1);
    let factor = u32::try_from(doublings)
        .ok()
        .and_then(|doublings| 1_u64.checked_shl(doublings))
        .unwrap_or(u64::MAX);
    let requested = limits
        .get("poll.interval")
        .saturating_mul(limits.get("poll.load").max(1))
        .saturating_mul(factor);
    requested.min(limits.get("poll.interval-max").max(limits.get("poll.interval")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: AccountId = AccountId::User(1);

    #[test]
    fn early_polls_double_the_interval_up_to_its_maximum() {
        let limits = Limits::default();
        let mut polls = Polls::default();
        let now = Timestamp::from_secs(1_000);
        let intervals: Vec<u64> =
            (0..60).map(|_| polls.note(now, ACCOUNT, "/notifications", &limits)).collect();
        assert_eq!(
            (intervals[0], intervals[9], intervals[10], intervals[20], intervals[59]),
            (60, 60, 120, 240, 900)
        );
        assert_eq!(
            polls.note(now, AccountId::User(2), "/notifications", &limits),
            60,
            "another account's polls are its own"
        );
        assert_eq!(polls.note(now, ACCOUNT, "/events", &limits), 60, "so is another path");
        assert_eq!(
            polls.note(
                now + std::time::Duration::from_secs(900),
                ACCOUNT,
                "/notifications",
                &limits
            ),
            60
        );
    }

    #[test]
    fn the_interval_saturates_instead_of_overflowing() {
        let mut limits = Limits::default();
        let longest = 366 * 24 * 3_600;
        for (name, value) in
            [("poll.interval", longest), ("poll.load", 1 << 52), ("poll.interval-max", longest)]
        {
            limits.set(name, value).expect("a limit");
        }
        assert_eq!(interval_secs(&limits, u64::MAX), longest);
        limits.set("poll.patience", 0).expect("a limit");
        assert_eq!(interval_secs(&limits, 200), longest);
    }

    #[test]
    fn the_number_of_remembered_polls_is_bounded() {
        let (limits, mut polls) = (Limits::default(), Polls::default());
        for index in 0..25_000_u64 {
            polls.note(Timestamp::from_secs(index / 100), ACCOUNT, &index.to_string(), &limits);
        }
        assert!(polls.last.len() <= POLLED_MAX);
    }
}
