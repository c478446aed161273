//! The audit of the queue's indexes, for simulations, tests and the background audit (invariant 8).
//! The time grows with waiters and groups.

use std::collections::BTreeSet;

use super::deadline_heap::DeadlineHeap;
use super::{Group, GroupId, QueueId, QueuedWaiter, Rank, WaitQueue, Wake, wake_of};
use crate::clock::Timestamp;
use crate::decision::types::{HashMap, Ticket};

impl WaitQueue {
    pub fn adds_up(&self) -> bool {
        let waits = |ticket: Ticket| self.waiters.contains(ticket.0);
        let waiting = self.waiters.len();
        let wakes: BTreeSet<(Timestamp, Wake)> =
            self.wakes.iter().filter(|(at, wake)| self.is_awaited(*at, *wake)).collect();
        let bytes: u64 = self.waiters.values().map(|queued| queued.waiter.demand.held_bytes).sum();
        let in_group = |queued: &QueuedWaiter| {
            self.groups.get(queued.group.index()).is_some_and(|group| {
                group.key.queue == queued.queue
                    && group.ranks.iter().any(|rank| rank == queued.rank)
            }) && self
                .waiters
                .get(queued.rank.ticket().0)
                .is_some_and(|found| found.rank == queued.rank)
        };
        self.waiters.values().all(in_group)
            && self.groups.iter().all(|(id, group)| self.group_adds_up(GroupId::of(id), group))
            && self.queues_add_up()
            && self.groups.iter().map(|(_, group)| group.waiting).sum::<usize>() == waiting
            && (count(&self.deadlines, waits), self.by_client.len()) == (waiting, waiting)
            && self.deadlines.first().is_none_or(|(_, ticket)| waits(ticket))
            && self.by_group_key.len()
                + self.queues.iter().filter(|(_, queue)| queue.first_group.is_some()).count()
                == self.groups.len()
            && (wakes.len(), self.wakes_set) == (self.wakes_wanted(), self.wakes_wanted())
            && self.wakes.first().is_none_or(|(at, wake)| self.is_awaited(at, wake))
            && self.bytes == bytes
            && self.by_list.iter().flatten().count() == self.queues.len()
            && self.own_queues_add_up()
            && self.held_adds_up()
    }

    fn own_queues_add_up(&self) -> bool {
        let is_of = |(client, id): (_, QueueId)| {
            self.queues.get(id.index()).is_some_and(|queue| queue.key.client == Some(client))
        };
        self.own_queues.iter().all(is_of)
            && self.own_queues.iter().count()
                == self.queues.iter().filter(|(_, queue)| queue.key.client.is_some()).count()
    }

    fn is_awaited(&self, at: Timestamp, wake: Wake) -> bool {
        wake_of(&self.queues, &self.groups, wake) == Some(at)
    }

    fn wakes_wanted(&self) -> usize {
        self.groups.iter().filter_map(|(_, group)| group.held.as_ref()?.by.wake).count()
            + self.queues.iter().filter_map(|(_, queue)| queue.blocked.as_ref()?.wake).count()
    }

    #[cfg(test)]
    pub fn is_first_of_queue(&self, ticket: Ticket) -> bool {
        let queued = self.waiters.get(ticket.0).expect("it waits");
        self.queues
            .iter()
            .any(|(_, queue)| queue.heads.first() == Some((queued.rank, queued.group)))
    }

    fn held_adds_up(&self) -> bool {
        let held = self.groups.iter().filter(|(_, group)| group.held.is_some()).count();
        let is_held = |(rank, id): &(Rank, GroupId)| {
            self.groups
                .get(id.index())
                .and_then(|group| group.held.as_ref())
                .is_some_and(|held| held.rank == *rank)
        };
        self.held.values().flatten().all(is_held)
            && self.held.values().map(BTreeSet::len).sum::<usize>() == held
            && self.held_by_endpoint.values().map(BTreeSet::len).sum::<usize>() == held
    }

    fn group_adds_up(&self, id: GroupId, group: &Group) -> bool {
        let Some(queue) = self.queues.get(group.key.queue.index()) else { return false };
        let is_of_group =
            |ticket: Ticket| self.waiters.get(ticket.0).is_some_and(|queued| queued.group == id);
        let waiting: BTreeSet<Rank> =
            group.ranks.iter().filter(|rank| is_of_group(rank.ticket())).collect();
        self.find_group(group.key) == Some(id)
            && waiting.len() == group.waiting
            && group.ranks.first() == waiting.first().copied()
            && group.ranks.first().is_some_and(|rank| {
                group.held.is_some() || queue.heads.iter().any(|head| head == (rank, id))
            })
            && group
                .deadlines
                .as_ref()
                .is_none_or(|deadlines| count(deadlines, is_of_group) == group.waiting)
    }

    fn queues_add_up(&self) -> bool {
        let mut sums: HashMap<QueueId, [usize; 2]> = HashMap::default();
        let mut heads: HashMap<QueueId, BTreeSet<(Rank, GroupId)>> = HashMap::default();
        for (id, group) in &self.groups {
            let [groups, waiting] = sums.entry(group.key.queue).or_default();
            *groups += 1;
            *waiting += group.waiting;
            let head = group
                .ranks
                .first()
                .filter(|_| group.held.is_none())
                .map(|rank| (rank, GroupId::of(id)));
            heads.entry(group.key.queue).or_default().extend(head);
        }
        sums.len() == self.queues.len()
            && self.queues.iter().all(|(id, queue)| {
                let id = QueueId::of(id);
                sums.get(&id) == Some(&[queue.groups, queue.waiting])
                    && queue.heads.first()
                        == heads.get(&id).and_then(|heads| heads.first().copied())
                    && queue.deadlines.as_ref().is_none_or(|due| {
                        count(due, |ticket| self.is_in_queue(ticket, id)) == queue.waiting
                    })
                    && self.find_queue(&queue.key) == Some(id)
            })
    }

    fn is_in_queue(&self, ticket: Ticket, queue: QueueId) -> bool {
        let group =
            self.waiters.get(ticket.0).and_then(|queued| self.groups.get(queued.group.index()));
        group.is_some_and(|group| group.key.queue == queue)
    }
}

fn count(deadlines: &DeadlineHeap<Ticket>, waits: impl Fn(Ticket) -> bool) -> usize {
    deadlines.iter().filter(|(_, ticket)| waits(*ticket)).count()
}
