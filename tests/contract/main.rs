//! The outside of the gateway, sentence by sentence: a real listener, a real upstream connection,
//! the emulator behind it.

mod admin;
mod auth;
mod cache;
mod limits;
#[path = "../support/mod.rs"]
mod support;
mod transport;
mod webhooks;
mod writes;
