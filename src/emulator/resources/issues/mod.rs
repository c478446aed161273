//! Issues and pull requests, their labels, comments and search.

pub mod comments;
pub mod issue;
pub mod issue_fields;
pub mod labels;
pub mod pull_requests;
pub mod pulls;
pub mod search;
pub mod upkeep;
