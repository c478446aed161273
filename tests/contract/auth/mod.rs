//! Keys, permissions, apps and client credentials.

pub(crate) mod apps;
mod client_certificates;
mod denials;
mod expiring_keys;
mod keys;
mod minting;
mod misplaced_keys;
mod oidc;
mod own_apps;
mod owners;
mod passthrough;
mod permissions;
mod suspected_tokens;
mod visibility;
