//! The parameters of lists of issues, pull requests and their comments, which are the running
//! service's.

use crate::clock::Timestamp;
use crate::emulator::events::notifications::mentions;
use crate::emulator::http::ApiError;
use crate::emulator::resources::issues::labels;
use crate::emulator::routing::Call;
use crate::emulator::world::{Comment, Issue, IssueState, Repository};

const DAY_SECS: u64 = 24 * 3_600;
/// A long-running pull request is older than this, and changed since.
const LONG_SECS: u64 = 30 * DAY_SECS;

fn invalid(param: &str, message: &str) -> ApiError {
    ApiError::invalid("Issue", param, message)
}

/// Keeps the open ones unless the query says otherwise.
fn keep_state(call: &Call<'_>, issues: &mut Vec<&Issue>) -> Result<(), ApiError> {
    match call.query.get("state").unwrap_or("open") {
        "open" => issues.retain(|issue| issue.state == IssueState::Open),
        "closed" => issues.retain(|issue| issue.state == IssueState::Closed),
        "all" => {}
        _ => return Err(invalid("state", "state must be open, closed or all")),
    }
    Ok(())
}

/// Lists the issues that match a query, in its order; the default is newest first.
pub fn issues<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<Vec<&'a Issue>, ApiError> {
    let mut issues: Vec<&Issue> = repository.issues.values().collect();
    keep_state(call, &mut issues)?;
    keep_about(call, repository, &mut issues)?;
    keep_of_people(call, &mut issues);
    if let Some(since) = call.moment("Issue", "since")? {
        issues.retain(|issue| issue.updated_at >= since);
    }
    let key: fn(&Issue) -> (Timestamp, usize) = match call.query.get("sort").unwrap_or("created") {
        "created" => |issue| (issue.created_at, 0),
        "updated" => |issue| (issue.updated_at, 0),
        "comments" => |issue| (Timestamp::EPOCH, issue.comments.len()),
        _ => return Err(invalid("sort", "sort must be created, updated or comments")),
    };
    issues.sort_by_key(|issue| (key(issue), issue.number));
    if call.descends("Issue")?.unwrap_or(true) {
        issues.reverse();
    }
    Ok(issues)
}

/// By labels, milestone and type. No issue has a type.
fn keep_about(
    call: &Call<'_>,
    repository: &Repository,
    issues: &mut Vec<&Issue>,
) -> Result<(), ApiError> {
    let given = |name: &str| call.query.get(name).filter(|given| !given.is_empty());
    if let Some(names) = given("labels") {
        let has = |issue: &Issue, name: &str| {
            let mut labels = labels::of_issue(repository, issue);
            labels.any(|label| label.name.eq_ignore_ascii_case(name.trim()))
        };
        issues.retain(|issue| names.split(',').all(|name| has(issue, name)));
    }
    match given("milestone") {
        None => {}
        Some("*") => issues.retain(|issue| issue.milestone.is_some()),
        Some("none") => issues.retain(|issue| issue.milestone.is_none()),
        Some(number) => {
            let message = "milestone must be a number, none or *";
            let number: u64 = number.parse().map_err(|_| invalid("milestone", message))?;
            issues.retain(|issue| issue.milestone == Some(number));
        }
    }
    if given("type").is_some_and(|wanted| wanted != "none") {
        issues.clear();
    }
    Ok(())
}

fn keep_of_people(call: &Call<'_>, issues: &mut Vec<&Issue>) {
    let given = |name: &str| call.query.get(name).filter(|given| !given.is_empty());
    let user = |login: &str| call.world.user_by_login(login).map(|user| user.id);
    if let Some(login) = given("creator") {
        let creator = user(login);
        issues.retain(|issue| Some(issue.author) == creator);
    }
    match given("assignee") {
        None => {}
        Some("*") => issues.retain(|issue| !issue.assignees.is_empty()),
        Some("none") => issues.retain(|issue| issue.assignees.is_empty()),
        Some(login) => {
            let assignee = user(login);
            issues.retain(|issue| assignee.is_some_and(|id| issue.assignees.contains(&id)));
        }
    }
    if let Some(login) = given("mentioned") {
        let mentioned = user(login);
        let names = |issue: &Issue, id: u64| {
            let text = format!("{} {}", issue.title, issue.body.as_deref().unwrap_or(""));
            mentions::find(call.world, &text).users.contains(&id)
        };
        issues.retain(|issue| mentioned.is_some_and(|id| names(issue, id)));
    }
}

