//! Those who wait, with an index for every way in which they are looked for: by ticket, by account list, by deadline, by the time at which to look again, by client.
//!
//! Three levels. A **waiter** is one request. A **class** is all that want the same (endpoint, points, cost) of the same accounts: what holds the first of them holds
//! all. A **sort** is all classes that everything but an endpoint's own points holds alike: when its first is held, so are the others, and none of them is tried. So an
//! event costs the number of sorts that it concerns, not of those who wait. Keeps order and finds; decides nothing.

mod audit;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use slab::Slab;

use crate::api::{EndpointId, ResourceName};
use crate::clock::Timestamp;

use super::crowd::Crowd;
use super::deadlines::Deadlines;
use super::shares::Tag;
use crate::decision::HashMap;
use crate::decision::books::{Blocked, Closed, ListId, Scope};
use crate::decision::demand::{ClientId, Demand, Priority, Refusal, Ticket, WriteSpacing};

/// Names a sort as long as somebody waits in it: its place among the sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SortId(usize);

/// Names a class as long as somebody waits in it: its place among the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClassId(usize);

/// What one sort has in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SortKey {
    pub(super) list: ListId,
    pub(super) priority: Priority,
    pub(super) resource: ResourceName,
    price: Price,
    graphql: bool,
    content: bool,
    token_request: bool,
    write: WriteSpacing,
}

/// Whether a request needs a budget at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Price {
    Free,
    Counted,
}

/// What one class has in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClassKey {
    pub(super) sort: SortKey,
    pub(super) endpoint: EndpointId,
    cost: u32,
    points: u32,
}

impl ClassKey {
    pub(super) fn new(demand: &Demand, list: ListId, priority: Priority, resource: ResourceName) -> Self {
        let Demand { endpoint, cost, points, graphql, content, token_request, write, .. } = *demand;
        let price = if cost == 0 { Price::Free } else { Price::Counted };
        Self { sort: SortKey { list, priority, resource, price, graphql, content, token_request, write }, endpoint, cost, points }
    }
}

/// The order of service: priority, share, age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<Priority>,
    pub(super) tag: Tag,
    pub(super) ticket: Ticket,
}

#[derive(Debug)]
pub(super) struct Sort {
    key: SortKey,
    /// The first of each class that is not held by itself.
    pub(super) heads: BTreeSet<(Rank, ClassId)>,
    /// How many classes it has, held or not, and how many wait in them.
    classes: usize,
    waiting: usize,
    deadlines: Deadlines,
    /// Why its head was not admitted, when last tried.
    blocked: Option<Blocked>,
}

#[derive(Debug)]
struct Class {
    key: ClassKey,
    sort: SortId,
    waiting: BTreeSet<Rank>,
    /// Why it is not admitted while others of its sort may be.
    held: Option<Box<Held>>,
    deadlines: Deadlines,
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
    pub(super) waiter: Waiter,
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
    pub(super) sorts: Slab<Sort>,
    classes: Slab<Class>,
    by_sort_key: HashMap<SortKey, SortId>,
    by_class_key: HashMap<ClassKey, ClassId>,
    /// The sorts that wait on each list, by its place. They are few: each differs from the others in what budget and limits it needs.
    by_list: Vec<Vec<SortId>>,
    /// Held classes by list, in the order of their first, and by endpoint.
    held: HashMap<ListId, BTreeSet<(Rank, ClassId)>>,
    held_by_endpoint: HashMap<(ListId, EndpointId), BTreeSet<ClassId>>,
    /// The places of those who wait. Apart from these themselves, because most looks ask only whether a ticket is there, and so many small entries
    /// stay in a core's cache.
    pub(super) by_ticket: HashMap<Ticket, usize>,
    pub(super) waiters: Slab<Place>,
    deadlines: Deadlines,
    wakes: BTreeSet<(Timestamp, Wake)>,
    crowd: Crowd,
    bytes: u64,
}

impl Line {
    /// What holds a newcomer of this class, when others wait before it that are held by the same.
    pub(super) fn blocked(&self, key: &ClassKey) -> Option<&Blocked> {
        if self.classes.is_empty() {
            return None;
        }
        let held = self.by_class_key.get(key).and_then(|class| self.classes.get(class.0)).and_then(|class| class.held.as_ref());
        held.map(|held| &held.by).or_else(|| {
            let sort = self.by_sort_key.get(&key.sort).and_then(|sort| self.sorts.get(sort.0))?;
            sort.blocked.as_ref().filter(|_| !sort.heads.is_empty())
        })
    }

