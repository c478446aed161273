//! Repositories and their labels. Issues and pull requests need REST's permission; the rest needs
//! only access to the repository.

use super::object::{Arguments, Field, FieldValue, Node, Result};
use super::problem::Problem;
use super::{connection, people, record};
use crate::clock::Timestamp;
use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::events::notifications::mentions;
use crate::emulator::http::timestamps::parse_iso;
use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::render::node_id;
use crate::emulator::routing::{Call, Role};
use crate::emulator::world::{
    Commit, Issue, IssueState, Label, Milestone, Release, Repository, Visibility,
};

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
        "labels" => labels(field, repository),
        "vulnerabilityAlerts" => connection::of(field, connection::ALERTS, Vec::new()),
        name => lists(field, repository, name),
    }
}

fn labels(field: Field<'_, '_>, repository: &Repository) -> Result {
    let wanted = field.arguments.text("query").unwrap_or("").to_lowercase();
    let has = |label: &&Label| {
        let description = label.description.as_deref().unwrap_or("");
        label.name.to_lowercase().contains(&wanted) || description.to_lowercase().contains(&wanted)
    };
    let mut labels: Vec<&Label> = repository.labels.values().filter(has).collect();
    if let Some(order) = field.arguments.object("orderBy") {
        if order.text("field") == Some("NAME") {
            labels.sort_by_key(|label| label.name.to_lowercase());
        }
        descend(&mut labels, order);
    }
    let items = labels.into_iter().map(|label| Node::Label(repository.id, label.id)).collect();
    connection::of(field, connection::LABELS, items)
}

/// Reverses what is listed in ascending order, when the query wants the other one.
fn descend<T>(items: &mut [T], order: Arguments<'_>) {
    if order.text("direction") == Some("DESC") {
        items.reverse();
    }
}

fn lists(field: Field<'_, '_>, repository: &Repository, name: &str) -> Result {
    let Field { call, arguments, .. } = field;
    let wanted = arguments.text("query").unwrap_or("").to_lowercase();
    let order = arguments.object("orderBy");
    let (kind, items) = match name {
        "assignableUsers" => {
            let users = call.world.users.values().filter(|user| {
                user.login.to_lowercase().contains(&wanted)
                    && access::role_of(call.world, user.id, repository) >= Some(Role::Push)
            });
            (connection::USERS, users.map(|user| Node::User(user.id)).collect())
        }
        "milestones" => {
            may_read(call, repository, "issues")?;
            let states = arguments.texts("states");
            let is_wanted = |milestone: &&Milestone| {
                let state = milestone.state.into_str().to_uppercase();
                states.as_ref().is_none_or(|states| states.contains(&state.as_str()))
                    && milestone.title.to_lowercase().contains(&wanted)
            };
            let found = repository.milestones.values().filter(is_wanted);
            let items = found.map(|found| record::milestone(call.world, repository, found));
            (connection::MILESTONES, items.collect())
        }
        "refs" => (connection::REFS, refs(field, repository, &wanted)?),
        _ => {
            may_read(call, repository, "contents")?;
            let mut releases: Vec<&Release> = repository.releases.values().collect();
            if let Some(order) = order {
                if order.text("field") == Some("NAME") {
                    releases.sort_by_key(|release| release.name.to_lowercase());
                }
                descend(&mut releases, order);
            }
            let items = releases.into_iter();
            let items = items.map(|release| record::release(call.world, repository, release));
            (connection::RELEASES, items.collect())
        }
    };
    connection::of(field, kind, items)
}

