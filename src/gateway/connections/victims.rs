//! The choice of idle and slow connections that make room for others. Pure: times are arguments.
//!
//! Connections without a request of a client go before them (`newcomers.rs`). A request of a client
//! that does not wait for its client is never a victim.

use std::cmp::Reverse;

/// The age in milliseconds at which a new connection may be ended. Chosen here: a handshake and a
/// head from far away take less, and a flood costs at most `connections_max` accepts per second.
pub const RIPE_MS: u64 = 1_000;
/// The same for one that has sent no byte. Chosen here: a client's first bytes come right behind
/// the handshake of TCP, so that only a lost packet delays them.
pub const SILENT_MS: u64 = 250;
/// The time in milliseconds within which the head of a stream becomes a request. Chosen here: many
/// times what a task needs to begin on a busy machine.
pub const HEAD_MS: u64 = 250;
/// The share of new connections among all at which they are waited for. Chosen here: idle
/// connections of clients do not pay for a flood.
const FLOOD_SHARE: usize = 16;
/// The longest wait in milliseconds for a connection that becomes idle, which nobody announces.
const LOOK_AGAIN_MS: u64 = 50;

/// A connection as it was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen<T> {
    pub key: T,
    /// True if a request of a client is under way that does not wait for it, or if it ends anyway.
    pub is_busy: bool,
    /// True if requests of a client are under way, and all wait for it.
    pub is_slow: bool,
    pub is_known: bool,
    /// Milliseconds: the age at which a new one may be ended.
    pub ripe_after: u64,
    /// Milliseconds: begin of a new connection, or begin of its idleness.
    pub since: u64,
    /// Milliseconds: head of an HTTP/2 stream whose request may not have begun.
    pub head_at: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Choice<T> {
    /// The victims with their times, the first one last.
    Victims(Vec<(T, u64)>),
    /// None may be ended now; milliseconds until another look.
    Wait(u64),
}

/// Chooses at most `count` idle connections, or slow ones where none is idle, if new ones are few.
pub fn choose<T: Copy + Ord>(
    seen: impl Iterator<Item = Seen<T>>,
    now: u64,
    count: usize,
) -> Choice<T> {
    let (mut idle, mut slow, mut unripe, mut all) = (Vec::new(), Vec::new(), Vec::new(), 0_usize);
    for Seen { key, is_busy, is_slow, is_known, ripe_after, since, head_at } in seen {
        all += 1;
        let head_until = if head_at > 0 { head_at + HEAD_MS } else { 0 };
        if is_busy || (is_known && now < head_until) {
            continue;
        }
        if is_known {
            let kind = if is_slow { &mut slow } else { &mut idle };
            kind.push((key, since));
        } else {
            unripe.push((since + ripe_after).max(head_until));
        }
    }
    let is_flood = unripe.len() * FLOOD_SHARE >= all;
    let mut victims = if idle.is_empty() { slow } else { idle };
    if victims.is_empty() || is_flood {
        let ripe_at = unripe.into_iter().min();
        let until_ripe = ripe_at.map_or(LOOK_AGAIN_MS, |ripe_at| ripe_at.saturating_sub(now));
        return Choice::Wait(until_ripe.clamp(1, LOOK_AGAIN_MS));
    }
    victims.sort_unstable_by_key(|(key, since)| Reverse((*since, *key)));
    let first = victims.len().saturating_sub(count);
    Choice::Victims(victims.split_off(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 100_000;

    fn seen(key: u32, is_busy: bool, is_known: bool, age: u64) -> Seen<u32> {
        let (since, head_at) = (NOW - age, 0);
        Seen { key, is_busy, is_slow: false, is_known, ripe_after: RIPE_MS, since, head_at }
    }

    fn new(key: u32, age: u64) -> Seen<u32> {
        seen(key, false, false, age)
    }

    fn idle(key: u32, age: u64) -> Seen<u32> {
        seen(key, false, true, age)
    }

    /// The chosen keys, the first victim first.
    fn chosen(of: &[Seen<u32>], count: usize) -> Result<Vec<u32>, u64> {
        match choose(of.iter().copied(), NOW, count) {
            Choice::Victims(victims) => Ok(victims.iter().rev().map(|(key, _)| *key).collect()),
            Choice::Wait(millis) => Err(millis),
        }
    }

    #[test]
    fn idle_connections_go_the_longest_first() {
        let all: Vec<_> = (1..=20).map(|key| idle(key, u64::from(key) * 10)).collect();
        assert_eq!(chosen(&all, 3), Ok(vec![20, 19, 18]));
    }

    #[test]
    fn slow_connections_go_after_idle_ones() {
        let slow = Seen { is_slow: true, ..idle(1, 50_000) };
        assert_eq!(chosen(&[slow, idle(2, 10)], 9), Ok(vec![2]));
        assert_eq!(chosen(&[slow, seen(3, true, true, 60_000)], 9), Ok(vec![1]));
    }

    #[test]
    fn a_clients_request_under_way_is_never_a_victim() {
        let busy = [seen(1, true, true, 50_000), seen(2, true, false, 50_000)];
        assert_eq!(chosen(&busy, 9), Err(LOOK_AGAIN_MS));
        let head = Seen { head_at: NOW - HEAD_MS + 1, ..new(3, 50_000) };
        assert_eq!(chosen(&[head], 9), Err(1), "it may be that of a client");
        assert_eq!(chosen(&[Seen { is_known: true, ..head }], 9), Err(LOOK_AGAIN_MS));
        // Nor do idle connections make room meanwhile.
        assert_eq!(chosen(&[head, idle(4, 9)], 9), Err(1));
    }

    #[test]
    fn a_flood_of_new_connections_does_not_end_idle_ones() {
        let idle: Vec<_> = (1..=30).map(|key| idle(key, 5_000)).collect();
        let with = |new: &[Seen<u32>]| [&idle, new].concat();
        assert_eq!(chosen(&with(&[new(31, 990), new(32, 980)]), 1), Err(10));
        assert_eq!(chosen(&with(&[new(31, 990)]), 1), Ok(vec![1]), "one alone is no flood");
    }

    #[test]
    fn an_unripe_connection_is_waited_for() {
        assert_eq!(chosen(&[new(1, 0)], 1), Err(LOOK_AGAIN_MS));
        assert_eq!(chosen(&[new(1, 998)], 1), Err(2));
        assert_eq!(chosen(&[Seen { ripe_after: SILENT_MS, ..new(1, 247) }], 1), Err(3));
        assert_eq!(chosen(&[], 1), Err(LOOK_AGAIN_MS));
    }
}
