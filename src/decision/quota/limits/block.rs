//! Blocks: denials by single limits, and their combination. On one account all limits must admit;
//! among accounts one is enough.

use crate::clock::Timestamp;

use crate::decision::types::{LimitKind, Until};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub limit: LimitKind,
    /// End of the denial, as reported.
    pub until: Until,
    /// Time of the next check without an event; `None` when only an event can change it.
    pub wake: Option<Timestamp>,
}

impl Block {
    pub const fn at(limit: LimitKind, time: Timestamp) -> Self {
        Self { limit, until: Until::Time(time), wake: Some(time) }
    }

    pub const fn event(limit: LimitKind) -> Self {
        Self { limit, until: Until::Event, wake: None }
    }

    /// Combines two limits of one account: the later time holds. An event is nearer than any time.
    pub fn and(self, other: Self) -> Self {
        let (mut later, earlier) =
            if other.end() > self.end() { (other, self) } else { (self, other) };
        if later.until == Until::Event {
            later.wake = later.wake.zip(earlier.wake).map(|(one, other)| one.max(other));
        }
        later
    }

    /// Combines two accounts: the nearer end holds, with a check whenever either may have changed.
    pub fn or(self, other: Self) -> Self {
        let wake = [self.wake, other.wake].into_iter().flatten().min();
        let nearer = if other.end() < self.end() { other } else { self };
        Self { wake, ..nearer }
    }

    /// End as a time: an event comes before any time.
    pub fn end(&self) -> Timestamp {
        match self.until {
            Until::Event => Timestamp::EPOCH,
            Until::Time(time) => time,
        }
    }
}

pub fn both(one: Option<Block>, other: Option<Block>) -> Option<Block> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.and(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Block = Block::at(LimitKind::Points, Timestamp::from_secs(10));
    const LATE: Block = Block::at(LimitKind::Primary, Timestamp::from_secs(20));
    const EVENT: Block = Block::event(LimitKind::Concurrency);

    #[test]
    fn the_last_limit_to_open_decides_on_one_account() {
        assert_eq!(SOON.and(LATE), LATE);
        assert_eq!(LATE.and(EVENT), LATE);
        assert_eq!(EVENT.and(SOON), SOON);
    }

    #[test]
    fn the_first_account_to_open_decides_among_several() {
        assert_eq!(SOON.or(LATE), SOON);
        assert_eq!(LATE.or(EVENT), Block { wake: LATE.wake, ..EVENT });
    }

    #[test]
    fn a_possible_event_does_not_cancel_the_timed_check() {
        assert_eq!(EVENT.or(SOON).or(LATE).wake, SOON.wake);
    }
}
