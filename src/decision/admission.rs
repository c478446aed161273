//! The books with a waiting line before them: now, later, or not at all.
//!
//! Driven by events and by time, both given by the caller: a request comes, a lease ends, an asker goes, a wake-up is due. After every
//! call the caller drains [`Admission::take_decided`]; at [`Admission::next_wakeup`] it calls [`Admission::tick`].
//!
//! Who waits is honest about it: a request that cannot be admitted before its deadline is refused at once, also when that becomes clear
//! only while it waits (DESIGN D4, D10). Requests that want the same of the same accounts form a class (`line`) and are admitted in the order
//! in which they came; an event looks at the first of each class that it can concern and at the others only behind an admission, so that its
//! cost does not grow with the number of those who wait. Which class goes next is decided in one place, `next_class`: today the one that waits
//! longest. Priorities and shares belong there.

mod line;

use std::collections::BTreeSet;

use http::StatusCode;

use crate::api::RateHeaders;
use crate::clock::Timestamp;

use super::books::{Blocked, Books};
use super::demand::{AccountId, Demand, Grant, LeaseId, LimitKind, Refusal, Settings, Settlement, Ticket, Until};
use super::invariants::Invariant;

use line::{ClassId, Line};

/// The books with a waiting line before them.
#[derive(Debug)]
pub struct Admission {
    books: Books,
    line: Line,
    queue_max: usize,
    next_lease: u64,
    next_ticket: u64,
    decided: Vec<(Ticket, Result<Grant, Refusal>)>,
}

/// What becomes of a request at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send it now.
    Granted(Grant),
    /// It cannot be admitted before its deadline.
    Refused(Refusal),
    /// It waits; [`Admission::take_decided`] will tell.
    Waiting(Ticket),
}

impl Admission {
    /// An empty line of at most `queue_max` places before books in which nothing is known.
    pub fn new(settings: Settings, queue_max: usize) -> Self {
        Self { books: Books::new(settings), line: Line::default(), queue_max, next_lease: 0, next_ticket: 0, decided: Vec::new() }
    }

    /// Admits the demand now, lets it wait until `deadline` at the latest, or refuses it because it cannot be admitted by then. With a
    /// deadline that is not after `now` it never waits.
    pub fn request(&mut self, now: Timestamp, demand: Demand, deadline: Timestamp) -> Decision {
        self.tick(now);
        let blocked = match self.line.find(&demand) {
            // Others of its kind wait already: it is behind them, and what holds them holds it.
            Some(class) => class.blocked.clone(),
            None => match self.books.admit(now, LeaseId(self.next_lease), &demand) {
                Ok(grant) => {
                    self.next_lease += 1;
                    return Decision::Granted(grant);
                }
                Err(blocked) => blocked,
            },
        };
        if deadline <= now || is_hopeless(&blocked.refusal, deadline) {
            return Decision::Refused(blocked.refusal);
        }
        if self.line.len() >= self.queue_max {
            return Decision::Refused(Refusal { limit: LimitKind::QueueFull, account: None, until: Until::Event, ..blocked.refusal });
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.line.push(ticket, demand, deadline, blocked);
        Decision::Waiting(ticket)
    }

    /// Ends a lease; see [`Books::settle`]. Whoever can be decided by what that frees or teaches is decided.
    pub fn settle(&mut self, now: Timestamp, lease: LeaseId, settlement: Settlement<'_>, jitter: f64) {
        let account = self.books.account_of(lease);
        self.books.settle(now, lease, settlement, jitter);
        self.reconsider(now, account);
    }

    /// The head of a long answer; see [`Books::answer_begun`]. Whoever waited for what it says is decided.
    pub fn answer_begun(&mut self, now: Timestamp, lease: LeaseId, status: StatusCode, rate: Option<&RateHeaders>) {
        self.books.answer_begun(lease, status, rate);
        self.reconsider(now, self.books.account_of(lease));
    }

    /// Something about an account has changed.
    fn reconsider(&mut self, now: Timestamp, account: Option<AccountId>) {
        let mut classes = self.line.take_due(now);
        classes.extend(account.into_iter().flat_map(|account| self.line.classes_of(account)));
        self.admit_waiting(now, classes);
        self.refuse_overdue(now);
    }

    /// The asker of a ticket has gone. Does nothing for a ticket that was decided: its grant, once drained, is to be settled as never sent.
    pub fn abandon(&mut self, now: Timestamp, ticket: Ticket) {
        self.line.remove(ticket);
        self.tick(now);
    }

    /// Decides what time alone decides: limits that have ended, deadlines that have come.
    pub fn tick(&mut self, now: Timestamp) {
        let due = self.line.take_due(now);
        self.admit_waiting(now, due);
        self.refuse_overdue(now);
    }

    /// When [`Admission::tick`] is to be called next; `None`: nobody waits for time.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.line.next_wakeup()
    }

    /// The tickets decided since the last call, in the order in which they were decided; each ticket once. A grant whose asker has left
    /// is to be settled as never sent.
    pub fn take_decided(&mut self) -> Vec<(Ticket, Result<Grant, Refusal>)> {
        std::mem::take(&mut self.decided)
    }

    /// The books, for reading.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Checks books and line as a whole, and returns what is broken; see [`Books::audit`].
    pub fn audit(&self) -> Vec<Invariant> {
        let mut broken = self.books.audit();
        broken.extend((!self.line.adds_up()).then_some(Invariant::LineAddsUp));
        broken
    }

    /// Admits from these classes, head by head, each class until its first refusal.
    fn admit_waiting(&mut self, now: Timestamp, classes: BTreeSet<ClassId>) {
        let mut eligible: BTreeSet<(Ticket, ClassId)> =
            classes.into_iter().filter_map(|class| self.line.head(class).map(|(ticket, _)| (ticket, class))).collect();
        while let Some(class) = next_class(&mut eligible) {
            let Some((ticket, demand)) = self.line.head(class) else { continue };
            match self.books.admit(now, LeaseId(self.next_lease), demand) {
                Ok(grant) => {
                    self.next_lease += 1;
                    self.decide(ticket, Ok(grant));
                    eligible.extend(self.line.head(class).map(|(ticket, _)| (ticket, class)));
                }
                Err(blocked) => self.hold(class, blocked),
            }
        }
    }

    /// Notes what holds a class, and refuses those in it whom it holds for too long.
    fn hold(&mut self, class: ClassId, blocked: Blocked) {
        let refusal = blocked.refusal.clone();
        self.line.hold(class, blocked);
        if let Until::Time(until) = refusal.until {
            while let Some(ticket) = self.line.first_deadline_before(class, until) {
                self.decide(ticket, Err(refusal.clone()));
            }
        }
    }

    fn refuse_overdue(&mut self, now: Timestamp) {
        while let Some((ticket, refusal)) = self.line.first_overdue(now) {
            self.decide(ticket, Err(refusal));
        }
    }

    fn decide(&mut self, ticket: Ticket, decision: Result<Grant, Refusal>) {
        let waited = self.line.remove(ticket);
        self.books.note(Invariant::TicketsDecidedOnce, waited);
        self.decided.push((ticket, decision));
    }
}

/// Takes the class whose head is tried next out of those that may have become admissible: the one that has waited longest.
fn next_class(eligible: &mut BTreeSet<(Ticket, ClassId)>) -> Option<ClassId> {
    eligible.pop_first().map(|(_, class)| class)
}

/// Whether a refusal outlasts a deadline.
fn is_hopeless(refusal: &Refusal, deadline: Timestamp) -> bool {
    matches!(refusal.until, Until::Time(until) if until > deadline)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod properties;