    /// Joins the line; `blocked` is what holds it.
    pub(super) fn push(&mut self, ticket: Ticket, key: ClassKey, tag: Tag, waiter: Waiter, blocked: Blocked) {
        let rank = Rank { priority: Reverse(key.sort.priority), tag, ticket };
        let (priority, client, deadline) = (key.sort.priority, waiter.demand.client, waiter.deadline);
        self.bytes = self.bytes.saturating_add(waiter.demand.held_bytes);
        let id = self.by_class_key.get(&key).copied().unwrap_or_else(|| self.add_class(key));
        let Some(class) = self.classes.get_mut(id.0) else { return };
        let Some(sort) = self.sorts.get_mut(class.sort.0) else { return };
        let (is_held, sort_is_idle) = (class.held.is_some(), sort.heads.is_empty());
        let head = class.head();
        // It may need less than the one before which it goes.
        let goes_first = !is_held && sort.heads.first().is_some_and(|(first, of)| rank < *first && *of != id);
        class.waiting.insert(rank);
        if !is_held && head.is_none_or(|head| rank < head) {
            head.map(|head| sort.heads.remove(&(head, id)));
            sort.heads.insert((rank, id));
        }
        sort.waiting += 1;
        for deadlines in [&mut class.deadlines, &mut sort.deadlines, &mut self.deadlines] {
            deadlines.push(deadline, ticket);
        }
        let sort = class.sort;
        let place = self.waiters.insert(Place { class: id, rank, waiter });
        self.by_ticket.insert(ticket, place);
        self.crowd.add(client, priority, ticket);
        if is_held {
            return;
        }
        // Whoever is the first of its kind was tried just now.
        if blocked.scope == Scope::Endpoint {
            self.hold(id, blocked);
        } else if sort_is_idle {
            self.block(sort, blocked);
        } else if goes_first {
            self.look_at(sort);
        }
    }

