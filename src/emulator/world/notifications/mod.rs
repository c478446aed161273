//! Notification threads, event feeds and polls.

pub mod feed;
pub mod polls;
pub mod thread;
