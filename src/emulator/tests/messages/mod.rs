//! Tests of headers, conditional requests, shared objects, replay and the server.

pub mod conditional;
pub mod objects;
pub mod polling;
pub mod reference;
pub mod replay;
pub mod searches;
pub mod socket;
pub mod unreadable;
