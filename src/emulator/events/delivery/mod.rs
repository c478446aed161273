//! Webhook deliveries: the delivery queue, the wire format and the sender.

pub mod envelope;
pub mod queue;
pub mod sender;
