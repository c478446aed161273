//! Branches and tags: list, get, rename, merge.

use http::StatusCode;
use serde_json::{Value, json};

use super::contents::{READ, WRITE};
use super::protection;
use crate::emulator::events::pushes;
use crate::emulator::events::webhooks::{EventContext, EventScope};
use crate::emulator::http::{ApiError, Fields, Reply, SITE, segment};
use crate::emulator::render::{extend, node_id};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::git::objects::is_ref_name;
use crate::emulator::world::{Draft, Repository, World};

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/branches", READ, list),
    Route::get("/repos/{owner}/{repo}/branches/{branch}", READ, get),
    Route::post("/repos/{owner}/{repo}/branches/{branch}/rename", WRITE, rename),
    Route::post("/repos/{owner}/{repo}/merges", WRITE, merge),
    Route::get("/repos/{owner}/{repo}/tags", READ, tags),
];

pub fn summary(call: &Call<'_>, repository: &Repository, branch: &str, sha: &str) -> Value {
    let is_protected = protection::of(call, branch).is_some();
    call.renderer().branch_summary(repository, branch, sha, is_protected)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let truth = |given: &str| given.parse().ok();
    let message = "protected must be true or false";
    let wanted: Option<bool> = call.choice("Branch", "protected", truth, message)?;
    let is_wanted = |branch: &&str| {
        wanted.is_none_or(|wanted| wanted == protection::of(call, branch).is_some())
    };
    let shown = history
        .branches()
        .filter(is_wanted)
        .filter_map(|branch| Some((branch, history.head(branch)?)));
    call.page(shown, |_, (branch, head)| summary(call, repository, branch, &head.sha))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let name = call.params.get("branch").to_owned();
    Ok(Reply::ok(render(call, &name)?))
}

fn render(call: &Call<'_>, name: &str) -> Result<Value, ApiError> {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let head = history.head(name).ok_or(ApiError::NotFound)?;
    let renderer = call.renderer();
    let mut value = summary(call, repository, name, &head.sha);
    let page = format!("{SITE}/{}/tree/{}", call.world.full_name(repository), segment(name));
    let is_protected = value.get("protected").cloned();
    extend(
        &mut value,
        json!({
            "commit": renderer.commit(repository, head),
            "_links": { "self": format!("{}/branches/{}", renderer.repository_url(repository), segment(name)), "html": page },
            "protection": { "enabled": is_protected, "required_status_checks": { "enforcement_level": "off", "contexts": [], "checks": [] } },
        }),
    );
    Ok(value)
}

/// Renames a branch in its pull requests too, and as the repository's default branch.
fn rename(call: &mut Call<'_>) -> Outcome {
    let name = call.params.get("branch").to_owned();
    let sha = call.history()?.head(&name).ok_or(ApiError::NotFound)?.sha.clone();
    let mut fields = Fields::parse("Branch", call.body)?;
    let new_name = fields.required_string("new_name");
    if !new_name.is_empty() && !is_ref_name(&new_name) {
        fields.invalid("new_name", "new_name is no name of a branch");
    }
    if call.history()?.head(&new_name).is_some() {
        fields.taken("new_name");
    }
    fields.check()?;
    move_branch(call, &new_name, Some(&sha))?;
    move_branch(call, &name, None)?;
    let repository = call.repository_mut()?;
    if repository.default_branch == name {
        repository.default_branch.clone_from(&new_name);
    }
    for pull in repository.issues.values_mut() {
        if pull.fork.is_none() && pull.pull_from.as_ref() == Some(&name) {
            pull.pull_from = Some(new_name.clone());
        }
    }
    Ok(Reply::json(StatusCode::CREATED, render(call, &new_name)?))
}

pub fn move_branch(call: &mut Call<'_>, branch: &str, to: Option<&str>) -> Result<(), ApiError> {
    let context = EventContext::of(call);
    Ok(pushes::move_branch(call.world, context, branch, to)?)
}

/// 204 without any changes. The history has no commits with two parents, so a merge that is no
/// fast-forward becomes one commit with the files of both.
fn merge(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Merge", call.body)?;
    let (base, head) = (fields.required_string("base"), fields.required_string("head"));
    let message =
        fields.string("commit_message").unwrap_or_else(|| format!("Merge {head} into {base}"));
    fields.check()?;
    let Some(sha) = join(call, &base, &head, message)? else { return Ok(Reply::no_content()) };
    let (repository, history) = (call.repository()?, call.history()?);
    let commit = history.commit(&sha).ok_or(ApiError::NotFound)?;
    Ok(Reply::json(StatusCode::CREATED, call.renderer().commit(repository, commit)))
}

/// Merges `head` into a branch and returns the new commit; `None` when the branch has all of it.
pub fn join(
    call: &mut Call<'_>,
    base: &str,
    head: &str,
    message: String,
) -> Result<Option<String>, ApiError> {
    join_in(call.world, EventContext::of(call), (base, head), message)
}

/// Does it without a call, in the repository of the context.
pub fn join_in(
    world: &mut World,
    context: EventContext<'_>,
    (base, head): (&str, &str),
    message: String,
) -> Result<Option<String>, ApiError> {
    let EventScope::Repository(id) = context.scope else { return Err(ApiError::NotFound) };
    let history = world.history(world.repositories.get(&id).ok_or(ApiError::NotFound)?);
    let onto = history.head(base).ok_or(ApiError::NotFound)?;
    let merged = history.named(head).ok_or(ApiError::NotFound)?;
    let comparison = history.compare(onto, merged);
    let mut files = (*onto.files).clone();
    files.extend(merged.files.iter().map(|(path, content)| (path.clone(), content.clone())));
    if comparison.ahead.is_empty() || (comparison.behind > 0 && files == *onto.files) {
        return Ok(None);
    }
    let parent = if comparison.behind == 0 { merged } else { onto };
    let draft = Draft {
        parent: Some(parent.sha.clone()),
        message,
        author: world.author(context.actor),
        at: context.now,
        files,
    };
    let sha = world.history_mut(id).ok_or(ApiError::NotFound)?.keep(draft)?;
    pushes::move_branch(world, context, base, Some(&sha))?;
    Ok(Some(sha))
}

/// Each release has a tag; its commit is not stored, so it is the newest of the default branch.
fn tags(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let sha = history.tip(repository).map_or("", |tip| tip.sha.as_str());
    let base = call.renderer().repository_url(repository);
    let tags = repository.releases.values().rev().map(|release| &release.tag);
    call.page(tags, |_, name| {
        json!({
            "name": name,
            "node_id": node_id("Ref", repository.id) + name,
            "commit": { "sha": sha, "url": format!("{base}/commits/{sha}") },
            "tarball_url": format!("{base}/tarball/refs/tags/{}", segment(name)),
            "zipball_url": format!("{base}/zipball/refs/tags/{}", segment(name)),
        })
    })
}
