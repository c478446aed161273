//! Whether the indexes of the line agree, for simulations, tests and the watch (invariant 8). Takes as long as there are waiters and classes.

use std::collections::BTreeSet;

use super::{Class, ClassId, Line, Rank, SortId};
use crate::decision::HashMap;
use crate::decision::demand::Ticket;

impl Line {
    /// Whether all indexes speak of the same ones.
    pub(in crate::decision::admission) fn adds_up(&self) -> bool {
        let waits = |ticket: Ticket| self.by_ticket.contains_key(&ticket);
        let waiting = self.by_ticket.len();
        let wakes = self.classes.iter().filter_map(|(_, class)| class.held.as_ref()?.by.wake).count()
            + self.sorts.iter().filter_map(|(_, sort)| sort.blocked.as_ref()?.wake).count();
        let bytes: u64 = self.waiters.iter().map(|(_, place)| place.waiter.demand.held_bytes).sum();
        let in_class = |ticket: &Ticket| {
            let place = self.place(*ticket).filter(|place| place.rank.ticket == *ticket);
            place.is_some_and(|place| self.classes.get(place.class.0).is_some_and(|class| class.waiting.contains(&place.rank)))
        };
        self.by_ticket.keys().all(in_class)
            && self.waiters.len() == waiting
            && self.classes.iter().all(|(id, class)| self.class_adds_up(ClassId(id), class))
            && self.sorts_add_up()
            && self.classes.iter().map(|(_, class)| class.waiting.len()).sum::<usize>() == waiting
            && (self.deadlines.count(waits), self.crowd.len()) == (waiting, waiting)
            && self.deadlines.peek().is_none_or(|(_, ticket)| waits(ticket))
            && (self.by_class_key.len(), self.by_sort_key.len()) == (self.classes.len(), self.sorts.len())
            && self.wakes.len() == wakes
            && self.bytes == bytes
            && self.by_list.iter().map(Vec::len).sum::<usize>() == self.sorts.len()
            && self.held_adds_up()
    }

    fn held_adds_up(&self) -> bool {
        let held = self.classes.iter().filter(|(_, class)| class.held.is_some()).count();
        let is_held = |(rank, id): &(Rank, ClassId)| {
            self.classes.get(id.0).and_then(|class| class.held.as_ref()).is_some_and(|held| held.rank == *rank)
        };
        self.held.values().flatten().all(is_held)
            && self.held.values().map(BTreeSet::len).sum::<usize>() == held
            && self.held_by_endpoint.values().map(BTreeSet::len).sum::<usize>() == held
    }

    fn class_adds_up(&self, id: ClassId, class: &Class) -> bool {
        let Some(sort) = self.sorts.get(class.sort.0) else { return false };
        class.head().is_some_and(|rank| sort.heads.contains(&(rank, id)) == class.held.is_none())
            && class.deadlines.count(|ticket| self.place(ticket).is_some_and(|place| place.class == id)) == class.waiting.len()
    }

    fn sorts_add_up(&self) -> bool {
        let mut sums: HashMap<SortId, [usize; 3]> = HashMap::default();
        for (_, class) in &self.classes {
            let [classes, heads, waiting] = sums.entry(class.sort).or_default();
            *classes += 1;
            *heads += usize::from(class.held.is_none());
            *waiting += class.waiting.len();
        }
        sums.len() == self.sorts.len()
            && self.sorts.iter().all(|(id, sort)| {
                sums.get(&SortId(id)) == Some(&[sort.classes, sort.heads.len(), sort.waiting])
                    && sort.deadlines.count(|ticket| self.by_ticket.contains_key(&ticket)) == sort.waiting
                    && self.by_list.get(sort.key.list.index()).is_some_and(|sorts| sorts.contains(&SortId(id)))
            })
    }
}
