//! A whole gateway and its upstream in virtual time: bots, the decision core, a network that
//! delays, reorders and loses, the emulator.
//!
//! No socket, no thread, no sleeping: a run is a list of events in the order of their time. All
//! randomness follows from the seed, so the same [`Plan`] makes the same run to the last request.
//! The emulator's counts are the truth, not the gateway's ledger.
//!
//! A run takes a [`plan`] and makes a [`report`]. `run` is the gateway's shell in virtual time,
//! `upstream` and `truth` hold the emulator and the ground truth by its counts.
//!
//! Left out: permissions and reach of tokens, bodies, URL rewriting, the queue of asynchronous
//! writes. They decide nothing about limits.

mod bots;
pub mod course;
mod event_queue;
pub mod plan;
mod polling;
pub mod report;
pub mod rivals;
mod route;
mod run;
pub(crate) mod sizing;
mod sliding;
mod store;
pub mod sweep;
mod truth;
mod upstream;
mod waits;
mod workload;

pub use crate::telemetry::access_log as trace;
pub use plan::Plan;
pub use report::Report;
pub use waits::Waits;
pub use workload::Workload;

/// Reason why a plan cannot be played.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unplayable(pub String);

/// Plays a plan to its end.
///
/// # Panics
/// In a debug build, when an invariant of the decision core is broken.
pub fn play(plan: &Plan) -> Result<Report, Unplayable> {
    run::Run::new(plan)?.play()
}
