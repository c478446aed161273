//! The books of all accounts, as one: whether a request may be sent now, on which account, and what its answer teaches.
//!
//! Per account there is a primary book for each resource (`budget`, DESIGN D4), the secondary limits (`secondary`, D5) and the
//! cool-down after a refusal (`cooldown`, D6). An admission takes its place in all of them at once, a settlement gives it back in
//! all of them. What clients and operators are shown is in `view`; who waits for what is in [`super::admission`].
//!
//! Two readings of answers that are easily got wrong:
//! - **401** is given before the upstream knows the account: rate headers on it describe somebody else (the address) and are not read.
//! - **A demand of cost 0** (`GET /rate_limit`) touches no primary book: such an answer can show a pristine window while the real one is
//!   nearly spent (UPSTREAM.md, Limits).

mod audit;
mod view;

use std::collections::HashMap;

use http::StatusCode;

use crate::api::{EndpointId, LimitRefusal, RateHeaders, ResourceName};
use crate::clock::Timestamp;

use super::account_choice::{self, Offer};
use super::block::{Block, both};
use super::budget::{self, Book, Charge};
use super::cooldown::{Cooldown, Named};
use super::demand::{AccountId, AccountSettings, Demand, Grant, LeaseId, LimitKind, Refusal, Settings, Settlement, Until};
use super::invariants::{Broken, Invariant};
use super::secondary::{Secondary, Sent, Spacing, Weight};

pub use view::{AccountSnapshot, BookSnapshot, BudgetView, SecondarySnapshot};

/// Primary books of one account. Ours: four times the resources known; an upstream that names more shares the last book among them.
const BOOKS_MAX: usize = 64;
/// The book of all resources beyond [`BOOKS_MAX`]; no header can spell it so.
const OVERFLOW: &str = "(others)";

/// The books of all accounts.
#[derive(Debug)]
pub struct Books {
    accounts: Vec<Account>,
    leases: HashMap<LeaseId, Lease>,
    /// The resource that answers of an endpoint named, where it is not the table's. Bounded by the table.
    learned: HashMap<EndpointId, ResourceName>,
    broken: Broken,
}

#[derive(Debug)]
struct Account {
    settings: AccountSettings,
    /// In the order in which they were first used; never removed, so that a lease can name its book by its place.
    books: Vec<(ResourceName, Book)>,
    secondary: Secondary,
    cooldown: Cooldown,
}

/// What an admitted request holds.
#[derive(Clone, Copy, Debug)]
struct Lease {
    account: AccountId,
    endpoint: EndpointId,
    /// The place of its primary book; `None` when it costs nothing.
    book: Option<usize>,
    cost: u32,
    weight: Weight,
    admitted_at: Timestamp,
}

/// A refusal with the time at which to look again, whatever the asker is told.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    pub(super) refusal: Refusal,
    pub(super) wake: Option<Timestamp>,
}

impl Books {
    /// Books in which nothing is known yet.
    pub fn new(settings: Settings) -> Self {
        let spacing = Spacing { any: settings.spacing, notifying: settings.notify_spacing };
        let secondary = || Secondary::new(settings.limits, spacing);
        let account = |settings| Account { settings, books: Vec::new(), secondary: secondary(), cooldown: Cooldown::default() };
        Self {
            accounts: settings.accounts.into_iter().map(account).collect(),
            leases: HashMap::new(),
            learned: HashMap::new(),
            broken: Broken::default(),
        }
    }

    /// Admits `demand` on the best of its accounts, or says which limit forbids it and until when. A lease that is open already is granted
    /// again as it was.
    pub fn try_admit(&mut self, now: Timestamp, lease: LeaseId, demand: &Demand) -> Result<Grant, Refusal> {
        self.admit(now, lease, demand).map_err(|blocked| blocked.refusal)
    }

    pub(super) fn admit(&mut self, now: Timestamp, lease: LeaseId, demand: &Demand) -> Result<Grant, Blocked> {
        if let Some(open) = self.leases.get(&lease) {
            return Ok(Grant { lease, account: open.account });
        }
        let account = self.choose(now, demand)?;
        self.open(now, lease, account, demand);
        Ok(Grant { lease, account })
    }

    /// The head of an answer whose body goes on for long: what it says of the budget is booked at once, so that nobody waits for the body to learn
    /// it. The slots of the secondary limits stay held until [`Books::settle`].
    pub fn answer_begun(&mut self, lease: LeaseId, status: StatusCode, rate: Option<&RateHeaders>) {
        let Some(open) = self.leases.get_mut(&lease) else { return };
        let begun = *open;
        (open.book, open.cost) = (None, 0);
        let Some(account) = self.accounts.get_mut(place(begun.account)) else { return };
        let rate = rate.filter(|_| begun.cost > 0);
        account.settle_primary(lease, begun, status, rate);
        if let Some(named) = rate.and_then(|rate| rate.resource.as_ref()) {
            self.learn(begun, named);
        }
        self.check(begun);
    }

