//! Pull requests from opening to merging. A pull request is an issue with a branch; the generic
//! store keeps reviews.

use http::StatusCode;
use serde_json::{Value, json};

use super::{issue, listing};
use crate::emulator::accounts::Level;
use crate::emulator::events::changes;
use crate::emulator::events::changes::{EventContext, EventScope};
use crate::emulator::events::issues::{Before, publish_changes, publish_changes_in};
use crate::emulator::events::pushes;
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::resources::code::branches::{self, join};
use crate::emulator::resources::code::commits::files;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::repositories::issues::ForkHead;
use crate::emulator::world::{Commit, Detail, History, Issue, IssueState, Repository, World};

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

/// A pull request to open.
#[derive(Debug)]
pub struct Proposal {
    pub title: String,
    pub body: Option<String>,
    /// `BRANCH`, or `OWNER:BRANCH` of a fork.
    pub head: String,
    /// The name of the fork, if its owner has several.
    pub head_repository: Option<String>,
    pub base: String,
    pub is_draft: bool,
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("PullRequest", call.body)?;
    let [title, head, base] = ["title", "head", "base"].map(|name| fields.required_string(name));
    let body = fields.nullable_string("body").value();
    let is_draft = fields.boolean("draft").unwrap_or(false);
    let _ = fields.boolean("maintainer_can_modify");
    let head_repository = fields.string("head_repo");
    let proposal = Proposal { title, body, head, head_repository, base, is_draft };
    let number = open(call, fields, proposal)?;
    Ok(Reply::created_at_url(render(call, number)?))
}

/// Opens a pull request and returns its number; `fields` has the errors so far.
pub fn open(call: &mut Call<'_>, mut fields: Fields, proposal: Proposal) -> Result<u64, ApiError> {
    let Proposal { title, body, head, head_repository, base, is_draft } = proposal;
    let repository = call.repository()?;
    let (owner, from) = match head.split_once(':') {
        Some((owner, branch)) => (Some(owner), branch.to_owned()),
        None => (None, head.clone()),
    };
    let source = source(call, repository, owner, head_repository.as_deref());
    let history = call.world.history(repository);
    let tip = source.and_then(|source| call.world.history(source).head(&from).cloned());
    if !from.is_empty() && tip.is_none() {
        fields.invalid("head", "head is no branch of the repository or of its forks");
    }
    if !base.is_empty() && history.head(&base).is_none() {
        fields.invalid("base", "base is no branch of the repository");
    }
    let fork = source.zip(tip).filter(|(source, _)| source.id != repository.id);
    let fork = fork.map(|(source, tip)| ForkHead { repository: source.id, sha: tip.sha });
    let of_fork = |fork: &Option<ForkHead>| fork.as_ref().map(|fork| fork.repository);
    let is_same = |issue: &Issue| {
        issue.state == IssueState::Open
            && issue.pull_from.as_ref() == Some(&from)
            && of_fork(&issue.fork) == of_fork(&fork)
    };
    if !from.is_empty() && repository.issues.values().any(is_same) {
        let message = format!("A pull request already exists for {from}");
        fields.reject("head", Code::AlreadyExists, message);
    } else if !from.is_empty() && fork.is_none() && from == base {
        fields.invalid("head", "head and base are the same branch");
    }
    fields.check()?;
    ApiError::unless_spammed("PullRequest", call.repository()?.issues.len())?;
    let repository = call.repository;
    if let Some(fork) = &fork {
        pushes::adopt(call.world, repository, fork.repository, &fork.sha)?;
    }
    let (now, author, id) = (call.now, call.actor(), call.world.next_id());
    let found = call.repository_mut()?;
    let number = found.issues.keys().next_back().copied().unwrap_or(0) + 1;
    let pull = Issue {
        body,
        pull_from: Some(from),
        fork,
        pull_into: Some(base),
        is_draft,
        ..Issue::new(id, number, title, author, now)
    };
    found.issues.insert(number, pull);
    found.updated_at = now;
    let opened = ("opened", Detail::None);
    changes::issue_changed(call.world, call.urls, now, repository, number, author, opened);
    Ok(number)
}

/// Finds the repository of a source branch: this one, or a visible fork by its owner and name.
fn source<'a>(
    call: &'a Call<'_>,
    base: &'a Repository,
    owner: Option<&str>,
    name: Option<&str>,
) -> Option<&'a Repository> {
    let is_it = |repository: &&Repository| {
        let login = call.world.owner_login(repository.owner);
        owner.is_none_or(|owner| login.eq_ignore_ascii_case(owner))
            && name.is_none_or(|name| repository.name.eq_ignore_ascii_case(name))
            && call.sees(repository)
    };
    let network = call.world.network(base.id);
    let forks = network.into_iter().filter_map(|id| call.world.repositories.get(&id));
    std::iter::once(base).chain(forks).find(is_it)
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
    history.head(base).zip(history.pull_source(pull))
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

