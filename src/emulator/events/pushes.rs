//! Pushes: they move a branch and raise the event `push`, or `create` and `delete` for new and
//! deleted branches.

use serde_json::{Value, json};

use super::issues;
use super::notifications::Notice;
use super::webhooks::{EventContext, EventScope, WebhookEvent, publish_in};
use crate::clock::Timestamp;
use crate::emulator::http::{SITE, iso};
use crate::emulator::render::{Renderer, extend};
use crate::emulator::world::{
    Author, Commit, Edit, History, HistoryFull, Issue, IssueState, README, Repository, Tree, World,
};

/// The SHA of a branch that does not exist.
const NOWHERE: &str = "0000000000000000000000000000000000000000";
/// A longer push shows its newest commits.
const COMMITS_SHOWN_MAX: usize = 20;

struct BranchMove<'a> {
    branch: &'a str,
    before: Option<&'a str>,
    after: Option<&'a str>,
}

/// `None` without such a branch in the repository of `context`.
pub fn commit(
    world: &mut World,
    context: EventContext<'_>,
    branch: &str,
    message: String,
    edit: Edit,
) -> Result<Option<Commit>, HistoryFull> {
    let EventScope::Repository(id) = context.scope else { return Ok(None) };
    let author = world.author(context.actor);
    let Some(history) = world.history_mut(id) else { return Ok(None) };
    let Some(commit) = history.add(branch, message, author, context.now, edit)? else {
        return Ok(None);
    };
    let moved = BranchMove { branch, before: commit.parent.as_deref(), after: Some(&commit.sha) };
    publish_move(world, context, id, &moved);
    Ok(Some(commit))
}

/// Moves a branch to an existing commit, or deletes it.
pub fn move_branch(
    world: &mut World,
    context: EventContext<'_>,
    branch: &str,
    to: Option<&str>,
) -> Result<(), HistoryFull> {
    let EventScope::Repository(id) = context.scope else { return Ok(()) };
    let Some(history) = world.history_mut(id) else { return Ok(()) };
    let before = history.head(branch).map(|commit| commit.sha.clone());
    history.move_branch(branch, to)?;
    let moved = BranchMove { branch, before: before.as_deref(), after: to };
    if moved.before != moved.after {
        publish_move(world, context, id, &moved);
    }
    Ok(())
}

fn publish_move(
    world: &mut World,
    context: EventContext<'_>,
    repository: u64,
    moved: &BranchMove<'_>,
) {
    let readme = world
        .repositories
        .get(&repository)
        .filter(|found| found.default_branch == moved.branch)
        .and_then(|found| {
            let history = world.history(found);
            let bytes = history.head(moved.branch)?.files.get(README)?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        });
    if let Some(repository) = world.repositories.get_mut(&repository) {
        repository.readme = readme.unwrap_or_else(|| std::mem::take(&mut repository.readme));
        repository.pushed_at = context.now;
        repository.updated_at = context.now;
    }
    let event = |name| WebhookEvent { name, action: None };
    let branch = moved.branch;
    let ref_payload =
        |_: &Renderer<'_>| json!({ "ref": branch, "ref_type": "branch", "pusher_type": "user" });
    if moved.before.is_none() {
        publish_in(world, context, event("create"), ref_payload);
    }
    publish_in(world, context, event("push"), |renderer| {
        payload(renderer, context, repository, moved)
    });
    if moved.after.is_none() {
        publish_in(world, context, event("delete"), ref_payload);
    }
    if let (Some(before), Some(after)) = (moved.before, moved.after) {
        synchronize(world, context, repository, (branch, before, after));
    }
}

/// A push to the source branch changes its open pull requests.
fn synchronize(
    world: &mut World,
    context: EventContext<'_>,
    repository: u64,
    (branch, before, after): (&str, &str, &str),
) {
    let names = json!({ "before": before, "after": after });
    let network = world.network(repository);
    for base in std::iter::once(repository).chain(network) {
        for number in moved_pulls(world, context.now, base, (repository, branch, after)) {
            let context = EventContext { scope: EventScope::Repository(base), ..context };
            let (at, event) = ((base, number), ("synchronize", Vec::new()));
            issues::raise(world, context, at, event, Notice::Nobody, |_| names.clone());
        }
    }
}

