//! Repositories and their labels. Issues and pull requests need REST's permission; the rest needs
//! only access to the repository.

use super::object::{Field, FieldValue, Node, Result};
use super::problem::Problem;
use super::{connection, people};
use crate::clock::Timestamp;
use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::render::node_id;
use crate::emulator::routing::{Call, Role};
use crate::emulator::world::{Issue, IssueState, Repository, Visibility};

/// By its current or a former name.
pub fn visible(call: &Call<'_>, owner: &str, name: &str) -> Option<u64> {
    let repository = call.world.repository_named(owner, name)?;
    access::sees(call.world, call.caller, repository).then_some(repository.id)
}

/// An earlier mutation of the same request may have hidden or deleted it.
pub fn named<'a>(call: &'a Call<'_>, id: u64) -> Result<&'a Repository> {
    let repository = call.world.repositories.get(&id);
    repository
        .filter(|repository| access::sees(call.world, call.caller, repository))
        .ok_or_else(|| Problem::gone("The repository"))
}

pub fn field(field: Field<'_, '_>, id: u64) -> Result {
    let repository = named(field.call, id)?;
    if let Some(found) = plain(field.call, repository, field.name) {
        return Ok(found);
    }
    match field.name {
        "issue" | "pullRequest" | "issueOrPullRequest" => one(field, repository),
        "issues" | "pullRequests" => many(field, repository),
        "label" => {
            let wanted = field.arguments.text("name").unwrap_or("");
            let label =
                repository.labels.values().find(|label| label.name.eq_ignore_ascii_case(wanted));
            Ok(FieldValue::maybe(label.map(|label| Node::Label(id, label.id))))
        }
        _ => {
            let items = repository.labels.keys().map(|label| Node::Label(id, *label)).collect();
            connection::of(field, connection::LABELS, items)
        }
    }
}

/// Resolves the fields that need no further access.
fn plain(call: &Call<'_>, repository: &Repository, name: &str) -> Option<FieldValue> {
    let full_name = || call.world.full_name(repository);
    let feature =
        |name: &str| FieldValue::value(repository.features.get(name).copied().unwrap_or(false));
    let role = call
        .caller
        .token()
        .map_or(Role::Read, |token| access::role_of_token(call.world, token, repository));
    let is_private = repository.visibility == Visibility::Private;
    Some(match name {
        "id" => FieldValue::text(&node_id("Repository", repository.id)),
        "databaseId" => FieldValue::number(repository.id),
        "name" => FieldValue::text(&repository.name),
        "nameWithOwner" => FieldValue::text(&full_name()),
        "description" => FieldValue::text(&repository.description),
        "homepageUrl" => FieldValue::maybe_text(repository.homepage.as_deref()),
        "url" => FieldValue::text(&format!("{SITE}/{}", full_name())),
        "owner" => FieldValue::One(people::of_owner(repository.owner)),
        "isPrivate" => FieldValue::value(is_private),
        "visibility" => FieldValue::text(if is_private { "PRIVATE" } else { "PUBLIC" }),
        "isFork" => FieldValue::value(false),
        "isArchived" => feature("archived"),
        "isTemplate" => feature("is_template"),
        "isLocked" => FieldValue::value(call.world.migrations.is_locked(repository.id)),
        "hasIssuesEnabled" => feature("has_issues"),
        "hasWikiEnabled" => feature("has_wiki"),
        "defaultBranchRef" => {
            FieldValue::One(Node::Named("Ref", repository.default_branch.clone()))
        }
        "primaryLanguage" => FieldValue::maybe(
            repository.language.map(|language| Node::Named("Language", language.to_owned())),
        ),
        "stargazerCount" | "forkCount" => FieldValue::count(0),
        "viewerPermission" => FieldValue::text(match role {
            Role::Admin => "ADMIN",
            Role::Push => "WRITE",
            Role::Take | Role::Read => "READ",
        }),
        "viewerCanAdminister" => FieldValue::value(role >= Role::Admin),
        "createdAt" => FieldValue::text(&iso(repository.created_at)),
        "updatedAt" => FieldValue::text(&iso(repository.updated_at)),
        "pushedAt" => FieldValue::text(&iso(repository.pushed_at)),
        _ => return None,
    })
}