/// Target and source of the pull request in the path.
struct Ends {
    base: String,
    /// The source as a label names it.
    head: String,
    /// The newest commit of the source, if its branch is there.
    tip: Option<String>,
    is_from_fork: bool,
}

fn ends_of(world: &World, repository: u64, number: u64) -> Result<Ends, ApiError> {
    let repository = world.repositories.get(&repository).ok_or(ApiError::NotFound)?;
    let pull = repository.issues.get(&number).ok_or(ApiError::NotFound)?;
    let source = world.pull_repository(repository, pull);
    let owner = source.map_or("unknown", |source| world.owner_login(source.owner));
    let branch = pull.pull_from.clone().unwrap_or_default();
    let history = world.history(repository);
    Ok(Ends {
        base: pull.pull_into.clone().unwrap_or_else(|| repository.default_branch.clone()),
        head: if pull.fork.is_some() { format!("{owner}/{branch}") } else { branch },
        tip: history.pull_source(pull).map(|commit| commit.sha.clone()),
        is_from_fork: pull.fork.is_some(),
    })
}

fn merge(call: &mut Call<'_>) -> Outcome {
    let number = named(call, call.repository()?)?.number;
    let mut fields = Fields::parse("PullRequest", call.body)?;
    let wanted = fields.string("sha");
    let method = fields.string("merge_method");
    if method.is_some_and(|method| !matches!(&*method, "merge" | "squash" | "rebase")) {
        fields.invalid("merge_method", "merge_method must be merge, squash or rebase");
    }
    let title = fields.string("commit_title");
    let _ = fields.string("commit_message");
    let sha = merge_now(call, fields, number, (wanted, title))?;
    Ok(Reply::ok(
        json!({ "sha": sha, "merged": true, "message": "Pull Request successfully merged" }),
    ))
}

/// Merges a pull request and returns the new commit. An impossible merge is a 422: the running
/// service's 405 and 409 are undocumented.
pub fn merge_now(
    call: &mut Call<'_>,
    mut fields: Fields,
    number: u64,
    (wanted, title): (Option<String>, Option<String>),
) -> Result<String, ApiError> {
    let tip = ends_of(call.world, call.repository, number)?.tip;
    let pull = call.repository()?.issues.get(&number).ok_or(ApiError::NotFound)?;
    if pull.state == IssueState::Closed || tip.is_none() || pull.is_draft {
        fields.invalid("state", "Pull Request is not mergeable");
    }
    if wanted.is_some() && wanted != tip {
        fields.invalid("sha", "Head branch was modified");
    }
    fields.check()?;
    merge_in(call.world, EventContext::of(call), number, title)
}

/// Merges an open pull request of the repository of the context.
pub fn merge_in(
    world: &mut World,
    context: EventContext<'_>,
    number: u64,
    title: Option<String>,
) -> Result<String, ApiError> {
    let EventScope::Repository(repository) = context.scope else {
        return Err(ApiError::NotFound);
    };
    let Ends { base, head, tip, .. } = ends_of(world, repository, number)?;
    let tip = tip.ok_or(ApiError::NotFound)?;
    let found = world.repositories.get(&repository).ok_or(ApiError::NotFound)?;
    let pull = found.issues.get(&number).ok_or(ApiError::NotFound)?;
    let message = title
        .unwrap_or_else(|| format!("Merge pull request #{number} from {head}\n\n{}", pull.title));
    let sha = branches::join_in(world, context, (&base, &tip), message)?.unwrap_or(tip);
    let found = world.repositories.get_mut(&repository).ok_or(ApiError::NotFound)?;
    let pull = found.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    let before = Before::of(pull);
    pull.merged = Some((context.now, sha.clone()));
    pull.state = IssueState::Closed;
    pull.closed_at = Some(context.now);
    pull.updated_at = context.now;
    publish_changes_in(world, context, repository, &before)?;
    Ok(sha)
}

/// A merge commit of the target on the source branch.
fn update_branch(call: &mut Call<'_>) -> Outcome {
    let number = named(call, call.repository()?)?.number;
    let Ends { base, head, tip, is_from_fork } = ends_of(call.world, call.repository, number)?;
    let mut fields = Fields::parse("PullRequest", call.body)?;
    let expected = fields.string("expected_head_sha");
    if tip.is_none() || expected.is_some_and(|expected| Some(expected) != tip) {
        let message = "expected_head_sha is not the head of the pull request";
        fields.invalid("expected_head_sha", message);
    }
    if is_from_fork {
        fields.invalid("head", "head is a branch of a fork, which only its owner updates here");
    }
    fields.check()?;
    join(call, &head, &base, format!("Merge branch '{base}' into {head}"))?;
    let url = format!("{}/pulls/{number}", call.renderer().repository_url(call.repository()?));
    let value = json!({ "message": "Updating pull request branch.", "url": url });
    Ok(Reply::json(StatusCode::ACCEPTED, value))
}
