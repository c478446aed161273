//! Searches for issues and pull requests, with the qualifiers that clients use most.

use std::cmp::Reverse;

use super::search_terms::{Term, days, invalid, numbers, parse, wrong};
use crate::emulator::http::ApiError;
use crate::emulator::http::ranges::Range;
use crate::emulator::resources::issues::labels;
use crate::emulator::routing::Call;
use crate::emulator::world::{Comment, Issue, IssueState, Repository, Visibility};

const QUALIFIERS: &[&str] = &[
    "archived",
    "assignee",
    "author",
    "base",
    "closed",
    "commenter",
    "comments",
    "created",
    "draft",
    "head",
    "in",
    "involves",
    "is",
    "label",
    "merged",
    "milestone",
    "no",
    "org",
    "repo",
    "sort",
    "state",
    "type",
    "updated",
    "user",
];

type Found<'a> = (&'a Repository, &'a Issue);

enum Filter {
    Text(String),
    Repository(String),
    Owner(String),
    IsPull(bool),
    IsOpen(bool),
    IsMerged(bool),
    IsLocked(bool),
    IsPrivate(bool),
    IsArchived(bool),
    IsDraft(bool),
    Author(Option<u64>),
    /// `*` is anybody.
    Assignee(Option<u64>, bool),
    Commenter(Option<u64>),
    Involves(Option<u64>),
    /// One of these, separated by commas.
    Labels(Vec<String>),
    Milestone(String),
    Head(String),
    Base(String),
    Without(&'static str),
    Comments(Range),
    Created(Range),
    Updated(Range),
    Closed(Range),
    Merged(Range),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    title: bool,
    body: bool,
    comments: bool,
}

/// Returns what the search finds, in its order.
pub fn find<'a>(call: &'a Call<'_>, search: &str) -> Result<Vec<Found<'a>>, ApiError> {
    let terms = parse(search, QUALIFIERS)?;
    let mut filters = Vec::new();
    let mut fields = Fields { title: true, body: true, comments: false };
    let mut order = None;
    for Term { negated, qualifier, value } in &terms {
        match qualifier.as_deref() {
            Some("in") if !negated => fields = searched_fields(value)?,
            Some("sort") if !negated => order = Some(sorting(value)?),
            Some("in" | "sort") => return Err(invalid("in and sort cannot be negated".to_owned())),
            qualifier => filters.push((*negated, filter(call, qualifier, value)?)),
        }
    }
    let mut found: Vec<Found<'a>> = Vec::new();
    for repository in searched(call, &filters) {
        let full_name = call.world.full_name(repository).to_lowercase();
        let has = |issue: &&Issue| {
            let on = On { full_name: &full_name, repository, issue, fields };
            filters.iter().all(|(negated, filter)| on.has(filter) != *negated)
        };
        found.extend(repository.issues.values().filter(has).map(|issue| (repository, issue)));
    }
    if let Some((key, descends)) = order.or(parameters(call)?) {
        if descends {
            found.sort_by_key(|(_, issue)| Reverse(key(issue)));
        } else {
            found.sort_by_key(|(_, issue)| key(issue));
        }
    }
    Ok(found)
}

type Key = fn(&Issue) -> u64;

fn key(name: &str) -> Option<Key> {
    let key: Key = match name {
        "created" => |issue| issue.created_at.as_millis(),
        "updated" => |issue| issue.updated_at.as_millis(),
        "comments" => |issue| issue.comments.len() as u64,
        _ => return None,
    };
    Some(key)
}

fn sorting(value: &str) -> Result<(Key, bool), ApiError> {
    let (name, descends) = match value.rsplit_once('-') {
        Some((name, "asc")) => (name, false),
        Some((name, "desc")) => (name, true),
        _ => (value, true),
    };
    let found = key(name).map(|key| (key, descends));
    found.ok_or_else(|| wrong("sort", "created, updated or comments, with -asc or -desc"))
}

/// The order by the parameters `sort` and `order`.
fn parameters(call: &Call<'_>) -> Result<Option<(Key, bool)>, ApiError> {
    let descends = match call.query.get("order") {
        None | Some("desc") => true,
        Some("asc") => false,
        Some(_) => return Err(ApiError::invalid("Search", "order", "order must be asc or desc")),
    };
    let Some(name) = call.query.get("sort").filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let message = "sort must be created, updated or comments";
    let key = key(name).ok_or_else(|| ApiError::invalid("Search", "sort", message))?;
    Ok(Some((key, descends)))
}

fn searched_fields(value: &str) -> Result<Fields, ApiError> {
    let mut fields = Fields { title: false, body: false, comments: false };
    for name in value.split(',') {
        match name {
            "title" => fields.title = true,
            "body" => fields.body = true,
            "comments" => fields.comments = true,
            _ => return Err(wrong("in", "title, body and comments")),
        }
    }
    Ok(fields)
}

/// Returns the visible repository that a filter names, or all.
fn searched<'a>(call: &'a Call<'_>, filters: &[(bool, Filter)]) -> Vec<&'a Repository> {
    let mut named = filters.iter().filter_map(|(negated, filter)| match filter {
        Filter::Repository(name) if !negated => name.split_once('/'),
        _ => None,
    });
    let Some((owner, name)) = named.next() else { return call.visible_repositories().collect() };
    let named = call.world.repository_named(owner, name);
    named.filter(|repository| call.sees(repository)).into_iter().collect()
}

fn filter(call: &Call<'_>, qualifier: Option<&str>, value: &str) -> Result<Filter, ApiError> {
    let text = || value.to_owned();
    let flag = |name: &str| match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(wrong(name, "true or false")),
    };
    let user = || match value.trim_start_matches('@') {
        "me" if value == "@me" => call.caller.user(),
        login => call.world.user_by_login(login).map(|user| user.id),
    };
    Ok(match qualifier {
        None => Filter::Text(text()),
        Some("repo") => Filter::Repository(text()),
        Some("org" | "user") => Filter::Owner(text()),
        Some("is" | "type" | "state") => state(value)?,
        Some("author") => Filter::Author(user()),
        Some("assignee") => Filter::Assignee(user(), value == "*"),
        Some("commenter") => Filter::Commenter(user()),
        Some("involves") => Filter::Involves(user()),
        Some("label") => Filter::Labels(value.split(',').map(|name| name.trim().into()).collect()),
        Some("milestone") => Filter::Milestone(text()),
        Some("head") => Filter::Head(text()),
        Some("base") => Filter::Base(text()),
        Some("draft") => Filter::IsDraft(flag("draft")?),
        Some("archived") => Filter::IsArchived(flag("archived")?),
        Some("no") => {
            let known = ["label", "assignee", "milestone"].into_iter().find(|name| *name == value);
            Filter::Without(known.ok_or_else(|| wrong("no", "label, assignee or milestone"))?)
        }
        Some("comments") => Filter::Comments(numbers("comments", value)?),
        Some("created") => Filter::Created(days("created", value)?),
        Some("updated") => Filter::Updated(days("updated", value)?),
        Some("closed") => Filter::Closed(days("closed", value)?),
        // `parse` accepts no other.
        Some(_) => Filter::Merged(days("merged", value)?),
    })
}

