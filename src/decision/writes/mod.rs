//! The rules of writes: one at a time in each lane, and a number at once in the dispatcher.

pub mod dispatch;
pub mod lanes;
