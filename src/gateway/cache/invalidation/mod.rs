//! Recorded changes, and the stored answers that they invalidate.

mod generations;
pub mod log;
pub mod pagination;
pub mod purge;
pub mod snapshot_mark;
