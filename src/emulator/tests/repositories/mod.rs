//! Tests of repositories and their content.

pub mod basics;
pub mod branches;
pub mod contents;
pub mod feeds;
pub mod filters;
pub mod git_ids;
pub mod issue_fields;
pub mod issue_history;
pub mod lfs;
pub mod people;
pub mod pull_requests;
pub mod pushes;
pub mod removal;

pub use pull_requests::propose;
