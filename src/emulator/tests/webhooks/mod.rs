//! Tests of webhooks and their deliveries.

pub mod app_hook;
pub mod deliveries;
pub mod delivery_queue;
pub mod events;
pub mod hooks;
pub mod organization_events;
pub mod receiver;
pub mod sender;
