//! Organisations that an enterprise team is assigned to (SPECIFICATION, "Enterprise teams").

use http::StatusCode;
use serde_json::Value;

use super::{READ, WRITE, enterprise, ids_of_names, team, team_mut};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::routing::{Call, Outcome, Route};

pub const ROUTES: &[Route] = &[
    Route::get("/enterprises/{enterprise}/teams/{enterprise-team}/organizations", READ, list),
    Route::post("/enterprises/{enterprise}/teams/{enterprise-team}/organizations/add", WRITE, add),
    Route::post(
        "/enterprises/{enterprise}/teams/{enterprise-team}/organizations/remove",
        WRITE,
        remove,
    ),
    Route::get("/enterprises/{enterprise}/teams/{enterprise-team}/organizations/{org}", READ, get),
    Route::put("/enterprises/{enterprise}/teams/{enterprise-team}/organizations/{org}", WRITE, put),
    Route::delete(
        "/enterprises/{enterprise}/teams/{enterprise-team}/organizations/{org}",
        WRITE,
        delete,
    ),
];

fn summaries(call: &Call<'_>, ids: &[u64]) -> Value {
    let organizations = ids.iter().filter_map(|id| call.world.organizations.get(id));
    organizations.map(|one| call.renderer().organization_summary(one)).collect()
}

fn list(call: &mut Call<'_>) -> Outcome {
    let ids = team(call)?.organizations.iter();
    call.page_of_organizations(ids.filter_map(|id| call.world.organizations.get(id)))
}

/// Finds an organisation of the enterprise by its login; others cannot be assigned.
fn named_organization(call: &Call<'_>, login: &str) -> Option<u64> {
    let id = call.world.organization_by_login(login)?.id;
    enterprise(call).ok()?.organizations.contains(&id).then_some(id)
}

/// Answers with the organisations in the body; all assigned ones would be as plausible.
fn add(call: &mut Call<'_>) -> Outcome {
    team(call)?;
    let ids = ids_of_names(call, "organization_slugs", |login| named_organization(call, login))?;
    team_mut(call)?.organizations.extend(&ids);
    Ok(Reply::ok(summaries(call, &ids)))
}

/// Ignores organisations that are not assigned.
fn remove(call: &mut Call<'_>) -> Outcome {
    team(call)?;
    let ids = ids_of_names(call, "organization_slugs", |login| named_organization(call, login))?;
    team_mut(call)?.organizations.retain(|id| !ids.contains(id));
    Ok(Reply::no_content())
}

fn of_path(call: &Call<'_>) -> Result<u64, ApiError> {
    team(call)?;
    named_organization(call, call.params.get("org")).ok_or(ApiError::NotFound)
}

fn summary(call: &Call<'_>, id: u64) -> Result<Value, ApiError> {
    let organization = call.world.organizations.get(&id).ok_or(ApiError::NotFound)?;
    Ok(call.renderer().organization_summary(organization))
}

/// Answers 404 when it is not assigned.
fn get(call: &mut Call<'_>) -> Outcome {
    let id = of_path(call)?;
    ApiError::not_found_unless(team(call)?.organizations.contains(&id))?;
    Ok(Reply::ok(summary(call, id)?))
}

/// Answers 201 even when it was assigned before, because no other status is documented.
fn put(call: &mut Call<'_>) -> Outcome {
    let id = of_path(call)?;
    team_mut(call)?.organizations.insert(id);
    Ok(Reply::json(StatusCode::CREATED, summary(call, id)?))
}

/// A missing assignment is a 404.
fn delete(call: &mut Call<'_>) -> Outcome {
    let id = of_path(call)?;
    ApiError::not_found_unless(team(call)?.organizations.contains(&id))?;
    team_mut(call)?.organizations.remove(&id);
    Ok(Reply::no_content())
}
