//! One account's books: what it could carry now, what an answer teaches it.
//!
//! The primary books of its resources, its secondary limits and its cool-down are asked together
//! and settled together; each has a module of its own.

use http::StatusCode;

use super::ranking::{Standing, Sums};
use super::{FREE, Lease, OVERFLOW};
use crate::api::{LimitRefusal, RateHeaders, ResourceName};
use crate::clock::Timestamp;
use crate::decision::quota::account_choice::Offer;
use crate::decision::quota::limits::block::{Block, both};
use crate::decision::quota::limits::cooldown::{Cooldown, Named};
use crate::decision::quota::limits::primary::{
    Answer, Book, Charge, Room, Terms, WHOLE, WOBBLE, Wish,
};
use crate::decision::quota::limits::secondary::{Secondary, Weight};
use crate::decision::types::{AccountSettings, Demand, LeaseId, LimitKind, Priority, Until};

/// Primary books of one account. Ours: four times the resources known; an upstream that names more
/// shares the last book among them.
pub(super) const BOOKS_MAX: usize = 64;

/// Names a book of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BookPlace(u8);

const _: () = assert!(BOOKS_MAX < u8::MAX as usize);

impl BookPlace {
    pub(super) fn of(index: usize) -> Self {
        Self(u8::try_from(index).unwrap_or(u8::MAX))
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

#[derive(Debug)]
pub(super) struct Account {
    pub(super) settings: AccountSettings,
    pub(super) terms: Terms,
    /// In the order in which they were first used; never removed, so that a lease can name its book
    /// by its place.
    pub(super) books: Vec<(ResourceName, Book)>,
    pub(super) secondary: Secondary,
    pub(super) cooldown: Cooldown,
}

impl Account {
    pub(super) fn new(settings: AccountSettings, terms: Terms, secondary: Secondary) -> Self {
        Self { settings, terms, books: Vec::new(), secondary, cooldown: Cooldown::default() }
    }

    /// Whether it could carry a request now, or all that forbids it.
    pub(super) fn offer(
        &mut self,
        now: Timestamp,
        demand: &Demand,
        weight: Weight,
        wish: Wish,
        resource: &ResourceName,
    ) -> Result<Offer, Block> {
        let closed = self.cooldown.until(now).map(|until| Block::at(LimitKind::Cooldown, until));
        let wish = Wish { cost: demand.cost, ..wish };
        let (room, spent) = match primary_room(now, wish, self.terms, self.budget(resource)) {
            Ok(room) if closed.is_none() && self.secondary.admits(now, weight) => {
                return Ok(Offer { share: room.share, in_flight: self.secondary.in_flight() });
            }
            Ok(room) => (room.share, None),
            Err(block) => (0, Some(block)),
        };
        match both(both(closed, spent), self.secondary.block(now, weight)) {
            None => Ok(Offer { share: room, in_flight: self.secondary.in_flight() }),
            Some(block) => Err(block),
        }
    }

    /// How it stands towards a resource, whatever a request weighs beside one unit of it.
    pub(super) fn standing(&self, now: Timestamp, resource: &ResourceName) -> Standing {
        let place = self.find_book(resource);
        let closed = self.closure_in(now, self.budget_at(place, resource));
        let sums = self.sums_in(now, self.shown_at(place), resource);
        // A window that ends changes what is shown, whatever else holds the account.
        let over =
            if sums.reset == Timestamp::FAR_FUTURE { sums.reset } else { sums.reset + WOBBLE };
        let at_least =
            |wake: Timestamp| wake.max(now + crate::decision::quota::limits::secondary::TICK);
        match closed {
            Ok(room) => {
                let rank =
                    Offer { share: room.share, in_flight: self.secondary.in_flight() }.rank();
                let wake = at_least(room.until.unwrap_or(Timestamp::FAR_FUTURE).min(over));
                Standing { rank, until: Timestamp::FAR_FUTURE, wake, sums }
            }
            Err(block) => {
                let until = match block.until {
                    Until::Event => Timestamp::EPOCH,
                    Until::Time(time) => time,
                };
                Standing {
                    rank: 0,
                    until,
                    wake: at_least(block.wake.unwrap_or(Timestamp::FAR_FUTURE).min(over)),
                    sums,
                }
            }
        }
    }

    /// What closes it for every request for a resource.
    pub(super) fn closure(&self, now: Timestamp, resource: &ResourceName) -> Result<Room, Block> {
        self.closure_in(now, self.budget(resource))
    }

    fn closure_in(&self, now: Timestamp, budget: Option<&Book>) -> Result<Room, Block> {
        let closed = self.cooldown.until(now).map(|until| Block::at(LimitKind::Cooldown, until));
        let full = (!self.secondary.has_slot()).then_some(Block::event(LimitKind::Concurrency));
        match (
            both(closed, full),
            primary_room(now, Wish { cost: 1, priority: Priority::Normal }, self.terms, budget),
        ) {
            (None, room) => room,
            (Some(block), Ok(_)) => Err(block),
            (Some(block), Err(spent)) => Err(block.and(spent)),
        }
    }

    pub(super) fn sums(&self, now: Timestamp, resource: &ResourceName) -> Sums {
        self.sums_in(now, self.shown_at(self.find_book(resource)), resource)
    }

    fn sums_in(&self, now: Timestamp, book: Option<&Book>, resource: &ResourceName) -> Sums {
        let figures = self.figures_in(now, book, resource);
        let held = figures.leased.saturating_add(self.settings.reserve);
        Sums {
            limit: figures.limit.into(),
            free: figures.remaining.saturating_sub(held).into(),
            reset: figures.reset.unwrap_or(Timestamp::FAR_FUTURE),
        }
    }

    /// The book in which a request for a resource must find room; a resource without one is
    /// untouched.
    fn budget(&self, resource: &ResourceName) -> Option<&Book> {
        self.budget_at(self.find_book(resource), resource)
    }

    /// The same, where the place is known: what costs nothing shares no book with others.
    fn budget_at(&self, place: Option<BookPlace>, resource: &ResourceName) -> Option<&Book> {
        self.shown_at(place).filter(|_| resource.as_str() != FREE)
    }

    /// The book whose figures are shown for a resource.
    pub(super) fn shown_at(&self, place: Option<BookPlace>) -> Option<&Book> {
        self.books.get(place?.index()).map(|(_, book)| book)
    }

    /// The place of a resource's book, or of the one it shares, if there is one already.
    pub(super) fn find_book(&self, resource: &ResourceName) -> Option<BookPlace> {
        let found = self.books.iter().position(|(name, _)| name == resource);
        found.or_else(|| (self.books.len() > BOOKS_MAX).then_some(BOOKS_MAX)).map(BookPlace::of)
    }

    /// The place of a resource's book, made when there is none.
    pub(super) fn book_place(&mut self, resource: &ResourceName) -> BookPlace {
        self.find_book(resource).unwrap_or_else(|| {
            let name = if self.books.len() < BOOKS_MAX {
                resource.clone()
            } else {
                ResourceName::new(OVERFLOW)
            };
            let book = Book::new(&name);
            // Most accounts have one or two for good: no room for more.
            self.books.reserve_exact(1);
            self.books.push((name, book));
            BookPlace::of(self.books.len() - 1)
        })
    }

    pub(super) fn book_of(&mut self, lease: &Lease) -> Option<&mut Book> {
        lease.book.and_then(|place| self.book_at(place))
    }

    pub(super) fn book_at(&mut self, place: BookPlace) -> Option<&mut Book> {
        self.books.get_mut(place.index()).map(|(_, book)| book)
    }

    pub(super) fn resource_at(&self, place: BookPlace) -> Option<&ResourceName> {
        self.books.get(place.index()).map(|(resource, _)| resource)
    }

    /// Ends the lease in its primary book and takes over what the answer says, in the book that the
    /// answer names. `is_refused`: nothing was executed.
    pub(super) fn settle_primary(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        ended: &Lease,
        status: StatusCode,
        rate: Option<&RateHeaders>,
        is_refused: bool,
    ) {
        let named = rate
            .and_then(|rate| rate.resource.as_ref())
            .map(|resource| self.book_place(resource))
            .or(ended.book);
        let Some(book) = self.book_of(ended) else { return };
        let Some(rate) = rate else {
            if is_refused {
                return book.refund(lease, ended.cost);
            }
            return book.charge(now, lease, ended.cost, charge_without_headers(status));
        };
        let is_free = is_refused || status == StatusCode::NOT_MODIFIED;
        let cost = if is_free { 0 } else { ended.cost };
        let is_own = named == ended.book;
        book.answered(lease, ended.cost, if is_own { cost } else { 0 });
        if let Some(book) = named.and_then(|place| self.book_at(place)) {
            book.observe(now, Answer { rate, cost, mark: ended.mark.filter(|_| is_own) });
        }
    }

    /// Closes what a refusal closes (DESIGN D6).
    pub(super) fn heed(
        &mut self,
        now: Timestamp,
        ended: &Lease,
        rate: Option<&RateHeaders>,
        refusal: Option<&LimitRefusal>,
        jitter: f64,
    ) {
        let Some(refusal) = refusal else { return };
        let reset = refusal.reset().or(rate.map(|rate| rate.reset));
        match refusal {
            LimitRefusal::Primary { .. } => {
                let named = refusal
                    .resource()
                    .or(rate.and_then(|rate| rate.resource.as_ref()))
                    .map(|resource| self.book_place(resource));
                // Named without numbers, the other resource teaches the endpoint nothing: the one
                // it was booked under is closed too, or the same request would be sent again at
                // once.
                let own = ended.book.filter(|_| named.is_none() || rate.is_none());
                let closed = named.into_iter().chain(own.filter(|own| Some(*own) != named));
                for place in closed {
                    if let Some(book) = self.book_at(place) {
                        book.close(now, reset, refusal.retry_after());
                    }
                }
            }
            LimitRefusal::Secondary { .. } => {
                let remaining = refusal.remaining().or(rate.map(|rate| rate.remaining));
                let named = Named {
                    pause: refusal.retry_after(),
                    reset: reset.filter(|_| remaining == Some(0)),
                };
                self.cooldown.refused(now, ended.admitted_at, named, jitter);
            }
        }
    }
}

/// What is left of a budget.
fn primary_room(
    now: Timestamp,
    wish: Wish,
    terms: Terms,
    budget: Option<&Book>,
) -> Result<Room, Block> {
    match budget.filter(|_| wish.cost > 0) {
        Some(book) => book.room(now, wish, terms),
        None => Ok(Room { share: WHOLE, until: None }),
    }
}

/// What an answer without rate headers cost (Document 1, Errors: a 304 costs nothing).
fn charge_without_headers(status: StatusCode) -> Charge {
    match status {
        StatusCode::NOT_MODIFIED => Charge::Free,
        // They come from anywhere, and prove nothing.
        _ if status.is_server_error() || status == StatusCode::UNAUTHORIZED => Charge::Lost,
        _ => Charge::SpentWithoutHeaders,
    }
}
