//! Review requests: the users and teams that a pull request asks for a review.

use std::collections::BTreeSet;

use http::StatusCode;
use serde_json::{Map, json};

use super::pull_requests::{CHANGE, READ, named, render};
use crate::emulator::events::changes::EventContext;
use crate::emulator::events::issues::{entries, raise};
use crate::emulator::events::notifications::Notice;
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{Detail, Owner};

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/pulls/{number}/requested_reviewers", READ, list),
    Route::post("/repos/{owner}/{repo}/pulls/{number}/requested_reviewers", CHANGE, request),
    Route::delete("/repos/{owner}/{repo}/pulls/{number}/requested_reviewers", CHANGE, withdraw),
];

/// The running service's limit.
const REVIEWERS_MAX: usize = 15;

/// Returns the address that `Renderer::requested_reviewers` and `requested_teams` read.
fn collection(repository: u64, number: u64, what: &str) -> String {
    format!("repository/{repository}/pulls/{number}/{what}")
}

fn list(call: &mut Call<'_>) -> Outcome {
    let (repository, renderer) = (call.repository()?, call.renderer());
    let pull = named(call, repository)?;
    let users = renderer.requested_reviewers(repository, pull);
    Ok(Reply::ok(json!({ "users": users, "teams": renderer.requested_teams(repository, pull) })))
}

/// Users and teams of a request's body.
struct Reviewers {
    number: u64,
    author: u64,
    users: BTreeSet<u64>,
    teams: BTreeSet<u64>,
}

fn read(call: &Call<'_>) -> Result<(Reviewers, Fields), ApiError> {
    let pull = named(call, call.repository()?)?;
    let (number, author) = (pull.number, pull.author);
    let mut fields = Fields::parse("PullRequest", call.body)?;
    let logins = fields.strings("reviewers").unwrap_or_default();
    let slugs = fields.strings("team_reviewers").unwrap_or_default();
    let (mut users, mut teams) = (BTreeSet::new(), BTreeSet::new());
    for login in &logins {
        match call.world.user_by_login(login) {
            Some(user) => {
                users.insert(user.id);
            }
            None => fields.invalid("reviewers", format!("{login} cannot review")),
        }
    }
    let organization = match call.repository()?.owner {
        Owner::Organization(id) => call.world.organizations.get(&id),
        Owner::User(_) => None,
    };
    for slug in &slugs {
        match organization.and_then(|organization| organization.team_by_slug(slug)) {
            Some(team) => {
                teams.insert(team.id);
            }
            None => fields.invalid("team_reviewers", format!("{slug} cannot review")),
        }
    }
    if users.len() + teams.len() > REVIEWERS_MAX {
        fields.invalid("reviewers", "reviewers must be 15 at most");
    }
    if !fields.has("reviewers") && !fields.has("team_reviewers") {
        fields.missing("reviewers");
    }
    Ok((Reviewers { number, author, users, teams }, fields))
}

fn request(call: &mut Call<'_>) -> Outcome {
    let (reviewers, mut fields) = read(call)?;
    if reviewers.users.contains(&reviewers.author) {
        let message = "Review cannot be requested from pull request author; see reviewers";
        fields.invalid("reviewers", message);
    }
    fields.check()?;
    let Reviewers { number, users, teams, .. } = reviewers;
    add(call, number, users, teams)?;
    Ok(Reply::json(StatusCode::CREATED, render(call, number)?))
}

/// Requests reviews of users and teams that are not yet asked.
pub fn add(
    call: &mut Call<'_>,
    number: u64,
    users: BTreeSet<u64>,
    teams: BTreeSet<u64>,
) -> Result<(), ApiError> {
    for (what, ids) in [("requested_reviewers", users), ("requested_teams", teams)] {
        let collection = collection(call.repository, number, what);
        for id in ids {
            let known = call.world.collections.collection(&collection);
            if known.is_some_and(|known| known.get(&id.to_string()).is_some()) {
                continue;
            }
            // The stored object is a user or team, under its own id.
            call.store(&collection, &id.to_string(), id, Map::new())?;
            touch(call, number)?;
            publish(call, number, "review_requested", (what, id));
        }
    }
    Ok(())
}

fn withdraw(call: &mut Call<'_>) -> Outcome {
    let (Reviewers { number, users, teams, .. }, mut fields) = read(call)?;
    fields.check()?;
    remove(call, number, users, teams)?;
    Ok(Reply::ok(render(call, number)?))
}

/// Withdraws the requests of those that are asked.
pub fn remove(
    call: &mut Call<'_>,
    number: u64,
    users: BTreeSet<u64>,
    teams: BTreeSet<u64>,
) -> Result<(), ApiError> {
    for (what, ids) in [("requested_reviewers", users), ("requested_teams", teams)] {
        let (collection, now) = (collection(call.repository, number, what), call.now);
        for id in ids {
            if call.world.collections.take(&collection, &id.to_string(), now).is_some() {
                touch(call, number)?;
                publish(call, number, "review_request_removed", (what, id));
            }
        }
    }
    Ok(())
}

/// Raises the event of one reviewer. Only a request notifies.
fn publish(call: &mut Call<'_>, number: u64, action: &'static str, (what, id): (&str, u64)) {
    let is_team = what == "requested_teams";
    let members = || {
        let mut organizations = call.world.organizations.values();
        let team = organizations.find_map(|organization| organization.teams.get(&id));
        team.into_iter().flat_map(|team| team.people.keys().copied()).collect()
    };
    let users = if is_team { members() } else { BTreeSet::from([id]) };
    let notice = match action {
        "review_requested" => Notice::ReviewRequest { number, users: &users },
        _ => Notice::Nobody,
    };
    let detail = if is_team { Detail::ReviewingTeam(id) } else { Detail::Reviewer(id) };
    let (context, at) = (EventContext::of(call), (call.repository, number));
    raise(call.world, context, at, (action, entries(action, detail)), notice, |renderer| {
        if is_team {
            json!({ "requested_team": renderer.team_of_organization(id) })
        } else {
            json!({ "requested_reviewer": renderer.user_summary(id) })
        }
    });
}

fn touch(call: &mut Call<'_>, number: u64) -> Result<(), ApiError> {
    let now = call.now;
    call.repository_mut()?.issues.get_mut(&number).ok_or(ApiError::NotFound)?.updated_at = now;
    Ok(())
}
