//! Those who wait, in classes of one and the same demand, with an index for every way in which they are looked for: by ticket, by account, by
//! deadline, by the time at which to look again.
//!
//! Keeps order and finds; decides nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::api::{EndpointId, ResourceName};
use crate::clock::Timestamp;

use super::super::books::Blocked;
use super::super::demand::{AccountId, Demand, Refusal, Ticket, WriteSpacing};

/// Names a class; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClassId(u64);

/// Those who want the same of the same accounts: what holds one of them holds all. At least one waits in it.
#[derive(Debug)]
pub(super) struct Class {
    key: ClassKey,
    /// In the order of arrival, which is that of the tickets.
    waiting: BTreeMap<Ticket, Waiter>,
    deadlines: BTreeSet<(Timestamp, Ticket)>,
    /// Why its head was not admitted, when last tried.
    pub(super) blocked: Blocked,
}

#[derive(Debug)]
struct Waiter {
    demand: Demand,
    deadline: Timestamp,
}

/// All that decides whether a demand can be admitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClassKey {
    candidates: Candidates,
    resource: ResourceName,
    endpoint: EndpointId,
    cost: u32,
    points: u32,
    graphql: bool,
    content: bool,
    write: WriteSpacing,
}

/// A list of accounts that is cheap to compare when it is one allocation, as a pool's is, and cheap to hash always.
#[derive(Clone, Debug)]
struct Candidates(Arc<[AccountId]>);

impl PartialEq for Candidates {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Candidates {}

impl Hash for Candidates {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.len(), self.0.first(), self.0.last()).hash(state);
    }
}

impl From<&Demand> for ClassKey {
    fn from(demand: &Demand) -> Self {
        Self {
            candidates: Candidates(Arc::clone(&demand.candidates)),
            resource: demand.resource.clone(),
            endpoint: demand.endpoint,
            cost: demand.cost,
            points: demand.points,
            graphql: demand.graphql,
            content: demand.content,
            write: demand.write,
        }
    }
}

/// The waiting line.
#[derive(Debug, Default)]
pub(super) struct Line {
    next_class: u64,
    classes: HashMap<ClassId, Class>,
    by_key: HashMap<ClassKey, ClassId>,
    by_account: HashMap<AccountId, BTreeSet<ClassId>>,
    by_ticket: HashMap<Ticket, ClassId>,
    deadlines: BTreeSet<(Timestamp, Ticket)>,
    wakes: BTreeSet<(Timestamp, ClassId)>,
}

impl Line {
    /// The class in which others wait for the same.
    pub(super) fn find(&self, demand: &Demand) -> Option<&Class> {
        if self.classes.is_empty() {
            return None;
        }
        self.by_key.get(&ClassKey::from(demand)).and_then(|class| self.classes.get(class))
    }

    /// Joins the end of its class; `blocked` is what holds it.
    pub(super) fn push(&mut self, ticket: Ticket, demand: Demand, deadline: Timestamp, blocked: Blocked) {
        let key = ClassKey::from(&demand);
        let id = self.by_key.get(&key).copied().unwrap_or_else(|| self.add_class(key, blocked));
        let Some(class) = self.classes.get_mut(&id) else { return };
        class.waiting.insert(ticket, Waiter { demand, deadline });
        class.deadlines.insert((deadline, ticket));
        self.deadlines.insert((deadline, ticket));
        self.by_ticket.insert(ticket, id);
    }

