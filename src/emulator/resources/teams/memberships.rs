//! A person's membership of a team: get, set, delete (SPECIFICATION, "Team membership").

use http::StatusCode;

use super::joining::{self, Left, Placement};
use super::{
    NamedTeam, READ, WRITE, must_administer, organization, organization_mut, own, visible,
};
use crate::emulator::events::webhooks::organizations::{Memberships, publish_membership_changes};
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::render::team::MembershipState;
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{Team, TeamRole};

/// The deprecated routes are undocumented; they answer like their replacements.
pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/teams/{team_slug}/memberships/{username}", READ, get),
    Route::put("/orgs/{org}/teams/{team_slug}/memberships/{username}", WRITE, put),
    Route::delete("/orgs/{org}/teams/{team_slug}/memberships/{username}", WRITE, delete),
    Route::get("/organizations/{org_id}/team/{team_id}/memberships/{username}", READ, get),
    Route::put("/organizations/{org_id}/team/{team_id}/memberships/{username}", WRITE, put),
    Route::delete("/organizations/{org_id}/team/{team_id}/memberships/{username}", WRITE, delete),
    Route::get("/teams/{team_id}/memberships/{username}", READ, get),
    Route::put("/teams/{team_id}/memberships/{username}", WRITE, put),
    Route::delete("/teams/{team_id}/memberships/{username}", WRITE, delete),
];

/// A membership in a child team does not count, because only the child's routes change it.
fn get(call: &mut Call<'_>) -> Outcome {
    let user = call.world.user_by_login(call.params.get("username")).ok_or(ApiError::NotFound)?.id;
    shown(call, user)
}

fn shown(call: &Call<'_>, user: u64) -> Outcome {
    let organization = organization(call)?;
    let (team, membership) = match visible(call)? {
        NamedTeam::Own(team) => (team.id, joining::team_membership(organization, team.id, user)),
        NamedTeam::OfEnterprise(team) => {
            let role = organization.shown_role(user, TeamRole::Member);
            (team.id, team.members.contains(&user).then_some((role, MembershipState::Active)))
        }
    };
    let (role, state) = membership.ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).team_membership(organization, team, user, role, state)))
}

/// A synchronised team is a 403.
fn must_not_be_synchronised(team: &Team) -> Result<(), ApiError> {
    if team.synchronised {
        return Err(ApiError::Forbidden(
            "The membership of this team is synchronized with an identity provider.",
        ));
    }
    Ok(())
}

fn put(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?;
    must_not_be_synchronised(team)?;
    let (team, authority) = (team.id, must_administer(call, team)?);
    let role = role(&mut Fields::parse("TeamMember", call.body)?)?;
    let user = joining::addable_user(call.world, call.params.get("username"))?;
    let placement = Placement {
        organization: call.organization,
        team,
        user,
        role,
        actor: call.actor(),
        authority,
    };
    let before = Memberships::of(call.world, call.organization, user);
    joining::put_in_team(call.world, call.now, &placement)?;
    publish_membership_changes(call, call.organization, user, &before);
    shown(call, user)
}

/// Reads `role`; the upstream documents only member and maintainer.
fn role(fields: &mut Fields) -> Result<Option<TeamRole>, ApiError> {
    let given = fields.string("role");
    let role = given.as_deref().and_then(|name| name.parse().ok());
    if given.is_some() && role.is_none() {
        fields.invalid("role", "role must be member or maintainer");
    }
    fields.check()?;
    Ok(role)
}

/// Requires a team maintainer or an organisation owner.
fn delete(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?;
    must_not_be_synchronised(team)?;
    must_administer(call, team)?;
    let team = team.id;
    let user = call.world.user_by_login(call.params.get("username")).ok_or(ApiError::NotFound)?.id;
    let now = call.now;
    let before = Memberships::of(call.world, call.organization, user);
    match joining::leave_team(organization_mut(call)?, now, team, user) {
        Left::Yes => {
            publish_membership_changes(call, call.organization, user, &before);
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        // A missing membership is a 404.
        Left::No => Err(ApiError::NotFound),
    }
}
