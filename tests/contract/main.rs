//! The behaviour that clients and operators rely on (SPECIFICATION.md): a real listener and real
//! upstream connections, with the emulator as upstream.

mod admin;
mod auth;
mod cache;
mod commands;
mod limits;
mod replicas;
#[path = "../support/mod.rs"]
mod support;
mod transport;
mod webhooks;
mod writes;
