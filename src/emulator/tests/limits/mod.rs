//! Tests of primary and secondary limits.

pub mod callers;
pub mod listed;
pub mod primary;
pub mod secondary;
