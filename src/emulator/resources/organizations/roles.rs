//! Organisation roles of users and teams. The upstream documents the routes without their shapes.
//! An assigned role counts for every rule that names it.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Value, json};

use super::{READ_AS_OWNER, WRITE_AS_OWNER, named_user};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::{Renderer, extend};
use crate::emulator::resources::teams::{organization, organization_mut, own};
use crate::emulator::routing::{Call, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{ORGANIZATION_ROLES, Team};

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
    ORGANIZATION_ROLES
        .iter()
        .find(|(known, _)| *known == id)
        .map(|(_, name)| *name)
        .ok_or(ApiError::NotFound)
}

fn list_teams(call: &mut Call<'_>) -> Outcome {
    let role = role(call)?;
    let organization = organization(call)?;
    let ids = organization.people.team_roles.get(role).into_iter().flatten();
    let teams: Vec<&Team> = ids.filter_map(|id| organization.teams.get(id)).collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, teams, |team| renderer.team(organization, team)))
}

/// Lists direct holders and members of teams with the role, each with its assignment.
fn list_users(call: &mut Call<'_>) -> Outcome {
    let role = role(call)?;
    let organization = organization(call)?;
    let teams = organization
        .people
        .team_roles
        .get(role)
        .into_iter()
        .flatten()
        .filter_map(|id| organization.teams.get(id));
    let mut users: BTreeMap<u64, &str> = teams
        .flat_map(|team| organization.everyone_in_team(team).into_keys())
        .map(|user| (user, "indirect"))
        .collect();
    for user in organization.roles.get(role).into_iter().flatten() {
        users.entry(*user).and_modify(|how| *how = "mixed").or_insert("direct");
    }
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, users.into_iter().collect(), |(user, how)| {
        let mut value: Value = renderer.user_summary(user);
        extend(&mut value, json!({ "assignment": how }));
        value
    }))
}

fn give_team(call: &mut Call<'_>) -> Outcome {
    let (role, team) = (role(call)?, own(call)?.id);
    organization_mut(call)?.people.team_roles.entry(role).or_default().insert(team);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Succeeds without the role too: no error is documented, and the result is the same.
fn take_from_team(call: &mut Call<'_>) -> Outcome {
    let (role, team) = (role(call)?, own(call)?.id);
    organization_mut(call)?.people.team_roles.entry(role).or_default().remove(&team);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn take_all_from_team(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?.id;
    organization_mut(call)?.people.team_roles.values_mut().for_each(|teams| {
        teams.remove(&team);
    });
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn give_user(call: &mut Call<'_>) -> Outcome {
    let (role, user) = (role(call)?, named_user(call)?);
    let organization = organization_mut(call)?;
    if !organization.members.contains(&user) {
        return Err(ApiError::invalid(
            "OrganizationRole",
            "username",
            "the user is not a member of the organization",
        ));
    }
    organization.roles.entry(role).or_default().insert(user);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn take_from_user(call: &mut Call<'_>) -> Outcome {
    let (role, user) = (role(call)?, named_user(call)?);
    organization_mut(call)?.roles.entry(role).or_default().remove(&user);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn take_all_from_user(call: &mut Call<'_>) -> Outcome {
    let user = named_user(call)?;
    organization_mut(call)?.roles.values_mut().for_each(|users| {
        users.remove(&user);
    });
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
