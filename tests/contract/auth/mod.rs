//! Keys, permissions, apps and client credentials.

pub(crate) mod apps;
mod denials;
mod keys;
mod minting;
mod misplaced_keys;
mod passthrough;
mod permissions;
mod visibility;
