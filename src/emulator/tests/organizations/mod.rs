//! Tests of organizations, teams and enterprises.

pub mod enterprises;
pub mod invitations;
pub mod people;
pub mod properties;
pub mod property_values;
pub mod team_legacy_members;
pub mod team_membership;
pub mod team_soundness;
pub mod teams;