/// Moves the open pull requests of a repository that come from this branch, which may be a fork's.
/// A pull request whose repository has no room for the commits stays where it was.
fn moved_pulls(
    world: &mut World,
    now: Timestamp,
    base: u64,
    (source, branch, after): (u64, &str, &str),
) -> Vec<u64> {
    let is_its = |pull: &Issue| {
        let from = pull.fork.as_ref().map_or(base, |fork| fork.repository);
        pull.state == IssueState::Open
            && pull.pull_from.as_deref() == Some(branch)
            && from == source
    };
    let Some(found) = world.repositories.get(&base) else { return Vec::new() };
    let pulls = found.issues.values().filter(|pull| is_its(pull)).map(|pull| pull.number);
    let pulls: Vec<u64> = pulls.collect();
    if pulls.is_empty() || (base != source && adopt(world, base, source, after).is_err()) {
        return Vec::new();
    }
    let Some(found) = world.repositories.get_mut(&base) else { return Vec::new() };
    for number in &pulls {
        let Some(pull) = found.issues.get_mut(number) else { continue };
        pull.updated_at = now;
        if let Some(fork) = &mut pull.fork {
            after.clone_into(&mut fork.sha);
        }
    }
    pulls
}

/// Copies the commits of a fork's branch into the repository of its pull request.
pub fn adopt(world: &mut World, base: u64, fork: u64, sha: &str) -> Result<(), HistoryFull> {
    let Some(fork) = world.repositories.get(&fork) else { return Ok(()) };
    let from = world.history(fork);
    world.history_mut(base).map_or(Ok(()), |history| history.adopt(&from, sha))
}

/// Builds the payload in the running service's form; the upstream does not document it.
fn payload(
    renderer: &Renderer<'_>,
    context: EventContext<'_>,
    repository: u64,
    moved: &BranchMove<'_>,
) -> Value {
    let Some(repository) = renderer.world.repositories.get(&repository) else { return json!({}) };
    let history = renderer.world.history(repository);
    let after = moved.after.and_then(|sha| history.commit(sha));
    let (before_sha, after_sha) = (moved.before.unwrap_or(NOWHERE), moved.after.unwrap_or(NOWHERE));
    let new = after.into_iter().flat_map(|after| {
        history.until(after).take_while(|commit| Some(commit.sha.as_str()) != moved.before)
    });
    // A new branch has no new commits.
    let shown_max = if moved.before.is_some() { COMMITS_SHOWN_MAX } else { 0 };
    let shown = |commit: &Commit| commit_of_payload(renderer, repository, &history, commit);
    let mut commits: Vec<Value> = new.take(shown_max).map(shown).collect();
    commits.reverse();
    let login = renderer.world.login(context.actor);
    json!({
        "ref": format!("refs/heads/{}", moved.branch),
        "before": before_sha,
        "after": after_sha,
        "created": moved.before.is_none(),
        "deleted": moved.after.is_none(),
        "forced": !is_fast_forward(&history, moved),
        "base_ref": null,
        "compare": format!("{SITE}/{}/compare/{before_sha}...{after_sha}", renderer.world.full_name(repository)),
        "commits": commits,
        "head_commit": after.map(shown),
        "pusher": { "name": login, "email": email(login) },
    })
}

fn is_fast_forward(history: &History, moved: &BranchMove<'_>) -> bool {
    match (moved.before, moved.after.and_then(|sha| history.commit(sha))) {
        (Some(before), Some(after)) => follows(history, after, before),
        _ => true,
    }
}

pub fn follows(history: &History, commit: &Commit, before: &str) -> bool {
    history.until(commit).any(|one| one.sha == before)
}

fn commit_of_payload(
    renderer: &Renderer<'_>,
    repository: &Repository,
    history: &History,
    commit: &Commit,
) -> Value {
    let mut value = json!({
        "id": commit.sha,
        "tree_id": commit.tree,
        "distinct": true,
        "message": commit.message,
        "timestamp": iso(commit.at),
        "url": format!("{SITE}/{}/commit/{}", renderer.world.full_name(repository), commit.sha),
        "author": person(renderer, &commit.author),
        "committer": person(renderer, &commit.author),
    });
    extend(&mut value, touched(history, commit));
    value
}

fn person(renderer: &Renderer<'_>, author: &Author) -> Value {
    json!({ "name": author.name, "email": author.email, "username": renderer.world.login(author.user) })
}

/// Returns the address that `/users/{username}` shows.
pub fn email(login: &str) -> String {
    format!("{login}@example.com")
}

fn touched(history: &History, commit: &Commit) -> Value {
    let empty = Tree::new();
    let before = commit
        .parent
        .as_deref()
        .and_then(|sha| history.commit(sha))
        .map_or(&empty, |parent| &*parent.files);
    let after = &*commit.files;
    let added: Vec<&String> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    let removed: Vec<&String> = before.keys().filter(|path| !after.contains_key(*path)).collect();
    let differs = |(path, content): &(&String, &bytes::Bytes)| {
        before.get(*path).is_some_and(|was| was != *content)
    };
    let modified: Vec<&String> = after.iter().filter(differs).map(|(path, _)| path).collect();
    json!({ "added": added, "removed": removed, "modified": modified })
}
