//! Authentication and authorization: credentials, reach, roles and permissions.

pub mod access;
pub mod credentials;
pub mod endpoint_permissions;
pub mod jwt;
mod members;
pub mod pace;
pub mod permission_names;
pub mod reach;
