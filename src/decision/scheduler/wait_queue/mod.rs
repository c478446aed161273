//! The waiting requests, indexed by ticket, account list, deadline, time of the next check, and
//! client.
//!
//! There are three levels. A **waiter** is one request. A **group** holds all requests of the same
//! accounts with the same endpoint, points and cost: a block of the first blocks all. A **queue**
//! holds all groups that share every limit except an endpoint's own points. When its first request
//! is blocked, none of the others is tried. So the cost of an event depends on the number of its
//! queues, not of the waiting requests. A client whose share of the slots is taken has queues of
//! its own, and the others do not wait behind it. Such clients are few: each holds several slots.
//! The wait queue keeps order and finds; it decides nothing.

mod audit;
mod by_client;
mod deadline_heap;
mod keys;
mod overdue;
mod own_queues;
mod rank_queue;
pub(super) mod shares;

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use slab::Slab;

use crate::api::EndpointId;
use crate::clock::Timestamp;

use crate::decision::quota::{Blocked, ListId, Scope};
use crate::decision::types::id_map::IdMap;
use crate::decision::types::{
    AccountId, ClientId, Demand, HashMap, LimitDenied, LimitKind, Priority, Ticket, WriteSpacing,
};
use by_client::ByClient;
use deadline_heap::DeadlineHeap;
use own_queues::OwnQueues;
use rank_queue::RankQueue;
use shares::Tag;
use smallvec::SmallVec;

use keys::GroupKey;
pub use keys::{GroupId, QueueId, QueueKey, Rank};

#[derive(Debug)]
pub struct KeyedQueue {
    key: QueueKey,
    /// First requests of the groups that are not held. An entry is stale when the group has another
    /// first request, or is held.
    heads: RankQueue<(Rank, GroupId)>,
    /// One of its groups: most queues have no other, which saves a lookup.
    first_group: Option<GroupId>,
    /// Number of groups, held or not, and of their requests.
    groups: usize,
    waiting: usize,
    /// Built on first use.
    deadlines: Option<Box<DeadlineHeap<Ticket>>>,
    /// Block of its head at the last attempt.
    blocked: Option<Blocked>,
}

#[derive(Debug)]
struct Group {
    key: GroupKey,
    ranks: RankQueue<Rank>,
    waiting: usize,
    /// Block of this group while others of its queue may be admitted.
    held: Option<Box<HeldGroup>>,
    /// Built on first use.
    deadlines: Option<Box<DeadlineHeap<Ticket>>>,
}

#[derive(Debug)]
struct HeldGroup {
    by: Blocked,
    /// First request of the group when it was held.
    rank: Rank,
}

#[derive(Debug)]
pub struct Waiter {
    pub demand: Demand,
    pub since: Timestamp,
    pub deadline: Timestamp,
}

#[derive(Debug)]
pub struct QueuedWaiter {
    queue: QueueId,
    pub group: GroupId,
    pub rank: Rank,
    waiter: Waiter,
}

#[derive(Debug)]
pub struct Removed {
    pub client: ClientId,
    pub list: ListId,
    pub priority: Priority,
    pub tag: Tag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    Queue(QueueId),
    Group(GroupId),
}

#[derive(Debug, Default)]
pub struct WaitQueue {
    queues: Slab<KeyedQueue>,
    own_queues: OwnQueues,
    groups: Slab<Group>,
    /// Groups that are not the first of their queue.
    by_group_key: HashMap<u128, GroupId>,
    /// Queues of each list. They are few: each needs other budgets and limits.
    by_list: Vec<SmallVec<[QueueId; 1]>>,
    /// Held groups by list in the order of their first requests, and by endpoint.
    held: HashMap<ListId, BTreeSet<(Rank, GroupId)>>,
    held_by_endpoint: HashMap<(ListId, EndpointId), BTreeSet<GroupId>>,
    waiters: IdMap<QueuedWaiter>,
    deadlines: DeadlineHeap<Ticket>,
    /// Times of the next checks; an entry with another time is stale.
    wakes: DeadlineHeap<Wake>,
    /// Number of valid wake-ups.
    wakes_set: usize,
    by_client: ByClient,
    pub bytes: u64,
}

impl WaitQueue {
    /// Block of a new request behind others with the same needs.
    pub fn blocked(&self, key: &QueueKey, demand: &Demand) -> Option<&Blocked> {
        let id = self.find_queue(key)?;
        let queue = self.queues.get(id.index())?;
        let held = self
            .find_group(GroupKey::new(id, demand))
            .and_then(|group| self.groups.get(group.index())?.held.as_ref());
        held.map(|held| &held.by)
            .or_else(|| queue.blocked.as_ref().filter(|_| queue.heads.first().is_some()))
    }

