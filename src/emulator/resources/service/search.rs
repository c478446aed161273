//! Searches: plain words and a few qualifiers (`search_terms`). Those for issues are in
//! `issue_search`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::issue_search;
use super::search_terms::{self, Term, wrong};
use crate::emulator::http::ranges::Range;
use crate::emulator::http::{ApiError, Code, Reply};
use crate::emulator::limits::Resource;
use crate::emulator::render::extend;
use crate::emulator::resources::users::directory;
use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Label, Owner, Repository, Visibility};

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

/// Of repositories: the checked qualifiers of visibility, and the others as they are.
fn search_repositories(call: &mut Call<'_>) -> Outcome {
    let qualifiers =
        ["archived", "fork", "forks", "is", "language", "org", "repo", "stars", "topic", "user"];
    let terms = terms(call, &qualifiers)?;
    for Term { qualifier, value, .. } in &terms {
        match qualifier.as_deref() {
            Some(name @ ("stars" | "forks")) => {
                search_terms::numbers(name, value)?;
            }
            Some("is") if !matches!(&**value, "public" | "private" | "archived") => {
                return Err(wrong("is", "public, private or archived"));
            }
            Some("archived") if !matches!(&**value, "true" | "false") => {
                return Err(wrong("archived", "true or false"));
            }
            Some("fork") if !matches!(&**value, "true" | "only" | "false") => {
                return Err(wrong("fork", "true, only or false"));
            }
            _ => {}
        }
    }
    let has = |repository: &Repository, qualifier: Option<&str>, value: &str| {
        let full_name = call.world.full_name(repository).to_lowercase();
        let in_range =
            |count: usize| Range::of_numbers(value).is_some_and(|range| range.has(count as u64));
        let is_archived = repository.features.get("archived") == Some(&true);
        match (qualifier, value) {
            (Some("repo"), name) => full_name == name,
            (Some("user" | "org"), login) => full_name.split('/').next() == Some(login),
            (Some("language"), language) => {
                repository.language.is_some_and(|known| known.eq_ignore_ascii_case(language))
            }
            (Some("topic"), topic) => repository.topics.iter().any(|known| known == topic),
            (Some("is"), "public") => repository.visibility == Visibility::Public,
            (Some("is"), "private") => repository.visibility == Visibility::Private,
            (Some("is"), _) => is_archived,
            (Some("archived"), wanted) => is_archived == (wanted == "true"),
            (Some("fork"), "only") => repository.fork_of.is_some(),
            (Some("fork"), wanted) => wanted == "true" || repository.fork_of.is_none(),
            (Some("stars"), _) => in_range(repository.stars.len()),
            (Some("forks"), _) => in_range(repository.forks.len()),
            (_, text) => {
                full_name.contains(text) || repository.description.to_lowercase().contains(text)
            }
        }
    };
    let found = call.visible_repositories();
    let found = found.filter(|repository| all(&terms, |name, value| has(repository, name, value)));
    let found: Vec<&Repository> = found.take(HITS_MAX).collect();
    let renderer = call.renderer();
    Ok(hits(call, found.len(), found, |repository| renderer.repository(repository)))
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
    let terms = terms(call, &["org", "repo", "user"])?;
    let renderer = call.renderer();
    let mut found = Vec::new();
    for repository in call.visible_repositories() {
        let full_name = call.world.full_name(repository).to_lowercase();
        let has = |message: &str, qualifier: Option<&str>, value: &str| match qualifier {
            Some("repo") => full_name == value,
            Some(_) => full_name.split('/').next() == Some(value),
            None => message.to_lowercase().contains(value),
        };
        let history = call.world.history(repository);
        let log = history.tip(repository).into_iter().flat_map(|tip| history.until(tip));
        let hits = log.filter(|commit| {
            all(&terms, |qualifier, value| has(&commit.message, qualifier, value))
        });
        for commit in hits.take(HITS_MAX.saturating_sub(found.len())) {
            let mut value = renderer.commit(repository, commit);
            extend(&mut value, json!({ "repository": renderer.repository(repository) }));
            found.push(value);
        }
    }
    Ok(hits(call, found.len(), found, |commit| commit))
}

/// Files are not indexed.
fn search_code(call: &mut Call<'_>) -> Outcome {
    terms(call, &["extension", "filename", "in", "language", "org", "path", "repo", "user"])?;
    Ok(hits(call, 0, Vec::new(), |file: Value| file))
}
