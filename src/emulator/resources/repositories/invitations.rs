//! Invitations to a repository: accepting one makes the invitee a collaborator.

use serde_json::{Value, json};
use strum::VariantArray;

use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::events::changes::{self, Change, EventContext, EventScope, WebhookEvent};
use crate::emulator::events::notifications::Notice;
use crate::emulator::http::{ApiError, Fields, Reply, SITE, iso};
use crate::emulator::render::{node_id, object};
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::storage::collections::Collection;
use crate::emulator::world::{RepositoryRole, StoredItem};

const READ: Need = Need::repository("administration", Level::Read, Role::Push);
/// SPECIFICATION, "Permissions".
const WRITE: Need = Need::repository("administration", Level::Write, Role::Admin);

pub const ROUTES: &[Route] = &[
    Route::put("/repos/{owner}/{repo}/collaborators/{username}", WRITE, invite),
    Route::get("/repos/{owner}/{repo}/invitations", READ, list),
    Route::patch("/repos/{owner}/{repo}/invitations/{invitation_id}", WRITE, change),
    Route::delete("/repos/{owner}/{repo}/invitations/{invitation_id}", WRITE, withdraw),
    Route::get("/user/repository_invitations", Need::User, mine),
    Route::patch("/user/repository_invitations/{invitation_id}", Need::User, accept),
    Route::delete("/user/repository_invitations/{invitation_id}", Need::User, decline),
];

fn collection(repository: u64) -> String {
    format!("repository/{repository}/invitations")
}

fn to(call: &Call<'_>, repository: u64) -> Vec<StoredItem> {
    let collection = call.world.collections.collection(&collection(repository));
    let invitations = collection.map(Collection::in_order).unwrap_or_default();
    invitations.into_iter().map(|(_, invitation)| invitation.clone()).collect()
}

fn number(invitation: &StoredItem, field: &str) -> u64 {
    invitation.fields.get(field).and_then(Value::as_u64).unwrap_or(0)
}

/// 204 for a user who already has rights; those of a collaborator change. Any other is invited
/// once, with 201.
fn invite(call: &mut Call<'_>) -> Outcome {
    let invitee = call.user("username")?.id;
    let given = permission(call, "permission")?;
    if let Some(held) = call.repository()?.collaborators.get(&invitee).copied() {
        change_collaborator(call, invitee, (held, given.unwrap_or(held)))?;
        return Ok(Reply::no_content());
    }
    let permission = given.unwrap_or(RepositoryRole::Push).role_name();
    if access::role_of(call.world, invitee, call.repository()?).is_some() {
        return Ok(Reply::no_content());
    }
    let repository = call.repository;
    let known = to(call, repository)
        .into_iter()
        .find(|invitation| number(invitation, "invitee") == invitee);
    let (id, created_at) = known.map_or_else(
        || (call.world.next_id(), call.now),
        |invitation| (invitation.id, invitation.created_at),
    );
    let fields = object([
        ("invitee", json!(invitee)),
        ("inviter", json!(call.actor())),
        ("permissions", json!(permission)),
    ]);
    let invitation = StoredItem { id, fields, created_at, updated_at: call.now };
    call.world.collections.put(&collection(repository), &id.to_string(), invitation.clone())?;
    Ok(Reply::created_at_url(render(call, repository, &invitation)?))
}

fn change_collaborator(
    call: &mut Call<'_>,
    user: u64,
    (held, wanted): (RepositoryRole, RepositoryRole),
) -> Result<(), ApiError> {
    if held == wanted {
        return Ok(());
    }
    let now = call.now;
    let repository = call.repository_mut()?;
    repository.collaborators.insert(user, wanted);
    repository.updated_at = now;
    let (from, to) = (held.role_name(), wanted.role_name());
    let changes =
        json!({ "old_permission": { "from": from }, "permission": { "from": from, "to": to } });
    let change = Change::of(WebhookEvent::new("member", "edited"));
    changes::record(
        call.world,
        EventContext::of(call),
        change,
        |renderer| json!({ "member": renderer.user_summary(user), "changes": changes }),
    );
    Ok(())
}

/// Reads a role by either of its names.
fn role_named(name: &str) -> Option<RepositoryRole> {
    match name {
        "read" => Some(RepositoryRole::Pull),
        "write" => Some(RepositoryRole::Push),
        name => name.parse().ok(),
    }
}

