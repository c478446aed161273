//! The commits of a repository: list and get.

use super::contents::READ;
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Outcome, Route, USUAL, pagination};
use crate::emulator::world::Commit;

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/commits", READ, list),
    Route::get("/repos/{owner}/{repo}/commits/{ref}", READ, get),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let asked = call.query.get("sha").filter(|name| !name.is_empty());
    let from = asked
        .map_or_else(|| history.tip(repository), |name| history.named(name))
        .ok_or(ApiError::NotFound)?;
    let path = call.query.get("path").filter(|path| !path.is_empty());
    let touches = |commit: &&Commit| {
        let before = commit.parent.as_deref().and_then(|sha| history.commit(sha));
        path.is_none_or(|path| {
            commit.files.get(path) != before.and_then(|before| before.files.get(path))
        })
    };
    let commits = history.until(from).filter(touches).collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, commits, |commit| renderer.commit(repository, commit)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let commit = history.named(call.params.get("ref")).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).commit(repository, commit)))
}
