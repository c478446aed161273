//! Events: every change of the world, as notifications and webhook deliveries.

pub mod changes;
pub mod delivery;
mod history;
pub mod issues;
pub mod notifications;
pub mod pushes;
mod record;
pub mod webhooks;
