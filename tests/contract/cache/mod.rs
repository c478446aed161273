//! Stored responses: freshness, revalidation, invalidation, variants and shared fetches.

mod age;
mod followers;
pub(crate) mod freshness;
mod invalidation;
mod pagination;
mod predicted_etags;
mod request_directives;
mod request_headers;
mod rfc9111;
mod shared_bodies;
mod stale_if_error;
mod stored_answers;
mod validators;
mod variants;