    /// Takes a ticket out, from whatever place; whether it was there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let Some(id) = self.by_ticket.remove(&ticket) else { return false };
        let Some(class) = self.classes.get_mut(&id) else { return false };
        let Some(waiter) = class.waiting.remove(&ticket) else { return false };
        class.deadlines.remove(&(waiter.deadline, ticket));
        self.deadlines.remove(&(waiter.deadline, ticket));
        if class.waiting.is_empty() {
            self.drop_class(id);
        }
        true
    }

    /// The first of a class.
    pub(super) fn head(&self, class: ClassId) -> Option<(Ticket, &Demand)> {
        let (ticket, waiter) = self.classes.get(&class)?.waiting.first_key_value()?;
        Some((*ticket, &waiter.demand))
    }

    /// Notes what holds a class now.
    pub(super) fn hold(&mut self, id: ClassId, blocked: Blocked) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        self.wakes.extend(blocked.wake.map(|wake| (wake, id)));
        let before = std::mem::replace(&mut class.blocked, blocked);
        if let Some(wake) = before.wake.filter(|wake| Some(*wake) != class.blocked.wake) {
            self.wakes.remove(&(wake, id));
        }
    }

    /// The first of a class whose deadline is before `time`.
    pub(super) fn first_deadline_before(&self, class: ClassId, time: Timestamp) -> Option<Ticket> {
        self.classes.get(&class)?.deadlines.first().filter(|(deadline, _)| *deadline < time).map(|(_, ticket)| *ticket)
    }

    /// The first whose deadline has come, with what holds it.
    pub(super) fn first_overdue(&self, now: Timestamp) -> Option<(Ticket, Refusal)> {
        let (_, ticket) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        let class = self.by_ticket.get(ticket).and_then(|class| self.classes.get(class))?;
        Some((*ticket, class.blocked.refusal.clone()))
    }

    /// The classes to look at again by now; each is returned once.
    pub(super) fn take_due(&mut self, now: Timestamp) -> BTreeSet<ClassId> {
        let mut due = BTreeSet::new();
        while let Some((_, class)) = self.wakes.first().copied().filter(|(wake, _)| *wake <= now) {
            self.wakes.pop_first();
            due.insert(class);
        }
        due
    }

    /// The classes that an account may serve.
    pub(super) fn classes_of(&self, account: AccountId) -> BTreeSet<ClassId> {
        self.by_account.get(&account).cloned().unwrap_or_default()
    }

    /// When something is due or overdue next.
    pub(super) fn next_wakeup(&self) -> Option<Timestamp> {
        let first = |at: Option<&(Timestamp, _)>| at.map(|(at, _)| *at);
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        [first(self.wakes.first()), deadline].into_iter().flatten().min()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.by_ticket.len()
    }

    /// Whether all indexes speak of the same ones (invariant 8).
    pub(super) fn adds_up(&self) -> bool {
        let class_is_sound = |(id, class): (&ClassId, &Class)| {
            !class.waiting.is_empty()
                && class.deadlines.len() == class.waiting.len()
                && self.by_key.get(&class.key) == Some(id)
                && class.waiting.keys().all(|ticket| self.by_ticket.get(ticket) == Some(id))
                && class.key.candidates.0.iter().all(|account| self.by_account.get(account).is_some_and(|classes| classes.contains(id)))
        };
        let waiting: usize = self.classes.values().map(|class| class.waiting.len()).sum();
        self.classes.iter().all(class_is_sound)
            && waiting == self.by_ticket.len()
            && waiting == self.deadlines.len()
            && self.by_key.len() == self.classes.len()
            && self.wakes.iter().all(|(wake, class)| self.classes.get(class).is_some_and(|class| class.blocked.wake == Some(*wake)))
            && self.by_account.values().flatten().all(|class| self.classes.contains_key(class))
    }

    fn add_class(&mut self, key: ClassKey, blocked: Blocked) -> ClassId {
        let id = ClassId(self.next_class);
        self.next_class += 1;
        for account in key.candidates.0.iter() {
            self.by_account.entry(*account).or_default().insert(id);
        }
        self.wakes.extend(blocked.wake.map(|wake| (wake, id)));
        self.by_key.insert(key.clone(), id);
        self.classes.insert(id, Class { key, waiting: BTreeMap::new(), deadlines: BTreeSet::new(), blocked });
        id
    }

    fn drop_class(&mut self, id: ClassId) {
        let Some(class) = self.classes.remove(&id) else { return };
        self.by_key.remove(&class.key);
        if let Some(wake) = class.blocked.wake {
            self.wakes.remove(&(wake, id));
        }
        for account in class.key.candidates.0.iter() {
            if let Some(classes) = self.by_account.get_mut(account) {
                classes.remove(&id);
                if classes.is_empty() {
                    self.by_account.remove(account);
                }
            }
        }
    }
}
