//! What this module asks of teams and enterprises: the one place that knows how the world keeps them.

use crate::emulator::world::{Organization, World};

/// The slug of the enterprise that the seed's tokens administrate. Provisioning names none at the beginning of its paths; it is about this one.
pub const ENTERPRISE: &str = "initech";
/// Its id.
const ENTERPRISE_ID: u64 = 501;

/// The id of the enterprise with this slug.
pub fn enterprise(_: &World, slug: &str) -> Option<u64> {
    slug.eq_ignore_ascii_case(ENTERPRISE).then_some(ENTERPRISE_ID)
}

/// The id of the organisation's team with this slug.
pub fn team_by_slug(organization: &Organization, slug: &str) -> Option<u64> {
    organization.teams.iter().find(|team| team.slug.eq_ignore_ascii_case(slug)).map(|team| team.id)
}

/// The slug of the organisation's team with this id.
pub fn team_slug(organization: &Organization, id: u64) -> Option<&str> {
    organization.teams.iter().find(|team| team.id == id).map(|team| team.slug.as_str())
}

pub fn maintains(organization: &Organization, team: u64, user: u64) -> bool {
    organization.teams.iter().any(|known| known.id == team && known.maintainers.contains(&user))
}
