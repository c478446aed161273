//! Stored answers: lookup, single flight, revalidation, invalidation.

pub mod after_write;
pub mod conditions;
pub mod invalidation;
pub mod pagination;
pub mod predicted_etags;
pub mod read;
pub mod registry;
pub mod resume;
pub mod shared_body;
pub mod single_flight;
pub mod store;
pub mod stored_head;
pub mod validation;
