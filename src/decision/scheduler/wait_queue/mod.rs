//! Those who wait, with an index for every way in which they are looked for: by ticket, by account
//! list, by deadline, by the time at which to look again, by client.
//!
//! Three levels. A **waiter** is one request. A **class** is all that want the same (endpoint,
//! points, cost) of the same accounts: what holds the first of them holds all. A **sort** is all
//! classes that everything but an endpoint's own points holds alike: when its first is held, so are
//! the others, and none of them is tried. So an event costs the number of sorts that it concerns,
//! not of those who wait. Keeps order and finds; decides nothing.

mod audit;
mod by_client;
mod deadline_heap;
mod keys;
mod overdue;
mod rank_queue;
pub(super) mod shares;

use std::collections::BTreeSet;

use slab::Slab;

use crate::api::EndpointId;
use crate::clock::Timestamp;

use super::wait_queue::by_client::Crowd;
use super::wait_queue::deadline_heap::Due;
use super::wait_queue::rank_queue::Queue;
use super::wait_queue::shares::Tag;
use crate::decision::quota::{Blocked, Closed, ListId, Scope};
use crate::decision::types::HashMap;
use crate::decision::types::few::Few;
use crate::decision::types::numbered::Numbered;
use crate::decision::types::{ClientId, Demand, Priority, Ticket};

use keys::ClassKey;
pub(super) use keys::{ClassId, Rank, SortId, SortKey};

#[derive(Debug)]
pub(super) struct Sort {
    key: SortKey,
    /// The first of each class that is not held by itself. Such a one has left when another is the
    /// first, or its class is held.
    heads: Queue<(Rank, ClassId)>,
    /// One of its classes: most sorts have no other, and it need not be looked for.
    first_class: Option<ClassId>,
    /// How many classes it has, held or not, and how many wait in them.
    classes: usize,
    waiting: usize,
    /// Made when it is first asked for.
    deadlines: Option<Box<Due<Ticket>>>,
    /// Why its head was not admitted, when last tried.
    blocked: Option<Blocked>,
}

#[derive(Debug)]
struct Class {
    key: ClassKey,
    ranks: Queue<Rank>,
    waiting: usize,
    /// Why it is not admitted while others of its sort may be.
    held: Option<Box<Held>>,
    /// Made when it is first asked for.
    deadlines: Option<Box<Due<Ticket>>>,
}

#[derive(Debug)]
struct Held {
    by: Blocked,
    /// The first of the class when it was held.
    rank: Rank,
}

/// One who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) demand: Demand,
    pub(super) deadline: Timestamp,
}

/// Where one stands who waits.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) class: ClassId,
    pub(super) rank: Rank,
    waiter: Waiter,
}

/// Who has left the line, and from where.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) client: ClientId,
    pub(super) list: ListId,
    pub(super) priority: Priority,
    pub(super) tag: Tag,
}

/// What a wake-up is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    Sort(SortId),
    Class(ClassId),
}

/// The waiting line.
#[derive(Debug, Default)]
pub(super) struct Line {
    sorts: Slab<Sort>,
    classes: Slab<Class>,
    /// Those that are not the first of their sort.
    by_class_key: HashMap<u128, ClassId>,
    /// The sorts that wait on each list. They are few: each differs from the others in what budget
    /// and limits it needs.
    by_list: Vec<Few<SortId>>,
    /// Held classes by list, in the order of their first, and by endpoint.
    held: HashMap<ListId, BTreeSet<(Rank, ClassId)>>,
    held_by_endpoint: HashMap<(ListId, EndpointId), BTreeSet<ClassId>>,
    waiters: Numbered<Place>,
    deadlines: Due<Ticket>,
    /// When each is to be looked at; one that is to be looked at another time has left.
    wakes: Due<Wake>,
    /// How many are to be looked at.
    wakes_set: usize,
    crowd: Crowd,
    bytes: u64,
}

