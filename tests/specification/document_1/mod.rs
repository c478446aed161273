//! Tests of the first document, a file for each section.

pub mod authentication;
pub mod conventions;
pub mod credentials;
pub mod errors;
pub mod inventory;
pub mod matrix;
pub mod paths;
pub mod primary_limits;
pub mod rate_headers;
pub mod secondary_limits;
pub mod versions;
