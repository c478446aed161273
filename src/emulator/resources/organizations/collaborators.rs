//! Outside collaborators: non-members with push rights in repositories of an organisation. The
//! upstream documents the routes without their shapes.

use std::collections::BTreeSet;

use super::{Filter, READ, WRITE_AS_OWNER, filter};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::resources::teams::joining;
use crate::emulator::routing::{Call, Outcome, Route};
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
    let organization = call.organization()?;
    let everyone: BTreeSet<u64> = repositories(call)
        .flat_map(|repository| repository.collaborators.keys())
        .copied()
        .collect();
    let is_shown = |user: &u64| filter == Filter::All && !organization.members.contains(user);
    let shown = everyone.into_iter().filter(is_shown);
    call.page_of_users(shown)
}

/// Converts a member into an outside collaborator, who keeps the push rights gained through teams.
fn convert(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    let organization = call.organization()?;
    let teams = organization.teams.values().filter(|team| team.people.contains_key(&user));
    let held = teams.flat_map(|team| organization.team_repositories(team.id));
    let pushable = held.filter(|(_, role)| *role >= RepositoryRole::Push);
    let kept: BTreeSet<u64> = pushable.map(|(repository, _)| repository).collect();
    if !organization.members.contains(&user) {
        let message = "the user is not a member of the organization";
        return Err(ApiError::invalid("OutsideCollaborator", "username", message));
    }
    joining::leave_organization(call, user)?;
    for repository in kept {
        if let Some(repository) = call.world.repositories.get_mut(&repository) {
            repository.collaborators.entry(user).or_insert(RepositoryRole::Push);
        }
    }
    Ok(Reply::no_content())
}

fn remove(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    if call.organization()?.members.contains(&user) {
        let message = "a member of the organization cannot be removed as an outside collaborator";
        return Err(ApiError::invalid("OutsideCollaborator", "username", message));
    }
    let owner = Owner::Organization(call.organization);
    let mut was_collaborator = false;
    for repository in call.world.repositories.values_mut() {
        if repository.owner == owner {
            was_collaborator |= repository.collaborators.remove(&user).is_some();
        }
    }
    Reply::no_content_if(was_collaborator)
}
