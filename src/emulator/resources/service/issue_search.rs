//! Searches for issues and pull requests, with the qualifiers that clients use most.

use std::cmp::Reverse;

use super::issue_facts::{self, Fact};
use super::search_terms::{self, Term, days, invalid, numbers, parse, wrong};
use crate::emulator::http::ApiError;
use crate::emulator::http::ranges::Range;
use crate::emulator::resources::issues::labels;
use crate::emulator::routing::Call;
use crate::emulator::world::{Comment, Issue, IssueState, Repository, Visibility};

const OWN_QUALIFIERS: [&str; 24] = [
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

/// All qualifiers, in the order of their names.
fn qualifiers() -> Vec<&'static str> {
    let mut all: Vec<&str> = OWN_QUALIFIERS.into_iter().chain(issue_facts::QUALIFIERS).collect();
    all.sort_unstable();
    all
}

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
    Fact(Fact),
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
    let terms = parse(search, &qualifiers())?;
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
            let on = On { call, full_name: &full_name, repository, issue, fields };
            filters.iter().all(|(negated, filter)| on.has(filter) != *negated)
        };
        found.extend(repository.issues.values().filter(has).map(|issue| (repository, issue)));
    }
    if let Some((key, descends)) = order.or(parameters(call)?) {
        found.sort_by_cached_key(|(repository, issue)| key.of(call, repository, issue));
        if descends {
            // Equal ones keep their order.
            found.reverse();
            found
                .sort_by_cached_key(|(repository, issue)| Reverse(key.of(call, repository, issue)));
        }
    }
    Ok(found)
}

#[derive(Clone, Copy, Debug)]
enum Key {
    Created,
    Updated,
    Comments,
    /// All reactions, or those of one kind.
    Reactions(Option<&'static str>),
    Interactions,
}

/// The orders by the number of reactions of a kind, with the name of the kind in the store.
const REACTIONS: [(&str, &str); 6] = [
    ("reactions-+1", "+1"),
    ("reactions--1", "-1"),
    ("reactions-heart", "heart"),
    ("reactions-smile", "laugh"),
    ("reactions-tada", "hooray"),
    ("reactions-thinking_face", "confused"),
];

const SORT_KEYS: &str = "created, updated, comments, reactions, interactions or reactions-KIND";

impl Key {
    fn named(name: &str) -> Option<Self> {
        // An unescaped `+` in a query arrives as a space.
        let name = name.replace(' ', "+");
        let kind = REACTIONS.iter().find(|(known, _)| *known == name);
        Some(match name.as_str() {
            "created" => Self::Created,
            "updated" => Self::Updated,
            "comments" => Self::Comments,
            "reactions" => Self::Reactions(None),
            "interactions" => Self::Interactions,
            _ => Self::Reactions(Some(kind?.1)),
        })
    }

    fn of(self, call: &Call<'_>, repository: &Repository, issue: &Issue) -> u64 {
        match self {
            Self::Created => issue.created_at.as_millis(),
            Self::Updated => issue.updated_at.as_millis(),
            Self::Comments => issue.comments.len() as u64,
            Self::Reactions(kind) => issue_facts::reactions(call, repository, issue, kind),
            Self::Interactions => issue_facts::interactions(call, repository, issue),
        }
    }
}

fn sorting(value: &str) -> Result<(Key, bool), ApiError> {
    let (name, descends) = match value.rsplit_once('-') {
        Some((name, "asc")) => (name, false),
        Some((name, "desc")) => (name, true),
        _ => (value, true),
    };
    let found = Key::named(name).map(|key| (key, descends));
    found.ok_or_else(|| wrong("sort", &format!("{SORT_KEYS}, with -asc or -desc")))
}

/// The order by the parameters `sort` and `order`.
fn parameters(call: &Call<'_>) -> Result<Option<(Key, bool)>, ApiError> {
    let descends = search_terms::descends(call)?;
    let message = format!("sort must be {SORT_KEYS}");
    let key = call.choice("Search", "sort", Key::named, &message)?;
    Ok(key.map(|key| (key, descends)))
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
        login if login.starts_with("app/") => {
            let bot = format!("{}[bot]", login.trim_start_matches("app/"));
            call.world.user_by_login(&bot).map(|user| user.id)
        }
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
            let known = ["label", "assignee", "milestone", "project", "type"];
            let known = known.into_iter().find(|name| *name == value);
            let accepted = "label, assignee, milestone, project or type";
            Filter::Without(known.ok_or_else(|| wrong("no", accepted))?)
        }
        Some("comments") => Filter::Comments(numbers("comments", value)?),
        Some("created") => Filter::Created(days("created", value)?),
        Some("updated") => Filter::Updated(days("updated", value)?),
        Some("closed") => Filter::Closed(days("closed", value)?),
        Some(name) if issue_facts::is_known(name) => {
            Filter::Fact(Fact::read(call, name, value, user())?)
        }
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
        // There is no merge queue.
        "queued" => Filter::Fact(Fact::Nothing),
        _ => {
            let known = "issue, pr, open, closed, merged, unmerged, locked, unlocked, private, public, draft and queued";
            return Err(wrong("is, type and state", known));
        }
    })
}

/// An issue with its place.
struct On<'a> {
    call: &'a Call<'a>,
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
            Filter::IsDraft(wanted) => issue.pull_from.is_some() && issue.is_draft == *wanted,
            Filter::Fact(fact) => fact.holds(self.call, repository, issue),
            Filter::Author(user) => by(user, issue.author),
            Filter::Assignee(user, anybody) => {
                (*anybody && !issue.assignees.is_empty())
                    || user.is_some_and(|user| issue.assignees.contains(&user))
            }
            Filter::Commenter(user) => self.comments().any(|comment| by(user, comment.author)),
            Filter::Involves(user) => {
                by(user, issue.author)
                    || user.is_some_and(|user| {
                        issue.assignees.contains(&user)
                            || issue_facts::mentions_user(self.call, repository, issue, user)
                    })
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
            Filter::Without("milestone") => issue.milestone.is_none(),
            // No issue is in a project or has a type.
            Filter::Without(_) => true,
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
