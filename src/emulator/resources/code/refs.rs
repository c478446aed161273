//! The branches of a repository as Git references.

use serde_json::Value;

use super::branches::move_branch;
use super::contents::{READ, WRITE};
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::git::objects::is_ref_name;

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/git/ref/{*ref}", READ, get),
    Route::get("/repos/{owner}/{repo}/git/refs", READ, list),
    Route::post("/repos/{owner}/{repo}/git/refs", WRITE, create),
    Route::patch("/repos/{owner}/{repo}/git/refs/{*ref}", WRITE, update),
    Route::delete("/repos/{owner}/{repo}/git/refs/{*ref}", WRITE, delete),
];

fn branch<'a>(call: &'a Call<'_>) -> Result<&'a str, ApiError> {
    call.params.get("ref").strip_prefix("heads/").ok_or(ApiError::NotFound)
}

fn render(call: &Call<'_>, branch: &str) -> Result<Value, ApiError> {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let head = history.head(branch).ok_or(ApiError::NotFound)?;
    Ok(call.renderer().reference(repository, &format!("refs/heads/{branch}"), &head.sha))
}

fn get(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(render(call, branch(call)?)?))
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let heads = history.branches().filter_map(|branch| Some((branch, history.head(branch)?)));
    call.page(heads, |renderer, (branch, head)| {
        renderer.reference(repository, &format!("refs/heads/{branch}"), &head.sha)
    })
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Reference", call.body)?;
    let (name, sha) = (fields.required_string("ref"), fields.required_string("sha"));
    let history = call.history()?;
    let branch = name.strip_prefix("refs/heads/").filter(|branch| is_ref_name(branch));
    if branch.is_none() && !name.is_empty() {
        fields.invalid("ref", "ref must be refs/heads/ and the name of a branch");
    }
    if branch.is_some_and(|branch| history.head(branch).is_some()) {
        fields.reject("ref", Code::AlreadyExists, "Reference already exists");
    }
    if !sha.is_empty() && history.commit(&sha).is_none() {
        fields.invalid("sha", "Object does not exist");
    }
    fields.check()?;
    let branch = branch.unwrap_or("");
    move_branch(call, branch, Some(&sha))?;
    Ok(Reply::created_at_url(render(call, branch)?))
}

/// Without `force` only a fast-forward is allowed.
fn update(call: &mut Call<'_>) -> Outcome {
    let branch = branch(call)?.to_owned();
    let mut fields = Fields::parse("Reference", call.body)?;
    let (sha, force) = (fields.required_string("sha"), fields.boolean("force").unwrap_or(false));
    let history = call.history()?;
    let head = history.head(&branch).ok_or(ApiError::NotFound)?;
    match history.commit(&sha) {
        None if sha.is_empty() => {}
        None => fields.invalid("sha", "Object does not exist"),
        Some(commit) if !force && history.compare(head, commit).behind > 0 => {
            fields.invalid("sha", "Update is not a fast forward");
        }
        Some(_) => {}
    }
    fields.check()?;
    move_branch(call, &branch, Some(&sha))?;
    Ok(Reply::ok(render(call, &branch)?))
}

/// The default branch cannot be deleted.
fn delete(call: &mut Call<'_>) -> Outcome {
    let branch = branch(call)?.to_owned();
    render(call, &branch)?;
    if branch == call.repository()?.default_branch {
        return Err(ApiError::invalid("Reference", "ref", "Cannot delete the default branch"));
    }
    move_branch(call, &branch, None)?;
    Ok(Reply::no_content())
}
