//! Mutations: they call REST's functions, so notifications and webhook deliveries are the same.

use std::rc::Rc;

use super::connection::{self, Edge};
use super::object::{Arguments, FieldValue, Node, Result};
use super::problem::Problem;
use super::{ids, people, pull_mutation};
use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::events::changes;
use crate::emulator::http::{ApiError, Change};
use crate::emulator::render;
use crate::emulator::resources::issues::issue::{self, Edit, NewIssue};
use crate::emulator::routing::{Call, Role};
use crate::emulator::world::IssueState;

#[derive(Debug)]
pub struct Payload {
    pub kind: &'static str,
    client_mutation_id: Option<String>,
    actor: Option<Node>,
    issue: Node,
    comment: Option<Node>,
}

pub fn field(call: &mut Call<'_>, name: &str, arguments: Arguments<'_>) -> Result {
    let input =
        arguments.object("input").ok_or_else(|| Problem::unprocessable("input is required"))?;
    let to_state = |state| Edit { state: Some(state), ..Edit::default() };
    let mut comment = None;
    let (kind, issue) = match name {
        _ if pull_mutation::has(name) => pull_mutation::field(call, name, input)?,
        "addLabelsToLabelable" => ("AddLabelsToLabelablePayload", label(call, input, true)?),
        "removeLabelsFromLabelable" => {
            ("RemoveLabelsFromLabelablePayload", label(call, input, false)?)
        }
        "addComment" => {
            let subject = subject(call, input.text("subjectId").unwrap_or(""))?;
            comment = Some(add_comment(call, &subject, input.text("body").unwrap_or(""))?);
            ("AddCommentPayload", subject)
        }
        "createIssue" => ("CreateIssuePayload", create_issue(call, input)?),
        "closeIssue" => {
            let closed = to_state(IssueState::Closed);
            ("CloseIssuePayload", edit(call, input.text("issueId"), closed)?)
        }
        "reopenIssue" => {
            let open = to_state(IssueState::Open);
            ("ReopenIssuePayload", edit(call, input.text("issueId"), open)?)
        }
        _ => ("UpdateIssuePayload", update_issue(call, input)?),
    };
    Ok(FieldValue::One(Node::Payload(Rc::new(Payload {
        kind,
        client_mutation_id: input.text("clientMutationId").map(str::to_owned),
        actor: people::actor(call.world, call.actor()),
        issue,
        comment,
    }))))
}

pub fn payload(payload: &Payload, name: &str) -> FieldValue {
    match name {
        "clientMutationId" => FieldValue::maybe_text(payload.client_mutation_id.as_deref()),
        "actor" => FieldValue::maybe(payload.actor.clone()),
        "commentEdge" => {
            let comment = payload.comment.clone();
            FieldValue::maybe(comment.map(|comment| Edge::of(connection::COMMENTS, comment)))
        }
        _ => FieldValue::One(payload.issue.clone()),
    }
}

fn enter(call: &mut Call<'_>, id: u64) -> Result<()> {
    enter_for(call, id, "issues", Role::Take)
}

/// Enters a repository in which the caller may write.
pub fn enter_for(call: &mut Call<'_>, id: u64, permission: &'static str, role: Role) -> Result<()> {
    let repository = call.world.repositories.get(&id).ok_or(ApiError::NotFound)?;
    access::may(call.world, call.caller, repository, permission, Level::Write, role)?;
    access::unless_locked(call.world, repository)?;
    call.repository = id;
    Ok(())
}

/// Comments use REST's issue routes, so they take their permission.
fn subject(call: &mut Call<'_>, node_id: &str) -> Result<Node> {
    let node = ids::node(call, node_id)?;
    let (Node::Issue(repository, _) | Node::Pull(repository, _)) = node else {
        return Err(Problem::unprocessable(
            "subjectId does not name something that can be commented on.",
        ));
    };
    enter(call, repository)?;
    Ok(node)
}

/// Pull requests have their own mutations in the real service.
fn issue(call: &mut Call<'_>, node_id: &str) -> Result<Node> {
    let node = ids::node(call, node_id)?;
    let Node::Issue(repository, _) = node else {
        return Err(Problem::unprocessable("The id does not name an issue."));
    };
    enter(call, repository)?;
    Ok(node)
}

fn add_comment(call: &mut Call<'_>, subject: &Node, body: &str) -> Result<Node> {
    if body.trim().is_empty() {
        return Err(Problem::unprocessable("body is required"));
    }
    ApiError::unless_spammed("IssueComment", call.repository()?.comments.len())?;
    issue::must_be_open_to_comments(call, subject.key())?;
    let (repository, author) = (call.repository, call.actor());
    let id =
        changes::comment(call.world, call.urls, call.now, repository, subject.key(), author, body)
            .ok_or(ApiError::NotFound)?;
    Ok(Node::Comment(repository, id))
}

