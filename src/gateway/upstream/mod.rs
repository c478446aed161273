//! Connections to the upstream and the exchange on them.

pub mod connect;
pub mod dns;
pub mod fetch;
pub mod http1;
pub mod idle;
pub mod outgoing;
pub mod race;
pub mod resolve;
pub mod trust;
mod tunnel;