fn permission(call: &Call<'_>, field: &str) -> Result<Option<RepositoryRole>, ApiError> {
    let mut fields = Fields::parse("Invitation", call.body)?;
    let roles: Vec<&str> = RepositoryRole::VARIANTS.iter().map(RepositoryRole::into_str).collect();
    let message = format!("{field} must be one of {}", roles.join(", "));
    let given = fields.choice(field, role_named, &message);
    fields.check()?;
    Ok(given)
}

fn render(call: &Call<'_>, repository: u64, invitation: &StoredItem) -> Result<Value, ApiError> {
    let repository = call.world.repositories.get(&repository).ok_or(ApiError::NotFound)?;
    let renderer = call.renderer();
    Ok(json!({
        "id": invitation.id,
        "node_id": node_id("RepositoryInvitation", invitation.id),
        "repository": renderer.repository(repository),
        "invitee": renderer.user_summary(number(invitation, "invitee")),
        "inviter": renderer.user_summary(number(invitation, "inviter")),
        "permissions": invitation.fields.get("permissions"),
        "expired": false,
        "created_at": iso(invitation.created_at),
        "url": format!("{}/user/repository_invitations/{}", call.urls.api, invitation.id),
        "html_url": format!("{SITE}/{}/invitations", call.world.full_name(repository)),
    }))
}

fn list(call: &mut Call<'_>) -> Outcome {
    call.page(to(call, call.repository), |_, invitation| {
        render(call, call.repository, &invitation).unwrap_or(Value::Null)
    })
}

fn named(call: &Call<'_>) -> Result<StoredItem, ApiError> {
    let id = call.params.id("invitation_id")?;
    to(call, call.repository)
        .into_iter()
        .find(|invitation| invitation.id == id)
        .ok_or(ApiError::NotFound)
}

fn change(call: &mut Call<'_>) -> Outcome {
    let mut invitation = named(call)?;
    let permission = permission(call, "permissions")?.unwrap_or(RepositoryRole::Push).role_name();
    invitation.fields.insert("permissions".to_owned(), json!(permission));
    invitation.updated_at = call.now;
    let repository = call.repository;
    call.world.collections.put(
        &collection(repository),
        &invitation.id.to_string(),
        invitation.clone(),
    )?;
    Ok(Reply::ok(render(call, repository, &invitation)?))
}

fn withdraw(call: &mut Call<'_>) -> Outcome {
    let id = named(call)?.id;
    call.world.collections.take(&collection(call.repository), &id.to_string(), call.now);
    Ok(Reply::no_content())
}

fn all_mine(call: &Call<'_>) -> Result<Vec<(u64, StoredItem)>, ApiError> {
    let me = access::acts_as_user(call.caller)?;
    let repositories = call.world.repositories.keys().copied();
    let invited = repositories
        .flat_map(|id| to(call, id).into_iter().map(move |invitation| (id, invitation)));
    Ok(invited.filter(|(_, invitation)| number(invitation, "invitee") == me).collect())
}

fn mine(call: &mut Call<'_>) -> Outcome {
    let all = all_mine(call)?;
    call.page(all, |_, (repository, invitation)| {
        render(call, repository, &invitation).unwrap_or(Value::Null)
    })
}

/// Takes the caller's invitation of the path; returns its repository.
fn answer(call: &mut Call<'_>) -> Result<(u64, StoredItem), ApiError> {
    let id = call.params.id("invitation_id")?;
    let (repository, invitation) = all_mine(call)?
        .into_iter()
        .find(|(_, invitation)| invitation.id == id)
        .ok_or(ApiError::NotFound)?;
    call.world.collections.take(&collection(repository), &id.to_string(), call.now);
    Ok((repository, invitation))
}

fn accept(call: &mut Call<'_>) -> Outcome {
    let (id, invitation) = answer(call)?;
    let user = number(&invitation, "invitee");
    let repository = call.world.repositories.get_mut(&id).ok_or(ApiError::NotFound)?;
    let permission = invitation.fields.get("permissions").and_then(Value::as_str).unwrap_or("");
    let role = role_named(permission).unwrap_or(RepositoryRole::Push);
    repository.collaborators.insert(user, role);
    repository.updated_at = call.now;
    let context = EventContext { scope: EventScope::Repository(id), ..EventContext::of(call) };
    let change = Change::of(WebhookEvent::new("member", "added"))
        .notifying(Notice::Joined { invitation: invitation.id, user });
    changes::record(call.world, context, change, |renderer| {
        let member = renderer.user_summary(user);
        json!({ "member": member, "changes": { "permission": { "to": role.role_name() } } })
    });
    Ok(Reply::no_content())
}

fn decline(call: &mut Call<'_>) -> Outcome {
    answer(call)?;
    Ok(Reply::no_content())
}
