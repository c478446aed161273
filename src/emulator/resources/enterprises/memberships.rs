//! Members of an enterprise team. The upstream documents the routes without their shapes
//! (SPECIFICATION, "Enterprise teams").

use http::StatusCode;
use serde_json::Value;

use super::{READ, WRITE, enterprise, ids_of_names, team, team_mut};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Outcome, Route, USUAL, pagination};

pub const ROUTES: &[Route] = &[
    Route::get("/enterprises/{enterprise}/teams/{enterprise-team}/memberships", READ, list),
    Route::post("/enterprises/{enterprise}/teams/{enterprise-team}/memberships/add", WRITE, add),
    Route::post(
        "/enterprises/{enterprise}/teams/{enterprise-team}/memberships/remove",
        WRITE,
        remove,
    ),
    Route::get(
        "/enterprises/{enterprise}/teams/{enterprise-team}/memberships/{username}",
        READ,
        get,
    ),
    Route::put(
        "/enterprises/{enterprise}/teams/{enterprise-team}/memberships/{username}",
        WRITE,
        put,
    ),
    Route::delete(
        "/enterprises/{enterprise}/teams/{enterprise-team}/memberships/{username}",
        WRITE,
        delete,
    ),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let members = team(call)?.members.iter().copied().collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, members, |user| renderer.user_summary(user)))
}

/// Finds a user of the enterprise by login; other users cannot join its teams.
fn named_person(call: &Call<'_>, login: &str) -> Option<u64> {
    let user = call.world.user_by_login(login)?.id;
    call.world.belongs_to_enterprise(user, enterprise(call).ok()?).then_some(user)
}

fn summaries(call: &Call<'_>, users: &[u64]) -> Reply {
    let renderer = Renderer::of(call);
    Reply::ok(users.iter().map(|user| renderer.user_summary(*user)).collect::<Value>())
}

fn add(call: &mut Call<'_>) -> Outcome {
    team(call)?;
    let users = ids_of_names(call, "usernames", |login| named_person(call, login))?;
    team_mut(call)?.members.extend(&users);
    Ok(summaries(call, &users))
}

/// Answers with all named users, former members or not.
fn remove(call: &mut Call<'_>) -> Outcome {
    team(call)?;
    let users = ids_of_names(call, "usernames", |login| {
        call.world.user_by_login(login).map(|user| user.id)
    })?;
    team_mut(call)?.members.retain(|user| !users.contains(user));
    Ok(summaries(call, &users))
}

fn of_path(call: &Call<'_>) -> Result<u64, ApiError> {
    team(call)?;
    call.world
        .user_by_login(call.params.get("username"))
        .map(|user| user.id)
        .ok_or(ApiError::NotFound)
}

fn get(call: &mut Call<'_>) -> Outcome {
    let user = of_path(call)?;
    let is_member = team(call)?.members.contains(&user);
    if is_member {
        Ok(Reply::ok(Renderer::of(call).user_summary(user)))
    } else {
        Err(ApiError::NotFound)
    }
}

fn put(call: &mut Call<'_>) -> Outcome {
    let user = of_path(call)?;
    if named_person(call, call.params.get("username")).is_none() {
        return Err(ApiError::invalid(
            "EnterpriseTeam",
            "username",
            "the user does not belong to the enterprise",
        ));
    }
    team_mut(call)?.members.insert(user);
    Ok(Reply::json(StatusCode::CREATED, Renderer::of(call).user_summary(user)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let user = of_path(call)?;
    if !team(call)?.members.contains(&user) {
        return Err(ApiError::NotFound);
    }
    team_mut(call)?.members.remove(&user);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
