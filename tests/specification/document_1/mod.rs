//! The tests of Document 1, a file per section.

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
