//! Keys, permissions, apps and client credentials.

pub(crate) mod apps;
mod denials;
mod keys;
mod minting;
mod passthrough;
mod permissions;
mod visibility;
