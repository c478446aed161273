//! Work beside the requests: audit, webhook monitor, token minting.

pub mod audit;
pub mod mint;
pub mod upstream_probe;
pub mod webhook_monitor;
