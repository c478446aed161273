//! What a test really did: every answer it got, every field it compared, every state it saw, in
//! order.
//!
//! The kit and the shapes write here, the audit reads. The record belongs to the thread, so that
//! tests that run side by side keep apart. Nothing is judged here.

use std::cell::RefCell;

/// One thing that happened during a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Answered(Answered),
    /// A field of an object of the documents was compared on an answer; a text that is one of a
    /// closed set is kept.
    Compared {
        object: &'static str,
        field: &'static str,
        text: Option<String>,
    },
    /// A state machine of the documents was seen in this state.
    Observed {
        machine: &'static str,
        state: String,
    },
    /// Virtual time passed.
    Passed {
        seconds: u64,
    },
    /// A header was read that was there; in lower case.
    Header(String),
    /// A limit let this many through and refused the next.
    Refused {
        limit: &'static str,
        after: u64,
    },
}

impl Event {
    pub fn answered(&self) -> Option<&Answered> {
        if let Self::Answered(answered) = self { Some(answered) } else { None }
    }
}

/// One answer and who had asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    pub method: String,
    /// Without the query and without `/api/v3`.
    pub path: String,
    pub status: u16,
    pub caller: Caller,
    /// The route as the emulator's transcript names it.
    pub endpoint: String,
    /// `x-ratelimit-resource`.
    pub resource: String,
    /// `x-ratelimit-limit`.
    pub limit: Option<u64>,
}

/// A credential by what it is, never its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The scheme word in lower case: `bearer`, `token`, `basic`, or nothing.
    pub scheme: String,
    /// The kind as the world names it, or `jwt`, `bad`, `none`.
    pub kind: String,
    /// Permissions as `name=level` by commas; `*` is all.
    pub grants: String,
}

thread_local! {
    static RECORD: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

pub fn record(event: Event) {
    RECORD.with_borrow_mut(|events| events.push(event));
}

/// The record of this thread so far; a fresh one begins.
pub fn take() -> Vec<Event> {
    RECORD.take()
}

/// A test says which state it has just seen. The state must come from an answer, not from the
/// test's expectation.
pub fn observe(machine: &'static str, state: impl Into<String>) {
    record(Event::Observed { machine, state: state.into() });
}

/// A header was found where the documents say, other than on an answer of the kit (whose `header`
/// records by itself).
pub fn saw_header(name: &str) {
    record(Event::Header(name.to_ascii_lowercase()));
}
