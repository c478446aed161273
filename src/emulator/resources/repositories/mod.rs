//! Repositories and the people around them.

pub mod creation;
pub mod feeds;
pub mod invitations;
pub mod listing;
pub mod metadata;
pub mod people;
pub mod releases;
pub mod repository;
pub mod stars_and_watches;
