//! Keys, permissions, apps and client credentials.

pub(crate) mod apps;
mod denials;
mod keys;
mod minting;
mod misplaced_keys;
mod own_apps;
mod passthrough;
mod permissions;
mod visibility;
