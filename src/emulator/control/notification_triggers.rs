//! Triggers of `/_emulator/events` for watching, and for each notification reason that no other
//! request causes. `events` handles issues, comments and mentions.
//!
//! A body is `{"type", "repository": "acme/widgets", "actor": "ben", "user": "ada", "team":
//! "acme/platform", "number": 1, "text": "…"}`. All but `type` and `repository` have a default. All
//! types take the same members, whether or not they use each.

use std::collections::BTreeSet;

use http::StatusCode;
use serde_json::json;

use super::events::repository_of;
use super::{ControlResult, unprocessable};
use crate::clock::Timestamp;
use crate::emulator::events::changes;
use crate::emulator::events::notifications::mentions::team_members;
use crate::emulator::events::notifications::{self, Cause, Notice, Notification};
use crate::emulator::generic;
use crate::emulator::http::{ApiError, Fields, Urls};
use crate::emulator::state::State;
use crate::emulator::world::{
    Detail, IssueState, Owner, Reason, Repository, RepositoryRole, SeededRun, Topic, World,
};

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

/// The id or number of the result, or the error.
type TriggerResult = Result<u64, &'static str>;

#[derive(Debug)]
struct Trigger {
    urls: Urls,
    now: Timestamp,
    repository: u64,
    actor: u64,
    user: u64,
    team: Option<BTreeSet<u64>>,
    team_name: String,
    number: u64,
    text: String,
}

/// `kind` is one of [`KINDS`].
pub fn respond(state: &mut State, now: Timestamp, kind: &str, mut fields: Fields) -> ControlResult {
    let urls = Urls::new(&state.options.base_url, "");
    let trigger = read(&state.world, urls, now, &mut fields);
    if let Err(ApiError::Invalid(errors)) = fields.check() {
        let messages: Vec<String> = errors.into_iter().map(|error| error.message).collect();
        return unprocessable(&messages.join("; "));
    }
    match trigger.apply(&mut state.world, kind) {
        Ok(id) => Ok((StatusCode::CREATED, json!({ "id": id }))),
        Err(problem) => unprocessable(problem),
    }
}

fn read(world: &World, urls: Urls, now: Timestamp, fields: &mut Fields) -> Trigger {
    let full_name = fields.required_string("repository");
    let repository = repository_of(world, &full_name);
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
        urls,
        now,
        repository: repository.unwrap_or(0),
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

impl Trigger {
    fn apply(&self, world: &mut World, kind: &str) -> TriggerResult {
        let Self { now, repository, actor, user, number, .. } = *self;
        match kind {
            "assign" => self.assign(world),
            "team_mention" => {
                self.team.as_ref().ok_or("team is needed")?;
                let text = format!("@{} {}", self.team_name, self.text);
                changes::comment(world, &self.urls, now, repository, number, actor, &text)
                    .ok_or("there is no such issue")
            }
            "review_requested" => {
                let issue =
                    world.repositories.get(&repository).and_then(|found| found.issues.get(&number));
                issue
                    .filter(|issue| issue.pull_from.is_some())
                    .ok_or("number is no pull request")?;
                let requested = self.team.clone().unwrap_or_else(|| BTreeSet::from([user]));
                let notice = Notice::ReviewRequest { number, users: &requested };
                notifications::raise(world, now, repository, actor, notice);
                Ok(number)
            }
            "state_change" => self.change_state(world),
            "ci_activity" => self.notify_user(world, Reason::CiActivity),
            "approval_requested" => self.notify_user(world, Reason::ApprovalRequested),
            "invitation" => {
                // The user accepted an invitation to the repository and may push from now on.
                let found = self.repository_mut(world)?;
                found.collaborators.entry(user).or_insert(RepositoryRole::Push);
                self.notify_user(world, Reason::Invitation)
            }
            "member_feature_requested" => self.notify_owners(world),
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

    fn repository_mut<'w>(&self, world: &'w mut World) -> Result<&'w mut Repository, &'static str> {
        world.repositories.get_mut(&self.repository).ok_or("there is no such repository")
    }

    fn assign(&self, world: &mut World) -> TriggerResult {
        let found = self.repository_mut(world)?;
        let issue = found.issues.get_mut(&self.number).ok_or("there is no such issue")?;
        if !issue.assignees.contains(&self.user) {
            issue.assignees.push(self.user);
            issue.updated_at = self.now;
            found.updated_at = self.now;
        }
        Ok(self.issue_changed(world, ("assigned", Detail::Assignee(self.user))))
    }

    /// Toggles between open and closed.
    fn change_state(&self, world: &mut World) -> TriggerResult {
        let found = self.repository_mut(world)?;
        let issue = found.issues.get_mut(&self.number).ok_or("there is no such issue")?;
        let (state, closed_at, action) = match issue.state {
            IssueState::Open => (IssueState::Closed, Some(self.now), "closed"),
            IssueState::Closed => (IssueState::Open, None, "reopened"),
        };
        (issue.state, issue.closed_at, issue.updated_at) = (state, closed_at, self.now);
        found.updated_at = self.now;
        Ok(self.issue_changed(world, (action, Detail::None)))
    }

    fn issue_changed(&self, world: &mut World, action: (&'static str, Detail)) -> u64 {
        let Self { now, repository, number, actor, .. } = *self;
        changes::issue_changed(world, &self.urls, now, repository, number, actor, action);
        number
    }

    /// Notifies the user of a new subject that is neither issue nor pull request, and returns its
    /// id.
    fn notify_user(&self, world: &mut World, reason: Reason) -> TriggerResult {
        if !notifications::may_see(world, self.user, self.repository) {
            return Err("user does not see the repository");
        }
        let id = world.next_id();
        let topic = Topic::of_reason(reason, id).ok_or("the reason is one of issues")?;
        if let Topic::Run(id) = topic {
            let is_waiting = reason == Reason::ApprovalRequested;
            let actor = if is_waiting { self.actor } else { self.user };
            let (repository, at) = (self.repository, self.now);
            generic::add_run(world, SeededRun { id, repository, actor, is_waiting, at })
                .map_err(|_| "there are too many runs")?;
        }
        self.notify(world, self.user, topic, reason);
        Ok(id)
    }

    /// Notifies the owners of a request by members of the organisation.
    fn notify_owners(&self, world: &mut World) -> TriggerResult {
        let Owner::Organization(organization) = self.repository_mut(world)?.owner else {
            return Err("the repository has no organisation");
        };
        let owners = world
            .organizations
            .get(&organization)
            .map(|organization| organization.owners.clone())
            .unwrap_or_default();
        let id = world.next_id();
        for user in owners {
            self.notify(world, user, Topic::FeatureRequest(id), Reason::MemberFeatureRequested);
        }
        Ok(id)
    }

    fn notify(&self, world: &mut World, user: u64, topic: Topic, reason: Reason) {
        let (repository, cause) = (self.repository, Cause::Activity);
        let notification = Notification { user, repository, topic, reason, cause, comment: None };
        notifications::notify(world, self.now, &notification);
    }
}
