//! Searches: plain words and qualifiers (`search_terms`). Each large kind of search has its own
//! file.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::search_terms::{self, Term, wrong};
use super::{code_search, commit_search, issue_search, repository_search};
use crate::emulator::http::{ApiError, Code, Reply};
use crate::emulator::limits::Resource;
use crate::emulator::render::extend;
use crate::emulator::resources::users::directory;
use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Label, Owner};

pub const ROUTES: &[Route] = &[
    Route::get("/search/issues", Need::Nothing, search_issues).resource(Resource::SEARCH),
    Route::get("/search/repositories", Need::Nothing, search_repositories)
        .resource(Resource::SEARCH),
    Route::get("/search/users", Need::Nothing, search_users).resource(Resource::SEARCH),
    Route::get("/search/labels", Need::Nothing, search_labels).resource(Resource::SEARCH),
    Route::get("/search/topics", Need::Nothing, search_topics).resource(Resource::SEARCH),
    Route::get("/search/commits", Need::Nothing, search_commits).resource(Resource::SEARCH),
    Route::get("/search/code", Need::Nothing, search_code).resource(Resource::CODE_SEARCH),
];

/// The running service's limit of hits.
const HITS_MAX: usize = 1_000;

fn wanted<'a>(call: &'a Call<'_>) -> Result<&'a str, ApiError> {
    let wanted = call.query.get("q").map(str::trim).filter(|wanted| !wanted.is_empty());
    let missing = || ApiError::field("Search", "q", Code::MissingField, "q is required");
    wanted.ok_or_else(missing)
}

fn terms(call: &Call<'_>, qualifiers: &[&str]) -> Result<Vec<Term>, ApiError> {
    search_terms::parse(wanted(call)?, qualifiers)
}

/// True when all terms hold; a negated one must not.
fn all(terms: &[Term], has: impl Fn(Option<&str>, &str) -> bool) -> bool {
    terms.iter().all(|term| has(term.qualifier.as_deref(), &term.value) != term.negated)
}

fn hits<T>(call: &Call<'_>, total: usize, found: Vec<T>, render: impl Fn(T) -> Value) -> Reply {
    let (shown, link) = pagination::cut(call, USUAL, found);
    let scored = |item| {
        let mut item = render(item);
        extend(&mut item, json!({ "score": 1.0 }));
        item
    };
    let items: Vec<Value> = shown.into_iter().map(scored).collect();
    let mut reply =
        Reply::ok(json!({ "total_count": total, "incomplete_results": false, "items": items }));
    reply.headers.extend(link);
    reply
}

fn search_issues(call: &mut Call<'_>) -> Outcome {
    let mut found = issue_search::find(call, wanted(call)?)?;
    let total = found.len();
    found.truncate(HITS_MAX);
    let renderer = call.renderer();
    Ok(hits(call, total, found, |(repository, issue)| renderer.issue(repository, issue)))
}

fn search_repositories(call: &mut Call<'_>) -> Outcome {
    let mut found = repository_search::find(call, wanted(call)?)?;
    let total = found.len();
    found.truncate(HITS_MAX);
    let renderer = call.renderer();
    Ok(hits(call, total, found, |repository| renderer.repository(repository)))
}

fn search_users(call: &mut Call<'_>) -> Outcome {
    let terms = terms(call, &["org", "type", "user"])?;
    let is_type = |term: &Term| term.qualifier.as_deref() == Some("type");
    if terms.iter().any(|term| is_type(term) && !matches!(&*term.value, "user" | "org")) {
        return Err(wrong("type", "user or org"));
    }
    let has = |login: &str, name: &str, kind: &str| {
        all(&terms, |qualifier, value| match qualifier {
            Some("type") => kind == value,
            Some(_) => login.eq_ignore_ascii_case(value),
            None => login.to_lowercase().contains(value) || name.to_lowercase().contains(value),
        })
    };
    let users = call.world.users.values();
    let users =
        users.filter(|user| has(&user.login, &user.name, "user")).map(|user| Owner::User(user.id));
    let organizations = call.world.organizations.values();
    let organizations = organizations
        .filter(|one| has(&one.login, &one.login, "org"))
        .map(|one| Owner::Organization(one.id));
    let found: Vec<Owner> = users.chain(organizations).collect();
    Ok(hits(call, found.len(), found, |owner| call.renderer().owner_summary(owner)))
}

fn search_labels(call: &mut Call<'_>) -> Outcome {
    let terms = terms(call, &[])?;
    let id: Option<u64> = call.query.get("repository_id").and_then(|id| id.parse().ok());
    let Some(id) = id else {
        let message = "repository_id is required and an integer";
        return Err(ApiError::field("Search", "repository_id", Code::MissingField, message));
    };
    let repository = call.world.repositories.get(&id).filter(|repository| call.sees(repository));
    let repository = repository.ok_or(ApiError::NotFound)?;
    let has = |name: &str| all(&terms, |_, text| name.to_lowercase().contains(text));
    let found: Vec<&Label> = repository.labels.values().filter(|label| has(&label.name)).collect();
    Ok(hits(call, found.len(), found, |label| call.renderer().label(repository, label)))
}

fn search_topics(call: &mut Call<'_>) -> Outcome {
    let terms = terms(call, &[])?;
    let mut topics: BTreeSet<&str> = BTreeSet::new();
    for repository in directory::public_repositories(call) {
        topics.extend(repository.topics.iter().map(String::as_str));
    }
    topics.retain(|topic| all(&terms, |_, text| topic.contains(text)));
    let render =
        |topic| json!({ "name": topic, "display_name": null, "featured": false, "curated": false });
    Ok(hits(call, topics.len(), topics.into_iter().collect(), render))
}

fn search_commits(call: &mut Call<'_>) -> Outcome {
    let found = commit_search::find(call, wanted(call)?, HITS_MAX)?;
    let renderer = call.renderer();
    Ok(hits(call, found.len(), found, |(repository, commit)| {
        let mut value = renderer.commit(repository, &commit);
        extend(&mut value, json!({ "repository": renderer.repository(repository) }));
        value
    }))
}

fn search_code(call: &mut Call<'_>) -> Outcome {
    let found = code_search::find(call, wanted(call)?, HITS_MAX)?;
    Ok(hits(call, found.len(), found, |file| file))
}
