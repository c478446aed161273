//! Access to teams and enterprises: isolates this module from the world's representation of them.

use crate::emulator::world::{Organization, TeamRole, World};

/// The seed's tokens administer it. Provisioning paths name no enterprise and mean this one.
pub const ENTERPRISE: &str = "initech";

pub fn enterprise(world: &World, slug: &str) -> Option<u64> {
    world.enterprise_by_slug(slug).map(|enterprise| enterprise.id)
}

pub fn team_by_slug(organization: &Organization, slug: &str) -> Option<u64> {
    organization
        .teams
        .values()
        .find(|team| team.slug.eq_ignore_ascii_case(slug))
        .map(|team| team.id)
}

pub fn team_slug(organization: &Organization, id: u64) -> Option<&str> {
    organization.teams.get(&id).map(|team| team.slug.as_str())
}

pub fn maintains(organization: &Organization, team: u64, user: u64) -> bool {
    organization
        .teams
        .get(&team)
        .is_some_and(|team| team.people.get(&user) == Some(&TeamRole::Maintainer))
}
