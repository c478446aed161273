//! The slots of one account's concurrency, and the share of each client in them and in the CPU time
//! that requests under way hold (SPECIFICATION D5).
//!
//! The upstream counts a request until it has ended, and a request without an answer may last for
//! as long as the gateway waits. A client with enough of them would stop everybody else. So a
//! client that holds many slots leaves some to the others before it takes the next one.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::{CUT_OFF_GRACE, YIELD_GRACE, count};
use crate::clock::Timestamp;
use crate::decision::quota::limits::block::Block;
use crate::decision::silence::Silence;
use crate::decision::types::{ClientId, HashMap, LimitKind};

/// A client may take more while it holds at most this many times what is free. Ours: of the usual
/// hundred slots a single client leaves three, and of 45 seconds of CPU time more than one. That is
/// enough for the quick requests of many.
const TIMES_FREE: u32 = 31;
/// Time for which one more slot is left after two clients have asked. It matters where slots are
/// few. Ours: the window of a budget.
const CONTESTED_FOR: Duration = Duration::from_hours(1);

/// Holder of the slots of an earlier process.
const EARLIER: ClientId = ClientId(u32::MAX);

/// CPU time that a request wants, and that is free, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    pub wanted: u32,
    pub free: u32,
}

#[derive(Debug)]
pub struct Slots {
    max: u32,
    /// True if several clients may use the account.
    is_shared: bool,
    /// Client that asked last, and the end of the time in which others probably ask.
    asked: Option<ClientId>,
    contested_until: Timestamp,
    in_flight: u32,
    /// Ends of the grace periods of slots whose requests were given up, ascending. Each held a slot
    /// in flight before, so there are no more than slots.
    given_up: VecDeque<(Timestamp, ClientId)>,
    by_client: HashMap<ClientId, Held>,
}

/// The slots of one client.
#[derive(Debug, Default)]
struct Held {
    /// In flight, and given up.
    slots: u32,
    /// CPU time of requests in flight, in milliseconds.
    cpu_millis: u32,
    silence: Silence,
}

impl Slots {
    pub fn new(max: u32, is_shared: bool) -> Self {
        Self {
            max: max.max(1),
            is_shared,
            asked: None,
            contested_until: Timestamp::EPOCH,
            in_flight: 0,
            given_up: VecDeque::new(),
            by_client: HashMap::default(),
        }
    }

    /// Changes the number of slots. Requests keep theirs, perhaps more than there are.
    pub fn reconfigure(&mut self, new: &Self) {
        (self.max, self.is_shared) = (new.max, new.is_shared);
    }

    /// Number of slots, taken or not.
    pub fn max(&self) -> u32 {
        self.max
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests in flight, and those given up that the upstream may still execute.
    pub fn in_use(&self, now: Timestamp) -> u32 {
        let over = self.given_up.partition_point(|(end, _)| *end <= now);
        self.in_flight.saturating_add(count(self.given_up.len() - over))
    }

    /// The block of every client, while no slot is free.
    pub fn block(&self, now: Timestamp) -> Option<Block> {
        if self.in_use(now) < self.max {
            return None;
        }
        Some(match self.next_grace_end(now) {
            // No answer can free a slot earlier.
            Some(end) if self.in_flight == 0 => Block::at(LimitKind::Concurrency, end),
            wake => Block { wake, ..Block::event(LimitKind::Concurrency) },
        })
    }

    /// The block of one client: no slot is free, or the client has its share. `cpu` is what the
    /// request wants.
    pub fn block_for(&mut self, now: Timestamp, client: ClientId, cpu: Cpu) -> Option<Block> {
        let is_within_share = self.is_within_share(now, client, cpu);
        self.block(now).or_else(|| {
            let contested = Some(self.contested_until).filter(|until| *until > now);
            let wake = self.next_grace_end(now).into_iter().chain(contested).min();
            let block = Block { wake, ..Block::event(LimitKind::ClientShare) };
            (!is_within_share).then_some(block)
        })
    }

    /// Returns true if nothing blocks this client.
    pub fn admits(&mut self, now: Timestamp, client: ClientId, cpu: Cpu) -> bool {
        self.is_within_share(now, client, cpu) && self.in_use(now) < self.max
    }

    /// Returns true if a client may take one of the free slots, and this CPU time.
    fn is_within_share(&mut self, now: Timestamp, client: ClientId, cpu: Cpu) -> bool {
        if self.asked != Some(client)
            && client != ClientId::BACKGROUND
            && self.asked.replace(client).is_some()
        {
            self.contested_until = now + CONTESTED_FOR;
        }
        let is_contested = self.contested_until > now;
        if !self.is_shared && !is_contested {
            return true;
        }
        self.end_graces(now);
        let Some(held) = self.by_client.get(&client) else { return true };
        let free = self.max.saturating_sub(self.in_use(now) + u32::from(is_contested));
        let cpu_left = cpu.free.saturating_sub(cpu.wanted);
        held.slots <= free.saturating_mul(TIMES_FREE)
            && (held.cpu_millis == 0 || held.cpu_millis <= cpu_left.saturating_mul(TIMES_FREE))
    }

    /// Time of the next slot that becomes free without an event.
    pub fn next_grace_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.given_up.iter().map(|(end, _)| *end).find(|end| *end > now)
    }

