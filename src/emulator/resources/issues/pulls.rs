//! Pull requests, read only. A pull request is an issue with a branch.

use super::issue;
use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route, USUAL, pagination};

const READ: Need = Need::repository("pull_requests", Level::Read, Role::Read);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/pulls", READ, list),
    Route::get("/repos/{owner}/{repo}/pulls/{number}", READ, get),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let pulls = repository.issues.values().filter(|issue| issue.pull_from.is_some()).collect();
    let pulls = issue::chosen(call, repository, pulls)?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, pulls, |pull| renderer.pull(repository, pull)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let pull = repository
        .issues
        .get(&call.params.id("number")?)
        .filter(|issue| issue.pull_from.is_some())
        .ok_or(ApiError::NotFound)?;
    // Both branches show the whole repository.
    let renderer = Renderer::of(call);
    Ok(Reply::ok(renderer.pull(repository, pull))
        .changed_at(pull.updated_at.max(renderer.repository_changed_at(repository))))
}
