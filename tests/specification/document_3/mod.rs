//! Tests of the third document, a file for each section.

pub mod app_webhook;
pub mod deliveries;
pub mod migration_rules;
pub mod migrations;
pub mod received;
pub mod webhook_rules;
pub mod webhooks;