    /// Slots that become free without an event within the grace of a yielded one.
    pub fn free_soon(&self, now: Timestamp) -> usize {
        let ends = |time| self.given_up.partition_point(|(end, _)| *end <= time);
        ends(now + YIELD_GRACE) - ends(now)
    }

    /// Returns true if requests that were given up hold half of the slots or more.
    pub fn are_lost(&self, now: Timestamp) -> bool {
        // The others were given up for their readers.
        let from = self.given_up.partition_point(|(end, _)| *end <= now + YIELD_GRACE);
        let lost = count(self.given_up.len() - from);
        lost > 0 && lost.saturating_mul(2) >= self.max
    }

    /// Invariant 3. Slots are taken after ended grace periods were removed.
    pub fn are_within(&self) -> bool {
        self.in_flight.saturating_add(count(self.given_up.len())) <= self.max
    }

    /// Returns true if each client's number is that of its slots.
    pub fn add_up(&self) -> bool {
        let by_client = self.by_client.values().map(|held| held.slots).sum::<u32>();
        by_client == self.in_flight.saturating_add(count(self.given_up.len()))
            && self.by_client.values().all(|held| held.slots > 0)
    }

    pub fn take(&mut self, now: Timestamp, client: ClientId, cpu_millis: u32) {
        self.end_graces(now);
        self.in_flight += 1;
        let held = self.by_client.entry(client).or_default();
        held.slots += 1;
        held.cpu_millis = held.cpu_millis.saturating_add(cpu_millis);
        held.silence.sent(now);
    }

    /// Ends a request that held this CPU time. Its slot is free after this grace.
    pub fn leave(
        &mut self,
        now: Timestamp,
        client: ClientId,
        cpu_millis: u32,
        grace: Option<Duration>,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.end_graces(now);
        if let Some(held) = self.by_client.get_mut(&client) {
            held.cpu_millis = held.cpu_millis.saturating_sub(cpu_millis);
        }
        match grace {
            Some(grace) => {
                let end = now + grace;
                let at = self.given_up.partition_point(|(other, _)| *other <= end);
                self.given_up.insert(at, (end, client));
            }
            None => self.free(client),
        }
    }

    /// Notes an answer to a request of this client, or that the upstream took a piece of its body.
    pub fn answered(&mut self, now: Timestamp, client: ClientId) {
        if let Some(held) = self.by_client.get_mut(&client) {
            held.silence.answered(now);
        }
    }

    /// A request of this client that was sent at this time was given up without an answer.
    pub fn lost(&mut self, now: Timestamp, sent_at: Timestamp, client: ClientId) {
        if let Some(held) = self.by_client.get_mut(&client) {
            held.silence.lost(now, sent_at);
        }
    }

    /// A request of this client waits no longer for the head of an answer.
    pub fn heard(&mut self, client: ClientId) {
        if let Some(held) = self.by_client.get_mut(&client) {
            held.silence.ended();
        }
    }

    /// Returns true if at least half of a wait since then passed behind requests of this client
    /// that got no answer.
    pub fn are_unanswered(&self, now: Timestamp, since: Timestamp, client: ClientId) -> bool {
        let held = self.by_client.get(&client);
        held.is_some_and(|held| held.silence.is_unanswered(now, since))
    }

