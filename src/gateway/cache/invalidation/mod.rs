//! Recorded changes, and the stored answers that they invalidate.

pub mod log;
pub mod pagination;
pub mod purge;
