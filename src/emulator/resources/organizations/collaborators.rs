//! Outside collaborators: non-members with push rights in repositories of an organisation. The
//! upstream documents the routes without their shapes.

use std::collections::BTreeSet;

use http::StatusCode;

use super::{Filter, READ, WRITE_AS_OWNER, filter, named_user};
use crate::emulator::events::webhooks::organizations::{Memberships, publish_membership_changes};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::resources::teams::joining::{self, Left};
use crate::emulator::resources::teams::{organization, organization_mut};
use crate::emulator::routing::{Call, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Owner, Repository, RepositoryRole};

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/outside_collaborators", READ, list),
    Route::put("/orgs/{org}/outside_collaborators/{username}", WRITE_AS_OWNER, convert),
    Route::delete("/orgs/{org}/outside_collaborators/{username}", WRITE_AS_OWNER, remove),
];

fn repositories<'a>(call: &'a Call<'_>) -> impl Iterator<Item = &'a Repository> {
    let owner = Owner::Organization(call.organization);
    call.world.repositories.values().filter(move |repository| repository.owner == owner)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let filter = filter(call)?;
    let organization = organization(call)?;
    let everyone: BTreeSet<u64> =
        repositories(call).flat_map(|repository| &repository.collaborators).copied().collect();
    let shown = everyone
        .into_iter()
        .filter(|user| filter == Filter::All && !organization.members.contains(user))
        .collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, shown, |user| renderer.user_summary(user)))
}

/// Converts a member into an outside collaborator, who keeps the push rights gained through teams.
fn convert(call: &mut Call<'_>) -> Outcome {
    let user = named_user(call)?;
    let organization = organization(call)?;
    let teams = organization.teams.values().filter(|team| team.people.contains_key(&user));
    let held = teams.flat_map(|team| organization.team_repositories(team.id));
    let kept: BTreeSet<u64> = held
        .filter(|(_, role)| *role >= RepositoryRole::Push)
        .map(|(repository, _)| repository)
        .collect();
    let now = call.now;
    let before = Memberships::of(call.world, call.organization, user);
    if joining::leave_organization(organization_mut(call)?, now, user)? == Left::No {
        return Err(ApiError::invalid(
            "OutsideCollaborator",
            "username",
            "the user is not a member of the organization",
        ));
    }
    for repository in kept {
        if let Some(repository) = call.world.repositories.get_mut(&repository) {
            repository.collaborators.insert(user);
        }
    }
    publish_membership_changes(call, call.organization, user, &before);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn remove(call: &mut Call<'_>) -> Outcome {
    let user = named_user(call)?;
    if organization(call)?.members.contains(&user) {
        let message = "a member of the organization cannot be removed as an outside collaborator";
        return Err(ApiError::invalid("OutsideCollaborator", "username", message));
    }
    let ids: Vec<u64> = repositories(call)
        .filter(|repository| repository.collaborators.contains(&user))
        .map(|repository| repository.id)
        .collect();
    if ids.is_empty() {
        return Err(ApiError::NotFound);
    }
    for id in ids {
        if let Some(repository) = call.world.repositories.get_mut(&id) {
            repository.collaborators.remove(&user);
        }
    }
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
