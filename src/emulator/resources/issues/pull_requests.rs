//! Pull requests from opening to merging. A pull request is an issue with a branch; the generic
//! store keeps reviews.

use http::StatusCode;
use serde_json::{Value, json};

use super::{issue, listing};
use crate::emulator::accounts::Level;
use crate::emulator::events::changes;
use crate::emulator::events::issues::{Before, publish_changes};
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::resources::code::branches::join;
use crate::emulator::resources::code::commits::files;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::{Commit, Detail, History, Issue, IssueState, Repository};

pub const READ: Need = Need::repository("pull_requests", Level::Read, Role::Read);
const PROPOSE: Need = Need::repository("pull_requests", Level::Write, Role::Take);
pub const CHANGE: Need = Need::repository("pull_requests", Level::Write, Role::Push);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/pulls", READ, list),
    Route::get("/repos/{owner}/{repo}/pulls/{number}", READ, get),
    Route::post("/repos/{owner}/{repo}/pulls", PROPOSE, create).content(),
    Route::patch("/repos/{owner}/{repo}/pulls/{number}", PROPOSE, change),
    Route::get("/repos/{owner}/{repo}/pulls/{number}/commits", READ, commits),
    Route::get("/repos/{owner}/{repo}/pulls/{number}/files", READ, changed_files),
    Route::get("/repos/{owner}/{repo}/pulls/{number}/merge", READ, is_merged),
    Route::put("/repos/{owner}/{repo}/pulls/{number}/merge", CHANGE, merge),
    Route::put("/repos/{owner}/{repo}/pulls/{number}/update-branch", CHANGE, update_branch),
];

pub fn named<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<&'a Issue, ApiError> {
    let issue = repository.issues.get(&call.params.id("number")?);
    issue.filter(|issue| issue.pull_from.is_some()).ok_or(ApiError::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let pulls = listing::pulls(call, repository)?;
    call.page(pulls, |renderer, pull| renderer.pull(repository, pull))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let (repository, renderer) = (call.repository()?, call.renderer());
    let pull = named(call, repository)?;
    // Both branches show the whole repository.
    let changed_at = pull.updated_at.max(renderer.repository_changed_at(repository));
    Ok(Reply::ok(renderer.pull(repository, pull)).changed_at(changed_at))
}

pub fn render(call: &Call<'_>, number: u64) -> Result<Value, ApiError> {
    let repository = call.repository()?;
    let pull = repository.issues.get(&number).ok_or(ApiError::NotFound)?;
    Ok(call.renderer().pull(repository, pull))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("PullRequest", call.body)?;
    let [title, head, base] = ["title", "head", "base"].map(|name| fields.required_string(name));
    let body = fields.nullable_string("body").value();
    let is_draft = fields.boolean("draft").unwrap_or(false);
    let _ = fields.boolean("maintainer_can_modify");
    let repository = call.repository()?;
    let history = call.world.history(repository);
    // `OWNER:BRANCH` of this same repository: other sources are not modelled.
    let from = head.rsplit_once(':').map_or(head.as_str(), |(_, branch)| branch).to_owned();
    for (field, branch) in [("head", &from), ("base", &base)] {
        if !branch.is_empty() && history.head(branch).is_none() {
            fields.invalid(field, format!("{field} is no branch of the repository"));
        }
    }
    let is_same =
        |issue: &Issue| issue.state == IssueState::Open && issue.pull_from.as_ref() == Some(&from);
    if !from.is_empty() && repository.issues.values().any(is_same) {
        let message = format!("A pull request already exists for {from}");
        fields.reject("head", Code::AlreadyExists, message);
    } else if !from.is_empty() && from == base {
        fields.invalid("head", "head and base are the same branch");
    }
    fields.check()?;
    ApiError::unless_spammed("PullRequest", call.repository()?.issues.len())?;
    let (now, author, id) = (call.now, call.actor(), call.world.next_id());
    let repository = call.repository_mut()?;
    let number = repository.issues.keys().next_back().copied().unwrap_or(0) + 1;
    let pull = Issue {
        body,
        pull_from: Some(from),
        pull_into: Some(base),
        is_draft,
        ..Issue::new(id, number, title, author, now)
    };
    repository.issues.insert(number, pull);
    repository.updated_at = now;
    let opened = ("opened", Detail::None);
    changes::issue_changed(call.world, call.urls, now, call.repository, number, author, opened);
    Ok(Reply::created_at_url(render(call, number)?))
}

fn change(call: &mut Call<'_>) -> Outcome {
    let pull = named(call, call.repository()?)?;
    issue::must_be_author_or_push(call, pull.author)?;
    let (number, is_merged) = (pull.number, pull.merged.is_some());
    let mut fields = Fields::parse("PullRequest", call.body)?;
    let title = fields.has("title").then(|| fields.required_string("title"));
    let body = fields.nullable_string("body");
    let base = fields.string("base");
    let history = call.history()?;
    if base.as_ref().is_some_and(|base| history.head(base).is_none()) {
        fields.invalid("base", "base is no branch of the repository");
    }
    let allowed = |name: &str| {
        issue::state_named(name).filter(|state| !is_merged || *state == IssueState::Closed)
    };
    let message = "state must be open or closed, and a merged pull stays closed";
    let state = fields.choice("state", allowed, message);
    fields.check()?;
    let now = call.now;
    let pull = call.repository_mut()?.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    let before = Before::of(pull);
    pull.title = title.unwrap_or_else(|| std::mem::take(&mut pull.title));
    pull.body = body.of(pull.body.take());
    pull.pull_into = base.or_else(|| pull.pull_into.take());
    issue::change_state(pull, state, now);
    pull.updated_at = now;
    publish_changes(call, &before)?;
    Ok(Reply::ok(render(call, number)?))
}

