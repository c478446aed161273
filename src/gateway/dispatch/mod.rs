//! One request to one account: choose, admit, send, settle, retry.

pub mod admission;
pub mod answer;
pub mod ask;
pub mod attempt;
pub mod attempt_ends;
pub mod breaker;
pub mod candidates;
pub mod dispatcher;
pub mod findings;
pub mod graphql_prices;
pub mod job;
pub mod perform;
pub mod permission_retry;
pub mod permissions;
pub mod progress;
pub mod questions;
pub mod route;
pub mod suspected_tokens;
pub mod token_wait;
