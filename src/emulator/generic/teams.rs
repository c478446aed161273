//! What this module asks of teams and enterprises: the one place that knows how the world keeps
//! them.

use crate::emulator::world::{Organization, TeamRole, World};

/// The slug of the enterprise that the seed's tokens administrate. Provisioning names none at the
/// beginning of its paths; it is about this one.
pub const ENTERPRISE: &str = "initech";

/// The id of the enterprise with this slug.
pub fn enterprise(world: &World, slug: &str) -> Option<u64> {
    world.enterprise_by_slug(slug).map(|enterprise| enterprise.id)
}

/// The id of the organisation's team with this slug.
pub fn team_by_slug(organization: &Organization, slug: &str) -> Option<u64> {
    organization
        .teams
        .values()
        .find(|team| team.slug.eq_ignore_ascii_case(slug))
        .map(|team| team.id)
}

/// The slug of the organisation's team with this id.
pub fn team_slug(organization: &Organization, id: u64) -> Option<&str> {
    organization.teams.get(&id).map(|team| team.slug.as_str())
}

pub fn maintains(organization: &Organization, team: u64, user: u64) -> bool {
    organization
        .teams
        .get(&team)
        .is_some_and(|team| team.people.get(&user) == Some(&TeamRole::Maintainer))
}
