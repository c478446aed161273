//! Information about the service: the root, `/meta` and the rate limits.

#![expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]

use serde_json::{Value, json};

use crate::emulator::http::Reply;
use crate::emulator::limits::{Resource, View};
use crate::emulator::render::object;
use crate::emulator::routing::{Call, Need, Outcome, Route};

pub const ROUTES: &[Route] = &[
    Route::get("/", Need::Nothing, root),
    Route::get("/meta", Need::Nothing, meta),
    Route::get("/rate_limit", Need::Nothing, rate_limit).free(),
];

/// Name and path of the root's addresses that clients are known to read.
const ADDRESSES: &[(&str, &str)] = &[
    ("current_user_url", "/user"),
    ("current_user_repositories_url", "/user/repos{?type,page,per_page,sort}"),
    ("events_url", "/events"),
    ("issue_search_url", "/search/issues?q={query}{&page,per_page,sort,order}"),
    ("notifications_url", "/notifications"),
    ("organization_url", "/orgs/{org}"),
    ("organization_repositories_url", "/orgs/{org}/repos{?type,page,per_page,sort}"),
    ("rate_limit_url", "/rate_limit"),
    ("repository_url", "/repos/{owner}/{repo}"),
    ("user_url", "/users/{user}"),
    ("user_repositories_url", "/users/{user}/repos{?type,page,per_page,sort}"),
];

fn root(call: &mut Call<'_>) -> Outcome {
    let address = |(name, path)| (name, json!(format!("{}{path}", call.urls.api)));
    Ok(Reply::ok(Value::Object(object(ADDRESSES.iter().copied().map(address)))))
}

fn meta(_: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(
        json!({ "verifiable_password_authentication": false, "hooks": ["127.0.0.0/8"], "api": ["127.0.0.0/8"] }),
    ))
}

fn rate_limit(call: &mut Call<'_>) -> Outcome {
    Ok(rate_limit_of(|resource| call.budget(resource)))
}

/// `rate` repeats core for old clients.
pub fn rate_limit_of(budget: impl Fn(Resource) -> View) -> Reply {
    let resources =
        object(Resource::ALL.map(|resource| (resource.name(), statement(budget(resource)))));
    Reply::ok(json!({ "resources": resources, "rate": statement(budget(Resource::CORE)) }))
}

fn statement(view: View) -> Value {
    json!({ "limit": view.limit, "used": view.used, "remaining": view.remaining(), "reset": view.reset.as_secs(), "resource": view.resource.name() })
}
