//! Searches: plain words and a few qualifiers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::emulator::http::{ApiError, Code, Reply};
use crate::emulator::limits::Resource;
use crate::emulator::render::extend;
use crate::emulator::resources::issues::labels;
use crate::emulator::resources::users::directory;
use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Issue, Label, Owner, Repository, Visibility};

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

/// Splits a search into its words and qualifiers, in lower case.
fn terms(call: &Call<'_>) -> Result<Vec<String>, ApiError> {
    let wanted = call.query.get("q").map(str::trim).filter(|wanted| !wanted.is_empty());
    let missing = || ApiError::field("Search", "q", Code::MissingField, "q is required");
    let wanted = wanted.ok_or_else(missing)?.to_lowercase();
    Ok(wanted.split_whitespace().map(str::to_owned).collect())
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
    let terms = terms(call)?;
    let mut found: Vec<(&Repository, &Issue)> = Vec::new();
    for repository in searched(call, &terms) {
        let full_name = call.world.full_name(repository).to_lowercase();
        let has = |issue: &&Issue| {
            terms.iter().all(|term| issue_has(call, &full_name, repository, issue, term))
        };
        found.extend(repository.issues.values().filter(has).map(|issue| (repository, issue)));
    }
    let total = found.len();
    found.truncate(HITS_MAX);
    let renderer = call.renderer();
    Ok(hits(call, total, found, |(repository, issue)| renderer.issue(repository, issue)))
}

/// Returns the visible repository that a term names, or all.
fn searched<'a>(call: &'a Call<'_>, terms: &[String]) -> Vec<&'a Repository> {
    let named = terms.iter().find_map(|term| term.strip_prefix("repo:")?.split_once('/'));
    let Some((owner, name)) = named else { return call.visible_repositories().collect() };
    let named = call.world.repository_named(owner, name);
    named.filter(|repository| call.sees(repository)).into_iter().collect()
}

/// Unknown qualifiers count as words.
fn issue_has(
    call: &Call<'_>,
    full_name: &str,
    repository: &Repository,
    issue: &Issue,
    term: &str,
) -> bool {
    match term.split_once(':') {
        Some(("repo", name)) => full_name == name,
        Some(("org" | "user", login)) => full_name.split('/').next() == Some(login),
        Some(("is" | "type", "issue")) => issue.pull_from.is_none(),
        Some(("is" | "type", "pr")) => issue.pull_from.is_some(),
        Some(("is" | "state", state @ ("open" | "closed"))) => issue.state.into_str() == state,
        Some(("author", login)) => call.world.login(issue.author).eq_ignore_ascii_case(login),
        Some(("label", name)) => {
            let name = name.trim_matches('"');
            let mut labels = labels::of_issue(repository, issue);
            labels.any(|label| label.name.eq_ignore_ascii_case(name))
        }
        _ => {
            issue.title.to_lowercase().contains(term)
                || issue.body.as_deref().is_some_and(|body| body.to_lowercase().contains(term))
        }
    }
}

fn search_repositories(call: &mut Call<'_>) -> Outcome {
    let terms = terms(call)?;
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
    let found = call.visible_repositories();
    let found = found.filter(|repository| terms.iter().all(|term| has(repository, term)));
    let found: Vec<&Repository> = found.take(HITS_MAX).collect();
    let renderer = call.renderer();
    Ok(hits(call, found.len(), found, |repository| renderer.repository(repository)))
}

fn search_users(call: &mut Call<'_>) -> Outcome {
    let terms = terms(call)?;
    let has = |login: &str, name: &str, kind: &str| {
        terms.iter().all(|term| match term.split_once(':') {
            Some(("type", wanted)) => kind == wanted,
            Some(("user" | "org", wanted)) => login.eq_ignore_ascii_case(wanted),
            _ => login.to_lowercase().contains(term) || name.to_lowercase().contains(term),
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
    let terms = terms(call)?;
    let id: Option<u64> = call.query.get("repository_id").and_then(|id| id.parse().ok());
    let Some(id) = id else {
        let message = "repository_id is required and an integer";
        return Err(ApiError::field("Search", "repository_id", Code::MissingField, message));
    };
    let repository = call.world.repositories.get(&id).filter(|repository| call.sees(repository));
    let repository = repository.ok_or(ApiError::NotFound)?;
    let has = |name: &str| terms.iter().all(|term| name.to_lowercase().contains(term));
    let found: Vec<&Label> = repository.labels.values().filter(|label| has(&label.name)).collect();
    Ok(hits(call, found.len(), found, |label| call.renderer().label(repository, label)))
}

fn search_topics(call: &mut Call<'_>) -> Outcome {
    let terms = terms(call)?;
    let mut topics: BTreeSet<&str> = BTreeSet::new();
    for repository in directory::public_repositories(call) {
        topics.extend(repository.topics.iter().map(String::as_str));
    }
    topics.retain(|topic| terms.iter().all(|term| topic.contains(term)));
    let render =
        |topic| json!({ "name": topic, "display_name": null, "featured": false, "curated": false });
    Ok(hits(call, topics.len(), topics.into_iter().collect(), render))
}

fn search_commits(call: &mut Call<'_>) -> Outcome {
    let terms = terms(call)?;
    let renderer = call.renderer();
    let mut found = Vec::new();
    for repository in call.visible_repositories() {
        let full_name = call.world.full_name(repository).to_lowercase();
        let has = |message: &str, term: &str| match term.split_once(':') {
            Some(("repo", name)) => full_name == name,
            Some(("user" | "org", login)) => full_name.split('/').next() == Some(login),
            _ => message.to_lowercase().contains(term),
        };
        let history = call.world.history(repository);
        let log = history.tip(repository).into_iter().flat_map(|tip| history.until(tip));
        let hits = log.filter(|commit| terms.iter().all(|term| has(&commit.message, term)));
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
    terms(call)?;
    Ok(hits(call, 0, Vec::new(), |file: Value| file))
}
