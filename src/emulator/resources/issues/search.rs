//! Issue search: plain words and a few qualifiers, charged to the resource `search`.

use serde_json::{Value, json};

use crate::emulator::auth::access;
use crate::emulator::http::{ApiError, Code, Reply};
use crate::emulator::limits::Resource;
use crate::emulator::render::{Renderer, extend};
use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Issue, Repository};

/// The real service's limit of hits.
const HITS_MAX: usize = 1_000;

pub const ROUTES: &[Route] =
    &[Route::get("/search/issues", Need::Nothing, issues).resource(Resource::SEARCH)];

fn issues(call: &mut Call<'_>) -> Outcome {
    let wanted = call.query.get("q").map(str::trim).filter(|wanted| !wanted.is_empty());
    let wanted = wanted
        .ok_or_else(|| ApiError::field("Search", "q", Code::MissingField, "q is required"))?
        .to_lowercase();
    let installation_grant: Vec<&str> = wanted.split_whitespace().collect();
    let mut hits: Vec<(&Repository, &Issue)> = Vec::new();
    let mut total = 0_usize;
    for repository in searched(call, &installation_grant)
        .filter(|repository| access::sees(call.world, call.caller, repository))
    {
        let full_name = call.world.full_name(repository).to_lowercase();
        for issue in repository.issues.values().filter(|issue| {
            installation_grant.iter().all(|term| matches(call, &full_name, repository, issue, term))
        }) {
            total += 1;
            if hits.len() < HITS_MAX {
                hits.push((repository, issue));
            }
        }
    }
    let renderer = Renderer::of(call);
    let (shown, link) = pagination::cut(call, USUAL, hits);
    let items: Vec<Value> = shown
        .into_iter()
        .map(|(repository, issue)| {
            let mut item = renderer.issue(repository, issue);
            extend(&mut item, json!({ "score": 1.0 }));
            item
        })
        .collect();
    let mut reply =
        Reply::ok(json!({ "total_count": total, "incomplete_results": false, "items": items }));
    reply.headers.extend(link);
    Ok(reply)
}

/// Returns the searched repositories: the one that a term names, or all.
fn searched<'a>(
    call: &'a Call<'_>,
    installation_grant: &[&str],
) -> Box<dyn Iterator<Item = &'a Repository> + 'a> {
    let named =
        installation_grant.iter().find_map(|term| term.strip_prefix("repo:")?.split_once('/'));
    match named {
        Some((owner, name)) => Box::new(call.world.repository_named(owner, name).into_iter()),
        None => Box::new(call.world.repositories.values()),
    }
}

/// Unknown qualifiers count as words.
fn matches(
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
            issue
                .labels
                .iter()
                .filter_map(|id| repository.labels.get(id))
                .any(|label| label.name.eq_ignore_ascii_case(name))
        }
        _ => {
            issue.title.to_lowercase().contains(term)
                || issue.body.as_deref().is_some_and(|body| body.to_lowercase().contains(term))
        }
    }
}
