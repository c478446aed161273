//! Notifications.

pub mod reasons;
pub mod subscriptions;
pub mod threads;
