//! Webhooks, their deliveries and the delivery queue.

pub mod deliveries;
pub mod hooks;
pub mod queue;
