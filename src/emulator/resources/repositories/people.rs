//! People of a repository: collaborators, assignable users, contributors.

use serde_json::{Value, json};
use strum::VariantArray;

use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::events::changes::{self, Change, EventContext, WebhookEvent};
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::{Renderer, extend, object};
use crate::emulator::resources::issues::issue;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::{Owner, Repository, RepositoryRole, World};

const READ: Need = Need::repository("metadata", Level::Read, Role::Read);
const READ_COLLABORATORS: Need = Need::repository("metadata", Level::Read, Role::Push);
const READ_ISSUES: Need = Need::repository("issues", Level::Read, Role::Read);
/// SPECIFICATION, "Permissions".
const ADMINISTER: Need = Need::repository("administration", Level::Write, Role::Admin);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/collaborators", READ_COLLABORATORS, collaborators),
    Route::get(
        "/repos/{owner}/{repo}/collaborators/{username}",
        READ_COLLABORATORS,
        is_collaborator,
    ),
    Route::delete(
        "/repos/{owner}/{repo}/collaborators/{username}",
        ADMINISTER,
        remove_collaborator,
    ),
    Route::get(
        "/repos/{owner}/{repo}/collaborators/{username}/permission",
        READ_COLLABORATORS,
        permission,
    ),
    Route::get("/repos/{owner}/{repo}/assignees", READ_ISSUES, assignees),
    Route::get("/repos/{owner}/{repo}/assignees/{assignee}", READ_ISSUES, is_assignee),
    Route::get(
        "/repos/{owner}/{repo}/issues/{number}/assignees/{assignee}",
        READ_ISSUES,
        is_assignee,
    ),
    Route::get("/repos/{owner}/{repo}/contributors", READ, contributors),
];

/// Lists every user with own rights in a repository, with the role.
pub fn with_rights(world: &World, repository: &Repository) -> Vec<(u64, Role)> {
    let role_of = |user: &u64| Some((*user, access::role_of(world, *user, repository)?));
    world.users.keys().filter_map(role_of).collect()
}

/// Returns the name of what a user may do; of equal rights, the collaborator's is more exact.
fn exact_role(repository: &Repository, user: u64, role: Role) -> RepositoryRole {
    let usual = match role {
        Role::Admin => RepositoryRole::Admin,
        Role::Push => RepositoryRole::Push,
        Role::Read | Role::Take => RepositoryRole::Pull,
    };
    let held = repository.collaborators.get(&user).copied();
    held.filter(|held| access::role_of_collaborator(*held) == role).unwrap_or(usual)
}

fn with_permissions(call: &Call<'_>, user: u64, role: RepositoryRole) -> Value {
    let mut value = call.renderer().user_summary(user);
    let permissions = object(
        RepositoryRole::VARIANTS.iter().map(|lesser| (lesser.into_str(), json!(*lesser <= role))),
    );
    extend(&mut value, json!({ "permissions": permissions, "role_name": role.role_name() }));
    value
}

fn collaborators(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let of_organization =
        |user| matches!(repository.owner, Owner::Organization(id) if call.is_member(id, user));
    let mut people = with_rights(call.world, repository);
    match call.query.get("affiliation").unwrap_or("all") {
        "all" => {}
        "outside" | "direct" => people.retain(|(user, _)| !of_organization(*user)),
        _ => {
            let message = "affiliation must be all, direct or outside";
            return Err(ApiError::invalid("Collaborator", "affiliation", message));
        }
    }
    let roles = |name: &str| name.parse::<RepositoryRole>().ok();
    let message = "permission must be pull, triage, push, maintain or admin";
    let least = call.choice("Collaborator", "permission", roles, message)?;
    let people = people.into_iter().map(|(user, role)| (user, exact_role(repository, user, role)));
    let people = people.filter(|(_, role)| least.is_none_or(|least| *role >= least));
    call.page(people, |_, (user, role)| with_permissions(call, user, role))
}

fn is_collaborator(call: &mut Call<'_>) -> Outcome {
    let role = access::role_of(call.world, call.user("username")?.id, call.repository()?);
    Reply::no_content_if(role.is_some())
}

fn remove_collaborator(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    if call.repository_mut()?.collaborators.remove(&user).is_some() {
        let (context, change) = (EventContext::of(call), WebhookEvent::new("member", "removed"));
        let change = Change::of(change);
        let member = |renderer: &Renderer<'_>| json!({ "member": renderer.user_summary(user) });
        changes::record(call.world, context, change, member);
    }
    Ok(Reply::no_content())
}

/// `permission` is the older field, which knows no roles in between.
fn permission(call: &mut Call<'_>) -> Outcome {
    let (user, repository) = (call.user("username")?.id, call.repository()?);
    let role = access::role_of(call.world, user, repository);
    let role = role.map(|role| exact_role(repository, user, role));
    let shown = with_permissions(call, user, role.unwrap_or(RepositoryRole::Pull));
    let permission = match role {
        None => "none",
        Some(RepositoryRole::Pull | RepositoryRole::Triage) => "read",
        Some(RepositoryRole::Push | RepositoryRole::Maintain) => "write",
        Some(RepositoryRole::Admin) => "admin",
    };
    let role_name = role.map_or("none", RepositoryRole::role_name);
    Ok(Reply::ok(json!({ "permission": permission, "role_name": role_name, "user": shown })))
}

fn assignees(call: &mut Call<'_>) -> Outcome {
    let people = with_rights(call.world, call.repository()?);
    call.page_of_users(people.into_iter().map(|(user, _)| user))
}

fn is_assignee(call: &mut Call<'_>) -> Outcome {
    if !call.params.get("number").is_empty() {
        issue::named(call, call.repository()?)?;
    }
    let role = access::role_of(call.world, call.user("assignee")?.id, call.repository()?);
    Reply::no_content_if(role.is_some())
}

/// Most commits first; 204 for a repository without commits.
fn contributors(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let mut counts = std::collections::BTreeMap::<u64, u64>::new();
    for commit in history.tip(repository).into_iter().flat_map(|tip| history.until(tip)) {
        *counts.entry(commit.author.user).or_default() += 1;
    }
    if counts.is_empty() {
        return Ok(Reply::no_content());
    }
    let mut people: Vec<(u64, u64)> = counts.into_iter().collect();
    people.sort_by_key(|(user, count)| (std::cmp::Reverse(*count), *user));
    call.page(people, |renderer, (user, count)| {
        let mut value = renderer.user_summary(user);
        extend(&mut value, json!({ "contributions": count }));
        value
    })
}
