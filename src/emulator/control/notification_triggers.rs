//! Triggers: events that a test causes through `/_emulator/events`. They cover watching and each
//! notification reason that no other request causes. `control` handles issues, comments and
//! mentions.
//!
//! A body is `{"type", "repository": "acme/widgets", "actor": "ben", "user": "ada", "team":
//! "acme/platform", "number": 1, "text": "…"}`. All but `type` and `repository` have a default; a
//! type ignores the members it does not need.

use std::collections::BTreeSet;

use http::StatusCode;
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::emulator::events::changes;
use crate::emulator::events::notifications::mentions::team_members;
use crate::emulator::events::notifications::{self, Cause, Notification};
use crate::emulator::http::{Fields, Urls};
use crate::emulator::render::extend;
use crate::emulator::resources::issues::issue_fields;
use crate::emulator::resources::properties;
use crate::emulator::state::State;
use crate::emulator::world::{IssueState, Owner, Reason, Topic, World};

type Answer = (StatusCode, Value);

pub const KINDS: [&str; 10] = [
    "assign",
    "team_mention",
    "review_requested",
    "state_change",
    "ci_activity",
    "approval_requested",
    "invitation",
    "member_feature_requested",
    "watch",
    "unwatch",
];

#[derive(Debug)]
struct Trigger {
    repository: u64,
    actor: u64,
    user: u64,
    team: Option<BTreeSet<u64>>,
    team_name: String,
    number: u64,
    text: String,
}

/// `None` for an unknown type.
pub fn answer(state: &mut State, now: Timestamp, body: &[u8]) -> Option<Answer> {
    let mut fields = Fields::parse("Event", body).ok()?;
    let kind = fields.value("type").and_then(Value::as_str)?;
    let kind = KINDS.into_iter().find(|known| *known == kind)?;
    let trigger = read(&state.world, &mut fields);
    if let Err(fault) = fields.check() {
        return Some((StatusCode::UNPROCESSABLE_ENTITY, refusal(fault)));
    }
    let urls = Urls::new(&state.options.base_url, "");
    let happened = happen(&mut state.world, &urls, now, kind, &trigger);
    Some(match happened {
        Ok(id) => (StatusCode::CREATED, json!({ "id": id })),
        Err(why) => (StatusCode::UNPROCESSABLE_ENTITY, json!({ "message": why })),
    })
}

fn refusal(fault: crate::emulator::http::error::ApiError) -> Value {
    let named = match fault {
        crate::emulator::http::error::ApiError::Invalid(faults) => {
            faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>().join("; ")
        }
        _ => String::new(),
    };
    json!({ "message": named })
}

fn read(world: &World, fields: &mut Fields) -> Trigger {
    let full_name = fields.required_string("repository");
    let repository =
        full_name.split_once('/').and_then(|(owner, name)| world.repository_named(owner, name));
    if repository.is_none() && !full_name.is_empty() {
        fields.invalid("repository", "there is no such repository");
    }
    let team_name = fields.string("team").unwrap_or_default();
    let team = team_name
        .split_once('/')
        .map(|(organization, slug)| team_members(world, organization, slug));
    if !team_name.is_empty() && team.as_ref().is_none_or(BTreeSet::is_empty) {
        fields.invalid("team", "team is no organisation/slug of a team with members");
    }
    Trigger {
        repository: repository.map_or(0, |repository| repository.id),
        actor: person(world, fields, "actor", "ben"),
        user: person(world, fields, "user", "ada"),
        team,
        team_name,
        number: fields.nullable_integer("number").value().unwrap_or(1),
        text: fields.string("text").unwrap_or_else(|| "Something happened".to_owned()),
    }
}

fn person(world: &World, fields: &mut Fields, name: &str, default: &str) -> u64 {
    let login = fields.string(name).unwrap_or_else(|| default.to_owned());
    let user = world.user_by_login(&login).map(|user| user.id);
    if user.is_none() {
        fields.invalid(name, format!("{name} is nobody's login"));
    }
    user.unwrap_or(0)
}

