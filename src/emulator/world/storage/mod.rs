//! Storage of data that has no model of its own, migrations included.

pub mod clone_secrets;
pub mod collections;
pub mod lfs;
pub mod migrations;
pub mod run_steps;
