//! Users and organisations.

use crate::emulator::auth::access;
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Owner, Repository};

pub const ROUTES: &[Route] = &[
    Route::get("/user", Need::User, me),
    Route::get("/user/repos", Need::User, my_repositories),
    Route::get("/user/orgs", Need::User, my_organizations),
    Route::get("/users/{username}", Need::Nothing, user),
    Route::get("/users/{username}/repos", Need::Nothing, repositories_of_user),
    Route::get("/orgs/{org}", Need::Nothing, organization),
    Route::get("/orgs/{org}/repos", Need::Nothing, repositories_of_organization),
];

fn me(call: &mut Call<'_>) -> Outcome {
    let user = call
        .caller
        .user()
        .and_then(|id| call.world.users.get(&id))
        .ok_or(ApiError::RequiresAuthentication)?;
    Ok(Reply::ok(Renderer::of(call).user(user)).changed_at(user.updated_at))
}

fn user(call: &mut Call<'_>) -> Outcome {
    match call.world.owner(call.params.get("username")).ok_or(ApiError::NotFound)? {
        Owner::User(id) => {
            let user = call.world.users.get(&id).ok_or(ApiError::NotFound)?;
            Ok(Reply::ok(Renderer::of(call).user(user)).changed_at(user.updated_at))
        }
        Owner::Organization(id) => {
            let organization = call.world.organizations.get(&id).ok_or(ApiError::NotFound)?;
            Ok(Reply::ok(Renderer::of(call).organization(organization))
                .changed_at(organization.updated_at))
        }
    }
}

fn organization(call: &mut Call<'_>) -> Outcome {
    let organization =
        call.world.organization_by_login(call.params.get("org")).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).organization(organization)).changed_at(organization.updated_at))
}

fn my_organizations(call: &mut Call<'_>) -> Outcome {
    let me = call.caller.user().ok_or(ApiError::RequiresAuthentication)?;
    let mine = call
        .world
        .organizations
        .values()
        .filter(|organization| organization.members.contains(&me))
        .collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, mine, |organization| {
        renderer.organization_summary(organization)
    }))
}

fn my_repositories(call: &mut Call<'_>) -> Outcome {
    let me = call.caller.user().ok_or(ApiError::RequiresAuthentication)?;
    let world = &*call.world;
    let is_mine = |owner: Owner| match owner {
        Owner::User(id) => id == me,
        Owner::Organization(id) => world
            .organizations
            .get(&id)
            .is_some_and(|organization| organization.members.contains(&me)),
    };
    let chosen = |repository: &&Repository| {
        is_mine(repository.owner) || repository.collaborators.contains(&me)
    };
    Ok(list(call, world.repositories.values().filter(chosen)))
}

fn repositories_of_user(call: &mut Call<'_>) -> Outcome {
    let owner = call.world.owner(call.params.get("username")).ok_or(ApiError::NotFound)?;
    Ok(list(call, call.world.repositories_of(owner)))
}

fn repositories_of_organization(call: &mut Call<'_>) -> Outcome {
    let id = call.world.organization_by_login(call.params.get("org")).ok_or(ApiError::NotFound)?.id;
    Ok(list(call, call.world.repositories_of(Owner::Organization(id))))
}

/// Sorted by id. Such lists have no `Last-Modified`.
fn list<'a>(call: &'a Call<'_>, chosen: impl Iterator<Item = &'a Repository>) -> Reply {
    let shown =
        chosen.filter(|repository| access::sees(call.world, call.caller, repository)).collect();
    let renderer = Renderer::of(call);
    pagination::page(call, USUAL, shown, |repository| renderer.repository(repository))
}