    /// CPU time of the clients whose requests got no answer in at least half of a wait since then.
    pub fn unanswered_cpu(&self, now: Timestamp, since: Timestamp) -> u32 {
        let silent = self.by_client.values().filter(|held| held.silence.is_unanswered(now, since));
        silent.map(|held| held.cpu_millis).fold(0, u32::saturating_add)
    }

    /// Ends of the slots, if the requests in flight are given up now.
    pub fn saved(&self, now: Timestamp) -> Vec<Timestamp> {
        let given_up = (0..self.in_flight).map(|_| now + CUT_OFF_GRACE);
        let ends = self.given_up.iter().map(|(end, _)| *end);
        ends.filter(|end| *end > now).chain(given_up).collect()
    }

    /// Takes over what an earlier process kept.
    pub fn restore(&mut self, now: Timestamp, saved: &[Timestamp]) {
        let ends = saved.iter().map(|end| (*end).min(now + CUT_OFF_GRACE));
        let mut ends: Vec<_> = ends.filter(|end| *end > now).collect();
        ends.sort_unstable();
        ends.truncate(usize::try_from(self.max).unwrap_or(usize::MAX));
        let own = self.given_up.iter().copied().filter(|(_, client)| *client != EARLIER);
        let earlier = ends.iter().map(|end| (*end, EARLIER));
        let mut given_up: Vec<_> = own.chain(earlier).collect();
        given_up.sort_unstable_by_key(|(end, _)| *end);
        self.given_up = given_up.into();
        if ends.is_empty() {
            self.by_client.remove(&EARLIER);
        } else {
            self.by_client.entry(EARLIER).or_default().slots = count(ends.len());
        }
    }

    /// True if requests of an earlier process have slots.
    pub fn has_earlier(&self) -> bool {
        self.by_client.contains_key(&EARLIER)
    }

    fn end_graces(&mut self, now: Timestamp) {
        while let Some((_, client)) = self.given_up.pop_front_if(|(end, _)| *end <= now) {
            self.free(client);
        }
    }

