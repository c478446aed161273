//! Issues: list, get, create, change, assign and lock.

use http::StatusCode;
use serde_json::{Value, json};

use super::{labels, listing};
use crate::clock::Timestamp;
use crate::emulator::accounts::Level;
use crate::emulator::events::changes;
use crate::emulator::events::issues as issue_events;
use crate::emulator::events::issues::Before;
use crate::emulator::events::notifications::Notice;
use crate::emulator::events::webhooks::EventContext;
use crate::emulator::http::{ApiError, Change, Fields, Reply};
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::{Detail, Issue, IssueState, Repository};

pub const READ: Need = Need::repository("issues", Level::Read, Role::Read);
pub const TAKE_PART: Need = Need::repository("issues", Level::Write, Role::Take);
pub const CHANGE: Need = Need::repository("issues", Level::Write, Role::Push);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/issues", READ, list),
    Route::post("/repos/{owner}/{repo}/issues", TAKE_PART, create).content(),
    Route::get("/repos/{owner}/{repo}/issues/{number}", READ, get),
    Route::patch("/repos/{owner}/{repo}/issues/{number}", TAKE_PART, patch),
    Route::post("/repos/{owner}/{repo}/issues/{number}/assignees", CHANGE, assign),
    Route::delete("/repos/{owner}/{repo}/issues/{number}/assignees", CHANGE, unassign),
    Route::put("/repos/{owner}/{repo}/issues/{number}/lock", CHANGE, lock),
    Route::delete("/repos/{owner}/{repo}/issues/{number}/lock", CHANGE, unlock),
];

/// The running service's limit of assignees.
const ASSIGNEES_MAX: usize = 10;

pub fn named<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<&'a Issue, ApiError> {
    repository.issues.get(&call.params.id("number")?).ok_or(ApiError::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let issues = listing::issues(call, repository)?;
    call.page(issues, |renderer, issue| renderer.issue(repository, issue))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let issue = named(call, repository)?;
    // An issue shows its milestone's counts, which change with the repository.
    let changed_at = if issue.milestone.is_some() {
        issue.updated_at.max(repository.updated_at)
    } else {
        issue.updated_at
    };
    Ok(Reply::ok(call.renderer().issue(repository, issue)).changed_at(changed_at))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Issue", call.body)?;
    let title = fields.required_string("title");
    let body = fields.nullable_string("body").value();
    let labels = fields.names("labels").unwrap_or_default();
    let assignees = assignees(call, &mut fields).unwrap_or_default();
    let milestone = milestone(call, &mut fields)?.value();
    fields.check()?;

    ApiError::unless_spammed("Issue", call.repository()?.issues.len())?;
    let labels = if call.may_push()? { labels::ids_of(call, &labels)? } else { Vec::new() };
    let number = open(call, NewIssue { title, body, labels, assignees, milestone })?;
    let repository = call.repository()?;
    let issue = repository.issues.get(&number).ok_or(ApiError::NotFound)?;
    Ok(Reply::created_at_url(call.renderer().issue(repository, issue)))
}

#[derive(Debug)]
pub struct NewIssue {
    pub title: String,
    pub body: Option<String>,
    pub labels: Vec<u64>,
    pub assignees: Vec<u64>,
    pub milestone: Option<u64>,
}

