//! Organisation roles of users and teams. The upstream documents the routes without their shapes.
//! An assigned role counts for every rule that names it.

use std::collections::BTreeMap;

use serde_json::json;

use super::{READ_AS_OWNER, WRITE_AS_OWNER};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::extend;
use crate::emulator::resources::teams::own;
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{ORGANIZATION_ROLES, Organization, Team};

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/organization-roles/{role_id}/teams", READ_AS_OWNER, list_teams),
    Route::get("/orgs/{org}/organization-roles/{role_id}/users", READ_AS_OWNER, list_users),
    Route::put(
        "/orgs/{org}/organization-roles/teams/{team_slug}/{role_id}",
        WRITE_AS_OWNER,
        give_team,
    ),
    Route::delete(
        "/orgs/{org}/organization-roles/teams/{team_slug}/{role_id}",
        WRITE_AS_OWNER,
        take_from_team,
    ),
    Route::delete(
        "/orgs/{org}/organization-roles/teams/{team_slug}",
        WRITE_AS_OWNER,
        take_all_from_team,
    ),
    Route::put(
        "/orgs/{org}/organization-roles/users/{username}/{role_id}",
        WRITE_AS_OWNER,
        give_user,
    ),
    Route::delete(
        "/orgs/{org}/organization-roles/users/{username}/{role_id}",
        WRITE_AS_OWNER,
        take_from_user,
    ),
    Route::delete(
        "/orgs/{org}/organization-roles/users/{username}",
        WRITE_AS_OWNER,
        take_all_from_user,
    ),
];

fn role(call: &Call<'_>) -> Result<&'static str, ApiError> {
    let id = call.params.id("role_id")?;
    let role = ORGANIZATION_ROLES.iter().find(|(known, _)| *known == id);
    role.map(|(_, name)| *name).ok_or(ApiError::NotFound)
}

fn list_teams(call: &mut Call<'_>) -> Outcome {
    let role = role(call)?;
    let organization = call.organization()?;
    call.page(teams_with(organization, role), |renderer, team| renderer.team(organization, team))
}

fn teams_with<'o>(organization: &'o Organization, role: &str) -> impl Iterator<Item = &'o Team> {
    let ids = organization.people.team_roles.get(role).into_iter().flatten();
    ids.filter_map(|id| organization.teams.get(id))
}

/// Lists direct holders and members of teams with the role, each with its assignment.
fn list_users(call: &mut Call<'_>) -> Outcome {
    let role = role(call)?;
    let organization = call.organization()?;
    let members = teams_with(organization, role)
        .flat_map(|team| organization.everyone_in_team(team).into_keys());
    let mut users: BTreeMap<u64, &str> = members.map(|user| (user, "indirect")).collect();
    for user in organization.roles.get(role).into_iter().flatten() {
        users.entry(*user).and_modify(|how| *how = "mixed").or_insert("direct");
    }
    call.page(users, |renderer, (user, how)| {
        let mut value = renderer.user_summary(user);
        extend(&mut value, json!({ "assignment": how }));
        value
    })
}

fn give_team(call: &mut Call<'_>) -> Outcome {
    let (role, team) = (role(call)?, own(call)?.id);
    call.organization_mut()?.people.team_roles.entry(role).or_default().insert(team);
    Ok(Reply::no_content())
}

/// Succeeds without the role too: no error is documented, and the result is the same.
fn take_from_team(call: &mut Call<'_>) -> Outcome {
    let (role, team) = (role(call)?, own(call)?.id);
    call.organization_mut()?.people.team_roles.entry(role).or_default().remove(&team);
    Ok(Reply::no_content())
}

fn take_all_from_team(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?.id;
    call.organization_mut()?.people.team_roles.values_mut().for_each(|teams| {
        teams.remove(&team);
    });
    Ok(Reply::no_content())
}

fn give_user(call: &mut Call<'_>) -> Outcome {
    let (role, user) = (role(call)?, call.user("username")?.id);
    let organization = call.organization_mut()?;
    if !organization.members.contains(&user) {
        let message = "the user is not a member of the organization";
        return Err(ApiError::invalid("OrganizationRole", "username", message));
    }
    organization.roles.entry(role).or_default().insert(user);
    Ok(Reply::no_content())
}

fn take_from_user(call: &mut Call<'_>) -> Outcome {
    let (role, user) = (role(call)?, call.user("username")?.id);
    call.organization_mut()?.roles.entry(role).or_default().remove(&user);
    Ok(Reply::no_content())
}

fn take_all_from_user(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    call.organization_mut()?.roles.values_mut().for_each(|users| {
        users.remove(&user);
    });
    Ok(Reply::no_content())
}
