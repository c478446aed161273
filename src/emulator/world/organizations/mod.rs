//! Users, organizations, teams and enterprises.

pub mod enterprises;
pub mod issue_fields;
pub mod membership;
pub mod people;
pub mod property;
pub mod teams;
