//! Listeners, sessions, and the stages of a request in their order.

pub mod asynchronous;
pub mod connection;
pub mod credentials;
pub mod deliveries;
pub mod fast_path;
pub mod header_memo;
pub mod interims;
pub mod listen;
pub mod miss;
pub mod request;
pub mod session;
pub mod stages;
