//! Users, the machine user, and organisations.

use std::collections::BTreeSet;

use super::object::{Field, FieldValue, Node, Result};
use super::problem::Problem;
use super::{connection, repository};
use crate::emulator::auth::access;
use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::render::{address_of, node_id};
use crate::emulator::routing::Call;
use crate::emulator::world::{Owner, Repository, Visibility, World};

const BOT_SUFFIX: &str = "[bot]";

pub fn actor(world: &World, user: u64) -> Option<Node> {
    let login = &world.users.get(&user)?.login;
    Some(if login.ends_with(BOT_SUFFIX) { Node::Bot(user) } else { Node::User(user) })
}

pub fn of_owner(owner: Owner) -> Node {
    match owner {
        Owner::User(id) => Node::User(id),
        Owner::Organization(id) => Node::Organization(id),
    }
}

pub fn by_login(
    call: &Call<'_>,
    login: &str,
    is_wanted: impl Fn(Owner) -> bool,
    kind: &str,
) -> Result {
    let is_machine = login.ends_with(BOT_SUFFIX);
    match call.world.owner(login).filter(|owner| is_wanted(*owner) && !is_machine) {
        Some(owner) => Ok(FieldValue::One(of_owner(owner))),
        None => Err(Problem::not_found(format!(
            "Could not resolve to a {kind} with the login of '{login}'."
        ))),
    }
}

pub fn user(field: Field<'_, '_>, id: u64) -> Result {
    let call = field.call;
    let user = call.world.users.get(&id).ok_or_else(|| Problem::gone("The account"))?;
    let kind = if user.login.ends_with(BOT_SUFFIX) { "Bot" } else { "User" };
    Ok(match field.name {
        "id" => FieldValue::text(&node_id(kind, id)),
        "name" => FieldValue::text(&user.name),
        "email" => FieldValue::text(&address_of(&user.login)),
        "isViewer" => FieldValue::value(call.caller.user() == Some(id)),
        "createdAt" => FieldValue::text(&iso(user.created_at)),
        "updatedAt" => FieldValue::text(&iso(user.updated_at)),
        "organizations" => return organizations(field, id),
        _ => return of_any_owner(field, Owner::User(id), &user.login),
    })
}

/// Lists all of the caller's own organisations, and of others those in common.
fn organizations(field: Field<'_, '_>, user: u64) -> Result {
    let viewer = field.call.caller.user();
    let shared = field.call.world.organizations.values().filter(|organization| {
        organization.members.contains(&user)
            && viewer.is_some_and(|viewer| organization.members.contains(&viewer))
    });
    let items = shared.map(|organization| Node::Organization(organization.id)).collect();
    connection::of(field, connection::ORGANIZATIONS, items)
}

pub fn organization(field: Field<'_, '_>, id: u64) -> Result {
    let organization = field.call.world.organizations.get(&id);
    let organization = organization.ok_or_else(|| Problem::gone("The account"))?;
    let viewer_is_in = |users: &BTreeSet<u64>| {
        FieldValue::value(field.call.caller.user().is_some_and(|viewer| users.contains(&viewer)))
    };
    Ok(match field.name {
        "id" => FieldValue::text(&node_id("Organization", id)),
        "name" => FieldValue::text(&organization.login),
        "description" => FieldValue::text(&organization.description),
        "viewerIsAMember" => viewer_is_in(&organization.members),
        "viewerCanAdminister" => viewer_is_in(&organization.owners),
        "createdAt" => FieldValue::text(&iso(organization.created_at)),
        "updatedAt" => FieldValue::text(&iso(organization.updated_at)),
        _ => return of_any_owner(field, Owner::Organization(id), &organization.login),
    })
}

/// Resolves the fields that users and organisations share.
fn of_any_owner(field: Field<'_, '_>, owner: Owner, login: &str) -> Result {
    let Field { call, budget, arguments, .. } = field;
    let (Owner::User(id) | Owner::Organization(id)) = owner;
    Ok(match field.name {
        "databaseId" => FieldValue::number(id),
        "login" => FieldValue::text(login),
        "url" => FieldValue::text(&format!("{SITE}/{}", segment(login))),
        "avatarUrl" => FieldValue::text(&format!("{SITE}/avatars/{id}")),
        "repository" => {
            let named = repository::visible(call, login, arguments.text("name").unwrap_or(""));
            FieldValue::maybe(named.map(Node::Repository))
        }
        _ => {
            budget.charge(call.world.repositories.len());
            let found = repositories(field, owner);
            let nodes = found.into_iter().map(|repository| Node::Repository(repository.id));
            return connection::of(field, connection::REPOSITORIES, nodes.collect());
        }
    })
}

/// Lists the visible repositories of an account, as the arguments choose and order them.
fn repositories<'a>(field: Field<'a, '_>, owner: Owner) -> Vec<&'a Repository> {
    let Field { call, arguments, .. } = field;
    let wanted = arguments.texts("ownerAffiliations");
    let wants = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.contains(&name));
    let has_part = |repository: &Repository| {
        let Owner::User(user) = owner else { return false };
        let is_member =
            matches!(repository.owner, Owner::Organization(id) if call.is_member(id, user));
        (wants("COLLABORATOR") && repository.collaborators.contains_key(&user))
            || (wants("ORGANIZATION_MEMBER") && is_member)
    };
    let is = |name: &str, holds: bool| arguments.flag(name).is_none_or(|wanted| wanted == holds);
    let is_wanted = |repository: &&Repository| {
        let visibility = match repository.visibility {
            Visibility::Public => "PUBLIC",
            Visibility::Private => "PRIVATE",
        };
        let on = |feature: &str| repository.features.get(feature) == Some(&true);
        ((repository.owner == owner && wants("OWNER")) || has_part(repository))
            && ["privacy", "visibility"]
                .iter()
                .all(|name| arguments.text(name).is_none_or(|wanted| wanted == visibility))
            && is("isFork", repository.fork_of.is_some())
            && is("isArchived", on("archived"))
            && is("isLocked", call.world.migrations.is_locked(repository.id))
            && is("hasIssuesEnabled", on("has_issues"))
            && access::sees(call.world, call.caller, repository)
    };
    let mut found: Vec<&Repository> = call.world.repositories.values().filter(is_wanted).collect();
    let Some(order) = arguments.object("orderBy") else { return found };
    match order.text("field") {
        Some("NAME") => found.sort_by_cached_key(|one| one.name.to_lowercase()),
        Some("PUSHED_AT") => found.sort_by_key(|one| one.pushed_at),
        Some("STARGAZERS") => found.sort_by_key(|one| one.stars.len()),
        Some("UPDATED_AT") => found.sort_by_key(|one| one.updated_at),
        _ => found.sort_by_key(|one| one.created_at),
    }
    if order.text("direction") == Some("DESC") {
        found.reverse();
    }
    found
}