    /// Ends a lease. `jitter` is a random number from 0 to 1. A lease that is not open (settled already) changes nothing.
    pub fn settle(&mut self, now: Timestamp, lease: LeaseId, settlement: Settlement<'_>, jitter: f64) {
        let Some(ended) = self.leases.remove(&lease) else { return };
        let Some(account) = self.accounts.get_mut(place(ended.account)) else { return };
        let sent = if matches!(settlement, Settlement::NeverSent) { Sent::No } else { Sent::Yes };
        account.secondary.leave(now, ended.weight, sent);
        match settlement {
            Settlement::NeverSent => {
                if let Some(book) = account.book_of(ended) {
                    book.refund(lease, ended.cost);
                }
            }
            Settlement::Unknown => {
                if let Some(book) = account.book_of(ended) {
                    book.charge(lease, ended.cost, Charge::Spent);
                }
            }
            Settlement::Answered { status, rate, refusal } => {
                let rate = rate.filter(|_| status != StatusCode::UNAUTHORIZED && ended.cost > 0);
                let named = rate.and_then(|rate| rate.resource.as_ref());
                account.settle_primary(lease, ended, status, rate);
                account.heed(now, ended, rate, refusal, jitter);
                if refusal.is_none() && status.as_u16() < 400 {
                    account.cooldown.served(ended.admitted_at);
                }
                if let Some(named) = named {
                    self.learn(ended, named);
                }
            }
        }
        self.check(ended);
    }

    /// The resource that requests of an endpoint really count against: what its answers said, else `guess`.
    pub fn resource_for(&self, endpoint: EndpointId, guess: &ResourceName) -> ResourceName {
        self.learned.get(&endpoint).unwrap_or(guess).clone()
    }

    /// Which account carries an open lease.
    pub fn account_of(&self, lease: LeaseId) -> Option<AccountId> {
        self.leases.get(&lease).map(|open| open.account)
    }

    /// How many leases are open.
    pub fn open_leases(&self) -> usize {
        self.leases.len()
    }

    /// How often each invariant was found broken; all must stay 0 (`weir_invariant_broken_total`).
    pub fn broken(&self) -> impl Iterator<Item = (Invariant, u64)> + '_ {
        self.broken.counts()
    }

    /// Counts an invariant of a module built on the books.
    pub(super) fn note(&mut self, invariant: Invariant, holds: bool) {
        self.broken.check(invariant, holds);
    }

    fn choose(&mut self, now: Timestamp, demand: &Demand) -> Result<AccountId, Blocked> {
        let resource = self.learned.get(&demand.endpoint).unwrap_or(&demand.resource);
        let mut best: Option<Offer> = None;
        let mut preferred: Option<Offer> = None;
        let mut nearest: Option<(AccountId, Block)> = None;
        for id in demand.candidates.iter().copied() {
            let Some(account) = self.accounts.get_mut(place(id)) else { continue };
            match account.offer(now, id, demand, resource) {
                Ok(offer) => {
                    preferred = preferred.or(Some(offer).filter(|_| demand.prefer == Some(id)));
                    best = Some(best.map_or(offer, |best| account_choice::better(best, offer)));
                }
                Err(block) => nearest = Some(nearest.map_or((id, block), |(before, nearest)| nearer((before, nearest), (id, block)))),
            }
        }
        match (best, preferred) {
            (Some(best), Some(preferred)) if account_choice::is_about_as_good(preferred, best) => Ok(preferred.account),
            (Some(best), _) => Ok(best.account),
            (None, _) => Err(blocked(nearest, resource.clone())),
        }
    }

    fn open(&mut self, now: Timestamp, lease: LeaseId, id: AccountId, demand: &Demand) {
        let Some(account) = self.accounts.get_mut(place(id)) else { return };
        let resource = self.learned.get(&demand.endpoint).unwrap_or(&demand.resource);
        let weight = Weight::from(demand);
        self.broken.check(Invariant::OneWriteAtATime, !account.secondary.would_be_second_write(weight));
        account.secondary.enter(now, weight);
        let book = (demand.cost > 0).then(|| account.book_place(resource));
        if let Some((_, book)) = book.and_then(|place| account.books.get_mut(place)) {
            book.lease(now, lease, demand.cost);
            self.broken.check(Invariant::AdmittedWithinBudget, book.covers(now, account.settings.reserve));
        }
        let open = Lease { account: id, endpoint: demand.endpoint, book, cost: demand.cost, weight, admitted_at: now };
        self.leases.insert(lease, open);
        self.check(open);
    }

    /// Remembers what an answer says its endpoint counts against (DESIGN D4): for the whole route template, until another answer says
    /// otherwise.
    fn learn(&mut self, ended: Lease, named: &ResourceName) {
        let reserved = ended.book.and_then(|book| self.accounts.get(place(ended.account))?.books.get(book)).map(|(resource, _)| resource);
        if reserved != Some(named) {
            self.learned.insert(ended.endpoint, named.clone());
        }
    }
}

