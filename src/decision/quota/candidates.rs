//! Candidate lists: the account lists of requests, recognized by their allocation, each with its
//! [`Ranking`]s by resource.
//!
//! A new list costs time by its length. After that, finding the best account and moving a changed
//! one take a few steps. Idle lists are dropped when there are many. Lists that share an account
//! compete; all lists that compete directly or indirectly form a component. Each component has one
//! order of service (`scheduler`).

use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::types::{AccountId, HashMap};

use super::account::Account;
use super::place;
use super::ranking::{Availability, Ranking, Sums};

/// Above this number of lists, plus [`LISTS_PER_ACCOUNT`], the less recently used are dropped.
/// Ours: the pools of a large config, and their subsets by route.
const LISTS: usize = 512;
/// Ours: each account alone, and in a few small lists.
const LISTS_PER_ACCOUNT: usize = 4;

/// Rankings of one list. Ours: twice the known resources; beyond that the oldest is rebuilt on
/// demand.
const RANKINGS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListId(u32);

impl ListId {
    /// Numbers of dropped lists are reused, so the index is bounded by the number of lists.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Component of lists without an account.
const NO_COMPONENT: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Component(u32);

impl Component {
    #[cfg(test)]
    pub const ANY: Self = Self(0);

    /// Bounded by the number of accounts, plus one for lists without an account.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Union {
    pub from: Component,
    pub into: Component,
}

/// State of a list without an open account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    ranked_by: ResourceName,
    until: Timestamp,
    wake: Timestamp,
    /// True when all requests for this resource would be denied alike.
    pub is_for_all: bool,
}

impl Closed {
    /// Returns `None` when some account is open. `is_for_all`: the denial follows from this state
    /// alone.
    pub fn of(ranking: &Ranking, ranked_by: &ResourceName, is_for_all: bool) -> Option<Self> {
        let all = ranking.all();
        (all.rank == 0).then(|| Self {
            ranked_by: ranked_by.clone(),
            until: all.until,
            wake: all.wake,
            is_for_all,
        })
    }
}

#[derive(Debug)]
struct List {
    accounts: Arc<[AccountId]>,
    rankings: SmallVec<[(ResourceName, Ranking); 1]>,
    /// Time of the last use, as a count of lookups.
    used: u64,
    waiting: u32,
    first: Option<AccountId>,
}

#[derive(Debug, Default)]
pub struct Candidates {
    lists: Slab<List>,
    by_allocation: HashMap<usize, ListId>,
    by_content: HashMap<Arc<[AccountId]>, ListId>,
    /// Places of each account in the lists.
    of_account: Vec<SmallVec<[(ListId, u32); 1]>>,
    /// Union-find parents by account; index 0 belongs to lists without an account.
    component: Vec<u32>,
    unions: Vec<Union>,
    lookups: u64,
}

impl Candidates {
    pub fn grow(&mut self, accounts: usize) {
        self.of_account.resize_with(accounts, SmallVec::new);
        let known = u32::try_from(self.component.len()).unwrap_or(u32::MAX);
        // One more for `NO_COMPONENT`.
        self.component.extend((known..).take((accounts + 1).saturating_sub(self.component.len())));
    }

    pub fn find(&mut self, accounts: &Arc<[AccountId]>) -> ListId {
        self.lookups += 1;
        let known = self
            .by_allocation
            .get(&allocation(accounts))
            .or_else(|| self.by_content.get(accounts))
            .copied();
        let id = known.unwrap_or_else(|| self.add(accounts));
        if let Some(list) = self.lists.get_mut(id.index()) {
            list.used = self.lookups;
        }
        id
    }

    /// Returns the list's ranking by a resource, up to date at `now`.
    pub fn ranking(
        &mut self,
        now: Timestamp,
        id: ListId,
        resource: &ResourceName,
        accounts: &[Account],
    ) -> Option<&mut Ranking> {
        let list = self.lists.get_mut(id.index())?;
        let availability = |id: &AccountId| {
            accounts
                .get(place(*id))
                .map_or(Availability::NONE, |account| account.availability(now, resource))
        };
        if !list.rankings.iter().any(|(name, _)| name == resource) {
            if list.rankings.len() >= RANKINGS_MAX {
                list.rankings.remove(0);
            }
            let ranking = Ranking::new(list.accounts.iter().map(availability));
            list.rankings.push((resource.clone(), ranking));
        }
        let (_, ranking) = list.rankings.iter_mut().find(|(name, _)| name == resource)?;
        while let Some(due) = ranking.due(now) {
            ranking.set(due, list.accounts.get(due).map_or(Availability::NONE, availability));
        }
        Some(ranking)
    }

    /// Returns true when a closed list has not changed since `seen` and does not change by now.
    pub fn is_closed_as(&self, id: ListId, seen: &Closed, now: Timestamp) -> bool {
        let list = self.lists.get(id.index());
        let ranking =
            list.and_then(|list| list.rankings.iter().find(|(name, _)| *name == seen.ranked_by));
        let all = ranking.map(|(_, ranking)| ranking.all());
        all.is_some_and(|all| {
            all.rank == 0 && all.wake > now && (all.until, all.wake) == (seen.until, seen.wake)
        })
    }

