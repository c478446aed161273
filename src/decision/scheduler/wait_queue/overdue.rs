//! Whose deadlines have come, or come too early: in a sort, in a class, in the whole line.

use super::{Class, ClassId, Line, Place, SortId};
use crate::clock::Timestamp;
use crate::decision::scheduler::wait_queue::deadline_heap::Due;
use crate::decision::types::numbered::Numbered;
use crate::decision::types::{Refusal, Ticket};

impl Line {
    /// Of those that a sort's block holds, which are all of it, the first whose deadline is before
    /// `time`.
    pub(in crate::decision::scheduler) fn sort_deadline_before(
        &mut self,
        id: SortId,
        time: Timestamp,
    ) -> Option<Ticket> {
        let Self { sorts, classes, waiters, held, .. } = self;
        let sort = sorts.get_mut(id.index())?;
        let deadlines = sort.deadlines.get_or_insert_with(|| {
            let held = held.get(&sort.key.list).into_iter().flatten().map(|(_, class)| *class);
            let mut of_sort: Vec<ClassId> =
                sort.heads.iter().map(|(_, class)| class).chain(held).collect();
            of_sort.sort_unstable();
            of_sort.dedup();
            let of_sort = of_sort
                .into_iter()
                .filter_map(|class| classes.get(class.index()))
                .filter(|class| class.key.sort == id);
            Box::new(deadlines_of(waiters, of_sort))
        });
        first_before(deadlines, waiters, time)
    }

    /// The same of a held class.
    pub(in crate::decision::scheduler) fn class_deadline_before(
        &mut self,
        id: ClassId,
        time: Timestamp,
    ) -> Option<Ticket> {
        let Self { classes, waiters, .. } = self;
        let class = classes.get_mut(id.index())?;
        if class.deadlines.is_none() {
            class.deadlines = Some(Box::new(deadlines_of(waiters, [&*class].into_iter())));
        }
        first_before(class.deadlines.as_mut()?, waiters, time)
    }

    /// The first whose deadline has come, with what holds it.
    pub(in crate::decision::scheduler) fn first_overdue(
        &self,
        now: Timestamp,
    ) -> Option<(Ticket, Refusal)> {
        let (_, ticket) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        let class = self.classes.get(self.waiters.get(ticket.0)?.class.index())?;
        let held = class.held.as_ref().map(|held| &held.by);
        let blocked = held.or_else(|| self.sorts.get(class.key.sort.index())?.blocked.as_ref())?;
        Some((ticket, blocked.refusal.clone()))
    }
}

/// The deadlines of all in these classes.
fn deadlines_of<'c>(
    waiters: &Numbered<Place>,
    classes: impl Iterator<Item = &'c Class>,
) -> Due<Ticket> {
    let ranks = classes.flat_map(|class| class.ranks.iter());
    let mut all: Vec<(Timestamp, Ticket)> = ranks
        .filter_map(|rank| Some((waiters.get(rank.ticket().0)?.waiter.deadline, rank.ticket())))
        .collect();
    all.sort_unstable();
    all.into_iter().collect()
}

fn first_before(
    deadlines: &mut Due<Ticket>,
    waiters: &Numbered<Place>,
    time: Timestamp,
) -> Option<Ticket> {
    deadlines.clean(|_, ticket| waiters.contains(ticket.0));
    deadlines.first().filter(|(deadline, _)| *deadline < time).map(|(_, ticket)| ticket)
}
