//! Pull requests, as far as reading them. A pull is an issue with a branch.

use super::issue;
use crate::emulator::accounts::Level;
use crate::emulator::http::error::ApiError;
use crate::emulator::http::reply::Reply;
use crate::emulator::render::Renderer;
use crate::emulator::routing::call::Call;
use crate::emulator::routing::need::{Need, Role};
use crate::emulator::routing::pagination::{self, USUAL};
use crate::emulator::routing::route::{Outcome, Route, Verb};

const READ: Need =
    Need::Repository { permission: "pull_requests", level: Level::Read, role: Role::Read };

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/repos/{owner}/{repo}/pulls", READ, list),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/pulls/{number}", READ, get),
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
