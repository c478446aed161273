//! Pull requests, as far as reading them. A pull is an issue with a branch.

use crate::emulator::access::{Need, Role};
use crate::emulator::accounts::Level;
use crate::emulator::call::Call;
use crate::emulator::fault::Fault;
use crate::emulator::pagination::{self, USUAL};
use crate::emulator::render::Renderer;
use crate::emulator::reply::Reply;
use crate::emulator::resources::issues;
use crate::emulator::route::{Outcome, Route, Verb};

const READ: Need =
    Need::Repository { permission: "pull_requests", level: Level::Read, role: Role::Read };

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/repos/{owner}/{repo}/pulls", READ, list),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/pulls/{number}", READ, get),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let pulls = repository.issues.values().filter(|issue| issue.pull_from.is_some()).collect();
    let pulls = issues::chosen(call, repository, pulls)?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, pulls, |pull| renderer.pull(repository, pull)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let pull = repository
        .issues
        .get(&call.params.id("number")?)
        .filter(|issue| issue.pull_from.is_some())
        .ok_or(Fault::NotFound)?;
    // Both branches show the whole repository.
    let renderer = Renderer::of(call);
    Ok(Reply::ok(renderer.pull(repository, pull))
        .changed_at(pull.updated_at.max(renderer.repository_changed_at(repository))))
}