    pub fn push(
        &mut self,
        ticket: Ticket,
        key: QueueKey,
        tag: Tag,
        waiter: Waiter,
        blocked: Blocked,
    ) {
        let (priority, client) = (key.priority, waiter.demand.client);
        self.bytes = self.bytes.saturating_add(waiter.demand.held_bytes);
        self.deadlines.push(waiter.deadline, ticket);
        self.by_client.add(client, priority, ticket);
        self.enter(key, Rank::new(priority, tag, ticket), waiter, blocked);
    }

    /// Moves a request to the queue of this key, in its old rank.
    pub fn move_to(&mut self, ticket: Ticket, key: QueueKey, blocked: Blocked) {
        if let Some((QueuedWaiter { rank, waiter, .. }, _)) = self.leave(ticket) {
            self.enter(key, rank, waiter, blocked);
        }
    }

    fn enter(&mut self, key: QueueKey, rank: Rank, waiter: Waiter, blocked: Blocked) {
        let (ticket, deadline) = (rank.ticket(), waiter.deadline);
        let queue_id = self.find_queue(&key).unwrap_or_else(|| self.add_queue(key));
        let group_key = GroupKey::new(queue_id, &waiter.demand);
        let id = self.find_group(group_key).unwrap_or_else(|| self.add_group(group_key));
        let Some(group) = self.groups.get_mut(id.index()) else { return };
        let Some(queue) = self.queues.get_mut(queue_id.index()) else { return };
        let (is_held, queue_is_idle) = (group.held.is_some(), queue.heads.first().is_none());
        let head = group.ranks.first();
        // It may need less than the request that it overtakes.
        let goes_first =
            !is_held && queue.heads.first().is_some_and(|(first, of)| rank < first && of != id);
        group.ranks.push(rank);
        if !is_held && head.is_none_or(|head| rank < head) {
            queue.heads.push((rank, id));
        }
        (group.waiting, queue.waiting) = (group.waiting + 1, queue.waiting + 1);
        for deadlines in [&mut group.deadlines, &mut queue.deadlines].into_iter().flatten() {
            deadlines.push(deadline, ticket);
        }
        self.waiters.insert(ticket.0, QueuedWaiter { queue: queue_id, group: id, rank, waiter });
        if is_held {
            return;
        }
        // The first request of its kind was tried just now.
        if blocked.scope == Scope::Endpoint {
            self.hold(id, blocked);
        } else if queue_is_idle {
            self.block(queue_id, blocked);
        } else if goes_first {
            self.retry_at_once(queue_id);
        }
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Removed> {
        let (QueuedWaiter { rank, waiter, .. }, key) = self.leave(ticket)?;
        let client = waiter.demand.client;
        let waits = |ticket: Ticket| self.waiters.contains(ticket.0);
        self.deadlines.clean(|_, ticket| waits(ticket));
        self.deadlines.tidy(self.waiters.len(), |_, ticket| waits(ticket));
        self.by_client.remove(client, ticket, waits);
        self.bytes = self.bytes.saturating_sub(waiter.demand.held_bytes);
        Some(Removed { client, list: key.0, priority: key.1, tag: rank.tag() })
    }

    fn leave(&mut self, ticket: Ticket) -> Option<(QueuedWaiter, (ListId, Priority))> {
        let queued = self.waiters.remove(ticket.0)?;
        let QueuedWaiter { queue: queue_id, group: id, rank, .. } = queued;
        let of = |ticket: Ticket| self.waiters.get(ticket.0);
        let is_in_group = |ticket| of(ticket).is_some_and(|waiter| waiter.group == id);
        let is_in_queue = |ticket| of(ticket).is_some_and(|waiter| waiter.queue == queue_id);
        let group = self.groups.get_mut(id.index())?;
        let queue = self.queues.get_mut(queue_id.index())?;
        (group.waiting, queue.waiting) = (group.waiting - 1, queue.waiting - 1);
        let was_first = queue.heads.first() == Some((rank, id));
        if group.ranks.first() == Some(rank) {
            group.ranks.replace_first(None);
            group.ranks.clean(|rank| is_in_group(rank.ticket()));
            let next = group.ranks.first().filter(|_| group.held.is_none()).map(|next| (next, id));
            match next {
                next if was_first => queue.heads.replace_first(next),
                Some(next) => queue.heads.push(next),
                None => {}
            }
        }
        group.ranks.tidy(group.waiting, |rank| is_in_group(rank.ticket()));
        if let Some(deadlines) = &mut group.deadlines {
            deadlines.tidy(group.waiting, |_, ticket| is_in_group(ticket));
        }
        if let Some(deadlines) = &mut queue.deadlines {
            deadlines.tidy(queue.waiting, |_, ticket| is_in_queue(ticket));
        }
        let place = (queue.key.list, queue.key.priority);
        if group.waiting == 0 {
            self.drop_group(id);
        }
        self.clean_heads(queue_id);
        // The block of one group need not hold for the next.
        if was_first && self.head(queue_id).is_some_and(|(_, first)| first != id) {
            self.retry_at_once(queue_id);
        }
        Some((queued, place))
    }

    fn clean_heads(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(id.index()) else { return };
        let is_head = |(rank, id): (Rank, GroupId)| {
            self.groups
                .get(id.index())
                .is_some_and(|group| group.held.is_none() && group.ranks.first() == Some(rank))
        };
        queue.heads.clean(is_head);
        queue.heads.tidy(queue.groups, is_head);
    }

    fn blocked_mut(&mut self, id: QueueId) -> Option<&mut Blocked> {
        self.queues.get_mut(id.index())?.blocked.as_mut()
    }

    /// Schedules an attempt at once, unless the block holds for the whole queue.
    fn retry_at_once(&mut self, id: QueueId) {
        let Some(blocked) = self.blocked_mut(id) else { return };
        if blocked.closed.as_ref().is_some_and(|closed| closed.is_for_all) {
            return;
        }
        let before = blocked.wake.replace(Timestamp::EPOCH);
        blocked.closed = None;
        self.move_wake(Wake::Queue(id), before, Some(Timestamp::EPOCH));
    }

    /// Lets every queue be tried again. Returns those whose held groups were released, which no
    /// wake-up names.
    pub fn retry_all(&mut self) -> Vec<QueueId> {
        let held: Vec<GroupId> = self.held.values().flatten().map(|(_, group)| *group).collect();
        let released = held.into_iter().filter_map(|group| self.release(group)).collect();
        let queues: Vec<QueueId> = self.queues.iter().map(|(id, _)| QueueId::of(id)).collect();
        self.invalidate_blocks(&queues);
        for id in queues {
            self.retry_at_once(id);
        }
        released
    }

    /// Drops the list states of blocks that may no longer hold, so that they are checked again.
    pub fn invalidate_blocks(&mut self, queues: &[QueueId]) {
        for id in queues {
            if let Some(blocked) = self.blocked_mut(*id) {
                blocked.closed = None;
            }
        }
    }

    pub fn head(&self, queue: QueueId) -> Option<(Rank, GroupId)> {
        self.queues.get(queue.index())?.heads.first()
    }

    pub fn waiter(&self, ticket: Ticket) -> Option<&Waiter> {
        self.waiters.get(ticket.0).map(|queued| &queued.waiter)
    }

    /// First request of a group, with the key and the last block of its queue.
    pub fn first(&self, group: GroupId) -> Option<(Ticket, &Waiter, &QueueKey, Option<&Blocked>)> {
        let group = self.groups.get(group.index())?;
        let ticket = group.ranks.first()?.ticket();
        let queue = self.queues.get(group.key.queue.index())?;
        Some((ticket, &self.waiters.get(ticket.0)?.waiter, &queue.key, queue.blocked.as_ref()))
    }

    pub fn block(&mut self, id: QueueId, blocked: Blocked) {
        let Some(queue) = self.queues.get_mut(id.index()) else { return };
        let (before, after) =
            (queue.blocked.as_ref().and_then(|blocked| blocked.wake), blocked.wake);
        queue.blocked = Some(blocked);
        self.move_wake(Wake::Queue(id), before, after);
    }

    /// Holds a single group, while others of its queue may be admitted.
    pub fn hold(&mut self, id: GroupId, by: Blocked) {
        let Some(group) = self.groups.get_mut(id.index()) else { return };
        let Some(queue) = self.queues.get(group.key.queue.index()) else { return };
        let (queue_id, list, after) = (group.key.queue, queue.key.list, by.wake);
        let before = if let Some(held) = &mut group.held {
            std::mem::replace(&mut held.by, by).wake
        } else {
            let Some(rank) = group.ranks.first() else { return };
            group.held = Some(Box::new(HeldGroup { by, rank }));
            self.held.entry(list).or_default().insert((rank, id));
            self.held_by_endpoint.entry((list, group.key.endpoint)).or_default().insert(id);
            None
        };
        self.clean_heads(queue_id);
        self.move_wake(Wake::Group(id), before, after);
    }

    /// Releases a held group, to be tried with its queue.
    fn release(&mut self, id: GroupId) -> Option<QueueId> {
        let group = self.groups.get_mut(id.index())?;
        let queue = self.queues.get_mut(group.key.queue.index())?;
        let held = group.held.take()?;
        if let Some(rank) = group.ranks.first() {
            queue.heads.push((rank, id));
        }
        let (place, queue) = ((queue.key.list, group.key.endpoint), group.key.queue);
        self.forget_held(place, held.rank, id);
        self.move_wake(Wake::Group(id), held.by.wake, None);
        Some(queue)
    }

    /// Releases the held groups of an endpoint in a list, and `first` more of the list.
    pub fn release_of(&mut self, list: ListId, endpoint: EndpointId, first: usize) {
        if self.held.is_empty() {
            return;
        }
        let own = self.held_by_endpoint.get(&(list, endpoint)).into_iter().flatten().copied();
        let first = self.held.get(&list).into_iter().flatten().take(first).map(|(_, group)| *group);
        let released: Vec<GroupId> = own.chain(first).collect();
        for group in released {
            self.release(group);
        }
    }

    pub fn take_due(&mut self, now: Timestamp, due: &mut Vec<QueueId>) {
        while let Some((at, wake)) = self.wakes.first().filter(|(at, _)| *at <= now) {
            match wake {
                Wake::Queue(queue) => {
                    if let Some(blocked) = self.blocked_mut(queue) {
                        // Without a wake-up it must be tried.
                        (blocked.wake, blocked.closed) = (None, None);
                    }
                    due.push(queue);
                    self.move_wake(wake, Some(at), None);
                }
                Wake::Group(group) => due.extend(self.release(group)),
            }
        }
    }

    pub fn queues_of(&self, list: ListId) -> impl Iterator<Item = QueueId> + '_ {
        self.by_list.get(list.index()).into_iter().flatten().copied()
    }

    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let (wake, deadline) =
            (self.wakes.first().map(|(at, _)| at), self.deadlines.first().map(|(at, _)| at));
        wake.into_iter().chain(deadline).min()
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        self.wakes.is_due(now) || self.deadlines.is_due(now)
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Request that makes room in a full queue: the newest of the client with the most waiting
    /// requests of the lowest priority. `None` when the new request itself belongs there.
    pub fn displaced_by(&mut self, client: ClientId, priority: Priority) -> Option<Ticket> {
        self.by_client.displaced_by(client, priority, |ticket| self.waiters.contains(ticket.0))
    }

