//! Apps, their tokens and their webhook.

pub mod app;
pub mod app_hook;
pub mod installation_tokens;
pub mod oauth_tokens;
