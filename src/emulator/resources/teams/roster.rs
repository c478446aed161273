//! Members of a team and its invitations (SPECIFICATION, "Team membership").

use std::collections::BTreeMap;

use super::{NamedTeam, READ, organization, own, visible};
use crate::emulator::http::ApiError;
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Outcome, Route, USUAL, pagination};
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
    let organization = organization(call)?;
    let everyone: BTreeMap<u64, TeamRole> = match visible(call)? {
        NamedTeam::Own(team) => organization.everyone_in_team(team),
        NamedTeam::OfEnterprise(team) => team
            .members
            .iter()
            .map(|user| (*user, organization.shown_role(*user, TeamRole::Member)))
            .collect(),
    };
    let shown = everyone
        .into_iter()
        .filter(|(_, role)| wanted.is_none_or(|wanted| wanted == *role))
        .map(|(user, _)| user)
        .collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, shown, |user| renderer.user_summary(user)))
}

/// Parses the role filter. Its values are undocumented; here the two roles and `all`.
fn role_filter(call: &Call<'_>) -> Result<Option<TeamRole>, ApiError> {
    match call.query.get("role") {
        None | Some("" | "all") => Ok(None),
        Some(name) => name.parse().map(Some).map_err(|_| {
            ApiError::invalid("TeamMember", "role", "role must be member, maintainer or all")
        }),
    }
}

/// Lists pending invitations; the organisation's list has the failed ones.
fn invitations(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?.id;
    let organization = organization(call)?;
    let all = organization.people.invitations.values();
    let pending = all
        .filter(|invitation| invitation.failure.is_none() && invitation.teams.contains_key(&team))
        .collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, pending, |invitation| {
        renderer.invitation(organization, invitation)
    }))
}