    /// Requests of other clients that wait for a slot of this account, which is full or not.
    pub fn others_for_slots(
        &self,
        account: AccountId,
        is_full: bool,
        client: ClientId,
    ) -> impl Iterator<Item = Ticket> + '_ {
        self.by_client.of_others(client).filter(move |ticket| {
            self.waiters.get(ticket.0).is_some_and(|QueuedWaiter { group, waiter, .. }| {
                self.block_of(*group).is_some_and(|denied| match denied.limit {
                    LimitKind::Concurrency => {
                        is_full && waiter.demand.candidates.contains(&account)
                    }
                    LimitKind::ClientShare => denied.account == Some(account),
                    _ => false,
                })
            })
        })
    }

    /// Waiting writes of a list by their distance, in numbers for each account of the list.
    pub fn waiting_writes(&self, list: ListId) -> impl Iterator<Item = (WriteSpacing, u32)> + '_ {
        self.queues_of(list).filter_map(|id| {
            let queue = self.queues.get(id.index())?;
            let first = queue.heads.first().map(|(_, group)| group).or(queue.first_group)?;
            let accounts = self.first(first)?.1.demand.candidates.len().max(1);
            let number = u32::try_from(queue.waiting.div_ceil(accounts)).unwrap_or(u32::MAX);
            Some((queue.key.write, number))
        })
    }

    /// Each group's number of requests, with the denial that holds it.
    pub fn held_groups(&self) -> impl Iterator<Item = (usize, &LimitDenied)> {
        let groups = self.groups.iter();
        groups.filter_map(|(id, group)| Some((group.waiting, self.block_of(GroupId::of(id))?)))
    }

    /// Denial that holds a group.
    fn block_of(&self, group: GroupId) -> Option<&LimitDenied> {
        let group = self.groups.get(group.index())?;
        let held = group.held.as_ref().map(|held| &held.by);
        let blocked = held.or_else(|| self.queues.get(group.key.queue.index())?.blocked.as_ref());
        Some(&blocked?.refusal)
    }

    fn find_queue(&self, key: &QueueKey) -> Option<QueueId> {
        self.queues_of(key.list)
            .find(|queue| self.queues.get(queue.index()).is_some_and(|queue| queue.key == *key))
    }

    fn find_group(&self, key: GroupKey) -> Option<GroupId> {
        let queue = self.queues.get(key.queue.index())?;
        let is_it =
            |id: &GroupId| self.groups.get(id.index()).is_some_and(|group| group.key == key);
        let has_others = queue.groups > usize::from(queue.first_group.is_some());
        queue.first_group.filter(is_it).or_else(|| {
            if has_others { self.by_group_key.get(&key.packed()).copied() } else { None }
        })
    }

    fn add_group(&mut self, key: GroupKey) -> GroupId {
        let group =
            Group { key, ranks: RankQueue::empty(), waiting: 0, held: None, deadlines: None };
        let id = GroupId::of(self.groups.insert(group));
        if let Some(queue) = self.queues.get_mut(key.queue.index()) {
            queue.groups += 1;
            if queue.first_group.is_none() {
                queue.first_group = Some(id);
                return id;
            }
        }
        self.by_group_key.insert(key.packed(), id);
        id
    }

    fn add_queue(&mut self, key: QueueKey) -> QueueId {
        let list = key.list.index();
        let client = key.client;
        let new = KeyedQueue {
            key,
            heads: RankQueue::empty(),
            first_group: None,
            groups: 0,
            waiting: 0,
            deadlines: None,
            blocked: None,
        };
        let id = QueueId::of(self.queues.insert(new));
        if self.by_list.len() <= list {
            self.by_list.resize_with(list + 1, SmallVec::new);
        }
        self.by_list[list].push(id);
        if let Some(client) = client {
            self.own_queues.add(client, id);
        }
        id
    }

    fn drop_group(&mut self, id: GroupId) {
        let Some(Group { key, held, .. }) = self.groups.try_remove(id.index()) else { return };
        let Some(queue) = self.queues.get_mut(key.queue.index()) else { return };
        queue.groups -= 1;
        if queue.first_group == Some(id) {
            queue.first_group = None;
        } else {
            self.by_group_key.remove(&key.packed());
        }
        let (list, is_empty) = (queue.key.list, queue.groups == 0);
        if let Some(held) = held {
            self.forget_held((list, key.endpoint), held.rank, id);
            self.move_wake(Wake::Group(id), held.by.wake, None);
        }
        if is_empty {
            self.drop_queue(key.queue);
        }
    }

    fn drop_queue(&mut self, id: QueueId) {
        let Some(queue) = self.queues.try_remove(id.index()) else { return };
        if let Some(client) = queue.key.client {
            self.own_queues.remove(client, id);
        }
        if let Some(queues) = self.by_list.get_mut(queue.key.list.index()) {
            queues.retain(|other| *other != id);
        }
        self.move_wake(Wake::Queue(id), queue.blocked.and_then(|blocked| blocked.wake), None);
    }

    fn forget_held(&mut self, place: (ListId, EndpointId), rank: Rank, id: GroupId) {
        remove_from(&mut self.held_by_endpoint, place, &id);
        remove_from(&mut self.held, place.0, &(rank, id));
    }

    /// Moves a wake-up, after the new time has been stored where `is_awaited` reads it.
    fn move_wake(&mut self, wake: Wake, before: Option<Timestamp>, after: Option<Timestamp>) {
        if before == after {
            return;
        }
        self.wakes_set =
            self.wakes_set + usize::from(after.is_some()) - usize::from(before.is_some());
        let Self { queues, groups, wakes, .. } = self;
        let is_awaited = |at: Timestamp, wake: Wake| wake_of(queues, groups, wake) == Some(at);
        if let Some(at) = after {
            wakes.push(at, wake);
        }
        wakes.clean(is_awaited);
        wakes.tidy(self.wakes_set, is_awaited);
    }
}

/// Removes a value from the set of a key, and an empty set from the map.
fn remove_from<K: Eq + Hash, V: Ord>(sets: &mut HashMap<K, BTreeSet<V>>, key: K, value: &V) {
    if let Entry::Occupied(mut set) = sets.entry(key) {
        set.get_mut().remove(value);
        if set.get().is_empty() {
            set.remove();
        }
    }
}

fn wake_of(queues: &Slab<KeyedQueue>, groups: &Slab<Group>, wake: Wake) -> Option<Timestamp> {
    match wake {
        Wake::Queue(queue) => queues.get(queue.index())?.blocked.as_ref()?.wake,
        Wake::Group(group) => groups.get(group.index())?.held.as_ref()?.by.wake,
    }
}