fn state(value: &str) -> Result<Filter, ApiError> {
    Ok(match value {
        "issue" => Filter::IsPull(false),
        "pr" | "pull-request" => Filter::IsPull(true),
        "open" => Filter::IsOpen(true),
        "closed" => Filter::IsOpen(false),
        "merged" => Filter::IsMerged(true),
        "unmerged" => Filter::IsMerged(false),
        "locked" => Filter::IsLocked(true),
        "unlocked" => Filter::IsLocked(false),
        "private" => Filter::IsPrivate(true),
        "public" => Filter::IsPrivate(false),
        "draft" => Filter::IsDraft(true),
        _ => {
            let known = "issue, pr, open, closed, merged, unmerged, locked, unlocked, private, public and draft";
            return Err(wrong("is, type and state", known));
        }
    })
}

/// An issue with its place.
struct On<'a> {
    full_name: &'a str,
    repository: &'a Repository,
    issue: &'a Issue,
    fields: Fields,
}

impl On<'_> {
    fn has(&self, filter: &Filter) -> bool {
        let Self { full_name, repository, issue, .. } = self;
        let by = |user: &Option<u64>, id: u64| *user == Some(id);
        match filter {
            Filter::Text(text) => self.has_text(text),
            Filter::Repository(name) => full_name == name,
            Filter::Owner(login) => full_name.split('/').next() == Some(login.as_str()),
            Filter::IsPull(wanted) => issue.pull_from.is_some() == *wanted,
            Filter::IsOpen(wanted) => (issue.state == IssueState::Open) == *wanted,
            Filter::IsMerged(wanted) => {
                issue.pull_from.is_some() && issue.merged.is_some() == *wanted
            }
            Filter::IsLocked(wanted) => issue.locked == *wanted,
            Filter::IsPrivate(wanted) => (repository.visibility == Visibility::Private) == *wanted,
            Filter::IsArchived(wanted) => repository.features.get("archived") == Some(wanted),
            // No pull request is a draft.
            Filter::IsDraft(wanted) => issue.pull_from.is_some() && !wanted,
            Filter::Author(user) => by(user, issue.author),
            Filter::Assignee(user, anybody) => {
                (*anybody && !issue.assignees.is_empty())
                    || user.is_some_and(|user| issue.assignees.contains(&user))
            }
            Filter::Commenter(user) => self.comments().any(|comment| by(user, comment.author)),
            Filter::Involves(user) => {
                by(user, issue.author)
                    || user.is_some_and(|user| issue.assignees.contains(&user))
                    || self.comments().any(|comment| by(user, comment.author))
            }
            Filter::Labels(names) => labels::of_issue(repository, issue)
                .any(|label| names.iter().any(|name| label.name.eq_ignore_ascii_case(name))),
            Filter::Milestone(title) => self
                .repository
                .milestones
                .get(&issue.milestone.unwrap_or(0))
                .is_some_and(|milestone| milestone.title.eq_ignore_ascii_case(title)),
            Filter::Head(branch) => {
                issue.pull_from.as_ref().is_some_and(|from| from.eq_ignore_ascii_case(branch))
            }
            Filter::Base(branch) => {
                let into = issue.pull_into.as_ref().unwrap_or(&repository.default_branch);
                issue.pull_from.is_some() && into.eq_ignore_ascii_case(branch)
            }
            Filter::Without("label") => issue.labels.is_empty(),
            Filter::Without("assignee") => issue.assignees.is_empty(),
            Filter::Without(_) => issue.milestone.is_none(),
            Filter::Comments(range) => range.has(issue.comments.len() as u64),
            Filter::Created(range) => range.has(issue.created_at.as_secs()),
            Filter::Updated(range) => range.has(issue.updated_at.as_secs()),
            Filter::Closed(range) => issue.closed_at.is_some_and(|at| range.has(at.as_secs())),
            Filter::Merged(range) => {
                issue.merged.as_ref().is_some_and(|(at, _)| range.has(at.as_secs()))
            }
        }
    }

    fn comments(&self) -> impl Iterator<Item = &Comment> {
        self.issue.comments.iter().filter_map(|id| self.repository.comments.get(id))
    }

    fn has_text(&self, text: &str) -> bool {
        let Fields { title, body, comments } = self.fields;
        let of_body = || self.issue.body.as_deref().unwrap_or("").to_lowercase().contains(text);
        (title && self.issue.title.to_lowercase().contains(text))
            || (body && of_body())
            || (comments
                && self.comments().any(|comment| comment.body.to_lowercase().contains(text)))
    }
}