fn branches(call: &Call<'_>) -> Result<(String, String), ApiError> {
    let repository = call.repository()?;
    let pull = named(call, repository)?;
    Ok((
        pull.pull_into.clone().unwrap_or_else(|| repository.default_branch.clone()),
        pull.pull_from.clone().unwrap_or_default(),
    ))
}

/// Lists the commits that only the source branch has; a deleted branch has none.
pub fn ahead(call: &Call<'_>, repository: &Repository, pull: &Issue) -> Vec<Commit> {
    let history = call.world.history(repository);
    let ends = ends(&history, repository, pull);
    let ahead = ends.map(|(base, head)| history.compare(base, head).ahead).unwrap_or_default();
    ahead.iter().filter_map(|sha| history.commit(sha).cloned()).collect()
}

/// Lists the files that the source branch changes.
pub fn changes(call: &Call<'_>, repository: &Repository, pull: &Issue) -> Vec<Value> {
    let history = call.world.history(repository);
    let changed = ends(&history, repository, pull).and_then(|(base, head)| {
        let merge_base = history.compare(base, head).merge_base?;
        Some(files(call, repository, history.commit(&merge_base)?, head))
    });
    changed.unwrap_or_default()
}

/// The newest commits of the target and the source.
fn ends<'h>(
    history: &'h History,
    repository: &Repository,
    pull: &Issue,
) -> Option<(&'h Commit, &'h Commit)> {
    let base = pull.pull_into.as_ref().unwrap_or(&repository.default_branch);
    history.head(base).zip(history.head(pull.pull_from.as_deref()?))
}

fn commits(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let ahead = ahead(call, repository, named(call, repository)?);
    call.page(&ahead, |renderer, commit| renderer.commit(repository, commit))
}

fn changed_files(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let changed = changes(call, repository, named(call, repository)?);
    call.page(changed, |_, file| file)
}

fn is_merged(call: &mut Call<'_>) -> Outcome {
    let is_merged = named(call, call.repository()?)?.merged.is_some();
    Reply::no_content_if(is_merged)
}

/// An impossible merge is a 422: the running service's 405 and 409 are undocumented.
fn merge(call: &mut Call<'_>) -> Outcome {
    let (base, head) = branches(call)?;
    let pull = named(call, call.repository()?)?;
    let (number, title, state) = (pull.number, pull.title.clone(), pull.state);
    let mut fields = Fields::parse("PullRequest", call.body)?;
    let wanted = fields.string("sha");
    let method = fields.string("merge_method");
    if method.is_some_and(|method| !matches!(&*method, "merge" | "squash" | "rebase")) {
        fields.invalid("merge_method", "merge_method must be merge, squash or rebase");
    }
    let message = fields
        .string("commit_title")
        .unwrap_or_else(|| format!("Merge pull request #{number} from {head}\n\n{title}"));
    let _ = fields.string("commit_message");
    let tip = call.history()?.head(&head).map(|commit| commit.sha.clone());
    if state == IssueState::Closed || tip.is_none() {
        fields.invalid("state", "Pull Request is not mergeable");
    }
    if wanted.is_some() && wanted != tip {
        fields.invalid("sha", "Head branch was modified");
    }
    fields.check()?;
    let sha = join(call, &base, &head, message)?.or(tip).unwrap_or_default();
    let now = call.now;
    let pull = call.repository_mut()?.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    let before = Before::of(pull);
    pull.merged = Some((now, sha.clone()));
    pull.state = IssueState::Closed;
    pull.closed_at = Some(now);
    pull.updated_at = now;
    publish_changes(call, &before)?;
    Ok(Reply::ok(
        json!({ "sha": sha, "merged": true, "message": "Pull Request successfully merged" }),
    ))
}

/// A merge commit of the target on the source branch.
fn update_branch(call: &mut Call<'_>) -> Outcome {
    let (base, head) = branches(call)?;
    let number = named(call, call.repository()?)?.number;
    let mut fields = Fields::parse("PullRequest", call.body)?;
    let expected = fields.string("expected_head_sha");
    let tip = call.history()?.head(&head).map(|commit| commit.sha.clone());
    if tip.is_none() || expected.is_some_and(|expected| Some(expected) != tip) {
        let message = "expected_head_sha is not the head of the pull request";
        fields.invalid("expected_head_sha", message);
    }
    fields.check()?;
    join(call, &head, &base, format!("Merge branch '{base}' into {head}"))?;
    let url = format!("{}/pulls/{number}", call.renderer().repository_url(call.repository()?));
    let value = json!({ "message": "Updating pull request branch.", "url": url });
    Ok(Reply::json(StatusCode::ACCEPTED, value))
}
