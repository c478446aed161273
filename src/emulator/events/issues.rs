//! Webhook events for a change of an issue or pull request; one change may be several events
//! (edited, closed, labeled, assigned, …).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::notifications::Notice;
use super::record::{Change, record};
use super::webhooks::{EventContext, WebhookEvent};
use crate::emulator::http::ApiError;
use crate::emulator::render::{Renderer, extend};
use crate::emulator::routing::Call;
use crate::emulator::world::repositories::issue_events::name_of;
use crate::emulator::world::{Detail, Issue, IssueState, Repository, World};

/// A larger change raises no event for each label, because every event shows the whole issue.
const MOVED_MAX: usize = 100;

#[derive(Debug)]
pub struct Before {
    number: u64,
    title: String,
    body: Option<String>,
    state: IssueState,
    labels: Vec<u64>,
    assignees: Vec<u64>,
    milestone: Option<u64>,
    /// The target branch of a pull request, unless it is the default one.
    base: Option<String>,
    /// The commit of the merge.
    merged: Option<String>,
}

impl Before {
    pub fn of(issue: &Issue) -> Self {
        Self {
            number: issue.number,
            title: issue.title.clone(),
            body: issue.body.clone(),
            state: issue.state,
            labels: issue.labels.clone(),
            assignees: issue.assignees.clone(),
            milestone: issue.milestone,
            base: issue.pull_into.clone(),
            merged: issue.merged.as_ref().map(|(_, sha)| sha.clone()),
        }
    }
}

