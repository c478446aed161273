//! Stars and watches: stargazers and subscribers of a repository, and the lists of a user.

use http::{StatusCode, header};
use serde_json::{Value, json};

use super::people::user;
use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::http::{ApiError, Fields, Reply, iso};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route, USUAL, pagination};
use crate::emulator::world::Repository;

const READ: Need = Need::repository("metadata", Level::Read, Role::Read);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/stargazers", READ, stargazers),
    Route::get("/repos/{owner}/{repo}/subscribers", READ, subscribers),
    Route::get("/user/starred", Need::User, my_stars),
    Route::get("/users/{username}/starred", Need::Nothing, stars_of_user),
    Route::get("/user/starred/{owner}/{repo}", Need::User, is_starred),
    Route::put("/user/starred/{owner}/{repo}", Need::User, star),
    Route::delete("/user/starred/{owner}/{repo}", Need::User, unstar),
    Route::get("/user/subscriptions", Need::User, my_subscriptions),
    Route::get("/users/{username}/subscriptions", Need::Nothing, subscriptions_of_user),
    Route::get("/repos/{owner}/{repo}/subscription", READ, subscription),
    Route::put("/repos/{owner}/{repo}/subscription", READ, subscribe),
    Route::delete("/repos/{owner}/{repo}/subscription", READ, unsubscribe),
];

fn me(call: &Call<'_>) -> Result<u64, ApiError> {
    access::acts_as_user(call.caller)
}

/// The media type `….star+json` adds the time of each star.
fn stargazers(call: &mut Call<'_>) -> Outcome {
    let stars = call.repository()?.stars.iter().map(|(user, at)| (*user, *at)).collect();
    let accept =
        call.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let with_times = accept.contains(".star+json");
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, stars, |(user, at)| {
        let user = renderer.user_summary(user);
        if with_times { json!({ "starred_at": iso(at), "user": user }) } else { user }
    }))
}

#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn subscribers(call: &mut Call<'_>) -> Outcome {
    let id = call.repository;
    let watching = call
        .world
        .users
        .values()
        .filter(|user| user.watching.contains(&id))
        .map(|user| user.id)
        .collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, watching, |user| renderer.user_summary(user)))
}

fn page_of(call: &Call<'_>, has: impl Fn(&Repository) -> bool) -> Reply {
    let visible = |repository: &&Repository| {
        has(repository) && access::sees(call.world, call.caller, repository)
    };
    let shown = call.world.repositories.values().filter(visible).collect();
    let renderer = Renderer::of(call);
    pagination::page(call, USUAL, shown, |repository| renderer.repository(repository))
}

fn my_stars(call: &mut Call<'_>) -> Outcome {
    let me = me(call)?;
    Ok(page_of(call, |repository| repository.stars.contains_key(&me)))
}

fn stars_of_user(call: &mut Call<'_>) -> Outcome {
    let user = user(call, "username")?;
    Ok(page_of(call, |repository| repository.stars.contains_key(&user)))
}

/// Returns the repository after `starred` in the path, by its current or a former name.
fn to_star(call: &Call<'_>) -> Result<u64, ApiError> {
    let repository = call
        .world
        .repository_named(call.params.get("owner"), call.params.get("repo"))
        .ok_or(ApiError::NotFound)?;
    if access::sees(call.world, call.caller, repository) {
        Ok(repository.id)
    } else {
        Err(ApiError::NotFound)
    }
}

fn is_starred(call: &mut Call<'_>) -> Outcome {
    let (me, id) = (me(call)?, to_star(call)?);
    let starred = call
        .world
        .repositories
        .get(&id)
        .is_some_and(|repository| repository.stars.contains_key(&me));
    if starred { Ok(Reply::empty(StatusCode::NO_CONTENT)) } else { Err(ApiError::NotFound) }
}

fn star(call: &mut Call<'_>) -> Outcome {
    let (me, id, now) = (me(call)?, to_star(call)?, call.now);
    let repository = call.world.repositories.get_mut(&id).ok_or(ApiError::NotFound)?;
    repository.stars.entry(me).or_insert(now);
    repository.updated_at = now;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn unstar(call: &mut Call<'_>) -> Outcome {
    let (me, id, now) = (me(call)?, to_star(call)?, call.now);
    let repository = call.world.repositories.get_mut(&id).ok_or(ApiError::NotFound)?;
    if repository.stars.remove(&me).is_some() {
        repository.updated_at = now;
    }
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn my_subscriptions(call: &mut Call<'_>) -> Outcome {
    let me = me(call)?;
    Ok(subscriptions(call, me))
}

fn subscriptions_of_user(call: &mut Call<'_>) -> Outcome {
    let user = user(call, "username")?;
    Ok(subscriptions(call, user))
}

fn subscriptions(call: &Call<'_>, user: u64) -> Reply {
    let watching =
        call.world.users.get(&user).map(|user| user.watching.clone()).unwrap_or_default();
    page_of(call, |repository| watching.contains(&repository.id))
}

/// The time of subscription is not stored; the repository's own creation is shown.
fn subscription(call: &mut Call<'_>) -> Outcome {
    let me = me(call)?;
    let watches =
        call.world.users.get(&me).is_some_and(|user| user.watching.contains(&call.repository));
    if watches {
        Ok(Reply::ok(render_subscription(call, Watching::Told)?))
    } else {
        Err(ApiError::NotFound)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watching {
    Told,
    Ignored,
}

fn render_subscription(call: &Call<'_>, watching: Watching) -> Result<Value, ApiError> {
    let repository = call.repository()?;
    let url = Renderer::of(call).repository_url(repository);
    Ok(json!({
        "subscribed": watching == Watching::Told, "ignored": watching == Watching::Ignored, "reason": null,
        "created_at": iso(repository.created_at), "url": format!("{url}/subscription"), "repository_url": url,
    }))
}

fn subscribe(call: &mut Call<'_>) -> Outcome {
    let me = me(call)?;
    let mut fields = Fields::parse("Subscription", call.body)?;
    let (subscribed, ignored) =
        (fields.boolean("subscribed").unwrap_or(true), fields.boolean("ignored").unwrap_or(false));
    fields.check()?;
    let watching = if ignored || !subscribed { Watching::Ignored } else { Watching::Told };
    let id = call.repository;
    let user = call.world.users.get_mut(&me).ok_or(ApiError::NotFound)?;
    if watching == Watching::Told {
        user.watching.insert(id)
    } else {
        user.watching.remove(&id)
    };
    call.world.feed.shifted_at = Some(call.now);
    touch(call)?;
    Ok(Reply::ok(render_subscription(call, watching)?))
}

fn unsubscribe(call: &mut Call<'_>) -> Outcome {
    let (me, id) = (me(call)?, call.repository);
    call.world.users.get_mut(&me).ok_or(ApiError::NotFound)?.watching.remove(&id);
    call.world.feed.shifted_at = Some(call.now);
    touch(call)?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// The repository shows its number of watchers, so its validators must change.
fn touch(call: &mut Call<'_>) -> Result<(), ApiError> {
    let now = call.now;
    call.repository_mut()?.updated_at = now;
    Ok(())
}
