//! The repositories of a team and its rights there. The upstream documents the routes without their
//! shapes.

use http::header;
use serde_json::{Value, json};
use strum::VariantArray;

use super::{NamedTeam, READ, own, visible};
use crate::emulator::accounts::Level;
use crate::emulator::events::webhooks::organizations::shown_team;
use crate::emulator::events::webhooks::{EventScope, WebhookEvent, publish, publish_at};
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::render::{extend, object};
use crate::emulator::routing::{Call, MembersNeed, Need, Outcome, Route};
use crate::emulator::world::{Owner, Repository, RepositoryRole};

const READ_REPOSITORY: Need = Need::Members(MembersNeed::TeamRepository(Level::Read));
const CHANGE: Need = Need::Members(MembersNeed::TeamRepository(Level::Write));

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/teams/{team_slug}/repos", READ, list),
    Route::get("/organizations/{org_id}/team/{team_id}/repos", READ, list),
    Route::get("/teams/{team_id}/repos", READ, list),
    Route::get("/orgs/{org}/teams/{team_slug}/repos/{owner}/{repo}", READ_REPOSITORY, get),
    Route::get("/organizations/{org_id}/team/{team_id}/repos/{owner}/{repo}", READ_REPOSITORY, get),
    Route::get("/teams/{team_id}/repos/{owner}/{repo}", READ_REPOSITORY, get),
    Route::put("/orgs/{org}/teams/{team_slug}/repos/{owner}/{repo}", CHANGE, put),
    Route::put("/organizations/{org_id}/team/{team_id}/repos/{owner}/{repo}", CHANGE, put),
    Route::put("/teams/{team_id}/repos/{owner}/{repo}", CHANGE, put),
    Route::delete("/orgs/{org}/teams/{team_slug}/repos/{owner}/{repo}", CHANGE, delete),
    Route::delete("/organizations/{org_id}/team/{team_id}/repos/{owner}/{repo}", CHANGE, delete),
    Route::delete("/teams/{team_id}/repos/{owner}/{repo}", CHANGE, delete),
];

/// Lists the visible ones; enterprise teams have none.
fn list(call: &mut Call<'_>) -> Outcome {
    let held = match visible(call)? {
        NamedTeam::Own(team) => call.organization()?.team_repositories(team.id),
        NamedTeam::OfEnterprise(_) => std::collections::BTreeMap::new(),
    };
    let known =
        held.into_iter().filter_map(|(id, role)| Some((call.world.repositories.get(&id)?, role)));
    let shown = known.filter(|(repository, _)| call.sees(repository));
    call.page(shown, |_, (repository, role)| render(call, repository, role))
}

/// Renders the repository with the team's rights instead of the caller's.
fn render(call: &Call<'_>, repository: &Repository, role: RepositoryRole) -> Value {
    let mut value = call.renderer().repository(repository);
    let may = object(
        RepositoryRole::VARIANTS.iter().map(|lesser| (lesser.into_str(), json!(*lesser <= role))),
    );
    extend(&mut value, json!({ "permissions": may, "role_name": role.role_name() }));
    value
}

/// Answers 204 for a repository of the team, or the repository itself to its media type; else 404.
fn get(call: &mut Call<'_>) -> Outcome {
    let held = match visible(call)? {
        NamedTeam::Own(team) => call.organization()?.team_repositories(team.id),
        NamedTeam::OfEnterprise(_) => return Err(ApiError::NotFound),
    };
    let role = *held.get(&call.repository).ok_or(ApiError::NotFound)?;
    let accepts =
        call.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepts.into_iter().any(|accepted| accepted.contains("repository+json")) {
        return Ok(Reply::ok(render(call, call.repository()?, role)));
    }
    Ok(Reply::no_content())
}

fn put(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?;
    let (team, usual) = (team.id, team.permission);
    let mut fields = Fields::parse("Team", call.body)?;
    let message = "permission must be pull, triage, push, maintain or admin";
    let role = fields.choice("permission", |name| name.parse::<RepositoryRole>().ok(), message);
    fields.check()?;
    if call.repository()?.owner != Owner::Organization(call.organization) {
        let message = "the repository must belong to the organization";
        return Err(ApiError::invalid("Team", "repo", message));
    }
    let repository = call.repository;
    let teams = call.organization_mut()?.people.grants.entry(repository).or_default();
    let held = teams.get(&team).copied();
    let role = role.or(held).unwrap_or(usual);
    teams.insert(team, role);
    publish_grant(call, team, held, role)?;
    Ok(Reply::no_content())
}

/// Raises the events of a repository that is new to a team, or of other rights in it.
fn publish_grant(
    call: &mut Call<'_>,
    team: u64,
    held: Option<RepositoryRole>,
    role: RepositoryRole,
) -> Result<(), ApiError> {
    let team = shown_team(call, call.organization()?, team);
    let objects = json!({ "team": team });
    match held {
        None => publish_added(call, call.repository, &objects["team"]),
        Some(held) if held != role => {
            let has = |wanted: RepositoryRole| wanted <= held;
            let from = json!({
                "admin": has(RepositoryRole::Admin), "push": has(RepositoryRole::Push),
                "pull": has(RepositoryRole::Pull),
            });
            let changes = json!({ "repository": { "permissions": { "from": from } } });
            let mut objects = objects;
            extend(&mut objects, json!({ "changes": changes }));
            publish(call, WebhookEvent::new("team", "edited"), |_| objects);
        }
        Some(_) => {}
    }
    Ok(())
}

/// Raises the events of a repository that is new to a team.
pub fn publish_added(call: &mut Call<'_>, repository: u64, team: &Value) {
    let scope = EventScope::Repository(repository);
    let events = [
        WebhookEvent::new("team", "added_to_repository"),
        WebhookEvent { name: "team_add", action: None },
    ];
    for event in events {
        publish_at(call, scope, event, |_| json!({ "team": team }));
    }
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?.id;
    let repository = call.repository;
    let grants = &mut call.organization_mut()?.people.grants;
    let removed = grants.get_mut(&repository).and_then(|teams| teams.remove(&team));
    grants.retain(|_, teams| !teams.is_empty());
    if removed.is_some() {
        let objects = json!({ "team": shown_team(call, call.organization()?, team) });
        publish(call, WebhookEvent::new("team", "removed_from_repository"), |_| objects);
    }
    // An inherited right can only be removed from the parent team.
    Reply::no_content_if(removed.is_some())
}
