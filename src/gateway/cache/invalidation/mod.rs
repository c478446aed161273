//! What has changed, and the stored answers that it invalidates.

pub mod log;
pub mod pagination;
pub mod purge;
