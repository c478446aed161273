//! Issues and pull requests, their labels, milestones and comments.

pub mod auto_merge;
pub mod comments;
pub mod history;
pub mod issue;
pub mod issue_fields;
pub mod labels;
pub mod listing;
pub mod milestones;
pub mod pull_requests;
pub mod review_state;
pub mod reviewers;
