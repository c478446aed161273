//! The service itself: limits and reference data.

pub mod meta;
pub mod reference;
