//! Users, the machine user, and organisations.

use super::object::{Arguments, FieldValue, Graph, Node, Result};
use super::problem::{Kind, Problem};
use super::{connection, repository};
use crate::emulator::auth::access;
use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::render::node_id;
use crate::emulator::routing::Call;
use crate::emulator::world::{Owner, World};

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
    is_asked: impl Fn(Owner) -> bool,
    kind: &str,
) -> Result {
    let is_machine = login.ends_with(BOT_SUFFIX);
    match call.world.owner(login).filter(|owner| is_asked(*owner) && !is_machine) {
        Some(owner) => Ok(FieldValue::One(of_owner(owner))),
        None => Err(Problem::new(
            Kind::NotFound,
            format!("Could not resolve to a {kind} with the login of '{login}'."),
        )),
    }
}

fn gone() -> Problem {
    Problem::new(Kind::NotFound, "The account does not exist any more.")
}

pub fn user(
    call: &Call<'_>,
    graph: &Graph<'_, '_>,
    id: u64,
    name: &str,
    arguments: Arguments<'_>,
) -> Result {
    let user = call.world.users.get(&id).ok_or_else(gone)?;
    let kind = if user.login.ends_with(BOT_SUFFIX) { "Bot" } else { "User" };
    Ok(match name {
        "id" => FieldValue::text(&node_id(kind, id)),
        "databaseId" => FieldValue::number(id),
        "login" => FieldValue::text(&user.login),
        "name" => FieldValue::text(&user.name),
        "email" => FieldValue::text(&format!("{}@example.com", user.login)),
        "url" => FieldValue::text(&format!("{SITE}/{}", segment(&user.login))),
        "avatarUrl" => FieldValue::text(&format!("{SITE}/avatars/{id}")),
        "isViewer" => FieldValue::value(call.caller.user() == Some(id)),
        "createdAt" => FieldValue::text(&iso(user.created_at)),
        "updatedAt" => FieldValue::text(&iso(user.updated_at)),
        "organizations" => return organizations(call, graph, id, arguments),
        _ => return owned(call, graph, Owner::User(id), name, arguments),
    })
}

/// Lists all of the caller's own organisations, and of others those in common.
fn organizations(
    call: &Call<'_>,
    graph: &Graph<'_, '_>,
    user: u64,
    arguments: Arguments<'_>,
) -> Result {
    let viewer = call.caller.user();
    let shared = call.world.organizations.values().filter(|organization| {
        organization.members.contains(&user)
            && viewer.is_some_and(|viewer| organization.members.contains(&viewer))
    });
    let items = shared.map(|organization| Node::Organization(organization.id)).collect();
    connection::of(graph, connection::ORGANIZATIONS, items, arguments)
}

pub fn organization(
    call: &Call<'_>,
    graph: &Graph<'_, '_>,
    id: u64,
    name: &str,
    arguments: Arguments<'_>,
) -> Result {
    let organization = call.world.organizations.get(&id).ok_or_else(gone)?;
    let viewer = call.caller.user();
    Ok(match name {
        "id" => FieldValue::text(&node_id("Organization", id)),
        "databaseId" => FieldValue::number(id),
        "login" | "name" => FieldValue::text(&organization.login),
        "description" => FieldValue::text(&organization.description),
        "url" => FieldValue::text(&format!("{SITE}/{}", segment(&organization.login))),
        "avatarUrl" => FieldValue::text(&format!("{SITE}/avatars/{id}")),
        "viewerIsAMember" => {
            FieldValue::value(viewer.is_some_and(|viewer| organization.members.contains(&viewer)))
        }
        "viewerCanAdminister" => {
            FieldValue::value(viewer.is_some_and(|viewer| organization.owners.contains(&viewer)))
        }
        "createdAt" => FieldValue::text(&iso(organization.created_at)),
        "updatedAt" => FieldValue::text(&iso(organization.updated_at)),
        _ => return owned(call, graph, Owner::Organization(id), name, arguments),
    })
}

fn owned(
    call: &Call<'_>,
    graph: &Graph<'_, '_>,
    owner: Owner,
    name: &str,
    arguments: Arguments<'_>,
) -> Result {
    if name == "repository" {
        let named = arguments.text("name").unwrap_or("");
        return Ok(FieldValue::maybe(
            repository::visible(call, call.world.owner_login(owner), named).map(Node::Repository),
        ));
    }
    graph.charge(call.world.repositories.len());
    let theirs = call.world.repositories.values().filter(|repository| repository.owner == owner);
    let visible = theirs.filter(|repository| access::sees(call.world, call.caller, repository));
    connection::of(
        graph,
        connection::REPOSITORIES,
        visible.map(|repository| Node::Repository(repository.id)).collect(),
        arguments,
    )
}
