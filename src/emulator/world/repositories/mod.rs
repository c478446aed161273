//! Repositories, their issues and releases.

pub mod issue_events;
pub mod issues;
pub mod repository;