/// Returns the id or number of the result, or the error.
fn happen(
    world: &mut World,
    urls: &Urls,
    now: Timestamp,
    kind: &str,
    trigger: &Trigger,
) -> Result<u64, &'static str> {
    let Trigger { repository, actor, user, number, .. } = *trigger;
    match kind {
        "assign" => assign(world, urls, now, trigger),
        "team_mention" => {
            trigger.team.as_ref().ok_or("team is needed")?;
            let text = format!("@{} {}", trigger.team_name, trigger.text);
            changes::comment(world, urls, now, repository, number, actor, &text)
                .ok_or("there is no such issue")
        }
        "review_requested" => {
            let issue =
                world.repositories.get(&repository).and_then(|found| found.issues.get(&number));
            issue.filter(|issue| issue.pull_from.is_some()).ok_or("number is no pull request")?;
            let requested = trigger.team.clone().unwrap_or_else(|| BTreeSet::from([user]));
            notifications::review_requested(world, now, repository, number, actor, &requested);
            Ok(number)
        }
        "state_change" => change_state(world, urls, now, trigger),
        "ci_activity" => tell(world, now, trigger, Reason::CiActivity),
        "approval_requested" => tell(world, now, trigger, Reason::ApprovalRequested),
        "invitation" => {
            // The user accepted an invitation to the repository and may push from now on.
            let found =
                world.repositories.get_mut(&repository).ok_or("there is no such repository")?;
            found.collaborators.insert(user);
            tell(world, now, trigger, Reason::Invitation)
        }
        "member_feature_requested" => ask_owners(world, now, trigger),
        watching => {
            let user = world.users.get_mut(&user).ok_or("there is no such user")?;
            let _ = if watching == "watch" {
                user.watching.insert(repository)
            } else {
                user.watching.remove(&repository)
            };
            Ok(user.id)
        }
    }
}

fn assign(
    world: &mut World,
    urls: &Urls,
    now: Timestamp,
    trigger: &Trigger,
) -> Result<u64, &'static str> {
    let Trigger { repository, actor, user, number, .. } = *trigger;
    let found = world.repositories.get_mut(&repository).ok_or("there is no such repository")?;
    let issue = found.issues.get_mut(&number).ok_or("there is no such issue")?;
    if !issue.assignees.contains(&user) {
        issue.assignees.push(user);
        issue.updated_at = now;
        found.updated_at = now;
    }
    changes::issue_changed(world, urls, now, repository, number, actor, "assigned");
    Ok(number)
}

/// Toggles between open and closed.
fn change_state(
    world: &mut World,
    urls: &Urls,
    now: Timestamp,
    trigger: &Trigger,
) -> Result<u64, &'static str> {
    let Trigger { repository, actor, number, .. } = *trigger;
    let found = world.repositories.get_mut(&repository).ok_or("there is no such repository")?;
    let issue = found.issues.get_mut(&number).ok_or("there is no such issue")?;
    let action = match issue.state {
        IssueState::Open => {
            (issue.state, issue.closed_at) = (IssueState::Closed, Some(now));
            "closed"
        }
        IssueState::Closed => {
            (issue.state, issue.closed_at) = (IssueState::Open, None);
            "reopened"
        }
    };
    issue.updated_at = now;
    found.updated_at = now;
    changes::issue_changed(world, urls, now, repository, number, actor, action);
    Ok(number)
}

/// Notifies the user of a new subject that is neither issue nor pull request, and returns its id.
fn tell(
    world: &mut World,
    now: Timestamp,
    trigger: &Trigger,
    reason: Reason,
) -> Result<u64, &'static str> {
    let Trigger { repository, user, .. } = *trigger;
    if !notifications::may_see(world, user, repository) {
        return Err("user does not see the repository");
    }
    let id = world.next_id();
    let topic = Topic::of_reason(reason, id).ok_or("the reason is one of issues")?;
    notifications::notify(
        world,
        now,
        &Notification { user, repository, topic, reason, cause: Cause::Activity, comment: None },
    );
    Ok(id)
}

/// Notifies the owners of a request by members of the organisation.
fn ask_owners(world: &mut World, now: Timestamp, trigger: &Trigger) -> Result<u64, &'static str> {
    let repository =
        world.repositories.get(&trigger.repository).ok_or("there is no such repository")?;
    let Owner::Organization(organization) = repository.owner else {
        return Err("the repository has no organisation");
    };
    let owners = world
        .organizations
        .get(&organization)
        .map(|organization| organization.owners.clone())
        .unwrap_or_default();
    let id = world.next_id();
    let (repository, topic, reason) =
        (trigger.repository, Topic::FeatureRequest(id), Reason::MemberFeatureRequested);
    for user in owners {
        notifications::notify(
            world,
            now,
            &Notification {
                user,
                repository,
                topic,
                reason,
                cause: Cause::Activity,
                comment: None,
            },
        );
    }
    Ok(id)
}

/// Adds roles, custom properties and issue fields to an organisation in `/_emulator/world`.
pub fn with_schemas(world: &World, mut line: Value) -> Value {
    let organization =
        line.get("id").and_then(Value::as_u64).and_then(|id| world.organizations.get(&id));
    if let Some(organization) = organization {
        let logins = |users: &BTreeSet<u64>| {
            users.iter().map(|user| json!(world.login(*user))).collect::<Value>()
        };
        let roles: serde_json::Map<String, Value> = organization
            .roles
            .iter()
            .map(|(role, users)| ((*role).to_owned(), logins(users)))
            .collect();
        let (properties, fields) = (
            properties::overview(world, organization.id),
            issue_fields::overview(world, organization.id),
        );
        extend(
            &mut line,
            json!({ "roles": roles, "properties": properties, "issue_fields": fields }),
        );
    }
    line
}
