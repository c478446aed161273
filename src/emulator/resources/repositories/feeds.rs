//! The event feeds of everybody, of a repository and its network, of an organisation and of a user.
//! Clients poll them by `Last-Modified`; the shapes follow the running service, because the
//! upstream does not document them.
//!
//! `/users/{username}/events/orgs/{org}` is left to the inventory.

use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::emulator::accounts::Level;
use crate::emulator::auth::access::{self, path_of};
use crate::emulator::http::iso;
use crate::emulator::render::extend;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route, USUAL, pagination, polling};
use crate::emulator::world::notifications::feed::Event;
use crate::emulator::world::{Owner, Repository, Visibility};

const READ: Need = Need::repository("metadata", Level::Read, Role::Read);

pub const ROUTES: &[Route] = &[
    Route::get("/events", Need::Nothing, of_all),
    Route::get("/repos/{owner}/{repo}/events", READ, of_repository),
    Route::get("/networks/{owner}/{repo}/events", READ, of_network),
    Route::get("/orgs/{org}/events", Need::Nothing, of_organization),
    Route::get("/users/{username}/events", Need::Nothing, of_user),
    Route::get("/users/{username}/events/public", Need::Nothing, public_of_user),
    Route::get("/users/{username}/received_events", Need::Nothing, received),
    Route::get("/users/{username}/received_events/public", Need::Nothing, public_received),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Public ones only, for every caller.
    Public,
    Visible,
}

/// The service is as old as its first account.
fn of_all(call: &mut Call<'_>) -> Outcome {
    let since = call.world.users.values().map(|user| user.created_at).min().unwrap_or(call.now);
    feed(call, Reach::Public, since, |_, _| true)
}

fn of_repository(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let (id, since) = (repository.id, repository.created_at);
    feed(call, Reach::Visible, since, |_, of| of.id == id)
}

/// The repository, its parent, and all forks of either.
fn of_network(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let since = repository.created_at;
    let root = repository.fork_of.unwrap_or(repository.id);
    feed(call, Reach::Visible, since, |_, of| of.id == root || of.fork_of == Some(root))
}

fn of_organization(call: &mut Call<'_>) -> Outcome {
    let organization = access::organization_of_path(call)?;
    let (owner, since) = (Owner::Organization(organization.id), organization.created_at);
    feed(call, Reach::Visible, since, |_, of| of.owner == owner)
}

fn of_user(call: &mut Call<'_>) -> Outcome {
    by_user(call, Reach::Visible)
}

fn public_of_user(call: &mut Call<'_>) -> Outcome {
    by_user(call, Reach::Public)
}

fn by_user(call: &mut Call<'_>, span: Reach) -> Outcome {
    let user = call.user("username")?;
    let (actor, since) = (user.id, user.created_at);
    feed(call, span, since, |event, _| event.actor == actor)
}

fn received(call: &mut Call<'_>) -> Outcome {
    of_watched(call, Reach::Visible)
}

fn public_received(call: &mut Call<'_>) -> Outcome {
    of_watched(call, Reach::Public)
}

fn of_watched(call: &mut Call<'_>, span: Reach) -> Outcome {
    let user = call.user("username")?;
    let (watched, since) = (user.watching.clone(), user.created_at);
    feed(call, span, since, |_, of| watched.contains(&of.id))
}

/// `since` is the creation of the feed's subject, which is the age of an empty feed.
#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn feed(
    call: &mut Call<'_>,
    span: Reach,
    since: Timestamp,
    is_wanted: impl Fn(&Event, &Repository) -> bool,
) -> Outcome {
    let world = &*call.world;
    let shown: Vec<(&Event, &Repository)> = world
        .feed
        .newest_first()
        .filter_map(|event| Some((event, world.repositories.get(&event.repository)?)))
        .filter(|(event, of)| is_wanted(event, of) && is_within(call, span, of))
        .collect();
    let newest = shown.first().map_or(since, |(event, _)| event.created_at);
    let changed_at = newest.max(world.feed.shifted_at.unwrap_or(newest));
    let reply =
        pagination::page(call, USUAL, shown, |(event, repository)| render(call, event, repository))
            .changed_at(changed_at);
    Ok(polling::paced(call, reply))
}

fn is_within(call: &Call<'_>, span: Reach, repository: &Repository) -> bool {
    match span {
        Reach::Public => repository.visibility == Visibility::Public,
        Reach::Visible => call.sees(repository),
    }
}

fn render(call: &Call<'_>, event: &Event, repository: &Repository) -> Value {
    let renderer = call.renderer();
    let actor = renderer.user_summary(event.actor);
    // The payload was serialized from JSON.
    let payload: Value = serde_json::from_str(&event.payload).unwrap_or_else(|_| json!({}));
    let mut value = json!({
        "id": event.id.to_string(),
        "type": event.kind,
        "actor": {
            "id": actor["id"],
            "login": actor["login"],
            "display_login": actor["login"],
            "gravatar_id": "",
            "url": actor["url"],
            "avatar_url": actor["avatar_url"],
        },
        "repo": {
            "id": repository.id,
            "name": call.world.full_name(repository),
            "url": format!("{}{}", call.urls.api, path_of(call.world, repository)),
        },
        "payload": payload,
        "public": repository.visibility == Visibility::Public,
        "created_at": iso(event.created_at),
    });
    if let Owner::Organization(id) = repository.owner
        && let Some(organization) = call.world.organizations.get(&id)
    {
        let summary = renderer.organization_summary(organization);
        let org = json!({ "id": id, "login": summary["login"], "gravatar_id": "", "url": summary["url"], "avatar_url": summary["avatar_url"] });
        extend(&mut value, json!({ "org": org }));
    }
    value
}
