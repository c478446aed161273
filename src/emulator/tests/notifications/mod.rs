//! Tests of notification threads, reasons and subscriptions.

pub mod reasons;
pub mod subscriptions;
pub mod threads;
