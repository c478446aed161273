//! Webhooks of an organization and their deliveries.

pub mod deliveries;
pub mod hook_config;
pub mod hooks;
