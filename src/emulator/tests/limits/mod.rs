//! Limits.

pub mod callers;
pub mod listed;
pub mod primary;
pub mod secondary;
