//! The connections that have carried no request of a client, in the order of their begins. A flood
//! finds its victims here, each in an instant: a look at all connections would delay the requests
//! of clients for milliseconds.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;

use super::slot::Slot;
use super::victims::{HEAD_MS, RIPE_MS, SILENT_MS};

/// Entries of ended or known connections, beside those that are open, at which all such entries are
/// dropped. Chosen here: small queues need no cleaning.
const STALE_MIN: usize = 64;

/// The open connections.
#[derive(Default)]
pub struct Slots {
    pub open: Slab<Arc<Slot>>,
    /// Keys and begins in milliseconds, the oldest first. An entry stays when its connection ends
    /// or becomes known.
    newcomers: VecDeque<(usize, u64)>,
    /// Those of them that had sent bytes when they might have been ended as silent.
    senders: VecDeque<(usize, u64)>,
}

impl Slots {
    pub fn insert(&mut self, slot: Arc<Slot>) -> usize {
        let since = slot.since();
        let key = self.open.insert(slot);
        self.newcomers.push_back((key, since));
        if self.newcomers.len() + self.senders.len() > 2 * self.open.len() + STALE_MIN {
            let open = &self.open;
            self.newcomers.retain(|entry| newcomer(open, *entry).is_some());
            self.senders.retain(|entry| newcomer(open, *entry).is_some());
        }
        key
    }

    /// Takes a newcomer that may be ended at this time, in milliseconds: the oldest one that has
    /// sent bytes, else the oldest silent one.
    pub fn take_ripe(&mut self, now: u64) -> Option<Arc<Slot>> {
        self.take_sender(now).or_else(|| {
            while let Some((slot, entry)) = next_of(&mut self.newcomers, &self.open, now, SILENT_MS)
            {
                if !slot.has_sent() {
                    return Some(slot);
                }
                self.senders.push_back(entry);
            }
            self.take_sender(now)
        })
    }

    fn take_sender(&mut self, now: u64) -> Option<Arc<Slot>> {
        for _ in 0..self.senders.len() {
            let (slot, entry) = next_of(&mut self.senders, &self.open, now, RIPE_MS)?;
            match slot.head_at() {
                // Its request may be that of a client. The next lap decides.
                head_at @ 1.. if now < head_at + HEAD_MS => self.senders.push_back(entry),
                _ => return Some(slot),
            }
        }
        None
    }
}

/// Takes the first entry of a queue, if it has this age in milliseconds, with its connection.
fn next_of(
    queue: &mut VecDeque<(usize, u64)>,
    open: &Slab<Arc<Slot>>,
    now: u64,
    age: u64,
) -> Option<(Arc<Slot>, (usize, u64))> {
    loop {
        let entry = *queue.front()?;
        let slot = newcomer(open, entry);
        if slot.is_some() && now < entry.1 + age {
            return None;
        }
        queue.pop_front();
        if let Some(slot) = slot {
            return Some((Arc::clone(slot), entry));
        }
    }
}

/// The connection of an entry, if it is still a newcomer that may be ended.
fn newcomer(open: &Slab<Arc<Slot>>, (key, since): (usize, u64)) -> Option<&Arc<Slot>> {
    // Another connection may have the key.
    open.get(key).filter(|slot| slot.since() == since && !slot.is_known() && slot.may_end())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::slot::Listener;
    use super::*;
    use crate::clock::timer_now;

    /// A connection that began at this millisecond, and has sent bytes.
    fn begun(at: u64) -> Arc<Slot> {
        let slot = silent(at);
        slot.sends();
        slot
    }

    fn silent(at: u64) -> Arc<Slot> {
        let origin = timer_now();
        Arc::new(Slot::new(Listener::Http, origin, origin + Duration::from_millis(at)))
    }

    /// The begins of all that may be ended at this time, in the order of their ends.
    fn ripe(slots: &mut Slots, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| slots.take_ripe(now)).map(|slot| slot.since()).collect()
    }

    #[tokio::test]
    async fn newcomers_go_the_oldest_first_and_not_before_a_second() {
        let mut slots = Slots::default();
        for at in [100, 200, 1_500] {
            slots.insert(begun(at));
        }
        assert!(ripe(&mut slots, 1_099).is_empty());
        assert_eq!(ripe(&mut slots, 1_200), [100, 200]);
        assert_eq!(ripe(&mut slots, 2_500), [1_500]);
    }

    #[tokio::test]
    async fn silent_newcomers_go_after_a_quarter_of_a_second() {
        let mut slots = Slots::default();
        slots.insert(begun(100));
        slots.insert(silent(200));
        slots.insert(silent(300));
        assert_eq!(ripe(&mut slots, 499), [200]);
        assert_eq!(ripe(&mut slots, 1_200), [100, 300]);
    }

    #[tokio::test]
    async fn known_and_ended_connections_are_no_newcomers() {
        let mut slots = Slots::default();
        let known = begun(100);
        slots.insert(Arc::clone(&known));
        let ended = slots.insert(begun(200));
        known.know();
        slots.open.remove(ended);
        // Another connection has the key of the ended one.
        assert_eq!(slots.insert(begun(300)), ended);
        assert_eq!(ripe(&mut slots, 5_000), [300]);
    }

    #[tokio::test]
    async fn a_head_on_its_way_delays_the_end_of_a_newcomer() {
        let mut slots = Slots::default();
        let (origin, with_head) = (timer_now(), begun(100));
        with_head.head_came(origin + Duration::from_millis(1_900));
        let head_at = with_head.head_at();
        slots.insert(with_head);
        slots.insert(begun(200));
        assert_eq!(ripe(&mut slots, head_at + HEAD_MS - 1), [200]);
        assert_eq!(ripe(&mut slots, head_at + HEAD_MS), [100]);
    }

    #[tokio::test]
    async fn entries_of_ended_connections_are_bounded() {
        let mut slots = Slots::default();
        slots.insert(begun(1));
        for at in 2..10_000 {
            let key = slots.insert(begun(at));
            slots.open.remove(key);
        }
        assert!(slots.newcomers.len() <= 2 * 2 + STALE_MIN);
        assert_eq!(ripe(&mut slots, 20_000), [1]);
    }
}
