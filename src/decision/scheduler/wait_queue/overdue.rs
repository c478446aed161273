//! Deadlines that have come, or come too early for a block: in a queue, in a group, in the whole
//! wait queue.

use super::deadline_heap::DeadlineHeap;
use super::{Group, GroupId, QueueId, QueuedWaiter, WaitQueue};
use crate::clock::Timestamp;
use crate::decision::types::id_map::IdMap;
use crate::decision::types::{LimitDenied, Ticket};

impl WaitQueue {
    /// First request of a blocked queue with a deadline before `time`.
    pub fn queue_deadline_before(&mut self, id: QueueId, time: Timestamp) -> Option<Ticket> {
        let Self { queues, groups, waiters, held, .. } = self;
        let queue = queues.get_mut(id.index())?;
        let deadlines = queue.deadlines.get_or_insert_with(|| {
            let held = held.get(&queue.key.list).into_iter().flatten().map(|(_, group)| *group);
            let mut of_queue: Vec<GroupId> =
                queue.heads.iter().map(|(_, group)| group).chain(held).collect();
            of_queue.sort_unstable();
            of_queue.dedup();
            let of_queue = of_queue
                .into_iter()
                .filter_map(|group| groups.get(group.index()))
                .filter(|group| group.key.queue == id);
            Box::new(deadlines_of(waiters, of_queue))
        });
        first_before(deadlines, time, |ticket| {
            waiters.get(ticket.0).is_some_and(|waiter| waiter.queue == id)
        })
    }

    /// First request of a held group with a deadline before `time`.
    pub fn group_deadline_before(&mut self, id: GroupId, time: Timestamp) -> Option<Ticket> {
        let Self { groups, waiters, .. } = self;
        let group = groups.get_mut(id.index())?;
        if group.deadlines.is_none() {
            group.deadlines = Some(Box::new(deadlines_of(waiters, [&*group].into_iter())));
        }
        first_before(group.deadlines.as_mut()?, time, |ticket| {
            waiters.get(ticket.0).is_some_and(|waiter| waiter.group == id)
        })
    }

    pub fn first_overdue(&self, now: Timestamp) -> Option<(Ticket, LimitDenied)> {
        let (_, ticket) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        let group = self.groups.get(self.waiters.get(ticket.0)?.group.index())?;
        let held = group.held.as_ref().map(|held| &held.by);
        let blocked =
            held.or_else(|| self.queues.get(group.key.queue.index())?.blocked.as_ref())?;
        Some((ticket, blocked.refusal.clone()))
    }
}

fn deadlines_of<'c>(
    waiters: &IdMap<QueuedWaiter>,
    groups: impl Iterator<Item = &'c Group>,
) -> DeadlineHeap<Ticket> {
    let ranks = groups.flat_map(|group| group.ranks.iter());
    let deadlines = ranks
        .filter_map(|rank| Some((waiters.get(rank.ticket().0)?.waiter.deadline, rank.ticket())));
    DeadlineHeap::of(deadlines.collect())
}

fn first_before(
    deadlines: &mut DeadlineHeap<Ticket>,
    time: Timestamp,
    waits_here: impl Fn(Ticket) -> bool,
) -> Option<Ticket> {
    deadlines.clean(|_, ticket| waits_here(ticket));
    deadlines.first().filter(|(deadline, _)| *deadline < time).map(|(_, ticket)| ticket)
}
