//! Issue events and timelines, in the running service's form.

use serde_json::{Value, json};

use super::{Renderer, extend, extended, node_id};
use crate::emulator::http::iso;
use crate::emulator::world::{Comment, Detail, IssueEvent, Repository};

impl Renderer<'_> {
    pub fn issue_event(&self, repository: &Repository, event: &IssueEvent) -> Value {
        let url = format!("{}/issues/events/{}", self.repository_url(repository), event.id);
        let commit = if let Detail::Commit(sha) = &event.detail { Some(sha) } else { None };
        let own = json!({
            "id": event.id,
            "node_id": node_id("IssueEvent", event.id),
            "url": url,
            "actor": self.user_summary(event.actor),
            "event": event.name,
            "commit_id": commit,
            "commit_url": commit.map(|sha| format!("{}/commits/{sha}", self.repository_url(repository))),
            "created_at": iso(event.created_at),
        });
        extended(own, self.detail(event))
    }

    fn detail(&self, event: &IssueEvent) -> Value {
        match &event.detail {
            Detail::None | Detail::Commit(_) => json!({}),
            Detail::Label(name, color) => json!({ "label": { "name": name, "color": color } }),
            Detail::Assignee(user) => json!({
                "assignee": self.user_summary(*user),
                "assigner": self.user_summary(event.actor),
            }),
            Detail::Reviewer(user) => json!({
                "requested_reviewer": self.user_summary(*user),
                "review_requester": self.user_summary(event.actor),
            }),
            Detail::ReviewingTeam(team) => json!({
                "requested_team": self.team_of_organization(*team),
                "review_requester": self.user_summary(event.actor),
            }),
            Detail::Dismissal(review, message) => json!({
                "dismissed_review": { "review_id": review, "state": "dismissed", "dismissal_message": message },
            }),
            Detail::Milestone(title) => json!({ "milestone": { "title": title } }),
            Detail::Rename(from, to) => json!({ "rename": { "from": from, "to": to } }),
            Detail::Lock(reason) => json!({ "lock_reason": reason }),
        }
    }

    pub fn commented(&self, repository: &Repository, comment: &Comment) -> Value {
        let mut value = self.comment(repository, comment);
        let actor = self.user_summary(comment.author);
        extend(&mut value, json!({ "event": "commented", "actor": actor }));
        value
    }
}
