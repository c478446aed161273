//! Work beside the requests: audit, webhook monitor, token minting, questions of accounts' states.

pub mod audit;
pub mod mint;
pub mod questions;
pub mod snapshots;
pub mod token_check;
pub mod upstream_probe;
pub mod webhook_monitor;
