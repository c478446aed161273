//! The root of a query: the viewer, objects by name or id, and the budget.

use super::object::{Budget, Field, FieldValue, Node, Result};
use super::problem::Problem;
use super::{connection, ids, people, repository};
use crate::emulator::http::iso;
use crate::emulator::limits::Resource;
use crate::emulator::resources::service::{issue_search, repository_search};
use crate::emulator::world::{Issue, Owner, Repository};

/// The running service's limit of hits.
const HITS_MAX: usize = 1_000;

pub fn field(field: Field<'_, '_>) -> Result {
    let Field { call, arguments, .. } = field;
    let text = |name: &str| arguments.text(name).unwrap_or("");
    match field.name {
        // A token without a user acts as the machine user, as in its writes.
        "viewer" => Ok(FieldValue::One(Node::User(call.actor()))),
        "user" => {
            people::by_login(call, text("login"), |owner| matches!(owner, Owner::User(_)), "User")
        }
        "organization" => people::by_login(
            call,
            text("login"),
            |owner| matches!(owner, Owner::Organization(_)),
            "Organization",
        ),
        "repositoryOwner" => {
            people::by_login(call, text("login"), |_| true, "User or Organization")
        }
        "repository" => {
            let (owner, name) = (text("owner"), text("name"));
            let found = repository::visible(call, owner, name);
            // A former name leads to the repository unless `followRenames` is false.
            let follows = arguments.flag("followRenames") != Some(false);
            let wanted = |id: &u64| {
                let repository = call.world.repositories.get(id);
                follows || repository.is_some_and(|found| found.name.eq_ignore_ascii_case(name))
            };
            match found.filter(wanted) {
                Some(id) => Ok(FieldValue::One(Node::Repository(id))),
                None => Err(Problem::not_found(format!(
                    "Could not resolve to a Repository with the name '{owner}/{name}'."
                ))),
            }
        }
        "search" if arguments.text("type") == Some("REPOSITORY") => {
            let found = repository_search::find(call, text("query"))?.into_iter().take(HITS_MAX);
            let items = found.map(|repository| Node::Repository(repository.id));
            connection::of(field, connection::SEARCH, items.collect())
        }
        "search" => {
            let found = issue_search::find(call, text("query"))?;
            let readable = |(repository, issue): &(&Repository, &Issue)| {
                repository::may_read(call, repository, repository::permission(issue)).is_ok()
            };
            let found = found.into_iter().filter(readable).take(HITS_MAX);
            let items = found.map(|(repository, issue)| Node::issue(repository.id, issue));
            connection::of(field, connection::SEARCH, items.collect())
        }
        "node" => ids::node(call, text("id")).map(FieldValue::One),
        "nodes" => {
            let ids = arguments.texts("ids").unwrap_or_default();
            Ok(FieldValue::Many(ids.into_iter().map(|id| ids::node(call, id).ok()).collect()))
        }
        _ => Ok(FieldValue::One(Node::RateLimit)),
    }
}

/// Returns the budget after the charge for this request.
pub fn rate_limit(field: Field<'_, '_>) -> FieldValue {
    let Budget { cost, nodes, .. } = *field.budget;
    let view = field.call.budget(Resource::GRAPHQL);
    let number = |value: u32| FieldValue::number(u64::from(value));
    match field.name {
        "limit" => number(view.limit),
        "cost" => number(cost),
        "remaining" => number(view.remaining().saturating_sub(cost)),
        "used" => number(view.used.saturating_add(cost).min(view.limit)),
        "resetAt" => FieldValue::text(&iso(view.reset)),
        _ => FieldValue::number(nodes),
    }
}
