//! Messages and sockets.

pub mod conditional;
pub mod objects;
pub mod polling;
pub mod reference;
pub mod replay;
pub mod socket;