fn create_issue(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let Node::Repository(repository) = ids::node(call, input.text("repositoryId").unwrap_or(""))?
    else {
        return Err(Problem::unprocessable("repositoryId does not name a repository."));
    };
    enter(call, repository)?;
    refuse_projects(input)?;
    let new_issue = NewIssue {
        title: title(input)?,
        body: input.text("body").map(str::to_owned),
        labels: labels(call, input)?.unwrap_or_default(),
        assignees: assignees(call, input)?.unwrap_or_default(),
        milestone: milestone(call, input)?,
    };
    let number = issue::open(call, new_issue)?;
    Ok(Node::Issue(repository, number))
}

/// No repository has classic projects.
pub fn refuse_projects(input: Arguments<'_>) -> Result<()> {
    if input.texts("projectIds").is_some_and(|projects| !projects.is_empty()) {
        return Err(Problem::unprocessable("projectIds may only name projects of the repository."));
    }
    Ok(())
}

/// A null milestone is none; an absent one stays.
pub fn changed_milestone(call: &Call<'_>, input: Arguments<'_>) -> Result<Change<u64>> {
    if !input.0.contains_key("milestoneId") {
        return Ok(Change::Keep);
    }
    Ok(milestone(call, input)?.map_or(Change::Clear, Change::Set))
}

fn update_issue(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let state = |name| if name == "OPEN" { IssueState::Open } else { IssueState::Closed };
    // Labels belong to the issue's repository, so the issue is resolved first.
    issue(call, input.text("id").unwrap_or(""))?;
    let change = Edit {
        title: input.has("title").then(|| title(input)).transpose()?,
        body: input.text("body").map_or(Change::Keep, |body| Change::Set(body.to_owned())),
        state: input.text("state").map(state),
        labels: labels(call, input)?,
        assignees: assignees(call, input)?,
        milestone: changed_milestone(call, input)?,
        ..Edit::default()
    };
    refuse_projects(input)?;
    edit(call, input.text("id"), change)
}

fn edit(call: &mut Call<'_>, node_id: Option<&str>, change: Edit) -> Result<Node> {
    let issue = issue(call, node_id.unwrap_or(""))?;
    issue::edit(call, issue.key(), change)?;
    Ok(issue)
}

/// Adds labels to an issue or pull request, or removes them, as REST's routes below an issue do.
fn label(call: &mut Call<'_>, input: Arguments<'_>, adds: bool) -> Result<Node> {
    let node = ids::node(call, input.text("labelableId").unwrap_or(""))?;
    let (Node::Issue(repository, number) | Node::Pull(repository, number)) = node else {
        return Err(Problem::unprocessable("labelableId does not name something with labels."));
    };
    enter_for(call, repository, "issues", Role::Push)?;
    let given = labels(call, input)?.unwrap_or_default();
    let issue = call.repository()?.issues.get(&number).ok_or(ApiError::NotFound)?;
    let mut labels = issue.labels.clone();
    if adds {
        labels.extend(given.into_iter().filter(|id| !issue.labels.contains(id)));
    } else {
        labels.retain(|id| !given.contains(id));
    }
    issue::edit(call, number, Edit { labels: Some(labels), ..Edit::default() })?;
    Ok(node)
}

pub fn title(input: Arguments<'_>) -> Result<String> {
    let title = input.text("title").unwrap_or("");
    if title.trim().is_empty() {
        return Err(Problem::unprocessable("title is required"));
    }
    Ok(title.to_owned())
}

pub fn assignees(call: &Call<'_>, input: Arguments<'_>) -> Result<Option<Vec<u64>>> {
    let user = |node| if let Node::User(user) = node { Some(user) } else { None };
    named(call, input.texts("assigneeIds"), user, "assigneeIds may only name users.")
}

pub fn labels(call: &Call<'_>, input: Arguments<'_>) -> Result<Option<Vec<u64>>> {
    let label = |node| match node {
        Node::Label(repository, label) if repository == call.repository => Some(label),
        _ => None,
    };
    let wrong = "labelIds may only name labels of the repository.";
    named(call, input.texts("labelIds"), label, wrong)
}

pub fn milestone(call: &Call<'_>, input: Arguments<'_>) -> Result<Option<u64>> {
    let Some(node_id) = input.text("milestoneId") else { return Ok(None) };
    let mut milestones = call.repository()?.milestones.values();
    let found = milestones.find(|one| render::node_id("Milestone", one.id) == node_id);
    let wrong = || Problem::unprocessable("milestoneId may only name one of the repository.");
    Ok(Some(found.ok_or_else(wrong)?.number))
}

/// Resolves node ids to the ids of one kind of object, without repetitions.
pub fn named(
    call: &Call<'_>,
    given: Option<Vec<&str>>,
    of_kind: impl Fn(Node) -> Option<u64>,
    wrong: &str,
) -> Result<Option<Vec<u64>>> {
    let Some(given) = given else { return Ok(None) };
    let mut ids = Vec::new();
    for node_id in given {
        let id = of_kind(ids::node(call, node_id)?);
        let id = id.ok_or_else(|| Problem::unprocessable(wrong))?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(Some(ids))
}
