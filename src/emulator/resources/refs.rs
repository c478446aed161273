//! The branches of a repository as Git references: look, make, lead elsewhere, end. Tags are left out. Their shapes are not shown; these have
//! what published clients read.

use http::StatusCode;
use serde_json::{Value, json};

use super::contents::{READ, WRITE, full};
use crate::emulator::call::Call;
use crate::emulator::fault::{Code, Fault};
use crate::emulator::fields::Fields;
use crate::emulator::happenings::{Scene, pushes};
use crate::emulator::pagination::{self, USUAL};
use crate::emulator::render::{Renderer, node_id};
use crate::emulator::reply::Reply;
use crate::emulator::route::{Outcome, Route, Verb};
use crate::emulator::urls::segment;
use crate::emulator::world::{Commit, Repository};

/// What precedes a branch's name.
const HEADS: &str = "refs/heads/";
const NAME_BYTES_MAX: usize = 255;

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/repos/{owner}/{repo}/git/ref/{*ref}", READ, get),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/git/refs", READ, list),
    Route::new(Verb::Post, "/repos/{owner}/{repo}/git/refs", WRITE, create),
    Route::new(Verb::Patch, "/repos/{owner}/{repo}/git/refs/{*ref}", WRITE, patch),
    Route::new(Verb::Delete, "/repos/{owner}/{repo}/git/refs/{*ref}", WRITE, delete),
];

/// The branch that the path names, as `heads/NAME`, and its newest commit.
fn named(call: &Call<'_>) -> Result<(String, Commit), Fault> {
    let branch = call.params.get("ref").strip_prefix("heads/").ok_or(Fault::NotFound)?;
    let head = call.world.history(call.repository()?).head(branch).cloned().ok_or(Fault::NotFound)?;
    Ok((branch.to_owned(), head))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let (branch, head) = named(call)?;
    Ok(Reply::ok(render(call, call.repository()?, &branch, &head.sha)))
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let branches = history.branches().filter_map(|branch| Some((branch, history.head(branch)?))).collect();
    Ok(pagination::page(call, USUAL, branches, |(branch, head)| render(call, repository, branch, &head.sha)))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Reference", call.body)?;
    let name = fields.required_string("ref");
    let branch = name.strip_prefix(HEADS).filter(|branch| is_name(branch)).map(str::to_owned);
    if branch.is_none() && !name.is_empty() {
        fields.reject("ref", Code::Invalid, "ref must be refs/heads/ and the name of a branch");
    }
    let sha = known_sha(call, &mut fields)?;
    let branch = branch.unwrap_or_default();
    if call.world.history(call.repository()?).head(&branch).is_some() {
        fields.reject("ref", Code::AlreadyExists, "Reference already exists");
    }
    fields.check()?;
    lead(call, &branch, Some(&sha))?;
    let value = render(call, call.repository()?, &branch, &sha);
    let location = value.get("url").and_then(Value::as_str).unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let (branch, head) = named(call)?;
    let mut fields = Fields::parse("Reference", call.body)?;
    let sha = known_sha(call, &mut fields)?;
    let force = fields.boolean("force").unwrap_or(false);
    let history = call.world.history(call.repository()?);
    if let Some(commit) = history.commit(&sha).filter(|_| !force)
        && !pushes::follows(&history, commit, &head.sha)
    {
        fields.reject("sha", Code::Invalid, "Update is not a fast forward");
    }
    drop(history);
    fields.check()?;
    lead(call, &branch, Some(&sha))?;
    Ok(Reply::ok(render(call, call.repository()?, &branch, &sha)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let (branch, _) = named(call)?;
    if branch == call.repository()?.default_branch {
        return Err(Fault::field("Reference", "ref", Code::Invalid, "Cannot delete the default branch"));
    }
    lead(call, &branch, None)?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn lead(call: &mut Call<'_>, branch: &str, to: Option<&str>) -> Result<(), Fault> {
    let scene = Scene::of(call);
    pushes::lead(call.world, scene, branch, to).map_err(full)
}

/// The name of a commit that the repository has.
fn known_sha(call: &Call<'_>, fields: &mut Fields) -> Result<String, Fault> {
    let sha = fields.required_string("sha");
    if !sha.is_empty() && call.world.history(call.repository()?).commit(&sha).is_none() {
        fields.reject("sha", Code::Invalid, "Object does not exist");
    }
    Ok(sha)
}

/// Git's rules for names, as far as anybody meets them.
fn is_name(branch: &str) -> bool {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\".contains(c);
    (1..=NAME_BYTES_MAX).contains(&branch.len())
        && !branch.contains(is_odd)
        && !branch.contains("..")
        && branch.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.to_ascii_lowercase().ends_with(".lock"))
}

fn render(call: &Call<'_>, repository: &Repository, branch: &str, sha: &str) -> Value {
    let base = Renderer::of(call).repository_url(repository);
    let address = branch.split('/').map(segment).collect::<Vec<_>>().join("/");
    json!({
        "ref": format!("{HEADS}{branch}"),
        "node_id": node_id("Ref", repository.id),
        "url": format!("{base}/git/refs/heads/{address}"),
        "object": { "type": "commit", "sha": sha, "url": format!("{base}/git/commits/{sha}") },
    })
}