/// Branches or tags, by their prefix. A release has the only tags, at the newest commit.
fn refs(field: Field<'_, '_>, repository: &Repository, wanted: &str) -> Result<Vec<Node>> {
    let Field { call, arguments, .. } = field;
    may_read(call, repository, "contents")?;
    let history = call.world.history(repository);
    let prefix = arguments.text("refPrefix").unwrap_or("");
    let found: Vec<(String, Option<&Commit>)> = match prefix {
        "refs/heads/" => {
            history.branches().map(|name| (name.to_owned(), history.head(name))).collect()
        }
        "refs/tags/" => {
            let tip = history.tip(repository);
            repository.releases.values().map(|release| (release.tag.clone(), tip)).collect()
        }
        _ => return Err(Problem::unprocessable("refPrefix must be refs/heads/ or refs/tags/")),
    };
    let found = found.into_iter().filter(|(name, _)| name.to_lowercase().contains(wanted));
    let mut refs: Vec<Node> = (1..)
        .zip(found)
        .map(|(key, (name, target))| {
            record::reference(call.world, repository, (prefix, &name), target, key)
        })
        .collect();
    if let Some(order) = arguments.object("orderBy") {
        descend(&mut refs, order);
    }
    Ok(refs)
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
        "isFork" => FieldValue::value(repository.fork_of.is_some()),
        "parent" => {
            let parent = repository.fork_of.and_then(|id| call.world.repositories.get(&id));
            let seen = parent.filter(|parent| access::sees(call.world, call.caller, parent));
            FieldValue::maybe(seen.map(|parent| Node::Repository(parent.id)))
        }
        "issueTemplates" => FieldValue::Many(Vec::new()),
        "autoMergeAllowed" => feature("allow_auto_merge"),
        "mergeCommitAllowed" => feature("allow_merge_commit"),
        "rebaseMergeAllowed" => feature("allow_rebase_merge"),
        "squashMergeAllowed" => feature("allow_squash_merge"),
        "deleteBranchOnMerge" => feature("delete_branch_on_merge"),
        "hasVulnerabilityAlertsEnabled" => FieldValue::value(false),
        "isArchived" => feature("archived"),
        "isTemplate" => feature("is_template"),
        "isLocked" => FieldValue::value(call.world.migrations.is_locked(repository.id)),
        "hasIssuesEnabled" => feature("has_issues"),
        "hasWikiEnabled" => feature("has_wiki"),
        "defaultBranchRef" => {
            let history = call.world.history(repository);
            let (name, tip) = (&repository.default_branch, history.tip(repository));
            FieldValue::One(record::reference(
                call.world,
                repository,
                (record::BRANCHES, name),
                tip,
                0,
            ))
        }
        "primaryLanguage" => FieldValue::maybe(
            repository.language.map(|language| Node::Named("Language", language.to_owned())),
        ),
        "stargazerCount" => FieldValue::count(repository.stars.len()),
        "forkCount" => FieldValue::count(repository.forks.len()),
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
    let filters = arguments.object("filterBy");
    let branch = |name: &str, of: Option<&str>| {
        let wanted = arguments.text(name);
        wanted.is_none() || wanted == of
    };
    let is_wanted = |issue: &&Issue| {
        let into = issue.pull_into.as_ref().unwrap_or(&repository.default_branch);
        issue.pull_from.is_some() == wants_pulls
            && states.as_ref().is_none_or(|states| states.contains(&state_of(issue)))
            && labels.as_ref().is_none_or(|names| has_one(repository, issue, names))
            && filters.is_none_or(|filters| passes(field.call, repository, issue, filters))
            && branch("headRefName", issue.pull_from.as_deref())
            && branch("baseRefName", Some(into))
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

/// A merged pull request is not closed here, unlike in REST.
pub fn state_of(issue: &Issue) -> &'static str {
    match issue.state {
        IssueState::Closed if issue.merged.is_some() => "MERGED",
        IssueState::Closed => "CLOSED",
        IssueState::Open => "OPEN",
    }
}

fn passes(call: &Call<'_>, repository: &Repository, issue: &Issue, filters: Arguments<'_>) -> bool {
    let user = |login: &str| call.world.user_by_login(login).map(|user| user.id);
    let text = |name: &str, holds: &dyn Fn(&str) -> bool| filters.text(name).is_none_or(holds);
    text("createdBy", &|login| user(login) == Some(issue.author))
        && text("assignee", &|login| match login {
            "*" => !issue.assignees.is_empty(),
            login => user(login).is_some_and(|user| issue.assignees.contains(&user)),
        })
        && text("mentioned", &|login| {
            let body = issue.body.as_deref().unwrap_or("");
            user(login).is_some_and(|user| {
                mentions::find(call.world, &format!("{} {body}", issue.title)).users.contains(&user)
            })
        })
        && text("milestone", &|wanted| match wanted {
            "*" => issue.milestone.is_some(),
            wanted => issue.milestone.is_some_and(|number| number.to_string() == wanted),
        })
        && text("since", &|since| parse_iso(since).is_some_and(|since| issue.updated_at >= since))
        && filters.texts("labels").is_none_or(|names| has_one(repository, issue, &names))
        && filters.texts("states").is_none_or(|states| states.contains(&state_of(issue)))
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
        "isDefault" => FieldValue::value(false),
        // Labels keep no times.
        "createdAt" | "updatedAt" => FieldValue::text(&iso(repository.created_at)),
        "url" => FieldValue::text(&format!(
            "{SITE}/{}/labels/{}",
            field.call.world.full_name(repository),
            segment(&label.name)
        )),
        _ => FieldValue::One(Node::Repository(repository.id)),
    })
}
