//! Issues, pull requests and their comments.

use super::object::{Field, FieldValue, Node, Result};
use super::problem::Problem;
use super::repository::{may_read, named, permission, state_of};
use super::{connection, people, pull, reactions, record};
use crate::emulator::auth::access::role_of_token;
use crate::emulator::http::{SITE, iso};
use crate::emulator::render::node_id;
use crate::emulator::routing::{Call, Role};
use crate::emulator::world::{Issue, IssueState, Repository};

fn readable<'a>(call: &'a Call<'_>, repository: &'a Repository, number: u64) -> Result<&'a Issue> {
    let issue = repository.issues.get(&number).ok_or_else(|| Problem::gone("It"))?;
    may_read(call, repository, permission(issue))?;
    Ok(issue)
}

pub fn field(field: Field<'_, '_>, repository: u64, number: u64) -> Result {
    let repository = named(field.call, repository)?;
    let issue = readable(field.call, repository, number)?;
    if let Some(found) = plain(field, repository, issue) {
        return Ok(found);
    }
    let (kind, items) = match field.name {
        "assignees" => {
            (connection::USERS, issue.assignees.iter().map(|user| Node::User(*user)).collect())
        }
        "labels" => (
            connection::LABELS,
            issue.labels.iter().map(|label| Node::Label(repository.id, *label)).collect(),
        ),
        "projectCards" => (connection::PROJECT_CARDS, Vec::new()),
        "projectItems" => (connection::PROJECT_ITEMS, Vec::new()),
        "commits" | "files" | "reviews" | "latestReviews" | "reviewRequests" => {
            return pull::list(field, repository, issue);
        }
        _ => (
            connection::COMMENTS,
            issue.comments.iter().map(|comment| Node::Comment(repository.id, *comment)).collect(),
        ),
    };
    connection::of(field, kind, items)
}

fn plain(field: Field<'_, '_>, repository: &Repository, issue: &Issue) -> Option<FieldValue> {
    let call = field.call;
    let is_closed = issue.state == IssueState::Closed;
    Some(match field.name {
        "id" => FieldValue::text(&node_id(
            if issue.pull_from.is_some() { "PullRequest" } else { "Issue" },
            issue.id,
        )),
        "databaseId" => FieldValue::number(issue.id),
        "number" => FieldValue::number(issue.number),
        "title" => FieldValue::text(&issue.title),
        "body" => FieldValue::text(issue.body.as_deref().unwrap_or("")),
        "state" => FieldValue::text(state_of(issue)),
        "closed" => FieldValue::value(is_closed),
        "locked" => FieldValue::value(issue.locked),
        "activeLockReason" => {
            let reason =
                issue.lock_reason.map(|reason| reason.to_uppercase().replace([' ', '-'], "_"));
            FieldValue::maybe_text(reason.as_deref())
        }
        "authorAssociation" => FieldValue::text("MEMBER"),
        "isPinned" => FieldValue::value(false),
        "stateReason" => FieldValue::null(),
        "reactionGroups" => reactions::groups(),
        "milestone" => {
            let found = issue.milestone.and_then(|number| repository.milestones.get(&number));
            FieldValue::maybe(found.map(|found| record::milestone(call.world, repository, found)))
        }
        "url" => FieldValue::text(&address(call, repository, issue)),
        "author" => FieldValue::maybe(people::actor(call.world, issue.author)),
        "repository" => FieldValue::One(Node::Repository(repository.id)),
        "viewerCanUpdate" => FieldValue::value(may_update(call, repository, issue)),
        "createdAt" => FieldValue::text(&iso(issue.created_at)),
        "updatedAt" => FieldValue::text(&iso(issue.updated_at)),
        "closedAt" => FieldValue::maybe_text(issue.closed_at.map(iso).as_deref()),
        name => return pull::plain(call, repository, issue, name),
    })
}

fn address(call: &Call<'_>, repository: &Repository, issue: &Issue) -> String {
    let collection = if issue.pull_from.is_some() { "pull" } else { "issues" };
    format!("{SITE}/{}/{collection}/{}", call.world.full_name(repository), issue.number)
}

fn may_update(call: &Call<'_>, repository: &Repository, issue: &Issue) -> bool {
    let may_push = call
        .caller
        .token()
        .is_some_and(|token| role_of_token(call.world, token, repository) >= Role::Push);
    may_push || issue.author == call.actor()
}

pub fn comment(field: Field<'_, '_>, repository: u64, id: u64) -> Result {
    let call = field.call;
    let repository = named(call, repository)?;
    let comment = repository.comments.get(&id).ok_or_else(|| Problem::gone("It"))?;
    let issue = readable(call, repository, comment.issue)?;
    let on = Node::issue(repository.id, issue);
    Ok(match field.name {
        "id" => FieldValue::text(&node_id("IssueComment", id)),
        "databaseId" => FieldValue::number(id),
        "body" => FieldValue::text(&comment.body),
        "authorAssociation" => FieldValue::text("MEMBER"),
        "includesCreatedEdit" => FieldValue::value(comment.updated_at > comment.created_at),
        "isMinimized" => FieldValue::value(false),
        "minimizedReason" => FieldValue::null(),
        "reactionGroups" => reactions::groups(),
        "viewerDidAuthor" => FieldValue::value(comment.author == call.actor()),
        "url" => {
            FieldValue::text(&format!("{}#issuecomment-{id}", address(call, repository, issue)))
        }
        "author" => FieldValue::maybe(people::actor(call.world, comment.author)),
        "issue" => FieldValue::maybe(Some(on).filter(|on| matches!(on, Node::Issue(..)))),
        "pullRequest" => FieldValue::maybe(Some(on).filter(|on| matches!(on, Node::Pull(..)))),
        "createdAt" => FieldValue::text(&iso(comment.created_at)),
        "updatedAt" => FieldValue::text(&iso(comment.updated_at)),
        _ => FieldValue::One(Node::Repository(repository.id)),
    })
}
