//! Issues: list, get, create, change.

use super::labels;
use crate::clock::Timestamp;
use crate::emulator::accounts::Level;
use crate::emulator::events::webhooks::issues as issue_events;
use crate::emulator::events::webhooks::issues::Before;
use crate::emulator::events::{changes, notifications};
use crate::emulator::http::timestamps::parse_iso;
use crate::emulator::http::{ApiError, Change, Fields, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route, USUAL, pagination};
use crate::emulator::world::{Issue, IssueState, Repository};

pub const READ: Need = Need::repository("issues", Level::Read, Role::Read);
pub const TAKE_PART: Need = Need::repository("issues", Level::Write, Role::Take);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/issues", READ, list),
    Route::post("/repos/{owner}/{repo}/issues", TAKE_PART, create).content(),
    Route::get("/repos/{owner}/{repo}/issues/{number}", READ, get),
    Route::patch("/repos/{owner}/{repo}/issues/{number}", TAKE_PART, patch),
];

pub fn named<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<&'a Issue, ApiError> {
    repository.issues.get(&call.params.id("number")?).ok_or(ApiError::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let issues = chosen(call, repository, repository.issues.values().collect())?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, issues, |issue| renderer.issue(repository, issue)))
}

/// Lists the issues that match a query, in its order; the default is newest first.
pub fn chosen<'a>(
    call: &Call<'_>,
    repository: &'a Repository,
    mut issues: Vec<&'a Issue>,
) -> Result<Vec<&'a Issue>, ApiError> {
    match call.query.get("state").unwrap_or("open") {
        "open" => issues.retain(|issue| issue.state == IssueState::Open),
        "closed" => issues.retain(|issue| issue.state == IssueState::Closed),
        "all" => {}
        _ => {
            return Err(ApiError::invalid("Issue", "state", "state must be open, closed or all"));
        }
    }
    if let Some(names) = call.query.get("labels").filter(|names| !names.is_empty()) {
        let has = |issue: &Issue, name: &str| {
            issue
                .labels
                .iter()
                .filter_map(|id| repository.labels.get(id))
                .any(|label| label.name.eq_ignore_ascii_case(name.trim()))
        };
        issues.retain(|issue| names.split(',').all(|name| has(issue, name)));
    }
    if let Some(login) = call.query.get("creator") {
        let creator = call.world.user_by_login(login).map(|user| user.id);
        issues.retain(|issue| Some(issue.author) == creator);
    }
    if let Some(since) = call.query.get("since") {
        let since = parse_iso(since).ok_or_else(|| {
            ApiError::invalid("Issue", "since", "since is not an ISO 8601 timestamp")
        })?;
        issues.retain(|issue| issue.updated_at >= since);
    }
    let key: fn(&Issue) -> (Timestamp, usize) = match call.query.get("sort").unwrap_or("created") {
        "created" => |issue| (issue.created_at, 0),
        "updated" => |issue| (issue.updated_at, 0),
        "comments" => |issue| (Timestamp::EPOCH, issue.comments.len()),
        _ => {
            return Err(ApiError::invalid(
                "Issue",
                "sort",
                "sort must be created, updated or comments",
            ));
        }
    };
    issues.sort_by_key(|issue| (key(issue), issue.number));
    match call.query.get("direction").unwrap_or("desc") {
        "desc" => issues.reverse(),
        "asc" => {}
        _ => {
            return Err(ApiError::invalid("Issue", "direction", "direction must be asc or desc"));
        }
    }
    Ok(issues)
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
    Ok(Reply::ok(Renderer::of(call).issue(repository, issue)).changed_at(changed_at))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Issue", call.body)?;
    let title = fields.required_string("title");
    let body = fields.nullable_string("body").value();
    let labels = fields.names("labels").unwrap_or_default();
    let assignees = assignees(call, &mut fields);
    let milestone = milestone(call, &mut fields)?.value();
    fields.check()?;

    ApiError::unless_spammed("Issue", call.repository()?.issues.len())?;
    let labels = if call.may_push()? { labels::ids_of(call, &labels)? } else { Vec::new() };
    let number = open(
        call,
        NewIssue { title, body, labels, assignees: assignees.unwrap_or_default(), milestone },
    )?;
    let repository = call.repository()?;
    let issue = repository.issues.get(&number).ok_or(ApiError::NotFound)?;
    let value = Renderer::of(call).issue(repository, issue);
    let location = format!("{}/issues/{number}", Renderer::of(call).repository_url(repository));
    Ok(Reply::created(value, &location))
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
    changes::issue_changed(call.world, call.urls, now, call.repository, number, author, "opened");
    Ok(number)
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let number = may_edit(call, named(call, call.repository()?)?.number)?;
    let mut fields = Fields::parse("Issue", call.body)?;
    let title = fields.has("title").then(|| fields.required_string("title"));
    let body = fields.nullable_string("body");
    let state = state(&mut fields);
    let labels = fields.names("labels");
    let assignees = assignees(call, &mut fields);
    let milestone = milestone(call, &mut fields)?;
    fields.check()?;

    let labels = labels.map(|names| labels::ids_of(call, &names)).transpose()?;
    edit(call, number, Edit { title, body, state, labels, assignees, milestone })?;
    let repository = call.repository()?;
    let issue = named(call, repository)?;
    Ok(Reply::ok(Renderer::of(call).issue(repository, issue)))
}

