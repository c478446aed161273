//! The queue of writes that were accepted: what is there, what becomes of each, and who is told
//! (DESIGN D7; CONTRACT §3, §4).
//!
//! The queue holds of each write what decides about it, some hundred bytes; what it says and what
//! was answered is with its store (`writes/`). Nothing becomes visible here, and nothing is sent,
//! before the store has it. In `accept` writes come in, in `runner` they are brought on their way,
//! `journal` is where an attempt says so before its first byte, `recovery` takes over what an
//! earlier process left, `orders` has what clients and operators may still want. Left out: HTTP
//! (`asynchronous`).

mod accept;
mod counts;
pub(in crate::gateway::write) mod journal;
pub(in crate::gateway::write) mod live;
mod operator_actions;
mod sync_waiter;
mod usage;
pub(in crate::gateway::write) mod write_queue;

pub use accept::{Accepted, New, NotAccepted};
pub use live::{Class, Watched};
pub use operator_actions::{Listed, NotChanged, Repetition, Selection};
pub use sync_waiter::SyncWaiter;
pub use write_queue::{PATIENCE, Queue, Standing};