/// Raises one event about an issue or pull request, with its history and notifications. `more` has
/// the payload's further members.
pub fn raise(
    world: &mut World,
    context: EventContext<'_>,
    (repository, number): (u64, u64),
    (action, entries): (&str, Vec<(&'static str, Detail)>),
    notice: Notice<'_>,
    more: impl FnOnce(&Renderer<'_>) -> Value,
) {
    let is_pull = world
        .repositories
        .get(&repository)
        .and_then(|found| found.issues.get(&number))
        .is_some_and(|issue| issue.pull_from.is_some());
    let event = if is_pull { "pull_request" } else { "issues" };
    let change =
        Change::of(WebhookEvent::new(event, action)).noted(number, entries).notifying(notice);
    record(world, context, change, |renderer| {
        let mut objects = subject(renderer, repository, number);
        extend(&mut objects, more(renderer));
        objects
    });
}

/// Returns the entry in the history that a webhook's action makes, if it makes one.
pub fn entries(action: &str, detail: Detail) -> Vec<(&'static str, Detail)> {
    name_of(action).map(|name| (name, detail)).into_iter().collect()
}

pub fn subject(renderer: &Renderer<'_>, repository: u64, number: u64) -> Value {
    let Some(repository) = renderer.world.repositories.get(&repository) else { return json!({}) };
    match repository.issues.get(&number) {
        Some(pull) if pull.pull_from.is_some() => {
            json!({ "number": number, "pull_request": renderer.pull(repository, pull) })
        }
        Some(issue) => json!({ "issue": renderer.issue(repository, issue) }),
        None => json!({}),
    }
}

/// Raises the events of all changes since `before`. Those concerned are notified once.
pub fn publish_changes(call: &mut Call<'_>, before: &Before) -> Result<(), ApiError> {
    publish_changes_in(call.world, EventContext::of(call), call.repository, before)
}

/// Does it without a call, in a repository.
pub fn publish_changes_in(
    world: &mut World,
    context: EventContext<'_>,
    repository: u64,
    before: &Before,
) -> Result<(), ApiError> {
    let number = before.number;
    let found = world.repositories.get(&repository).ok_or(ApiError::NotFound)?;
    let after = Before::of(found.issues.get(&number).ok_or(ApiError::NotFound)?);
    let (changes, edits) = edits(world, found, before, &after);
    let labels = label_moves(found, before, &after);
    let milestones = milestone_moves(found, before, &after);
    let state = (after.state != before.state).then_some(match after.state {
        IssueState::Closed => "closed",
        IssueState::Open => "reopened",
    });
    let mut notice = Notice::Issue { number, action: state.unwrap_or("edited") };
    let mut one = |action: &str, entries, more: &dyn Fn(&Renderer<'_>) -> Value| {
        let notice = std::mem::replace(&mut notice, Notice::Nobody);
        raise(world, context, (repository, number), (action, entries), notice, more);
    };
    if changes != json!({}) {
        one("edited", edits, &|_| json!({ "changes": changes }));
    }
    if let Some(action) = state {
        let merge = after.merged.clone().filter(|_| before.merged.is_none());
        let merge = merge.map(|sha| ("merged", Detail::Commit(sha)));
        one(action, merge.into_iter().chain(entries(action, Detail::None)).collect(), &|_| {
            json!({})
        });
    }
    for (action, label, detail) in labels {
        one(
            action,
            entries(action, detail),
            &|renderer| json!({ "label": label_of(renderer, repository, label) }),
        );
    }
    for (action, user) in moved(&before.assignees, &after.assignees, "assigned", "unassigned") {
        one(
            action,
            entries(action, Detail::Assignee(user)),
            &|renderer| json!({ "assignee": renderer.user_summary(user) }),
        );
    }
    for (action, milestone, detail) in milestones {
        let shown = |renderer: &Renderer<'_>| milestone_of(renderer, repository, milestone);
        one(action, entries(action, detail), &|renderer| json!({ "milestone": shown(renderer) }));
    }
    Ok(())
}

/// The payload's `changes`, empty without any, and their entries in the history.
type Edits = (Value, Vec<(&'static str, Detail)>);

fn edits(world: &World, repository: &Repository, before: &Before, after: &Before) -> Edits {
    let (mut changes, mut entries) = (json!({}), Vec::new());
    if after.title != before.title {
        extend(&mut changes, json!({ "title": { "from": before.title } }));
        entries.push(("renamed", Detail::Rename(before.title.clone(), after.title.clone())));
    }
    if after.body != before.body {
        extend(&mut changes, json!({ "body": { "from": before.body } }));
    }
    let into =
        |state: &Before| state.base.clone().unwrap_or_else(|| repository.default_branch.clone());
    let (from, to) = (into(before), into(after));
    if from != to {
        let history = world.history(repository);
        let sha = history.head(&from).map(|head| &head.sha);
        extend(
            &mut changes,
            json!({ "base": { "ref": { "from": from }, "sha": { "from": sha } } }),
        );
        entries.push(("base_ref_changed", Detail::None));
    }
    (changes, entries)
}

fn label_moves(
    repository: &Repository,
    before: &Before,
    after: &Before,
) -> Vec<(&'static str, u64, Detail)> {
    let moved = moved(&before.labels, &after.labels, "labeled", "unlabeled").into_iter();
    let detail = |id| {
        let label = repository.labels.get(&id)?;
        Some(Detail::Label(label.name.clone(), label.color.clone()))
    };
    moved.map(|(action, id)| (action, id, detail(id).unwrap_or_default())).collect()
}

fn milestone_moves(
    repository: &Repository,
    before: &Before,
    after: &Before,
) -> Vec<(&'static str, u64, Detail)> {
    let (had, has) = (before.milestone.as_slice(), after.milestone.as_slice());
    let moved = moved(had, has, "milestoned", "demilestoned").into_iter();
    let title = |number| repository.milestones.get(&number).map(|found| found.title.clone());
    let detail = |number| Detail::Milestone(title(number).unwrap_or_default());
    moved.map(|(action, number)| (action, number, detail(number))).collect()
}

/// Returns removals, then additions, each with its action.
fn moved<'a>(
    before: &[u64],
    after: &[u64],
    added: &'a str,
    removed: &'a str,
) -> Vec<(&'a str, u64)> {
    let (had, has): (BTreeSet<u64>, BTreeSet<u64>) =
        (before.iter().copied().collect(), after.iter().copied().collect());
    let removals = had.difference(&has).map(|id| (removed, *id));
    let new = has.difference(&had).map(|id| (added, *id));
    removals.chain(new).take(MOVED_MAX).collect()
}

fn label_of(renderer: &Renderer<'_>, repository: u64, id: u64) -> Option<Value> {
    let repository = renderer.world.repositories.get(&repository)?;
    Some(renderer.label(repository, repository.labels.get(&id)?))
}

fn milestone_of(renderer: &Renderer<'_>, repository: u64, number: u64) -> Option<Value> {
    let repository = renderer.world.repositories.get(&repository)?;
    Some(renderer.milestone(repository, repository.milestones.get(&number)?))
}