pub fn open(call: &mut Call<'_>, new_issue: NewIssue) -> Result<u64, ApiError> {
    ApiError::unless_spammed("Issue", call.repository()?.issues.len())?;
    let may_push = call.may_push()?;
    let (now, author, id) = (call.now, call.actor(), call.world.next_id());
    let repository = call.repository_mut()?;
    let number = repository.issues.keys().next_back().copied().unwrap_or(0) + 1;
    let NewIssue { title, body, labels, assignees, milestone } = new_issue;
    let mut issue = Issue { body, ..Issue::new(id, number, title, author, now) };
    // Only callers with push rights may set these; the real service ignores them for others.
    if may_push {
        issue = Issue { labels, assignees, milestone, ..issue };
    }
    repository.issues.insert(number, issue);
    repository.updated_at = now;
    let opened = ("opened", Detail::None);
    changes::issue_changed(call.world, call.urls, now, call.repository, number, author, opened);
    Ok(number)
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let issue = named(call, call.repository()?)?;
    let number = issue.number;
    must_be_author_or_push(call, issue.author)?;
    let mut fields = Fields::parse("Issue", call.body)?;
    let title = fields.has("title").then(|| fields.required_string("title"));
    let body = fields.nullable_string("body");
    let state = state(&mut fields);
    let labels = fields.names("labels");
    let assignees = assignees(call, &mut fields);
    let milestone = milestone(call, &mut fields)?;
    fields.check()?;

    let labels = labels.map(|names| labels::ids_of(call, &names)).transpose()?;
    edit(call, number, Edit { title, body, state, labels, assignees, milestone, base: None })?;
    let repository = call.repository()?;
    let issue = named(call, repository)?;
    Ok(Reply::ok(call.renderer().issue(repository, issue)))
}

#[derive(Debug, Default)]
pub struct Edit {
    pub title: Option<String>,
    pub body: Change<String>,
    pub state: Option<IssueState>,
    pub labels: Option<Vec<u64>>,
    pub assignees: Option<Vec<u64>>,
    pub milestone: Change<u64>,
    /// The target branch of a pull request.
    pub base: Option<String>,
}

pub fn must_be_author_or_push(call: &Call<'_>, author: u64) -> Result<(), ApiError> {
    if call.may_push()? || author == call.actor() {
        return Ok(());
    }
    Err(ApiError::Forbidden("Must have admin rights to Repository."))
}

pub fn edit(call: &mut Call<'_>, number: u64, edit: Edit) -> Result<(), ApiError> {
    let issue = call.repository()?.issues.get(&number).ok_or(ApiError::NotFound)?;
    must_be_author_or_push(call, issue.author)?;
    let now = call.now;
    let repository = call.repository_mut()?;
    let issue = repository.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    let Edit { title, body, state, labels, assignees, milestone, base } = edit;
    let before = Before::of(issue);
    change_state(issue, state, now);
    issue.title = title.unwrap_or_else(|| std::mem::take(&mut issue.title));
    issue.body = body.of(issue.body.take());
    issue.labels = labels.unwrap_or_else(|| std::mem::take(&mut issue.labels));
    issue.assignees = assignees.unwrap_or_else(|| std::mem::take(&mut issue.assignees));
    issue.milestone = milestone.of(issue.milestone);
    issue.pull_into = base.or_else(|| issue.pull_into.take());
    issue.updated_at = now;
    repository.updated_at = now;
    issue_events::publish_changes(call, &before)
}

pub fn state(fields: &mut Fields) -> Option<IssueState> {
    fields.choice("state", state_named, "state must be open or closed")
}

pub fn state_named(name: &str) -> Option<IssueState> {
    name.parse().ok()
}

pub fn change_state(issue: &mut Issue, state: Option<IssueState>, now: Timestamp) {
    let Some(state) = state.filter(|state| *state != issue.state) else { return };
    issue.state = state;
    issue.closed_at = (state == IssueState::Closed).then_some(now);
}

fn assignees(call: &Call<'_>, fields: &mut Fields) -> Option<Vec<u64>> {
    let logins = fields.strings("assignees")?;
    let mut ids = Vec::new();
    for login in &logins {
        match call.world.user_by_login(login) {
            Some(user) if !ids.contains(&user.id) => ids.push(user.id),
            Some(_) => {}
            None => fields.invalid("assignees", format!("{login} cannot be assigned")),
        }
    }
    Some(ids)
}

fn milestone(call: &Call<'_>, fields: &mut Fields) -> Result<Change<u64>, ApiError> {
    let given = fields.nullable_integer("milestone");
    if let Change::Set(number) = given
        && !call.repository()?.milestones.contains_key(&number)
    {
        fields.invalid("milestone", "there is no such milestone");
    }
    Ok(given)
}