impl Account {
    /// Whether it could carry a request now, or all that forbids it.
    fn offer(&mut self, now: Timestamp, id: AccountId, demand: &Demand, resource: &ResourceName) -> Result<Offer, Block> {
        let closed = self.cooldown.until(now).map(|until| Block::at(LimitKind::Cooldown, until));
        let (share, spent) = match self.primary_room(now, demand.cost, resource) {
            Ok(share) => (share, None),
            Err(block) => (0, Some(block)),
        };
        match both(both(closed, spent), self.secondary.block(now, Weight::from(demand))) {
            None => Ok(Offer { account: id, share, in_flight: self.secondary.in_flight() }),
            Some(block) => Err(block),
        }
    }

    /// The share that is left of a resource's budget; a resource without a book is untouched.
    fn primary_room(&self, now: Timestamp, cost: u32, resource: &ResourceName) -> Result<u32, Block> {
        match self.find_book(resource).filter(|_| cost > 0) {
            Some(place) => self.books[place].1.room(now, cost, self.settings.reserve).map(|room| room.share),
            None => Ok(budget::WHOLE),
        }
    }

    /// The place of a resource's book, or of the one it shares, if there is one already.
    fn find_book(&self, resource: &ResourceName) -> Option<usize> {
        let found = self.books.iter().position(|(name, _)| name == resource);
        found.or_else(|| (self.books.len() > BOOKS_MAX).then_some(BOOKS_MAX))
    }

    /// The place of a resource's book, made when there is none.
    fn book_place(&mut self, resource: &ResourceName) -> usize {
        self.find_book(resource).unwrap_or_else(|| {
            let name = if self.books.len() < BOOKS_MAX { resource.clone() } else { ResourceName::new(OVERFLOW) };
            self.books.push((name, Book::new()));
            self.books.len() - 1
        })
    }

    fn book_of(&mut self, lease: Lease) -> Option<&mut Book> {
        lease.book.and_then(|place| self.books.get_mut(place)).map(|(_, book)| book)
    }

    /// Ends the lease in its primary book and takes over what the answer says, in the book that the answer names.
    fn settle_primary(&mut self, lease: LeaseId, ended: Lease, status: StatusCode, rate: Option<&RateHeaders>) {
        let named = rate.and_then(|rate| rate.resource.as_ref()).map(|resource| self.book_place(resource)).or(ended.book);
        let Some(book) = self.book_of(ended) else { return };
        let Some(rate) = rate else {
            return book.charge(lease, ended.cost, charge_without_headers(status));
        };
        // The answer's own count has the request in it, or shows that it was free: the lease just goes.
        book.refund(lease, ended.cost);
        if let Some((_, book)) = named.and_then(|place| self.books.get_mut(place)) {
            book.observe(rate);
        }
    }

    /// Closes what a refusal closes (DESIGN D6).
    fn heed(&mut self, now: Timestamp, ended: Lease, rate: Option<&RateHeaders>, refusal: Option<&LimitRefusal>, jitter: f64) {
        let Some(refusal) = refusal else { return };
        let reset = refusal.reset().or(rate.map(|rate| rate.reset));
        match refusal {
            LimitRefusal::Primary { .. } => {
                let named = refusal.resource().or(rate.and_then(|rate| rate.resource.as_ref())).map(|resource| self.book_place(resource));
                // Named without numbers, the other resource teaches the endpoint nothing: the one it was booked under is closed too, or the
                // same request would be sent again at once.
                let own = ended.book.filter(|_| named.is_none() || rate.is_none());
                let closed = named.into_iter().chain(own.filter(|own| Some(*own) != named));
                for place in closed {
                    if let Some((_, book)) = self.books.get_mut(place) {
                        book.close(now, reset, refusal.retry_after());
                    }
                }
            }
            LimitRefusal::Secondary { .. } => {
                let remaining = refusal.remaining().or(rate.map(|rate| rate.remaining));
                let named = Named { pause: refusal.retry_after(), reset: reset.filter(|_| remaining == Some(0)) };
                self.cooldown.refused(now, ended.admitted_at, named, jitter);
            }
        }
    }
}

/// What an answer without rate headers cost (Document 1, Errors: a 304 costs nothing).
fn charge_without_headers(status: StatusCode) -> Charge {
    match status {
        StatusCode::NOT_MODIFIED => Charge::Free,
        _ if status.is_server_error() || status == StatusCode::UNAUTHORIZED => Charge::Spent,
        _ => Charge::SpentWithoutHeaders,
    }
}

/// The account that will be free first, and when to look again.
fn nearer(one: (AccountId, Block), other: (AccountId, Block)) -> (AccountId, Block) {
    let block = one.1.or(other.1);
    let account = if (block.limit, block.until) == (one.1.limit, one.1.until) { one.0 } else { other.0 };
    (account, block)
}

fn blocked(nearest: Option<(AccountId, Block)>, resource: ResourceName) -> Blocked {
    let Some((account, Block { limit, until, wake })) = nearest else {
        let until = Until::Time(Timestamp::FAR_FUTURE);
        return Blocked { refusal: Refusal { limit: LimitKind::NoAccount, account: None, resource, until }, wake: None };
    };
    Blocked { refusal: Refusal { limit, account: Some(account), resource, until }, wake }
}

/// An account's index in the list of the config.
fn place(account: AccountId) -> usize {
    usize::try_from(account.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
pub(super) mod upstream_model;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod properties;
