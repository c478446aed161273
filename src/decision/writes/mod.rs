//! The rules of writes: one at a time in each lane, a number at once in the dispatcher, and the
//! step after each run.

pub mod dispatch;
pub mod lanes;
pub mod run;
