//! Lists over the whole service: users, organisations, public repositories, and their searches.

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::emulator::auth::access;
use crate::emulator::http::{ApiError, Code, Reply};
use crate::emulator::limits::Resource;
use crate::emulator::render::{Renderer, extend};
use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Repository, Visibility};

pub const ROUTES: &[Route] = &[
    Route::get("/users", Need::Nothing, users),
    Route::get("/organizations", Need::Nothing, organizations),
    Route::get("/repositories", Need::Nothing, repositories),
    Route::get("/users/{username}/orgs", Need::Nothing, organizations_of_user),
    Route::get("/search/repositories", Need::Nothing, search_repositories)
        .resource(Resource::SEARCH),
    Route::get("/search/users", Need::Nothing, search_users).resource(Resource::SEARCH),
    Route::get("/search/labels", Need::Nothing, search_labels).resource(Resource::SEARCH),
    Route::get("/search/topics", Need::Nothing, search_topics).resource(Resource::SEARCH),
    Route::get("/search/commits", Need::Nothing, search_commits).resource(Resource::SEARCH),
    Route::get("/search/code", Need::Nothing, search_code).resource(Resource::CODE_SEARCH),
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
    let renderer = Renderer::of(call);
    Ok(since_page(call, call.world.users.keys().map(|id| (*id, *id)).collect(), |id| {
        renderer.user_summary(id)
    }))
}

#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn organizations(call: &mut Call<'_>) -> Outcome {
    let renderer = Renderer::of(call);
    let all = call.world.organizations.values().map(|one| (one.id, one)).collect();
    Ok(since_page(call, all, |organization| renderer.organization_summary(organization)))
}

#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn repositories(call: &mut Call<'_>) -> Outcome {
    let renderer = Renderer::of(call);
    let public = call
        .world
        .repositories
        .values()
        .filter(|repository| repository.visibility == Visibility::Public);
    Ok(since_page(
        call,
        public.map(|repository| (repository.id, repository)).collect(),
        |repository| renderer.repository(repository),
    ))
}

/// Everyone sees memberships; private ones are left out of the model.
fn organizations_of_user(call: &mut Call<'_>) -> Outcome {
    let user = crate::emulator::resources::repositories::people::user(call, "username")?;
    let theirs = call
        .world
        .organizations
        .values()
        .filter(|organization| organization.members.contains(&user))
        .collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, theirs, |organization| {
        renderer.organization_summary(organization)
    }))
}

/// Splits a search into its words and qualifiers, in lower case.
fn installation_grant(call: &Call<'_>) -> Result<Vec<String>, ApiError> {
    let wanted = call.query.get("q").map(str::trim).filter(|wanted| !wanted.is_empty());
    let wanted = wanted
        .ok_or_else(|| ApiError::field("Search", "q", Code::MissingField, "q is required"))?;
    Ok(wanted.to_lowercase().split_whitespace().map(str::to_owned).collect())
}

fn hits(call: &Call<'_>, found: Vec<Value>) -> Reply {
    let total = found.len();
    let (items, link): (Vec<Value>, Option<(HeaderName, HeaderValue)>) =
        pagination::cut(call, USUAL, found);
    let scored = |mut item: Value| {
        extend(&mut item, json!({ "score": 1.0 }));
        item
    };
    let items: Vec<Value> = items.into_iter().map(scored).collect();
    let mut reply =
        Reply::ok(json!({ "total_count": total, "incomplete_results": false, "items": items }));
    reply.headers.extend(link);
    reply
}

fn search_repositories(call: &mut Call<'_>) -> Outcome {
    let installation_grant = installation_grant(call)?;
    let has = |repository: &Repository, term: &str| {
        let full_name = call.world.full_name(repository).to_lowercase();
        match term.split_once(':') {
            Some(("repo", name)) => full_name == name,
            Some(("user" | "org", login)) => full_name.split('/').next() == Some(login),
            Some(("language", language)) => {
                repository.language.is_some_and(|known| known.eq_ignore_ascii_case(language))
            }
            Some(("topic", topic)) => repository.topics.iter().any(|known| known == topic),
            Some(("is" | "visibility", "public")) => repository.visibility == Visibility::Public,
            Some(("is" | "visibility", "private")) => repository.visibility == Visibility::Private,
            _ => full_name.contains(term) || repository.description.to_lowercase().contains(term),
        }
    };
    let visible = call
        .world
        .repositories
        .values()
        .filter(|repository| access::sees(call.world, call.caller, repository));
    let found =
        visible.filter(|repository| installation_grant.iter().all(|term| has(repository, term)));
    let renderer = Renderer::of(call);
    Ok(hits(call, found.take(HITS_MAX).map(|repository| renderer.repository(repository)).collect()))
}

