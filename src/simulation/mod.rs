//! A whole gateway and its upstream in virtual time: bots, the decision core, a network that
//! delays, reorders and loses, the emulator.
//!
//! No socket, no thread, no sleeping: a run is a list of events in the order of their time,
//! everything that looks like chance follows from its seed, and the same [`Plan`] makes the same
//! run to the last request. What counts as true afterwards is what the emulator's books say, not
//! ours.
//!
//! | module | is |
//! |---|---|
//! | [`plan`] | what a run is made from, from nothing or from a config |
//! | [`workload`], `bots` | what is asked, and when |
//! | [`trace`] | the same from a recorded access log |
//! | `run` | the events: the gateway's part, as thin as the real one, around `decision/` |
//! | `polling`, [`rivals`] | what pollers ask for and what changes; other gateways' rules to compare with |
//! | `upstream`, `truth` | the emulator, and what really happened by its books |
//! | [`report`] | the figures |
//! | [`sweep`] | many seeds, on all cores |
//! | [`sizing`] | how many accounts would do |
//!
//! Left out: rights and reach of tokens, bodies, rewriting, the queue of asynchronous writes. They
//! decide nothing about limits.

mod bots;
mod event_queue;
pub mod plan;
mod polling;
pub mod report;
pub mod rivals;
mod route;
mod run;
pub mod sizing;
mod sliding;
mod store;
pub mod sweep;
pub mod trace;
mod truth;
mod upstream;
mod waits;
pub mod workload;

pub use plan::Plan;
pub use report::Report;
pub use waits::Waits;
pub use workload::Workload;

/// Why a plan cannot be played.
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
