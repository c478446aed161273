//! Mutations: they call REST's functions, so notifications and webhook deliveries are the same.

use std::rc::Rc;

use super::connection::{self, Edge};
use super::object::{Arguments, FieldValue, Node, Result};
use super::problem::{Kind, Problem};
use super::{ids, people};
use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::events::changes;
use crate::emulator::http::{ApiError, Change};
use crate::emulator::resources::issues::issue::{self, Edit, NewIssue};
use crate::emulator::routing::{Call, Role};
use crate::emulator::world::IssueState;

#[derive(Debug)]
pub struct Payload {
    pub kind: &'static str,
    client_mutation_id: Option<String>,
    actor: Option<Node>,
    issue: Option<Node>,
    comment: Option<Node>,
}

pub fn field(call: &mut Call<'_>, name: &str, arguments: Arguments<'_>) -> Result {
    let input = arguments
        .object("input")
        .ok_or_else(|| Problem::new(Kind::Unprocessable, "input is required"))?;
    let mut payload = Payload {
        kind: "",
        client_mutation_id: input.text("clientMutationId").map(str::to_owned),
        actor: people::actor(call.world, call.actor()),
        issue: None,
        comment: None,
    };
    match name {
        "addComment" => {
            payload.kind = "AddCommentPayload";
            let subject = subject(call, input.text("subjectId").unwrap_or(""))?;
            payload.comment = Some(add_comment(call, &subject, input.text("body").unwrap_or(""))?);
            payload.issue = Some(subject);
        }
        "createIssue" => {
            payload.kind = "CreateIssuePayload";
            payload.issue = Some(create_issue(call, input)?);
        }
        "closeIssue" => {
            payload.kind = "CloseIssuePayload";
            payload.issue = Some(edit(
                call,
                input.text("issueId"),
                Edit { state: Some(IssueState::Closed), ..Edit::default() },
            )?);
        }
        "reopenIssue" => {
            payload.kind = "ReopenIssuePayload";
            payload.issue = Some(edit(
                call,
                input.text("issueId"),
                Edit { state: Some(IssueState::Open), ..Edit::default() },
            )?);
        }
        _ => {
            payload.kind = "UpdateIssuePayload";
            payload.issue = Some(update_issue(call, input)?);
        }
    }
    Ok(FieldValue::One(Node::Payload(Rc::new(payload))))
}

pub fn payload(payload: &Payload, name: &str) -> FieldValue {
    match name {
        "clientMutationId" => FieldValue::maybe_text(payload.client_mutation_id.as_deref()),
        "actor" => FieldValue::maybe(payload.actor.clone()),
        "commentEdge" => FieldValue::maybe(
            payload
                .comment
                .clone()
                .map(|node| Node::Edge(Rc::new(Edge { kind: connection::COMMENTS, node }))),
        ),
        _ => FieldValue::maybe(payload.issue.clone()),
    }
}

fn enter(call: &mut Call<'_>, id: u64) -> Result<()> {
    let repository = call.world.repositories.get(&id).ok_or(ApiError::NotFound)?;
    access::may(call.world, call.caller, repository, "issues", Level::Write, Role::Take)?;
    access::unless_locked(call.world, repository)?;
    call.repository = id;
    Ok(())
}

/// Comments use REST's issue routes, so they take their permission.
fn subject(call: &mut Call<'_>, node_id: &str) -> Result<Node> {
    let thing = ids::node(call, node_id)?;
    let (Node::Issue(repository, _) | Node::Pull(repository, _)) = thing else {
        return Err(Problem::new(
            Kind::Unprocessable,
            "subjectId does not name something that can be commented on.",
        ));
    };
    enter(call, repository)?;
    Ok(thing)
}

/// Pull requests have their own mutations in the real service.
fn issue(call: &mut Call<'_>, node_id: &str) -> Result<Node> {
    let thing = ids::node(call, node_id)?;
    let Node::Issue(repository, _) = thing else {
        return Err(Problem::new(Kind::Unprocessable, "The id does not name an issue."));
    };
    enter(call, repository)?;
    Ok(thing)
}

fn add_comment(call: &mut Call<'_>, subject: &Node, body: &str) -> Result<Node> {
    if body.trim().is_empty() {
        return Err(Problem::new(Kind::Unprocessable, "body is required"));
    }
    ApiError::unless_spammed("IssueComment", call.repository()?.comments.len())?;
    let (repository, author) = (call.repository, call.actor());
    let id =
        changes::comment(call.world, call.urls, call.now, repository, subject.key(), author, body)
            .ok_or(ApiError::NotFound)?;
    Ok(Node::Comment(repository, id))
}

fn create_issue(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let Node::Repository(repository) = ids::node(call, input.text("repositoryId").unwrap_or(""))?
    else {
        return Err(Problem::new(Kind::Unprocessable, "repositoryId does not name a repository."));
    };
    enter(call, repository)?;
    let new_issue = NewIssue {
        title: title(input)?,
        body: input.text("body").map(str::to_owned),
        labels: labels(call, input)?.unwrap_or_default(),
        assignees: assignees(call, input)?.unwrap_or_default(),
        milestone: None,
    };
    let number = issue::open(call, new_issue)?;
    Ok(Node::Issue(repository, number))
}

fn update_issue(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let state = input
        .text("state")
        .map(|state| if state == "OPEN" { IssueState::Open } else { IssueState::Closed });
    // Labels belong to the issue's repository, so the issue is resolved first.
    issue(call, input.text("id").unwrap_or(""))?;
    let change = Edit {
        title: input.has("title").then(|| title(input)).transpose()?,
        body: input.text("body").map_or(Change::Keep, |body| Change::Set(body.to_owned())),
        state,
        labels: labels(call, input)?,
        assignees: assignees(call, input)?,
        ..Edit::default()
    };
    edit(call, input.text("id"), change)
}

fn edit(call: &mut Call<'_>, node_id: Option<&str>, change: Edit) -> Result<Node> {
    let issue = issue(call, node_id.unwrap_or(""))?;
    issue::edit(call, issue.key(), change)?;
    Ok(issue)
}

fn title(input: Arguments<'_>) -> Result<String> {
    let title = input.text("title").unwrap_or("");
    if title.trim().is_empty() {
        Err(Problem::new(Kind::Unprocessable, "title is required"))
    } else {
        Ok(title.to_owned())
    }
}

fn assignees(call: &Call<'_>, input: Arguments<'_>) -> Result<Option<Vec<u64>>> {
    let Some(given) = input.texts("assigneeIds") else { return Ok(None) };
    let mut users = Vec::new();
    for id in given {
        match ids::node(call, id)? {
            Node::User(user) if users.contains(&user) => {}
            Node::User(user) => users.push(user),
            _ => return Err(Problem::new(Kind::Unprocessable, "assigneeIds may only name users.")),
        }
    }
    Ok(Some(users))
}

fn labels(call: &Call<'_>, input: Arguments<'_>) -> Result<Option<Vec<u64>>> {
    let Some(given) = input.texts("labelIds") else { return Ok(None) };
    let mut labels = Vec::new();
    for id in given {
        match ids::node(call, id)? {
            Node::Label(repository, label) if repository == call.repository => {
                if !labels.contains(&label) {
                    labels.push(label);
                }
            }
            _ => {
                return Err(Problem::new(
                    Kind::Unprocessable,
                    "labelIds may only name labels of the repository.",
                ));
            }
        }
    }
    Ok(Some(labels))
}