impl Line {
    /// What holds a newcomer of this sort, when others wait before it that are held by the same.
    pub(super) fn blocked(&self, key: &SortKey, demand: &Demand) -> Option<&Blocked> {
        let id = self.find_sort(key)?;
        let sort = self.sorts.get(id.index())?;
        let held = self
            .find_class(ClassKey::new(id, demand))
            .and_then(|class| self.classes.get(class.index())?.held.as_ref());
        held.map(|held| &held.by)
            .or_else(|| sort.blocked.as_ref().filter(|_| sort.heads.first().is_some()))
    }

    /// Joins the line; `blocked` is what holds it.
    pub(super) fn push(
        &mut self,
        ticket: Ticket,
        key: SortKey,
        tag: Tag,
        waiter: Waiter,
        blocked: Blocked,
    ) {
        let rank = Rank::new(key.priority, tag, ticket);
        let (priority, client, deadline) = (key.priority, waiter.demand.client, waiter.deadline);
        self.bytes = self.bytes.saturating_add(waiter.demand.held_bytes);
        let sort_id = self.find_sort(&key).unwrap_or_else(|| self.add_sort(key));
        let class_key = ClassKey::new(sort_id, &waiter.demand);
        let id = self.find_class(class_key).unwrap_or_else(|| self.add_class(class_key));
        let Some(class) = self.classes.get_mut(id.index()) else { return };
        let Some(sort) = self.sorts.get_mut(sort_id.index()) else { return };
        let (is_held, sort_is_idle) = (class.held.is_some(), sort.heads.first().is_none());
        let head = class.ranks.first();
        // It may need less than the one before which it goes.
        let goes_first =
            !is_held && sort.heads.first().is_some_and(|(first, of)| rank < first && of != id);
        class.ranks.push(rank);
        if !is_held && head.is_none_or(|head| rank < head) {
            sort.heads.push((rank, id));
        }
        (class.waiting, sort.waiting) = (class.waiting + 1, sort.waiting + 1);
        for deadlines in [&mut class.deadlines, &mut sort.deadlines].into_iter().flatten() {
            deadlines.push(deadline, ticket);
        }
        self.deadlines.push(deadline, ticket);
        self.waiters.insert(ticket.0, Place { class: id, rank, waiter });
        self.crowd.add(client, priority, ticket);
        if is_held {
            return;
        }
        // Whoever is the first of its kind was tried just now.
        if blocked.scope == Scope::Endpoint {
            self.hold(id, blocked);
        } else if sort_is_idle {
            self.block(sort_id, blocked);
        } else if goes_first {
            self.look_at(sort_id);
        }
    }