    /// Takes a ticket out, from whatever place.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Left> {
        let Place { class: id, rank, waiter } = self.waiters.try_remove(self.by_ticket.remove(&ticket)?)?;
        let waits = |ticket: Ticket| self.by_ticket.contains_key(&ticket);
        let class = self.classes.get_mut(id.0)?;
        let sort = self.sorts.get_mut(class.sort.0)?;
        class.waiting.remove(&rank);
        class.deadlines.remove(ticket);
        sort.deadlines.remove(ticket);
        self.deadlines.remove(ticket);
        let was_first = sort.heads.first() == Some(&(rank, id));
        if class.held.is_none() && sort.heads.remove(&(rank, id)) {
            sort.heads.extend(class.head().map(|next| (next, id)));
        }
        // What held it need not hold the next one, of another class.
        let is_open = was_first && sort.heads.first().is_some_and(|(_, first)| *first != id);
        sort.waiting -= 1;
        class.deadlines.tidy(class.waiting.len(), waits);
        sort.deadlines.tidy(sort.waiting, waits);
        self.deadlines.tidy(self.by_ticket.len(), waits);
        self.deadlines.first(waits);
        self.crowd.remove(waiter.demand.client, ticket, waits);
        self.bytes = self.bytes.saturating_sub(waiter.demand.held_bytes);
        let (list, priority, is_empty) = (class.key.sort.list, class.key.sort.priority, class.waiting.is_empty());
        let sort = class.sort;
        if is_empty {
            self.drop_class(id);
        }
        if is_open {
            self.look_at(sort);
        }
        Some(Left { waiter, list, priority, tag: rank.tag })
    }

    /// A sort is to be tried again at once, unless what held its first held all of it.
    fn look_at(&mut self, id: SortId) {
        let Some(blocked) = self.sorts.get_mut(id.0).and_then(|sort| sort.blocked.as_mut()) else { return };
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
        let sorts: Vec<SortId> = self.sorts.iter().map(|(id, _)| SortId(id)).collect();
        for id in sorts {
            let Some(blocked) = self.sorts.get_mut(id.0).and_then(|sort| sort.blocked.as_mut()) else { continue };
            let before = blocked.wake.replace(Timestamp::EPOCH);
            blocked.closed = None;
            self.move_wake(Wake::Sort(id), before, Some(Timestamp::EPOCH));
        }
    }

    /// What held these may hold them no longer, however their lists stand.
    pub(super) fn doubt(&mut self, sorts: &[SortId]) {
        for id in sorts {
            if let Some(blocked) = self.sorts.get_mut(id.0).and_then(|sort| sort.blocked.as_mut()) {
                blocked.closed = None;
            }
        }
    }

    /// The first of a sort.
    pub(super) fn head(&self, sort: SortId) -> Option<(Rank, ClassId)> {
        self.sorts.get(sort.0)?.heads.first().copied()
    }

    /// The first of a class, and what its sort has in common.
    pub(super) fn first(&self, class: ClassId) -> Option<(Ticket, &Demand, &SortKey)> {
        let class = self.classes.get(class.0)?;
        let ticket = class.head()?.ticket;
        Some((ticket, &self.place(ticket)?.waiter.demand, &class.key.sort))
    }

    pub(super) fn place(&self, ticket: Ticket) -> Option<&Place> {
        self.waiters.get(*self.by_ticket.get(&ticket)?)
    }

    /// What held a sort when it was last tried.
    pub(super) fn blocked_sort(&self, sort: SortId) -> Option<&Blocked> {
        self.sorts.get(sort.0)?.blocked.as_ref()
    }

    /// Notes what holds a sort now.
    pub(super) fn block(&mut self, id: SortId, blocked: Blocked) {
        let Some(sort) = self.sorts.get_mut(id.0) else { return };
        let (before, after) = (sort.blocked.as_ref().and_then(|blocked| blocked.wake), blocked.wake);
        sort.blocked = Some(blocked);
        self.move_wake(Wake::Sort(id), before, after);
    }

    /// Notes what holds a class alone, while others of its sort may be admitted.
    pub(super) fn hold(&mut self, id: ClassId, by: Blocked) {
        let Some(class) = self.classes.get_mut(id.0) else { return };
        let Some(sort) = self.sorts.get_mut(class.sort.0) else { return };
        let (list, after) = (class.key.sort.list, by.wake);
        let before = if let Some(held) = &mut class.held {
            std::mem::replace(&mut held.by, by).wake
        } else {
            let Some(rank) = class.head() else { return };
            sort.heads.remove(&(rank, id));
            class.held = Some(Box::new(Held { by, rank }));
            self.held.entry(list).or_default().insert((rank, id));
            self.held_by_endpoint.entry((list, class.key.endpoint)).or_default().insert(id);
            None
        };
        self.move_wake(Wake::Class(id), before, after);
    }

    /// A held class may be tried again with its sort.
    fn release(&mut self, id: ClassId) -> Option<SortId> {
        let class = self.classes.get_mut(id.0)?;
        let sort = self.sorts.get_mut(class.sort.0)?;
        let held = class.held.take()?;
        sort.heads.extend(class.head().map(|rank| (rank, id)));
        let (place, sort) = ((class.key.sort.list, class.key.endpoint), class.sort);
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

    /// Of those that a sort's block holds, which are all of it, the first whose deadline is before `time`.
    pub(super) fn sort_deadline_before(&mut self, sort: SortId, time: Timestamp) -> Option<Ticket> {
        let first = self.sorts.get_mut(sort.0)?.deadlines.first(|ticket| self.by_ticket.contains_key(&ticket));
        first.filter(|(deadline, _)| *deadline < time).map(|(_, ticket)| ticket)
    }

    /// The same of a held class.
    pub(super) fn class_deadline_before(&mut self, class: ClassId, time: Timestamp) -> Option<Ticket> {
        let first = self.classes.get_mut(class.0)?.deadlines.first(|ticket| self.by_ticket.contains_key(&ticket));
        first.filter(|(deadline, _)| *deadline < time).map(|(_, ticket)| ticket)
    }

    /// The first whose deadline has come, with what holds it.
    pub(super) fn first_overdue(&self, now: Timestamp) -> Option<(Ticket, Refusal)> {
        let (_, ticket) = self.deadlines.peek().filter(|(deadline, _)| *deadline <= now)?;
        let class = self.classes.get(self.place(ticket)?.class.0)?;
        let held = class.held.as_ref().map(|held| &held.by);
        let blocked = held.or_else(|| self.sorts.get(class.sort.0)?.blocked.as_ref())?;
        Some((ticket, blocked.refusal.clone()))
    }

    /// Adds the sorts to look at again by now.
    pub(super) fn take_due(&mut self, now: Timestamp, due: &mut Vec<SortId>) {
        while let Some((_, wake)) = self.wakes.first().copied().filter(|(at, _)| *at <= now) {
            self.wakes.pop_first();
            match wake {
                Wake::Sort(sort) => {
                    if let Some(blocked) = self.sorts.get_mut(sort.0).and_then(|sort| sort.blocked.as_mut()) {
                        // Without a wake-up it must be tried.
                        (blocked.wake, blocked.closed) = (None, None);
                    }
                    due.push(sort);
                }
                Wake::Class(class) => due.extend(self.release(class)),
            }
        }
    }

    /// The sorts that wait on a list.
    pub(super) fn sorts_of(&self, list: ListId) -> impl Iterator<Item = SortId> + '_ {
        self.by_list.get(list.index()).into_iter().flatten().copied()
    }

    /// When something is due or overdue next.
    pub(super) fn next_wakeup(&self) -> Option<Timestamp> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        let deadline = self.deadlines.peek().map(|(at, _)| at);
        match (wake, deadline) {
            (Some(wake), Some(deadline)) => Some(wake.min(deadline)),
            (wake, deadline) => wake.or(deadline),
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.by_ticket.len()
    }

    /// Bytes that they hold.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Who makes room for a newcomer in a full line: the newest request of the client that has the most waiting among those of the lowest priority. `None`: the
    /// newcomer itself is of that kind.
    pub(super) fn displaced_by(&mut self, client: ClientId, priority: Priority) -> Option<Ticket> {
        self.crowd.displaced_by(client, priority, |ticket| self.by_ticket.contains_key(&ticket))
    }

    fn add_class(&mut self, key: ClassKey) -> ClassId {
        let sort = self.by_sort_key.get(&key.sort).copied().unwrap_or_else(|| self.add_sort(key.sort.clone()));
        if let Some(sort) = self.sorts.get_mut(sort.0) {
            sort.classes += 1;
        }
        let class = Class { key: key.clone(), sort, waiting: BTreeSet::new(), held: None, deadlines: Deadlines::default() };
        let id = ClassId(self.classes.insert(class));
        self.by_class_key.insert(key, id);
        id
    }

    fn add_sort(&mut self, key: SortKey) -> SortId {
        let (heads, deadlines) = (BTreeSet::new(), Deadlines::default());
        let id = SortId(self.sorts.insert(Sort { key: key.clone(), heads, classes: 0, waiting: 0, deadlines, blocked: None }));
        let list = key.list.index();
        if self.by_list.len() <= list {
            self.by_list.resize_with(list + 1, Vec::new);
        }
        self.by_list[list].push(id);
        self.by_sort_key.insert(key, id);
        id
    }

    fn drop_class(&mut self, id: ClassId) {
        let Some(class) = self.classes.try_remove(id.0) else { return };
        self.by_class_key.remove(&class.key);
        if let Some(held) = class.held {
            self.forget_held((class.key.sort.list, class.key.endpoint), held.rank, id);
            self.move_wake(Wake::Class(id), held.by.wake, None);
        }
        let Some(sort) = self.sorts.get_mut(class.sort.0) else { return };
        sort.classes -= 1;
        if sort.classes == 0 {
            self.drop_sort(class.sort);
        }
    }

    fn drop_sort(&mut self, id: SortId) {
        let Some(sort) = self.sorts.try_remove(id.0) else { return };
        self.by_sort_key.remove(&sort.key);
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

    fn move_wake(&mut self, wake: Wake, before: Option<Timestamp>, after: Option<Timestamp>) {
        if before != after {
            before.map(|at| self.wakes.remove(&(at, wake)));
            self.wakes.extend(after.map(|at| (at, wake)));
        }
    }
}

impl Class {
    fn head(&self) -> Option<Rank> {
        self.waiting.first().copied()
    }
}
