//! Stars and watches: stargazers and subscribers of a repository, and the lists of a user.

use std::collections::btree_map::Entry;

use http::header;
use serde_json::{Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::events::changes::{self, Change, EventContext, EventScope, WebhookEvent};
use crate::emulator::http::{ApiError, Fields, Reply, iso};
use crate::emulator::resources::repositories::listing;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};

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
    let stars = call.repository()?.stars.iter().map(|(user, at)| (*user, *at));
    let accept = call.header(header::ACCEPT);
    let with_times = accept.is_some_and(|accept| accept.contains(".star+json"));
    call.page(stars, |renderer, (user, at)| {
        let user = renderer.user_summary(user);
        if with_times { json!({ "starred_at": iso(at), "user": user }) } else { user }
    })
}

fn subscribers(call: &mut Call<'_>) -> Outcome {
    let users = call.world.users.values();
    let watching = users.filter(|user| user.watching.contains(&call.repository));
    call.page_of_users(watching.map(|user| user.id))
}

fn stars(call: &Call<'_>, user: u64) -> Outcome {
    call.page_of_repositories(listing::starred(call, user)?)
}

fn my_stars(call: &mut Call<'_>) -> Outcome {
    stars(call, me(call)?)
}

fn stars_of_user(call: &mut Call<'_>) -> Outcome {
    stars(call, call.user("username")?.id)
}

/// Returns the repository after `starred` in the path, by its current or a former name.
fn to_star(call: &Call<'_>) -> Result<u64, ApiError> {
    let repository = call.named_repository()?;
    ApiError::not_found_unless(call.sees(repository))?;
    Ok(repository.id)
}

fn is_starred(call: &mut Call<'_>) -> Outcome {
    let (me, id) = (me(call)?, to_star(call)?);
    let repository = call.world.repositories.get(&id);
    let starred = repository.is_some_and(|repository| repository.stars.contains_key(&me));
    Reply::no_content_if(starred)
}

fn star(call: &mut Call<'_>) -> Outcome {
    let (me, id, now) = (me(call)?, to_star(call)?, call.now);
    let repository = call.world.repositories.get_mut(&id).ok_or(ApiError::NotFound)?;
    if let Entry::Vacant(star) = repository.stars.entry(me) {
        star.insert(now);
        repository.updated_at = now;
        publish(call, id, WebhookEvent::new("star", "created"), json!({ "starred_at": iso(now) }));
        // The service's older event for a star, which feeds show.
        publish(call, id, WebhookEvent::new("watch", "started"), json!({}));
    }
    Ok(Reply::no_content())
}

fn unstar(call: &mut Call<'_>) -> Outcome {
    let (me, id, now) = (me(call)?, to_star(call)?, call.now);
    let repository = call.world.repositories.get_mut(&id).ok_or(ApiError::NotFound)?;
    if repository.stars.remove(&me).is_some() {
        repository.updated_at = now;
        publish(call, id, WebhookEvent::new("star", "deleted"), json!({ "starred_at": null }));
    }
    Ok(Reply::no_content())
}

fn publish(call: &mut Call<'_>, repository: u64, event: WebhookEvent<'_>, objects: Value) {
    let scope = EventScope::Repository(repository);
    let context = EventContext { scope, ..EventContext::of(call) };
    changes::record(call.world, context, Change::of(event), |_| objects);
}

fn my_subscriptions(call: &mut Call<'_>) -> Outcome {
    subscriptions(call, me(call)?)
}

fn subscriptions_of_user(call: &mut Call<'_>) -> Outcome {
    subscriptions(call, call.user("username")?.id)
}

fn subscriptions(call: &Call<'_>, user: u64) -> Outcome {
    let watching = call.world.users.get(&user).into_iter().flat_map(|user| &user.watching);
    call.page_of_repositories(watching.filter_map(|id| call.world.repositories.get(id)))
}

/// The time of subscription is not stored; the repository's own creation is shown.
fn subscription(call: &mut Call<'_>) -> Outcome {
    let user = call.world.users.get(&me(call)?);
    let watches = user.is_some_and(|user| user.watching.contains(&call.repository));
    ApiError::not_found_unless(watches)?;
    Ok(Reply::ok(render_subscription(call, Subscription::Subscribed)?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscription {
    Subscribed,
    Ignored,
}

fn render_subscription(call: &Call<'_>, subscription: Subscription) -> Result<Value, ApiError> {
    let repository = call.repository()?;
    let url = call.renderer().repository_url(repository);
    Ok(json!({
        "subscribed": subscription == Subscription::Subscribed,
        "ignored": subscription == Subscription::Ignored, "reason": null,
        "created_at": iso(repository.created_at), "url": format!("{url}/subscription"), "repository_url": url,
    }))
}

fn subscribe(call: &mut Call<'_>) -> Outcome {
    let me = me(call)?;
    let mut fields = Fields::parse("Subscription", call.body)?;
    let (subscribed, ignored) =
        (fields.boolean("subscribed").unwrap_or(true), fields.boolean("ignored").unwrap_or(false));
    fields.check()?;
    let subscription =
        if ignored || !subscribed { Subscription::Ignored } else { Subscription::Subscribed };
    watch(call, me, subscription)?;
    Ok(Reply::ok(render_subscription(call, subscription)?))
}

fn unsubscribe(call: &mut Call<'_>) -> Outcome {
    let me = me(call)?;
    watch(call, me, Subscription::Ignored)?;
    Ok(Reply::no_content())
}

fn watch(call: &mut Call<'_>, user: u64, subscription: Subscription) -> Result<(), ApiError> {
    let (id, now) = (call.repository, call.now);
    let watching = &mut call.world.users.get_mut(&user).ok_or(ApiError::NotFound)?.watching;
    match subscription {
        Subscription::Subscribed => watching.insert(id),
        Subscription::Ignored => watching.remove(&id),
    };
    call.world.feed.shifted_at = Some(now);
    // The repository shows its number of watchers, so its validators must change.
    call.repository_mut()?.updated_at = now;
    Ok(())
}
