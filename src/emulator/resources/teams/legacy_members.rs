//! `/teams/{team_id}/members/{username}`, deprecated: membership without roles or invitations
//! (SPECIFICATION, "Team membership").

use http::StatusCode;

use super::joining::{self, Left, Placement};
use super::{READ, WRITE, must_administer, organization, organization_mut, own};
use crate::emulator::events::webhooks::organizations::{Memberships, publish_membership_changes};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{Organization, Team};

pub const ROUTES: &[Route] = &[
    Route::get("/teams/{team_id}/members/{username}", READ, get),
    Route::put("/teams/{team_id}/members/{username}", WRITE, put),
    Route::delete("/teams/{team_id}/members/{username}", WRITE, delete),
];

fn get(call: &mut Call<'_>) -> Outcome {
    let user = call.world.user_by_login(call.params.get("username")).ok_or(ApiError::NotFound)?.id;
    let is_member = own(call)?.people.contains_key(&user);
    if is_member { Ok(Reply::empty(StatusCode::NO_CONTENT)) } else { Err(ApiError::NotFound) }
}

/// A synchronised team is a 404, unlike in the newer routes.
fn changeable<'a>(call: &'a Call<'_>) -> Result<&'a Team, ApiError> {
    own(call).and_then(|team| if team.synchronised { Err(ApiError::NotFound) } else { Ok(team) })
}

fn put(call: &mut Call<'_>) -> Outcome {
    let team = changeable(call)?;
    let (team, authority) = (team.id, must_administer(call, team)?);
    // A missing `Content-Length` means no body either (RFC 9110, section 8.6).
    if !call.body.is_empty() {
        return Err(ApiError::BadRequest(
            "This route takes no body; set Content-Length to zero".to_owned(),
        ));
    }
    let user = joining::addable_user(call.world, call.params.get("username"))?;
    if !is_in_another_team(organization(call)?, team, user) {
        let message =
            "the user must belong to the organization and to at least one other team of it";
        return Err(ApiError::invalid("TeamMember", "username", message));
    }
    let placement = Placement {
        organization: call.organization,
        team,
        user,
        role: None,
        actor: call.actor(),
        authority,
    };
    let before = Memberships::of(call.world, call.organization, user);
    joining::put_in_team(call.world, call.now, &placement)?;
    publish_membership_changes(call, call.organization, user, &before);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Otherwise the answer is 422.
fn is_in_another_team(organization: &Organization, team: u64, user: u64) -> bool {
    let mut others = organization.teams.values().filter(|other| other.id != team);
    organization.members.contains(&user) && others.any(|other| other.people.contains_key(&user))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let team = changeable(call)?;
    must_administer(call, team)?;
    let team = team.id;
    let user = call.world.user_by_login(call.params.get("username")).ok_or(ApiError::NotFound)?.id;
    // These routes ignore invitations.
    if !own(call)?.people.contains_key(&user) {
        return Err(ApiError::NotFound);
    }
    let now = call.now;
    let before = Memberships::of(call.world, call.organization, user);
    match joining::leave_team(organization_mut(call)?, now, team, user) {
        Left::Yes => {
            publish_membership_changes(call, call.organization, user, &before);
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        Left::No => Err(ApiError::NotFound),
    }
}
