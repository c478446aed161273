//! The rules of the cache: the key of an answer, its freshness, its validators, and when a stale
//! one may be served.
//!
//! The bodies and headers of stored answers belong to the store, in `gateway/`.

pub mod arrived;
pub mod cache_control;
pub mod conditional;
mod directives;
pub mod freshness;
pub mod key;
pub mod merge;
mod packed_validators;
pub mod pagination;
pub mod part;
pub mod predicted;
pub mod request_directives;
pub mod saved;
pub mod selecting;
pub mod settling;
pub mod stale_reason;
mod targeted;
pub mod time;
pub mod validated;
