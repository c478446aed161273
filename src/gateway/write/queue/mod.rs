//! The queue of accepted writes: their states, their outcomes and their waiters (SPECIFICATION D7,
//! "Asynchronous writes" and "Promises").
//!
//! In memory, the queue keeps some hundred bytes per write; the store (`writes/`) has requests and
//! answers. Each state is stored before it becomes visible or has an effect. `accept` takes writes
//! in, `runner` executes them, and `journal` records each attempt before its first byte. `recovery`
//! resumes the writes of an earlier process, `handover` waits for their store, and `takeover` goes
//! on with the writes of another replica. `elsewhere` asks for those of living replicas;
//! `operator_actions` has the actions of clients and operators. Left out: HTTP (`asynchronous`).

mod accept;
mod counts;
mod elsewhere;
mod handover;
pub(in crate::gateway::write) mod journal;
pub(in crate::gateway::write) mod live;
mod loaded;
mod operator_actions;
pub(in crate::gateway::write) mod write_queue;

pub use accept::{Accepted, New, NotAccepted};
pub use live::{SyncWaiter, Watched, WriteGroup};
pub use operator_actions::{Listed, NotChanged, Repetition, Selection};
pub use write_queue::{PATIENCE, Queue, WriteStatus};
