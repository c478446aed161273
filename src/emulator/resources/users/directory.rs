//! Lists over the whole service: users, organisations, public repositories.

use serde_json::Value;

use crate::emulator::http::Reply;

use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Repository, Visibility};

pub const ROUTES: &[Route] = &[
    Route::get("/users", Need::Nothing, users),
    Route::get("/organizations", Need::Nothing, organizations),
    Route::get("/repositories", Need::Nothing, repositories),
    Route::get("/users/{username}/orgs", Need::Nothing, organizations_of_user),
];

/// Uses `since`, the id of the last item seen, as the running service does for lists this long.
fn since_page<T>(call: &Call<'_>, items: Vec<(u64, T)>, render: impl Fn(T) -> Value) -> Reply {
    let since: u64 = call.query.get("since").and_then(|since| since.parse().ok()).unwrap_or(0);
    let per_page = pagination::per_page(call, USUAL);
    let mut rest = items.into_iter().filter(|(id, _)| *id > since).peekable();
    let mut shown = Vec::new();
    let mut last = since;
    while shown.len() < per_page
        && let Some((id, item)) = rest.next()
    {
        last = id;
        shown.push(render(item));
    }
    let next = rest.peek().map(|_| ("next", pagination::address(call, "since", &last.to_string())));
    let mut reply = Reply::ok(Value::Array(shown));
    reply.headers.extend(next.and_then(|next| pagination::header(&[next])));
    reply
}

#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn users(call: &mut Call<'_>) -> Outcome {
    let renderer = call.renderer();
    let all = call.world.users.keys().map(|id| (*id, *id)).collect();
    Ok(since_page(call, all, |id| renderer.user_summary(id)))
}

#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn organizations(call: &mut Call<'_>) -> Outcome {
    let renderer = call.renderer();
    let all = call.world.organizations.values().map(|one| (one.id, one)).collect();
    Ok(since_page(call, all, |organization| renderer.organization_summary(organization)))
}

#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn repositories(call: &mut Call<'_>) -> Outcome {
    let renderer = call.renderer();
    let all = public_repositories(call).map(|repository| (repository.id, repository)).collect();
    Ok(since_page(call, all, |repository| renderer.repository(repository)))
}

pub fn public_repositories<'a>(call: &'a Call<'_>) -> impl Iterator<Item = &'a Repository> {
    let all = call.world.repositories.values();
    all.filter(|repository| repository.visibility == Visibility::Public)
}

/// Everyone sees memberships; private ones are left out of the model.
fn organizations_of_user(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    let all = call.world.organizations.values();
    call.page_of_organizations(all.filter(|organization| organization.members.contains(&user)))
}
