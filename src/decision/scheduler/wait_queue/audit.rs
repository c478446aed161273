//! Whether the indexes of the line agree, for simulations, tests and the watch (invariant 8). Takes
//! as long as there are waiters and classes.

use std::collections::BTreeSet;

use super::{Class, ClassId, Line, Place, Rank, SortId, Wake, wake_of};
use crate::clock::Timestamp;
use crate::decision::scheduler::wait_queue::deadline_heap::Due;
use crate::decision::types::HashMap;
use crate::decision::types::Ticket;
use crate::decision::types::few::Few;

impl Line {
    /// Whether all indexes speak of the same ones.
    pub(in crate::decision::scheduler) fn adds_up(&self) -> bool {
        let waits = |ticket: Ticket| self.waiters.contains(ticket.0);
        let waiting = self.waiters.len();
        let wakes: BTreeSet<(Timestamp, Wake)> =
            self.wakes.iter().filter(|(at, wake)| self.is_awaited(*at, *wake)).collect();
        let bytes: u64 = self.waiters.values().map(|place| place.waiter.demand.held_bytes).sum();
        let in_class = |place: &Place| {
            self.classes
                .get(place.class.index())
                .is_some_and(|class| class.ranks.iter().any(|rank| rank == place.rank))
                && self
                    .waiters
                    .get(place.rank.ticket().0)
                    .is_some_and(|found| found.rank == place.rank)
        };
        self.waiters.values().all(in_class)
            && self.classes.iter().all(|(id, class)| self.class_adds_up(ClassId::of(id), class))
            && self.sorts_add_up()
            && self.classes.iter().map(|(_, class)| class.waiting).sum::<usize>() == waiting
            && (count(&self.deadlines, waits), self.crowd.len()) == (waiting, waiting)
            && self.deadlines.first().is_none_or(|(_, ticket)| waits(ticket))
            && self.by_class_key.len()
                + self.sorts.iter().filter(|(_, sort)| sort.first_class.is_some()).count()
                == self.classes.len()
            && self
                .classes
                .iter()
                .all(|(id, class)| self.find_class(class.key) == Some(ClassId::of(id)))
            && (wakes.len(), self.wakes_set) == (self.wakes_wanted(), self.wakes_wanted())
            && self.wakes.first().is_none_or(|(at, wake)| self.is_awaited(at, wake))
            && self.bytes == bytes
            && self.by_list.iter().flat_map(Few::iter).count() == self.sorts.len()
            && self.held_adds_up()
    }

    fn is_awaited(&self, at: Timestamp, wake: Wake) -> bool {
        wake_of(&self.sorts, &self.classes, wake) == Some(at)
    }

    fn wakes_wanted(&self) -> usize {
        self.classes.iter().filter_map(|(_, class)| class.held.as_ref()?.by.wake).count()
            + self.sorts.iter().filter_map(|(_, sort)| sort.blocked.as_ref()?.wake).count()
    }

    #[cfg(test)]
    pub(in crate::decision::scheduler) fn is_first_of_sort(&self, ticket: Ticket) -> bool {
        let place = self.waiters.get(ticket.0).expect("it waits");
        self.sorts.iter().any(|(_, sort)| sort.heads.first() == Some((place.rank, place.class)))
    }

    fn held_adds_up(&self) -> bool {
        let held = self.classes.iter().filter(|(_, class)| class.held.is_some()).count();
        let is_held = |(rank, id): &(Rank, ClassId)| {
            self.classes
                .get(id.index())
                .and_then(|class| class.held.as_ref())
                .is_some_and(|held| held.rank == *rank)
        };
        self.held.values().flatten().all(is_held)
            && self.held.values().map(BTreeSet::len).sum::<usize>() == held
            && self.held_by_endpoint.values().map(BTreeSet::len).sum::<usize>() == held
    }

    fn class_adds_up(&self, id: ClassId, class: &Class) -> bool {
        let Some(sort) = self.sorts.get(class.key.sort.index()) else { return false };
        let is_of_class =
            |ticket: Ticket| self.waiters.get(ticket.0).is_some_and(|place| place.class == id);
        let waiting: BTreeSet<Rank> =
            class.ranks.iter().filter(|rank| is_of_class(rank.ticket())).collect();
        waiting.len() == class.waiting
            && class.ranks.first() == waiting.first().copied()
            && class.ranks.first().is_some_and(|rank| {
                class.held.is_some() || sort.heads.iter().any(|head| head == (rank, id))
            })
            && class
                .deadlines
                .as_ref()
                .is_none_or(|deadlines| count(deadlines, is_of_class) == class.waiting)
    }

    fn sorts_add_up(&self) -> bool {
        let mut sums: HashMap<SortId, [usize; 2]> = HashMap::default();
        let mut heads: HashMap<SortId, BTreeSet<(Rank, ClassId)>> = HashMap::default();
        for (id, class) in &self.classes {
            let [classes, waiting] = sums.entry(class.key.sort).or_default();
            *classes += 1;
            *waiting += class.waiting;
            let head = class
                .ranks
                .first()
                .filter(|_| class.held.is_none())
                .map(|rank| (rank, ClassId::of(id)));
            heads.entry(class.key.sort).or_default().extend(head);
        }
        sums.len() == self.sorts.len()
            && self.sorts.iter().all(|(id, sort)| {
                let id = SortId::of(id);
                sums.get(&id) == Some(&[sort.classes, sort.waiting])
                    && sort.heads.first() == heads.get(&id).and_then(|heads| heads.first().copied())
                    && sort.deadlines.as_ref().is_none_or(|due| {
                        count(due, |ticket| self.is_in_sort(ticket, id)) == sort.waiting
                    })
                    && self.find_sort(&sort.key) == Some(id)
            })
    }

    fn is_in_sort(&self, ticket: Ticket, sort: SortId) -> bool {
        let class =
            self.waiters.get(ticket.0).and_then(|place| self.classes.get(place.class.index()));
        class.is_some_and(|class| class.key.sort == sort)
    }
}

/// How many of these wait still.
fn count(deadlines: &Due<Ticket>, waits: impl Fn(Ticket) -> bool) -> usize {
    deadlines.iter().filter(|(_, ticket)| waits(*ticket)).count()
}
