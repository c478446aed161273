//! The teams of an organisation: list, create, show, change, delete, nest. The upstream documents
//! the routes without their shapes.

use serde_json::Value;

use super::description::{self, NewTeam};
use super::repositories;
use super::{MANAGE, NamedTeam, READ, joining, must_administer, own, sees, team_mut, visible};
use crate::emulator::accounts::Level;
use crate::emulator::events::webhooks::organizations as organization_events;
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::routing::{Call, MembersNeed, Need, Outcome, Route};
use crate::emulator::world::{Organization, Team};

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/teams", READ, list),
    Route::post("/orgs/{org}/teams", MANAGE, create),
    Route::get("/orgs/{org}/teams/{team_slug}", READ, get),
    Route::get("/organizations/{org_id}/team/{team_id}", READ, get),
    Route::get("/teams/{team_id}", READ, get),
    Route::patch("/orgs/{org}/teams/{team_slug}", MANAGE, patch),
    Route::patch("/organizations/{org_id}/team/{team_id}", MANAGE, patch),
    Route::patch("/teams/{team_id}", MANAGE, patch),
    Route::delete("/orgs/{org}/teams/{team_slug}", MANAGE, delete),
    Route::delete("/organizations/{org_id}/team/{team_id}", MANAGE, delete),
    Route::delete("/teams/{team_id}", MANAGE, delete),
    Route::get("/orgs/{org}/teams/{team_slug}/teams", READ, children),
    Route::get("/organizations/{org_id}/team/{team_id}/teams", READ, children),
    Route::get("/teams/{team_id}/teams", READ, children),
    Route::get("/user/teams", Need::Members(MembersNeed::Own(Level::Read)), of_caller),
];

/// Lists the organisation's visible teams, then the assigned enterprise teams.
fn list(call: &mut Call<'_>) -> Outcome {
    let organization = call.organization()?;
    let own = organization.teams.values().filter(|team| sees(call, organization, team));
    let assigned = call.world.enterprise_teams_of(organization.id);
    let all = own.map(NamedTeam::Own).chain(assigned.map(NamedTeam::OfEnterprise));
    call.page(all, |renderer, team| match team {
        NamedTeam::Own(team) => renderer.team(organization, team),
        NamedTeam::OfEnterprise(team) => renderer.assigned_team(organization, team),
    })
}

fn get(call: &mut Call<'_>) -> Outcome {
    let organization = call.organization()?;
    let renderer = call.renderer();
    Ok(Reply::ok(match visible(call)? {
        NamedTeam::Own(team) => renderer.full_team(organization, team),
        NamedTeam::OfEnterprise(team) => renderer.assigned_team(organization, team),
    }))
}

fn children(call: &mut Call<'_>) -> Outcome {
    let organization = call.organization()?;
    let parent = match visible(call)? {
        NamedTeam::Own(team) => Some(team.id),
        // Enterprise teams are not nested.
        NamedTeam::OfEnterprise(_) => None,
    };
    let teams = organization.teams.values();
    let teams = teams.filter(|team| parent.is_some() && team.parent == parent);
    call.page(teams, |renderer, team| renderer.team(organization, team))
}

fn of_caller(call: &mut Call<'_>) -> Outcome {
    let me = call.me()?;
    let mine = call.world.organizations.values().flat_map(|organization| {
        let mine = organization.teams.values().filter(|team| team.people.contains_key(&me));
        mine.map(move |team| (organization, team))
    });
    call.page(mine, |renderer, (organization, team)| renderer.full_team(organization, team))
}

/// Any member may create a team and becomes its maintainer. Both rules are undocumented.
fn create(call: &mut Call<'_>) -> Outcome {
    let NewTeam {
        name,
        slug,
        description,
        privacy,
        permission,
        parent,
        people,
        repositories: held,
    } = description::of_new_team(call)?;
    ApiError::unless_spammed("Team", call.organization()?.teams.len())?;
    let (now, id) = (call.now, call.world.next_id());
    let team = Team {
        id,
        slug,
        name,
        description,
        privacy,
        parent,
        people,
        permission,
        synchronised: false,
        created_at: now,
        updated_at: now,
    };
    let organization = call.organization_mut()?;
    for repository in held.iter().copied() {
        organization.people.grants.entry(repository).or_default().insert(id, permission);
    }
    organization.teams.insert(id, team);
    let team = organization_events::shown_team(call, call.organization()?, id);
    organization_events::team(call, "created", &team);
    for repository in held {
        repositories::publish_added(call, repository, &team);
    }
    Ok(Reply::created_at_url(whole(call, id)?))
}

fn whole(call: &Call<'_>, id: u64) -> Result<Value, ApiError> {
    let organization = call.organization()?;
    let team = organization.teams.get(&id).ok_or(ApiError::NotFound)?;
    Ok(call.renderer().full_team(organization, team))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?;
    must_administer(call, team)?;
    let id = team.id;
    let change = description::of_changed_team(call, id)?;
    let now = call.now;
    let before = organization_events::shown_team(call, call.organization()?, id);
    let team = team_mut(call, id)?;
    if let Some((name, slug)) = change.name {
        team.name = name;
        team.slug = slug;
    }
    team.description = change.description.of(team.description.take());
    team.privacy = change.privacy;
    team.permission = change.permission.unwrap_or(team.permission);
    team.parent = change.parent;
    team.updated_at = now;
    let after = organization_events::shown_team(call, call.organization()?, id);
    organization_events::team_edited(call, &before, &after);
    Ok(Reply::ok(whole(call, id)?))
}

/// Deletes child teams too, as the running service does; undocumented.
fn delete(call: &mut Call<'_>) -> Outcome {
    let team = own(call)?;
    must_administer(call, team)?;
    let id = team.id;
    let deleted: Vec<u64> = call.organization()?.teams_below(id).into_iter().chain([id]).collect();
    for id in deleted {
        let team = organization_events::shown_team(call, call.organization()?, id);
        forget(call.organization_mut()?, id);
        organization_events::team(call, "deleted", &team);
    }
    joining::withdraw_empty(call.organization_mut()?);
    Ok(Reply::no_content())
}

fn forget(organization: &mut Organization, team: u64) {
    organization.teams.remove(&team);
    let people = &mut organization.people;
    people.invitations.values_mut().for_each(|invitation| {
        invitation.teams.remove(&team);
    });
    people.team_roles.values_mut().for_each(|teams| {
        teams.remove(&team);
    });
    people.grants.retain(|_, teams| {
        teams.remove(&team);
        !teams.is_empty()
    });
}
