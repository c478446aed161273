//! Teams: finds the team in a path and checks visibility and rights. The files beside this one hold
//! the routes.
//!
//! Team routes exist by slug (`/orgs/{org}/teams/{team_slug}/…`), by id
//! (`/organizations/{org_id}/team/{team_id}/…`) and in the deprecated form `/teams/{team_id}/…`.
//! Every function here accepts all of them.

pub mod catalogue;
pub mod description;
pub mod joining;
pub mod memberships;
pub mod repositories;
pub mod roster;

use crate::emulator::accounts::Level;
use crate::emulator::http::ApiError;
use crate::emulator::routing::need::ADMIN_SCOPES;
use crate::emulator::routing::{Call, Need, OrganizationRole, READ_SCOPES, Unscoped};
use crate::emulator::world::{EnterpriseTeam, Organization, Privacy, Team, TeamRole};

/// Open to authenticated members of the organisation.
pub const READ: Need = need(Level::Read, READ_SCOPES);
/// Changes of memberships. `read:org` is the only documented scope, so it suffices.
pub const WRITE: Need = need(Level::Write, READ_SCOPES);
/// Changes of the teams themselves (SPECIFICATION, "Permissions").
pub const MANAGE: Need = need(Level::Write, ADMIN_SCOPES);

const fn need(level: Level, scopes: &'static [&'static str]) -> Need {
    Need::organization("members", level, scopes, OrganizationRole::Member, Unscoped::Forbidden)
}

#[derive(Clone, Copy, Debug)]
pub enum NamedTeam<'a> {
    Own(&'a Team),
    /// An enterprise team that is assigned to the organisation.
    OfEnterprise(&'a EnterpriseTeam),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    Member,
    Maintainer,
    Owner,
}

pub fn team_mut<'a>(call: &'a mut Call<'_>, id: u64) -> Result<&'a mut Team, ApiError> {
    call.organization_mut()?.teams.get_mut(&id).ok_or(ApiError::NotFound)
}

pub fn visible<'a>(call: &'a Call<'_>) -> Result<NamedTeam<'a>, ApiError> {
    let organization = call.organization()?;
    let mut assigned = call.world.enterprise_teams_of(organization.id);
    let (own, of_enterprise) = match call.params.get("team_slug") {
        "" => {
            let id = call.params.id("team_id")?;
            (organization.teams.get(&id), assigned.find(|team| team.id == id))
        }
        slug => (
            organization.team_by_slug(slug),
            assigned.find(|team| team.slug.eq_ignore_ascii_case(slug)),
        ),
    };
    let own = own.filter(|team| sees(call, organization, team)).map(NamedTeam::Own);
    own.or(of_enterprise.map(NamedTeam::OfEnterprise)).ok_or(ApiError::NotFound)
}

/// An enterprise team is a 422: an organisation cannot modify it (SPECIFICATION, "Enterprise
/// teams").
pub fn own<'a>(call: &'a Call<'_>) -> Result<&'a Team, ApiError> {
    match visible(call)? {
        NamedTeam::Own(team) => Ok(team),
        NamedTeam::OfEnterprise(_) => {
            let message = "an enterprise team cannot be modified at the organization level";
            Err(ApiError::invalid("Team", "team_slug", message))
        }
    }
}

/// An installation sees all.
pub fn sees(call: &Call<'_>, organization: &Organization, team: &Team) -> bool {
    let is_concerned =
        |user| organization.owners.contains(&user) || team.people.contains_key(&user);
    team.privacy == Privacy::Closed || call.caller.user().is_none_or(is_concerned)
}

/// An installation counts as an owner where it is installed; its permissions limit it.
fn authority(call: &Call<'_>, team: &Team) -> Result<Authority, ApiError> {
    let organization = call.organization()?;
    Ok(match call.caller.user() {
        None => Authority::Owner,
        Some(user) if organization.owners.contains(&user) => Authority::Owner,
        Some(user) if team.people.get(&user) == Some(&TeamRole::Maintainer) => {
            Authority::Maintainer
        }
        Some(_) => Authority::Member,
    })
}

pub fn must_administer(call: &Call<'_>, team: &Team) -> Result<Authority, ApiError> {
    match authority(call, team)? {
        Authority::Member => {
            Err(ApiError::Forbidden("Must be an organization owner or a maintainer of the team."))
        }
        authority => Ok(authority),
    }
}
