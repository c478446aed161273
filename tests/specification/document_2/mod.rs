//! Tests of the second document, a file for each section.

pub mod enterprise_teams;
pub mod events;
pub mod inbox;
pub mod inbox_rules;
pub mod issue_field_rules;
pub mod issue_fields;
pub mod legacy_teams;
pub mod membership_rules;
pub mod membership_states;
pub mod memberships;
pub mod not_modified;
pub mod paths;
pub mod property_definitions;
pub mod property_rules;
pub mod property_values;
pub mod reasons;
pub mod team_invitations;
pub mod thread_subscriptions;
pub mod threads;
