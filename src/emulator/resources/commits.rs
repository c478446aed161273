//! The commits of a repository: list and get.

use crate::emulator::call::Call;
use crate::emulator::fault::Fault;
use crate::emulator::pagination::{self, USUAL};
use crate::emulator::render::Renderer;
use crate::emulator::reply::Reply;
use crate::emulator::resources::branches::READ;
use crate::emulator::route::{Outcome, Route, Verb};

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/repos/{owner}/{repo}/commits", READ, list),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/commits/{ref}", READ, get),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let asked = call.query.get("sha").filter(|name| !name.is_empty());
    let from = asked.map_or_else(|| history.tip(repository), |name| history.named(name)).ok_or(Fault::NotFound)?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, history.until(from).collect(), |commit| renderer.commit(repository, commit)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let commit = history.named(call.params.get("ref")).ok_or(Fault::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).commit(repository, commit)))
}
