//! Validation of a request, its client, its route.

pub mod body;
pub mod certified;
pub mod clients;
pub mod downstream;
pub mod forwarded;
pub mod misplaced_key;
pub mod oidc;
pub mod passthrough;
pub mod router;
pub mod validate;
pub mod webhooks;