    /// Takes a ticket out, from whatever place.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Left> {
        let Place { class: id, rank, waiter } = self.waiters.remove(ticket.0)?;
        let waits = |ticket: Ticket| self.waiters.contains(ticket.0);
        let waits_till = |_, ticket| waits(ticket);
        let class = self.classes.get_mut(id.index())?;
        let sort_id = class.key.sort;
        let sort = self.sorts.get_mut(sort_id.index())?;
        (class.waiting, sort.waiting) = (class.waiting - 1, sort.waiting - 1);
        let was_first = sort.heads.first() == Some((rank, id));
        if class.ranks.first() == Some(rank) {
            class.ranks.replace_first(None);
            class.ranks.clean(|rank| waits(rank.ticket()));
            let next = class.ranks.first().filter(|_| class.held.is_none()).map(|next| (next, id));
            match next {
                next if was_first => sort.heads.replace_first(next),
                Some(next) => sort.heads.push(next),
                None => {}
            }
        }
        class.ranks.tidy(class.waiting, |rank| waits(rank.ticket()));
        for (deadlines, waiting) in
            [(&mut class.deadlines, class.waiting), (&mut sort.deadlines, sort.waiting)]
        {
            if let Some(deadlines) = deadlines {
                deadlines.tidy(waiting, waits_till);
            }
        }
        self.deadlines.clean(waits_till);
        self.deadlines.tidy(self.waiters.len(), waits_till);
        self.crowd.remove(waiter.demand.client, ticket, waits);
        self.bytes = self.bytes.saturating_sub(waiter.demand.held_bytes);
        let (list, priority) = (sort.key.list, sort.key.priority);
        if class.waiting == 0 {
            self.drop_class(id);
        }
        self.clean_heads(sort_id);
        // What held it need not hold the next one, of another class.
        if was_first && self.head(sort_id).is_some_and(|(_, first)| first != id) {
            self.look_at(sort_id);
        }
        Some(Left { client: waiter.demand.client, list, priority, tag: rank.tag() })
    }

    /// The first of a sort's heads is one again.
    fn clean_heads(&mut self, id: SortId) {
        let Some(sort) = self.sorts.get_mut(id.index()) else { return };
        let is_head = |(rank, id): (Rank, ClassId)| {
            self.classes
                .get(id.index())
                .is_some_and(|class| class.held.is_none() && class.ranks.first() == Some(rank))
        };
        sort.heads.clean(is_head);
        sort.heads.tidy(sort.classes, is_head);
    }

    /// A sort is to be tried again at once, unless what held its first held all of it.
    fn look_at(&mut self, id: SortId) {
        let Some(blocked) = self.sorts.get_mut(id.index()).and_then(|sort| sort.blocked.as_mut())
        else {
            return;
        };
        if blocked.closed.as_ref().is_some_and(Closed::is_for_all) {
            return;
        }
        let before = blocked.wake.replace(Timestamp::EPOCH);
        blocked.closed = None;
        self.move_wake(Wake::Sort(id), before, Some(Timestamp::EPOCH));
    }

    /// Everybody is to be tried again at once, whatever has held them.
    pub(super) fn look_at_all(&mut self) {
        let held: Vec<ClassId> = self.held.values().flatten().map(|(_, class)| *class).collect();
        for class in held {
            self.release(class);
        }
        let sorts: Vec<SortId> = self.sorts.iter().map(|(id, _)| SortId::of(id)).collect();
        for id in sorts {
            let Some(blocked) =
                self.sorts.get_mut(id.index()).and_then(|sort| sort.blocked.as_mut())
            else {
                continue;
            };
            let before = blocked.wake.replace(Timestamp::EPOCH);
            blocked.closed = None;
            self.move_wake(Wake::Sort(id), before, Some(Timestamp::EPOCH));
        }
    }

    /// What held these may hold them no longer, however their lists stand.
    pub(super) fn doubt(&mut self, sorts: &[SortId]) {
        for id in sorts {
            if let Some(blocked) =
                self.sorts.get_mut(id.index()).and_then(|sort| sort.blocked.as_mut())
            {
                blocked.closed = None;
            }
        }
    }

    /// The first of a sort.
    pub(super) fn head(&self, sort: SortId) -> Option<(Rank, ClassId)> {
        self.sorts.get(sort.index())?.heads.first()
    }

    /// The first of a class, what its sort has in common, and what held that when it was last
    /// tried.
    pub(super) fn first(
        &self,
        class: ClassId,
    ) -> Option<(Ticket, &Demand, &SortKey, Option<&Blocked>)> {
        let class = self.classes.get(class.index())?;
        let ticket = class.ranks.first()?.ticket();
        let sort = self.sorts.get(class.key.sort.index())?;
        Some((ticket, &self.waiters.get(ticket.0)?.waiter.demand, &sort.key, sort.blocked.as_ref()))
    }

    /// Notes what holds a sort now.
    pub(super) fn block(&mut self, id: SortId, blocked: Blocked) {
        let Some(sort) = self.sorts.get_mut(id.index()) else { return };
        let (before, after) =
            (sort.blocked.as_ref().and_then(|blocked| blocked.wake), blocked.wake);
        sort.blocked = Some(blocked);
        self.move_wake(Wake::Sort(id), before, after);
    }

    /// Notes what holds a class alone, while others of its sort may be admitted.
    pub(super) fn hold(&mut self, id: ClassId, by: Blocked) {
        let Some(class) = self.classes.get_mut(id.index()) else { return };
        let Some(sort) = self.sorts.get(class.key.sort.index()) else { return };
        let (sort_id, list, after) = (class.key.sort, sort.key.list, by.wake);
        let before = if let Some(held) = &mut class.held {
            std::mem::replace(&mut held.by, by).wake
        } else {
            let Some(rank) = class.ranks.first() else { return };
            class.held = Some(Box::new(Held { by, rank }));
            self.held.entry(list).or_default().insert((rank, id));
            self.held_by_endpoint.entry((list, class.key.endpoint)).or_default().insert(id);
            None
        };
        self.clean_heads(sort_id);
        self.move_wake(Wake::Class(id), before, after);
    }

    /// A held class may be tried again with its sort.
    fn release(&mut self, id: ClassId) -> Option<SortId> {
        let class = self.classes.get_mut(id.index())?;
        let sort = self.sorts.get_mut(class.key.sort.index())?;
        let held = class.held.take()?;
        if let Some(rank) = class.ranks.first() {
            sort.heads.push((rank, id));
        }
        let (place, sort) = ((sort.key.list, class.key.endpoint), class.key.sort);
        self.forget_held(place, held.rank, id);
        self.move_wake(Wake::Class(id), held.by.wake, None);
        Some(sort)
    }

    /// Releases the held classes of an endpoint in a list, and the `first` few of the list.
    pub(super) fn release_of(&mut self, list: ListId, endpoint: EndpointId, first: usize) {
        if self.held.is_empty() {
            return;
        }
        let own = self.held_by_endpoint.get(&(list, endpoint)).into_iter().flatten().copied();
        let first = self.held.get(&list).into_iter().flatten().take(first).map(|(_, class)| *class);
        let released: Vec<ClassId> = own.chain(first).collect();
        for class in released {
            self.release(class);
        }
    }

    /// Adds the sorts to look at again by now.
    pub(super) fn take_due(&mut self, now: Timestamp, due: &mut Vec<SortId>) {
        while let Some((at, wake)) = self.wakes.first().filter(|(at, _)| *at <= now) {
            match wake {
                Wake::Sort(sort) => {
                    if let Some(blocked) =
                        self.sorts.get_mut(sort.index()).and_then(|sort| sort.blocked.as_mut())
                    {
                        // Without a wake-up it must be tried.
                        (blocked.wake, blocked.closed) = (None, None);
                    }
                    due.push(sort);
                    self.move_wake(wake, Some(at), None);
                }
                Wake::Class(class) => due.extend(self.release(class)),
            }
        }
    }

    /// The sorts that wait on a list.
    pub(super) fn sorts_of(&self, list: ListId) -> impl Iterator<Item = SortId> + '_ {
        self.by_list.get(list.index()).into_iter().flat_map(Few::iter).copied()
    }

    /// When something is due or overdue next.
    pub(super) fn next_wakeup(&self) -> Option<Timestamp> {
        let (wake, deadline) =
            (self.wakes.first().map(|(at, _)| at), self.deadlines.first().map(|(at, _)| at));
        wake.into_iter().chain(deadline).min()
    }

    /// Whether something is due or overdue by now.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.wakes.is_due(now) || self.deadlines.is_due(now)
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Bytes that they hold.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Who makes room for a newcomer in a full line: the newest request of the client that has the
    /// most waiting among those of the lowest priority. `None`: the newcomer itself is of that
    /// kind.
    pub(super) fn displaced_by(&mut self, client: ClientId, priority: Priority) -> Option<Ticket> {
        self.crowd.displaced_by(client, priority, |ticket| self.waiters.contains(ticket.0))
    }

    fn find_sort(&self, key: &SortKey) -> Option<SortId> {
        self.sorts_of(key.list)
            .find(|sort| self.sorts.get(sort.index()).is_some_and(|sort| sort.key == *key))
    }

    fn find_class(&self, key: ClassKey) -> Option<ClassId> {
        let sort = self.sorts.get(key.sort.index())?;
        let is_it =
            |id: &ClassId| self.classes.get(id.index()).is_some_and(|class| class.key == key);
        let has_others = sort.classes > usize::from(sort.first_class.is_some());
        sort.first_class.filter(is_it).or_else(|| {
            if has_others { self.by_class_key.get(&key.packed()).copied() } else { None }
        })
    }

    fn add_class(&mut self, key: ClassKey) -> ClassId {
        let class = Class { key, ranks: Queue::empty(), waiting: 0, held: None, deadlines: None };
        let id = ClassId::of(self.classes.insert(class));
        if let Some(sort) = self.sorts.get_mut(key.sort.index()) {
            sort.classes += 1;
            if sort.first_class.is_none() {
                sort.first_class = Some(id);
                return id;
            }
        }
        self.by_class_key.insert(key.packed(), id);
        id
    }

    fn add_sort(&mut self, key: SortKey) -> SortId {
        let list = key.list.index();
        let new = Sort {
            key,
            heads: Queue::empty(),
            first_class: None,
            classes: 0,
            waiting: 0,
            deadlines: None,
            blocked: None,
        };
        let id = SortId::of(self.sorts.insert(new));
        if self.by_list.len() <= list {
            self.by_list.resize_with(list + 1, Few::default);
        }
        self.by_list[list].push(id);
        id
    }

    fn drop_class(&mut self, id: ClassId) {
        let Some(Class { key, held, .. }) = self.classes.try_remove(id.index()) else { return };
        let Some(sort) = self.sorts.get_mut(key.sort.index()) else { return };
        sort.classes -= 1;
        if sort.first_class == Some(id) {
            sort.first_class = None;
        } else {
            self.by_class_key.remove(&key.packed());
        }
        let (list, is_empty) = (sort.key.list, sort.classes == 0);
        if let Some(held) = held {
            self.forget_held((list, key.endpoint), held.rank, id);
            self.move_wake(Wake::Class(id), held.by.wake, None);
        }
        if is_empty {
            self.drop_sort(key.sort);
        }
    }

    fn drop_sort(&mut self, id: SortId) {
        let Some(sort) = self.sorts.try_remove(id.index()) else { return };
        if let Some(sorts) = self.by_list.get_mut(sort.key.list.index()) {
            sorts.retain(|other| *other != id);
        }
        self.move_wake(Wake::Sort(id), sort.blocked.and_then(|blocked| blocked.wake), None);
    }

    fn forget_held(&mut self, place: (ListId, EndpointId), rank: Rank, id: ClassId) {
        if let Some(classes) = self.held_by_endpoint.get_mut(&place) {
            classes.remove(&id);
            if classes.is_empty() {
                self.held_by_endpoint.remove(&place);
            }
        }
        if let Some(classes) = self.held.get_mut(&place.0) {
            classes.remove(&(rank, id));
            if classes.is_empty() {
                self.held.remove(&place.0);
            }
        }
    }

    /// Says that something is to be looked at another time, after that has been noted where
    /// `is_awaited` finds it.
    fn move_wake(&mut self, wake: Wake, before: Option<Timestamp>, after: Option<Timestamp>) {
        if before == after {
            return;
        }
        self.wakes_set =
            self.wakes_set + usize::from(after.is_some()) - usize::from(before.is_some());
        let Self { sorts, classes, wakes, .. } = self;
        let is_awaited = |at: Timestamp, wake: Wake| wake_of(sorts, classes, wake) == Some(at);
        if let Some(at) = after {
            wakes.push(at, wake);
        }
        wakes.clean(is_awaited);
        wakes.tidy(self.wakes_set, is_awaited);
    }
}

/// When something is to be looked at.
fn wake_of(sorts: &Slab<Sort>, classes: &Slab<Class>, wake: Wake) -> Option<Timestamp> {
    match wake {
        Wake::Sort(sort) => sorts.get(sort.index())?.blocked.as_ref()?.wake,
        Wake::Class(class) => classes.get(class.index())?.held.as_ref()?.by.wake,
    }
}
