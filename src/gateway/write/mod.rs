//! A write in its lane, and the queue of accepted writes.

pub mod queue;
pub mod turns;
pub mod upload;
pub mod writes;
