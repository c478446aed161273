//! Stored responses: freshness, revalidation, invalidation, variants and shared fetches.

mod age;
mod bodies_on_disk;
mod confirmations;
mod followers;
pub(crate) mod freshness;
mod invalidation;
mod large_bodies;
mod pagination;
mod predicted_etags;
mod queries;
mod request_directives;
mod request_headers;
mod rfc9111;
mod shared_bodies;
mod shared_caches;
mod snapshots;
mod stale_if_error;
mod stored_answers;
mod stored_queries;
mod validators;
mod variants;
