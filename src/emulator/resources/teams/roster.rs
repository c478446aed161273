//! Members of a team and its invitations (SPECIFICATION, "Team membership").

use std::collections::BTreeMap;

use super::{NamedTeam, READ, own, visible};
use crate::emulator::http::ApiError;
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::TeamRole;

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/teams/{team_slug}/members", READ, members),
    Route::get("/organizations/{org_id}/team/{team_id}/members", READ, members),
    Route::get("/teams/{team_id}/members", READ, members),
    Route::get("/orgs/{org}/teams/{team_slug}/invitations", READ, invitations),
    Route::get("/organizations/{org_id}/team/{team_id}/invitations", READ, invitations),
    Route::get("/teams/{team_id}/invitations", READ, invitations),
];

/// Lists members, those of child teams included.
fn members(call: &mut Call<'_>) -> Outcome {
    let wanted = role_filter(call)?;
    let organization = call.organization()?;
    let everyone: BTreeMap<u64, TeamRole> = match visible(call)? {
        NamedTeam::Own(team) => organization.everyone_in_team(team),
        NamedTeam::OfEnterprise(team) => {
            let role = |user| organization.shown_role(user, TeamRole::Member);
            team.members.iter().map(|user| (*user, role(*user))).collect()
        }
    };
    let shown =
        everyone.into_iter().filter(|(_, role)| wanted.is_none_or(|wanted| wanted == *role));
    let shown = shown.map(|(user, _)| user);
    call.page_of_users(shown)
}

/// Parses the role filter. Its values are undocumented; here the two roles and `all`.
fn role_filter(call: &Call<'_>) -> Result<Option<TeamRole>, ApiError> {
    let named = |name: &str| match name {
        "all" => Some(None),
        name => name.parse::<TeamRole>().ok().map(Some),
    };
    let message = "role must be member, maintainer or all";
    Ok(call.choice("TeamMember", "role", named, message)?.flatten())
}

/// Lists pending invitations; the organisation's list has the failed ones.
fn invitations(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?.id;
    let organization = call.organization()?;
    let all = organization.people.invitations.values();
    let pending = all
        .filter(|invitation| invitation.failure.is_none() && invitation.teams.contains_key(&team));
    call.page(pending, |renderer, invitation| renderer.invitation(organization, invitation))
}