/// The running service's limit of hits.
const HITS_MAX: usize = 1_000;

fn search_users(call: &mut Call<'_>) -> Outcome {
    let installation_grant = installation_grant(call)?;
    let renderer = Renderer::of(call);
    let has = |login: &str, name: &str, kind: &str| {
        installation_grant.iter().all(|term| match term.split_once(':') {
            Some(("type", wanted)) => kind == wanted,
            Some(("user" | "org", wanted)) => login.eq_ignore_ascii_case(wanted),
            _ => login.to_lowercase().contains(term) || name.to_lowercase().contains(term),
        })
    };
    let users = call
        .world
        .users
        .values()
        .filter(|user| has(&user.login, &user.name, "user"))
        .map(|user| renderer.user_summary(user.id));
    let organizations =
        call.world.organizations.values().filter(|one| has(&one.login, &one.login, "org"));
    let organizations = organizations.map(|one| {
        renderer.owner_summary(crate::emulator::world::organizations::people::Owner::Organization(
            one.id,
        ))
    });
    Ok(hits(call, users.chain(organizations).collect()))
}

fn search_labels(call: &mut Call<'_>) -> Outcome {
    let installation_grant = installation_grant(call)?;
    let id: Option<u64> = call.query.get("repository_id").and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| {
        ApiError::field(
            "Search",
            "repository_id",
            Code::MissingField,
            "repository_id is required and an integer",
        )
    })?;
    let repository = call
        .world
        .repositories
        .get(&id)
        .filter(|repository| access::sees(call.world, call.caller, repository));
    let repository = repository.ok_or(ApiError::NotFound)?;
    let renderer = Renderer::of(call);
    let found = repository.labels.values().filter(|label| {
        installation_grant.iter().all(|term| label.name.to_lowercase().contains(term))
    });
    Ok(hits(call, found.map(|label| renderer.label(repository, label)).collect()))
}

fn search_topics(call: &mut Call<'_>) -> Outcome {
    let installation_grant = installation_grant(call)?;
    let public = call
        .world
        .repositories
        .values()
        .filter(|repository| repository.visibility == Visibility::Public);
    let topics: std::collections::BTreeSet<&String> =
        public.flat_map(|repository| &repository.topics).collect();
    let found = topics
        .into_iter()
        .filter(|topic| installation_grant.iter().all(|term| topic.contains(term.as_str())));
    Ok(hits(call, found.map(|topic| json!({ "name": topic, "display_name": null, "featured": false, "curated": false })).collect()))
}

fn search_commits(call: &mut Call<'_>) -> Outcome {
    let installation_grant = installation_grant(call)?;
    let renderer = Renderer::of(call);
    let mut found = Vec::new();
    let visible = call
        .world
        .repositories
        .values()
        .filter(|repository| access::sees(call.world, call.caller, repository));
    for repository in visible {
        let full_name = call.world.full_name(repository).to_lowercase();
        let has = |message: &str, term: &str| match term.split_once(':') {
            Some(("repo", name)) => full_name == name,
            Some(("user" | "org", login)) => full_name.split('/').next() == Some(login),
            _ => message.to_lowercase().contains(term),
        };
        let history = call.world.history(repository);
        let log = history.tip(repository).into_iter().flat_map(|tip| history.until(tip));
        let hits =
            log.filter(|commit| installation_grant.iter().all(|term| has(&commit.message, term)));
        for commit in hits.take(HITS_MAX.saturating_sub(found.len())) {
            let mut value = renderer.commit(repository, commit);
            extend(&mut value, json!({ "repository": renderer.repository(repository) }));
            found.push(value);
        }
    }
    Ok(hits(call, found))
}

/// Files are not indexed.
fn search_code(call: &mut Call<'_>) -> Outcome {
    installation_grant(call)?;
    Ok(hits(call, Vec::new()))
}
