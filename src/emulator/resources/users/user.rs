//! Users and organisations.

use crate::emulator::auth::access;
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::resources::repositories::listing;
use crate::emulator::routing::{Call, Need, Outcome, Route};
use crate::emulator::world::{Organization, Owner};

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
    let user = call.caller.user().and_then(|id| call.world.users.get(&id));
    let user = user.ok_or(ApiError::RequiresAuthentication)?;
    Ok(Reply::ok(call.renderer().user(user)).changed_at(user.updated_at))
}

fn user(call: &mut Call<'_>) -> Outcome {
    match call.world.owner(call.params.get("username")).ok_or(ApiError::NotFound)? {
        Owner::User(id) => {
            let user = call.world.users.get(&id).ok_or(ApiError::NotFound)?;
            Ok(Reply::ok(call.renderer().user(user)).changed_at(user.updated_at))
        }
        Owner::Organization(id) => {
            render(call, call.world.organizations.get(&id).ok_or(ApiError::NotFound)?)
        }
    }
}

fn organization(call: &mut Call<'_>) -> Outcome {
    render(call, access::organization_of_path(call)?)
}

#[expect(clippy::unnecessary_wraps, reason = "handlers end with this call")]
fn render(call: &Call<'_>, organization: &Organization) -> Outcome {
    Ok(Reply::ok(call.renderer().organization(organization)).changed_at(organization.updated_at))
}

fn my_organizations(call: &mut Call<'_>) -> Outcome {
    let me = call.me()?;
    let all = call.world.organizations.values();
    call.page_of_organizations(all.filter(|organization| organization.members.contains(&me)))
}

fn my_repositories(call: &mut Call<'_>) -> Outcome {
    call.page_of_repositories(listing::of_caller(call, call.me()?)?)
}

fn repositories_of_user(call: &mut Call<'_>) -> Outcome {
    let owner = call.world.owner(call.params.get("username")).ok_or(ApiError::NotFound)?;
    call.page_of_repositories(listing::of_user(call, owner)?)
}

fn repositories_of_organization(call: &mut Call<'_>) -> Outcome {
    let organization = access::organization_of_path(call)?.id;
    call.page_of_repositories(listing::of_organization(call, organization)?)
}
