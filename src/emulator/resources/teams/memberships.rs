//! A person's membership of a team: get, set, delete (SPECIFICATION, "Team membership"). The
//! deprecated `/teams/{team_id}/members/{username}` has neither roles nor invitations.

use super::joining;
use super::{NamedTeam, READ, WRITE, must_administer, own, visible};
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::render::team::MembershipState;
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{Team, TeamRole};

/// The deprecated routes of memberships are undocumented; they answer like their replacements.
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
    Route::get("/teams/{team_id}/members/{username}", READ, get_legacy),
    Route::put("/teams/{team_id}/members/{username}", WRITE, put_legacy),
    Route::delete("/teams/{team_id}/members/{username}", WRITE, delete_legacy),
];

/// A membership in a child team does not count, because only the child's routes change it.
fn get(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    shown(call, user)
}

fn shown(call: &Call<'_>, user: u64) -> Outcome {
    let organization = call.organization()?;
    let (team, membership) = match visible(call)? {
        NamedTeam::Own(team) => (team.id, joining::team_membership(organization, team.id, user)),
        NamedTeam::OfEnterprise(team) => {
            let role = organization.shown_role(user, TeamRole::Member);
            (team.id, team.members.contains(&user).then_some((role, MembershipState::Active)))
        }
    };
    let (role, state) = membership.ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(call.renderer().team_membership(organization, team, user, role, state)))
}

/// A synchronised team is a 403.
fn changeable<'a>(call: &'a Call<'_>) -> Result<&'a Team, ApiError> {
    let message = "The membership of this team is synchronized with an identity provider.";
    let team = own(call)?;
    if team.synchronised { Err(ApiError::Forbidden(message)) } else { Ok(team) }
}

fn put(call: &mut Call<'_>) -> Outcome {
    let team = changeable(call)?;
    let (team, authority) = (team.id, must_administer(call, team)?);
    let mut fields = Fields::parse("TeamMember", call.body)?;
    // The upstream documents only these two.
    let role = fields.choice(
        "role",
        |name| name.parse::<TeamRole>().ok(),
        "role must be member or maintainer",
    );
    fields.check()?;
    let user = joining::addable_user(call.world, call.params.get("username"))?;
    joining::put_in_team(call, team, user, role, authority)?;
    shown(call, user)
}

/// Requires a team maintainer or an organisation owner.
fn delete(call: &mut Call<'_>) -> Outcome {
    let team = changeable(call)?;
    must_administer(call, team)?;
    let (team, user) = (team.id, call.user("username")?.id);
    joining::leave_team(call, team, user)
}

fn get_legacy(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    Reply::no_content_if(own(call)?.people.contains_key(&user))
}

/// A synchronised team is a 404, unlike in the newer routes.
fn changeable_legacy<'a>(call: &'a Call<'_>) -> Result<&'a Team, ApiError> {
    own(call).and_then(|team| if team.synchronised { Err(ApiError::NotFound) } else { Ok(team) })
}

fn put_legacy(call: &mut Call<'_>) -> Outcome {
    let team = changeable_legacy(call)?;
    let (team, authority) = (team.id, must_administer(call, team)?);
    // A missing `Content-Length` means no body either (RFC 9110, section 8.6).
    if !call.body.is_empty() {
        let message = "This route takes no body; set Content-Length to zero";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    let user = joining::addable_user(call.world, call.params.get("username"))?;
    let organization = call.organization()?;
    let mut others = organization.teams.values().filter(|other| other.id != team);
    let is_in_another_team = others.any(|other| other.people.contains_key(&user));
    if !organization.members.contains(&user) || !is_in_another_team {
        let message =
            "the user must belong to the organization and to at least one other team of it";
        return Err(ApiError::invalid("TeamMember", "username", message));
    }
    joining::put_in_team(call, team, user, None, authority)?;
    Ok(Reply::no_content())
}

fn delete_legacy(call: &mut Call<'_>) -> Outcome {
    let team = changeable_legacy(call)?;
    must_administer(call, team)?;
    let (team, user) = (team.id, call.user("username")?.id);
    // These routes ignore invitations.
    ApiError::not_found_unless(own(call)?.people.contains_key(&user))?;
    joining::leave_team(call, team, user)
}
