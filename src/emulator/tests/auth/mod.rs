//! Tests of credentials and apps.

pub mod apps;
pub mod credential_rows;
pub mod credentials;
pub mod oauth_apps;
