//! The record of a test: every response, every compared field and every observed state, in order.
//!
//! The kit and the shapes write it, and the audit reads it. Each thread has its own record, so that
//! concurrent tests stay apart. Nothing is judged here.

use std::cell::RefCell;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Answered(Answered),
    /// A field of a documented object was compared in a response. A value of a closed set is kept.
    Compared {
        object: &'static str,
        field: &'static str,
        text: Option<String>,
    },
    /// A documented state machine was observed in this state.
    Observed {
        machine: &'static str,
        state: String,
    },
    /// Virtual time passed.
    Passed {
        seconds: u64,
    },
    /// A present header was read; in lower case.
    Header(String),
    /// A limit passed this many requests and refused the next.
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

/// A credential by its properties, never its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The scheme in lower case: `bearer`, `token`, `basic`, or nothing.
    pub scheme: String,
    /// The kind as the world names it, or `jwt`, `bad`, `none`.
    pub kind: String,
    /// Permissions as `name=level`, separated by commas; `*` is all.
    pub grants: String,
}

thread_local! {
    static RECORD: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

pub fn record(event: Event) {
    RECORD.with_borrow_mut(|events| events.push(event));
}

/// Takes the record of this thread and starts a fresh one.
pub fn take() -> Vec<Event> {
    RECORD.take()
}

/// Records the state that a test has just observed. It must come from a response, not from the
/// test's expectation.
pub fn observe(machine: &'static str, state: impl Into<String>) {
    record(Event::Observed { machine, state: state.into() });
}

/// Records a header found outside a response of the kit, whose `header` records by itself.
pub fn saw_header(name: &str) {
    record(Event::Header(name.to_ascii_lowercase()));
}
