//! Users, gists and migrations.

pub mod directory;
pub mod gists;
pub mod migrations;
pub mod user;
