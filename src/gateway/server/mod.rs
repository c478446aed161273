//! Listeners, sessions, and the stages of a request in their order.

mod asynchronous;
mod body;
mod classify;
pub mod connection;
mod credentials;
mod deliveries;
mod fast_path;
mod finish;
mod handler;
pub mod head;
mod header_memo;
mod http2;
mod interims;
pub mod listen;
mod reads;
mod request;
mod session;
pub mod sockets;
mod stages;
pub mod tls;
mod writes;
