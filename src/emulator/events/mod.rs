//! Events: every change of the world, as notifications and webhook deliveries.

pub mod changes;
pub mod delivery;
pub mod notifications;
pub mod webhooks;
