//! Repositories, their issues and releases.

pub mod issues;
pub mod repository;