/// Sets the time of change of the issues that show something else that changed.
pub fn touch(call: &mut Call<'_>, shows: impl Fn(&Issue) -> bool) -> Result<(), ApiError> {
    let now = call.now;
    let issues = call.repository_mut()?.issues.values_mut().filter(|issue| shows(issue));
    issues.for_each(|issue| issue.updated_at = now);
    Ok(())
}

/// Changes the issue in the path without an event, and renders it.
pub fn change(call: &mut Call<'_>, change: impl FnOnce(&mut Issue)) -> Result<Value, ApiError> {
    let (now, number) = (call.now, call.params.id("number")?);
    let issue = call.repository_mut()?.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    change(issue);
    issue.updated_at = now;
    let repository = call.repository()?;
    Ok(call.renderer().issue(repository, named(call, repository)?))
}

/// Returns the users in the body. The running service ignores those who cannot be assigned.
fn assignable(call: &Call<'_>) -> Result<Vec<u64>, ApiError> {
    named(call, call.repository()?)?;
    let mut fields = Fields::parse("Issue", call.body)?;
    let logins = fields.strings("assignees").unwrap_or_default();
    fields.check()?;
    Ok(logins.iter().filter_map(|login| Some(call.world.user_by_login(login)?.id)).collect())
}

fn assign(call: &mut Call<'_>) -> Outcome {
    let users = assignable(call)?;
    let value = reassign(call, |assignees| {
        for user in users {
            if !assignees.contains(&user) && assignees.len() < ASSIGNEES_MAX {
                assignees.push(user);
            }
        }
    })?;
    Ok(Reply::json(StatusCode::CREATED, value))
}

fn unassign(call: &mut Call<'_>) -> Outcome {
    let users = assignable(call)?;
    let value = reassign(call, |assignees| assignees.retain(|user| !users.contains(user)))?;
    Ok(Reply::ok(value))
}

/// Changes the assignees of the issue in the path, with notifications and events.
fn reassign(
    call: &mut Call<'_>,
    change_assignees: impl FnOnce(&mut Vec<u64>),
) -> Result<Value, ApiError> {
    let before = Before::of(named(call, call.repository()?)?);
    let value = change(call, |issue| change_assignees(&mut issue.assignees))?;
    issue_events::publish_changes(call, &before)?;
    Ok(value)
}

const LOCK_REASONS: [&str; 4] = ["off-topic", "too heated", "resolved", "spam"];

fn lock(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Issue", call.body)?;
    let given = fields.nullable_string("lock_reason").value();
    let known = given.as_ref().and_then(|given| LOCK_REASONS.into_iter().find(|one| one == given));
    if given.is_some() && known.is_none() {
        let message = "lock_reason must be off-topic, too heated, resolved or spam";
        fields.invalid("lock_reason", message);
    }
    fields.check()?;
    set_lock(call, true, known)
}

fn unlock(call: &mut Call<'_>) -> Outcome {
    set_lock(call, false, None)
}

fn set_lock(call: &mut Call<'_>, locked: bool, reason: Option<&'static str>) -> Outcome {
    let number = named(call, call.repository()?)?.number;
    let was = named(call, call.repository()?)?.locked;
    change(call, |issue| (issue.locked, issue.lock_reason) = (locked, reason))?;
    if was != locked {
        let action = if locked { "locked" } else { "unlocked" };
        let (context, at) = (EventContext::of(call), (call.repository, number));
        let event = (action, issue_events::entries(action, Detail::Lock(reason)));
        issue_events::raise(call.world, context, at, event, Notice::Nobody, |_| json!({}));
    }
    Ok(Reply::no_content())
}

/// Comments on a locked issue take push rights. Undocumented; the running service's words.
pub fn must_be_open_to_comments(call: &Call<'_>, number: u64) -> Result<(), ApiError> {
    let is_locked = call.repository()?.issues.get(&number).is_some_and(|issue| issue.locked);
    if is_locked && !call.may_push()? {
        return Err(ApiError::Forbidden("Unable to create comment because issue is locked."));
    }
    Ok(())
}