#[derive(Debug, Default)]
pub struct Edit {
    pub title: Option<String>,
    pub body: Change<String>,
    pub state: Option<IssueState>,
    pub labels: Option<Vec<u64>>,
    pub assignees: Option<Vec<u64>>,
    pub milestone: Change<u64>,
}

/// Requires the author or push rights, and returns the issue's number.
fn may_edit(call: &Call<'_>, number: u64) -> Result<u64, ApiError> {
    let issue = call.repository()?.issues.get(&number).ok_or(ApiError::NotFound)?;
    if call.may_push()? || issue.author == call.actor() {
        return Ok(number);
    }
    Err(ApiError::Forbidden("Must have admin rights to Repository."))
}

pub fn edit(call: &mut Call<'_>, number: u64, edit: Edit) -> Result<(), ApiError> {
    may_edit(call, number)?;
    let now = call.now;
    let repository = call.repository_mut()?;
    let issue = repository.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    let Edit { title, body, state, labels, assignees, milestone } = edit;
    let before = Before::of(issue);
    let action = change_state(issue, state, now);
    issue.title = title.unwrap_or_else(|| std::mem::take(&mut issue.title));
    issue.body = body.of(issue.body.take());
    issue.labels = labels.unwrap_or_else(|| std::mem::take(&mut issue.labels));
    issue.assignees = assignees.unwrap_or_else(|| std::mem::take(&mut issue.assignees));
    issue.milestone = milestone.of(issue.milestone);
    issue.updated_at = now;
    repository.updated_at = now;
    let actor = call.actor();
    notifications::issue_changed(call.world, now, call.repository, number, actor, action);
    issue_events::tell(call, &before)
}

fn state(fields: &mut Fields) -> Option<IssueState> {
    match fields.string("state")?.as_str() {
        "open" => Some(IssueState::Open),
        "closed" => Some(IssueState::Closed),
        _ => {
            fields.invalid("state", "state must be open or closed");
            None
        }
    }
}

/// Applies a new state and returns the event's action.
fn change_state(issue: &mut Issue, state: Option<IssueState>, now: Timestamp) -> &'static str {
    let Some(state) = state.filter(|state| *state != issue.state) else { return "edited" };
    issue.state = state;
    issue.closed_at = (state == IssueState::Closed).then_some(now);
    if state == IssueState::Closed { "closed" } else { "reopened" }
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
