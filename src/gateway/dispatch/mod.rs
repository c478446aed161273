//! One request to one account: choose, admit, send, settle, retry.

pub mod admission;
pub mod answer;
pub mod attempt;
pub mod attempt_ends;
pub mod breaker;
pub mod candidates;
pub mod dispatcher;
pub mod job;
pub mod perform;
pub mod permission_retry;
pub mod permissions;
pub mod progress;
pub mod route;
pub mod token_wait;
