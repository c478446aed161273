//! Work beside the requests: audit, ends of keys, keys of issuers, files of secrets, webhook
//! monitor, token minting, questions of accounts' states, reports to other replicas, and what
//! they say.

pub mod audit;
pub mod findings;
pub mod issuer_keys;
pub mod key_expiry;
pub mod mint;
pub mod news;
pub mod questions;
pub mod replicas;
pub mod secret_files;
pub mod snapshots;
pub mod token_check;
pub mod upstream_probe;
pub mod webhook_monitor;