    /// Returns the sums over a list's accounts, if it has a ranking by the resource.
    pub fn sums(
        &mut self,
        now: Timestamp,
        accounts: &Arc<[AccountId]>,
        resource: &ResourceName,
        windows: &[Account],
    ) -> Option<Sums> {
        let id = *self.by_allocation.get(&allocation(accounts))?;
        let list = self.lists.get(id.index())?;
        list.rankings.iter().find(|(name, _)| name == resource)?;
        self.ranking(now, id, resource, windows).map(|ranking| ranking.all().sums)
    }

    pub fn changed(&mut self, now: Timestamp, id: AccountId, account: &Account) {
        let Self { of_account, lists, .. } = self;
        for (list, at) in of_account.get(place(id)).into_iter().flatten() {
            let Some(list) = lists.get_mut(list.index()) else { continue };
            for (resource, ranking) in &mut list.rankings {
                ranking.set(*at as usize, account.availability(now, resource));
            }
        }
    }

    pub fn lists_of(&self, account: AccountId) -> impl Iterator<Item = ListId> + '_ {
        self.of_account.get(place(account)).into_iter().flatten().map(|(list, _)| *list)
    }

    /// Keeps the list for a waiting request, until [`Candidates::release`].
    pub fn hold(&mut self, id: ListId) {
        if let Some(list) = self.lists.get_mut(id.index()) {
            list.waiting += 1;
        }
    }

    pub fn release(&mut self, id: ListId) {
        if let Some(list) = self.lists.get_mut(id.index()) {
            list.waiting = list.waiting.saturating_sub(1);
        }
    }

    /// Returns true when requests wait on a list with this account.
    pub fn is_waited_on(&self, account: AccountId) -> bool {
        let mut lists = self.lists_of(account).filter_map(|id| self.lists.get(id.index()));
        lists.any(|list| list.waiting > 0)
    }

    #[cfg(test)]
    pub fn rankings(&self) -> usize {
        self.lists.iter().map(|(_, list)| list.rankings.len()).sum()
    }

    pub fn component_of(&self, id: ListId) -> Component {
        let first = self.lists.get(id.index()).and_then(|list| list.first);
        Component(first.map_or(NO_COMPONENT, |first| self.head_of(first)))
    }

    pub fn take_unions(&mut self) -> Vec<Union> {
        std::mem::take(&mut self.unions)
    }

    fn add(&mut self, accounts: &Arc<[AccountId]>) -> ListId {
        if self.by_content.len() >= LISTS + LISTS_PER_ACCOUNT * self.of_account.len() {
            self.forget_unused();
        }
        let first =
            accounts.iter().copied().find(|account| place(*account) < self.of_account.len());
        let list = List {
            accounts: Arc::clone(accounts),
            rankings: SmallVec::new(),
            used: 0,
            waiting: 0,
            first,
        };
        let id = ListId(u32::try_from(self.lists.insert(list)).unwrap_or(u32::MAX));
        self.by_allocation.insert(allocation(accounts), id);
        self.by_content.insert(Arc::clone(accounts), id);
        for (at, account) in (0..).zip(accounts.iter()) {
            if let Some(positions) = self.of_account.get_mut(place(*account)) {
                positions.push((id, at));
            }
        }
        self.unite(accounts);
        id
    }

    /// Drops the less recently used half of the idle lists.
    fn forget_unused(&mut self) {
        let mut idle: Vec<(u64, usize)> = self
            .lists
            .iter()
            .filter_map(|(id, list)| (list.waiting == 0).then_some((list.used, id)))
            .collect();
        idle.sort_unstable();
        for (_, id) in idle.iter().take(idle.len().div_ceil(2)) {
            let Some(list) = self.lists.try_remove(*id) else { continue };
            self.by_allocation.remove(&allocation(&list.accounts));
            self.by_content.remove(&list.accounts);
            for account in list.accounts.iter() {
                if let Some(positions) = self.of_account.get_mut(place(*account)) {
                    positions.retain(|(list, _)| list.index() != *id);
                }
            }
        }
    }

    fn unite(&mut self, accounts: &[AccountId]) {
        let known = accounts.iter().filter(|account| place(**account) < self.of_account.len());
        let mut heads: Vec<u32> = known.map(|account| self.head_of(*account)).collect();
        heads.sort_unstable();
        heads.dedup();
        let Some((into, others)) = heads.split_first() else { return };
        for from in others {
            self.component[*from as usize] = *into;
            self.unions.push(Union { from: Component(*from), into: Component(*into) });
        }
        // Path compression.
        for account in accounts.iter().filter(|account| place(**account) < self.of_account.len()) {
            self.component[place(*account) + 1] = *into;
        }
    }

    fn head_of(&self, account: AccountId) -> u32 {
        let mut head = account.0.saturating_add(1);
        while let Some(next) = self.component.get(head as usize).filter(|next| **next != head) {
            head = *next;
        }
        head
    }
}

/// Address of a list, unique while the list exists.
fn allocation(accounts: &Arc<[AccountId]>) -> usize {
    accounts.as_ptr().addr()
}