/// Lists the pull requests that match a query. In the order of creation the newest comes first, in
/// another one the least.
pub fn pulls<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<Vec<&'a Issue>, ApiError> {
    let mut pulls: Vec<&Issue> = repository.issues.values().collect();
    pulls.retain(|issue| issue.pull_from.is_some());
    keep_state(call, &mut pulls)?;
    let given = |name: &str| call.query.get(name).filter(|given| !given.is_empty());
    if let Some(head) = given("head") {
        pulls.retain(|pull| is_head(call, repository, pull, head));
    }
    if let Some(base) = given("base") {
        pulls.retain(|pull| pull.pull_into.as_ref().unwrap_or(&repository.default_branch) == base);
    }
    let sort = given("sort").unwrap_or("created");
    let key: fn(&Issue) -> (Timestamp, usize) = match sort {
        "created" | "long-running" => |pull| (pull.created_at, 0),
        "updated" => |pull| (pull.updated_at, 0),
        "popularity" => |pull| (Timestamp::EPOCH, pull.comments.len()),
        _ => {
            let message = "sort must be created, updated, popularity or long-running";
            return Err(invalid("sort", message));
        }
    };
    if sort == "long-running" {
        let age = |at: Timestamp| call.now.as_secs().saturating_sub(at.as_secs());
        pulls.retain(|pull| age(pull.created_at) > LONG_SECS && age(pull.updated_at) < LONG_SECS);
    }
    pulls.sort_by_key(|pull| (key(pull), pull.number));
    if call.descends("Issue")?.unwrap_or(sort == "created") {
        pulls.reverse();
    }
    Ok(pulls)
}

/// Compares the source of a pull request with `BRANCH` or `OWNER:BRANCH`.
fn is_head(call: &Call<'_>, repository: &Repository, pull: &Issue, head: &str) -> bool {
    let (owner, branch) = match head.split_once(':') {
        Some((owner, branch)) => (Some(owner), branch),
        None => (None, head),
    };
    let source = call.world.pull_repository(repository, pull);
    let own = source.map(|source| call.world.owner_login(source.owner));
    pull.pull_from.as_deref() == Some(branch)
        && owner.is_none_or(|owner| own.is_some_and(|own| own.eq_ignore_ascii_case(owner)))
}

/// Keeps the comments that the query asks for.
pub fn keep_comments(call: &Call<'_>, comments: &mut Vec<&Comment>) -> Result<(), ApiError> {
    if let Some(since) = call.moment("IssueComment", "since")? {
        comments.retain(|comment| comment.updated_at >= since);
    }
    Ok(())
}

/// Orders the comments of a repository. Without `sort`, the direction changes nothing.
pub fn sort_comments(call: &Call<'_>, comments: &mut [&Comment]) -> Result<(), ApiError> {
    let keys = |name: &str| matches!(name, "created" | "updated").then_some(name == "updated");
    let message = "sort must be created or updated";
    let sort = call.choice("IssueComment", "sort", keys, message)?;
    let descends = call.descends("IssueComment")?;
    let Some(by_change) = sort else { return Ok(()) };
    let key = |comment: &Comment| {
        if by_change { comment.updated_at } else { comment.created_at }
    };
    comments.sort_by_key(|comment| (key(comment), comment.id));
    if descends == Some(true) {
        comments.reverse();
    }
    Ok(())
}