    fn free(&mut self, client: ClientId) {
        if let Entry::Occupied(mut held) = self.by_client.entry(client) {
            held.get_mut().slots = held.get().slots.saturating_sub(1);
            if held.get().slots == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const SECOND: Duration = Duration::from_secs(1);
    const CPU: Cpu = Cpu { wanted: 0, free: 0 };
    const ONE: ClientId = ClientId(0);
    const OTHER: ClientId = ClientId(1);

    /// Slots that several clients ask for.
    fn contested(max: u32) -> Slots {
        let mut slots = Slots::new(max, true);
        assert!([7, 8].iter().all(|client| slots.admits(NOW, ClientId(*client), CPU)));
        slots
    }

    /// Takes slots for a client as long as it may, and counts them.
    fn fill(slots: &mut Slots, client: ClientId) -> u32 {
        let mut taken = 0;
        while slots.admits(NOW, client, CPU) {
            slots.take(NOW, client, 0);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_client_leaves_slots_to_the_others() {
        let mut slots = Slots::new(100, true);
        let shares = [0, 1, 2].map(|client| fill(&mut slots, ClientId(client)));
        assert_eq!(shares, [97, 2, 1]);
        let small = [1, 2, 32, 33].map(|max| fill(&mut Slots::new(max, true), ONE));
        assert_eq!(small, [1, 2, 32, 32]);
    }

    #[test]
    fn the_last_slot_is_for_a_client_with_none_while_others_ask() {
        let small = [1, 2, 3, 33, 34].map(|max| fill(&mut contested(max), ONE));
        assert_eq!(small, [1, 1, 2, 32, 32]);
    }

    #[test]
    fn the_slots_of_an_account_with_one_client_are_its_own() {
        let mut slots = Slots::new(100, false);
        assert_eq!(fill(&mut slots, ONE), 100);
        assert!(!slots.admits(NOW, ClientId::BACKGROUND, CPU), "all are in use");
        slots.leave(NOW, ONE, 0, None);
        assert!(slots.admits(NOW, ONE, CPU), "a request without a client is no other client");
        // A credential that several clients present.
        assert!(slots.admits(NOW, OTHER, CPU));
        assert!(!slots.admits(NOW, ONE, CPU));
    }

    #[test]
    fn a_client_leaves_cpu_time_to_the_others() {
        let mut slots = Slots::new(100, true);
        let mut free = 45_000;
        while slots.admits(NOW, ONE, Cpu { wanted: 2_000, free }) {
            slots.take(NOW, ONE, 2_000);
            free -= 2_000;
        }
        assert_eq!(free, 3_000, "another two seconds would leave too little");
        assert!(slots.admits(NOW, OTHER, Cpu { wanted: 1_000, free }));
        slots.leave(NOW, ONE, 2_000, None);
        assert!(slots.admits(NOW, ONE, Cpu { wanted: 2_000, free: free + 2_000 }));
    }

    #[test]
    fn the_share_ends_an_hour_after_another_client_asked() {
        let mut slots = contested(4);
        assert_eq!(fill(&mut slots, ONE), 3);
        let wake = Some(NOW + CONTESTED_FOR);
        let share = Block { wake, ..Block::event(LimitKind::ClientShare) };
        assert_eq!(slots.block_for(NOW, ONE, CPU), Some(share));
        assert!(slots.admits(NOW + CONTESTED_FOR, ONE, CPU));
    }

    #[test]
    fn the_share_ends_with_the_slots_of_the_client_and_of_others() {
        let mut slots = contested(4);
        assert_eq!(fill(&mut slots, ONE), 3);
        let limit = |slots: &mut Slots| slots.block_for(NOW, ONE, CPU).map(|block| block.limit);
        let share = Some(LimitKind::ClientShare);
        assert_eq!(limit(&mut slots), share);
        slots.take(NOW, OTHER, 0);
        assert_eq!(limit(&mut slots), Some(LimitKind::Concurrency));
        slots.leave(NOW, ONE, 0, None);
        assert_eq!(limit(&mut slots), share);
        slots.leave(NOW, OTHER, 0, None);
        assert_eq!(limit(&mut slots), None);
    }

    #[test]
    fn slots_of_requests_given_up_belong_to_their_client() {
        let mut slots = contested(4);
        assert_eq!(fill(&mut slots, ONE), 3);
        for _ in 0..3 {
            slots.leave(NOW, ONE, 0, Some(SECOND));
        }
        let wake = Some(NOW + SECOND);
        let share = Block { wake, ..Block::event(LimitKind::ClientShare) };
        assert_eq!(slots.block_for(NOW, ONE, CPU), Some(share));
        assert!(slots.admits(NOW, OTHER, CPU) && slots.admits(NOW + SECOND, ONE, CPU));
        assert!(slots.by_client.is_empty());
    }

    #[test]
    fn answers_of_other_clients_end_no_silence() {
        let mut slots = contested(4);
        slots.take(NOW, ONE, 0);
        slots.take(NOW, OTHER, 0);
        slots.answered(NOW + SECOND * 9, OTHER);
        let at_the_end = [ONE, OTHER].map(|id| slots.are_unanswered(NOW + SECOND * 10, NOW, id));
        assert_eq!(at_the_end, [true, false]);
    }

    proptest! {
        #[test]
        fn a_client_without_slots_gets_one_beside_a_client_with_several(events in prop::collection::vec((0_u32..4, 0_u64..3, any::<bool>()), 0..300), max in 2_u32..40) {
            let mut slots = contested(max);
            let (mut now, mut open) = (NOW, Vec::new());
            for (client, seconds, ends) in events {
                now = now + SECOND * u32::try_from(seconds).unwrap();
                if ends && !open.is_empty() {
                    let client = open.remove(0);
                    slots.leave(now, client, 0, (seconds > 0).then_some(SECOND * 5));
                } else if slots.admits(now, ClientId(client), CPU) {
                    slots.take(now, ClientId(client), 0);
                    open.push(ClientId(client));
                }
                prop_assert!(slots.add_up() && slots.are_within());
                // The last slots may be taken by clients with none.
                if slots.by_client.len() == 1 {
                    prop_assert!(slots.admits(now, ClientId(9), CPU));
                }
            }
        }
    }
}
