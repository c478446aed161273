//! The service itself: limits, reference data and searches.

pub mod issue_search;
pub mod meta;
pub mod reference;
pub mod search;
mod search_terms;
