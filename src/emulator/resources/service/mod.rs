//! The service itself: limits, reference data and searches.

mod code_search;
mod commit_search;
mod issue_facts;
pub mod issue_search;
pub mod meta;
pub mod reference;
pub mod repository_search;
pub mod search;
mod search_terms;
