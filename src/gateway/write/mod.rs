//! A write in its lane, and the queue of accepted writes.

pub mod queue;
pub mod queued;
pub mod recovery;
pub mod runner;
pub mod takeover;
pub mod turns;
pub mod upload;
pub mod writes;
