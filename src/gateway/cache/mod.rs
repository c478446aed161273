//! Stored answers: lookup, single flight, revalidation, invalidation.

mod advised_reads;
pub mod after_write;
pub mod body_registry;
pub mod bounded;
pub mod conditions;
pub mod fetch;
pub mod invalidation;
pub mod lookup;
pub mod named;
pub mod owner;
pub mod pages;
pub mod predicted_etags;
pub mod queries;
pub mod read;
pub mod read_cache;
pub mod shared_body;
pub mod single_flight;
pub mod snapshot;
pub mod store;
pub mod stored_head;
pub mod streaming;
pub mod validation;
pub mod webhook_coverage;
