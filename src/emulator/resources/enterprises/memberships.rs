//! Members of an enterprise team. The upstream documents the routes without their shapes
//! (SPECIFICATION, "Enterprise teams").

use http::StatusCode;
use serde_json::Value;

use super::{READ, WRITE, enterprise, ids_of_names, team, team_mut};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::routing::{Call, Outcome, Route};

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
    call.page_of_users(team(call)?.members.iter().copied())
}

/// Finds a user of the enterprise by login; other users cannot join its teams.
fn named_person(call: &Call<'_>, login: &str) -> Option<u64> {
    let user = call.world.user_by_login(login)?.id;
    call.world.belongs_to_enterprise(user, enterprise(call).ok()?).then_some(user)
}

fn summaries(call: &Call<'_>, users: &[u64]) -> Reply {
    let renderer = call.renderer();
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
    let named = |login: &str| call.world.user_by_login(login).map(|user| user.id);
    let users = ids_of_names(call, "usernames", named)?;
    team_mut(call)?.members.retain(|user| !users.contains(user));
    Ok(summaries(call, &users))
}

fn of_path(call: &Call<'_>) -> Result<u64, ApiError> {
    team(call)?;
    Ok(call.user("username")?.id)
}

fn get(call: &mut Call<'_>) -> Outcome {
    let user = of_path(call)?;
    ApiError::not_found_unless(team(call)?.members.contains(&user))?;
    Ok(Reply::ok(call.renderer().user_summary(user)))
}

fn put(call: &mut Call<'_>) -> Outcome {
    let user = of_path(call)?;
    if named_person(call, call.params.get("username")).is_none() {
        let message = "the user does not belong to the enterprise";
        return Err(ApiError::invalid("EnterpriseTeam", "username", message));
    }
    team_mut(call)?.members.insert(user);
    Ok(Reply::json(StatusCode::CREATED, call.renderer().user_summary(user)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let user = of_path(call)?;
    ApiError::not_found_unless(team(call)?.members.contains(&user))?;
    team_mut(call)?.members.remove(&user);
    Ok(Reply::no_content())
}