pub fn may_read(call: &Call<'_>, repository: &Repository, permission: &str) -> Result<()> {
    Ok(access::may(call.world, call.caller, repository, permission, Level::Read, Role::Read)?)
}

pub fn permission(issue: &Issue) -> &'static str {
    if issue.pull_from.is_some() { "pull_requests" } else { "issues" }
}

fn one(field: Field<'_, '_>, repository: &Repository) -> Result {
    let number = field.arguments.integer("number").unwrap_or(0);
    let (kind, is_wanted): (_, fn(&Issue) -> bool) = match field.name {
        "issue" => ("an Issue", |issue| issue.pull_from.is_none()),
        "pullRequest" => ("a PullRequest", |issue| issue.pull_from.is_some()),
        _ => ("an issue or pull request", |_| true),
    };
    let found = repository.issues.get(&number).filter(|issue| is_wanted(issue));
    let issue = found.ok_or_else(|| {
        Problem::not_found(format!("Could not resolve to {kind} with the number of {number}."))
    })?;
    may_read(field.call, repository, permission(issue))?;
    Ok(FieldValue::One(Node::issue(repository.id, issue)))
}

fn many(field: Field<'_, '_>, repository: &Repository) -> Result {
    let arguments = field.arguments;
    let wants_pulls = field.name == "pullRequests";
    let (kind, permission) = if wants_pulls {
        (connection::PULLS, "pull_requests")
    } else {
        (connection::ISSUES, "issues")
    };
    may_read(field.call, repository, permission)?;
    field.budget.charge(repository.issues.len());
    let states = arguments.texts("states");
    let labels = arguments.texts("labels");
    let is_wanted = |issue: &&Issue| {
        let state = if issue.state == IssueState::Open { "OPEN" } else { "CLOSED" };
        issue.pull_from.is_some() == wants_pulls
            && states.as_ref().is_none_or(|states| states.contains(&state))
            && labels.as_ref().is_none_or(|names| has_one(repository, issue, names))
    };
    let mut issues: Vec<&Issue> = repository.issues.values().filter(is_wanted).collect();
    if let Some(order) = arguments.object("orderBy") {
        let key: fn(&Issue) -> (Timestamp, usize) = match order.text("field") {
            Some("UPDATED_AT") => |issue| (issue.updated_at, 0),
            Some("COMMENTS") => |issue| (Timestamp::EPOCH, issue.comments.len()),
            _ => |issue| (issue.created_at, 0),
        };
        issues.sort_by_key(|issue| (key(issue), issue.number));
        if order.text("direction") == Some("DESC") {
            issues.reverse();
        }
    }
    let items = issues.into_iter().map(|issue| Node::issue(repository.id, issue)).collect();
    connection::of(field, kind, items)
}

fn has_one(repository: &Repository, issue: &Issue, names: &[&str]) -> bool {
    let mut labels = issue.labels.iter().filter_map(|id| repository.labels.get(id));
    labels.any(|label| names.iter().any(|name| label.name.eq_ignore_ascii_case(name)))
}

pub fn label(field: Field<'_, '_>, repository: u64, id: u64) -> Result {
    let repository = named(field.call, repository)?;
    let label = repository.labels.get(&id).ok_or_else(|| Problem::gone("The label"))?;
    Ok(match field.name {
        "id" => FieldValue::text(&node_id("Label", id)),
        "name" => FieldValue::text(&label.name),
        "color" => FieldValue::text(&label.color),
        "description" => FieldValue::maybe_text(label.description.as_deref()),
        "url" => FieldValue::text(&format!(
            "{SITE}/{}/labels/{}",
            field.call.world.full_name(repository),
            segment(&label.name)
        )),
        _ => FieldValue::One(Node::Repository(repository.id)),
    })
}
