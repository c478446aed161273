//! The service itself: limits, reference data and searches.

pub mod meta;
pub mod reference;
pub mod search;
