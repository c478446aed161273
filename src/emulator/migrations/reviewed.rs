//! The records of comments on commits, reviews and branch protection. The API stores these as sent,
//! so any member may be missing or mistyped; such a member becomes null.
//!
//! Replies to review comments are answered and not stored, so they are left out.

use serde_json::{Value, json};

use super::records::{Subject, issue_url, pulls_of};
use crate::emulator::http::{iso, segment};
use crate::emulator::render::extend;
use crate::emulator::world::{Issue, Repository, StoredItem};

impl<'a> Subject<'a> {
    fn collection(&self, repository: &Repository, own: &str) -> Vec<&'a StoredItem> {
        let address = format!("repository/{}/{own}", repository.id);
        let kept = self.world.collections.collection(&address).into_iter();
        kept.flat_map(|kept| kept.in_order().into_iter().map(|(_, item)| item)).collect()
    }

    fn reviews_of(&self, repository: &Repository, pull: &Issue) -> Vec<&'a StoredItem> {
        self.collection(repository, &format!("pulls/{}/reviews", pull.number))
    }

    /// Returns the author. Callers may send a `user` of their own, so only existing users count.
    fn author(&self, item: &StoredItem) -> Option<u64> {
        let id = item.fields.get("user")?.get("id")?.as_u64()?;
        self.world.users.contains_key(&id).then_some(id)
    }

    pub fn reviewers(&self, repository: &'a Repository) -> impl Iterator<Item = u64> {
        let comments = ["comments", "pulls/comments"].map(|own| self.collection(repository, own));
        let reviews = pulls_of(repository).flat_map(|pull| self.reviews_of(repository, pull));
        comments.into_iter().flatten().chain(reviews).filter_map(|item| self.author(item))
    }

    fn comment_fields(&self, item: &StoredItem) -> Value {
        json!({
            "user": self.author(item).map(|user| self.user_url(user)),
            "body": text(item, "body"),
            "formatter": "markdown",
            "reactions": [],
            "created_at": iso(item.created_at),
            "updated_at": iso(item.updated_at),
        })
    }

    pub fn commit_comments(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let url = self.url(repository);
        self.collection(repository, "comments").into_iter().map(move |item| {
            let sha = text(item, "commit_id");
            let mut value = self.comment_fields(item);
            extend(
                &mut value,
                json!({
                    "type": "commit_comment",
                    "url": format!("{url}/commit/{}#commitcomment-{}", segment(sha.unwrap_or("")), item.id),
                    "repository": url,
                    "commit_id": sha,
                    "path": text(item, "path"),
                    "position": number(item, "position"),
                }),
            );
            value
        })
    }

    pub fn reviews(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        pulls_of(repository).flat_map(move |pull| {
            let on = issue_url(&self.url(repository), pull);
            self.reviews_of(repository, pull).into_iter().map(move |item| {
                let mut value = self.comment_fields(item);
                extend(
                    &mut value,
                    json!({
                        "type": "pull_request_review",
                        "url": format!("{on}#pullrequestreview-{}", item.id),
                        "pull_request": on,
                        "head_sha": text(item, "commit_id"),
                        "state": review_state(item),
                        "submitted_at": iso(item.created_at),
                    }),
                );
                value
            })
        })
    }

    /// Leaves out comments without a known pull request: a later change may have overwritten it.
    pub fn review_comments(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let comments = self.collection(repository, "pulls/comments").into_iter();
        comments.filter_map(|item| {
            let pull = repository.issues.get(&number(item, "pull_number")?);
            let pull = pull.filter(|issue| issue.pull_from.is_some())?;
            let on = issue_url(&self.url(repository), pull);
            let mut value = self.comment_fields(item);
            extend(
                &mut value,
                json!({
                    "type": "review_comment",
                    "url": format!("{on}#discussion_r{}", item.id),
                    "pull_request": on,
                    "commit_id": text(item, "commit_id"),
                    "path": text(item, "path"),
                    "position": number(item, "position"),
                    "diff_hunk": text(item, "diff_hunk"),
                    "in_reply_to": number(item, "in_reply_to"),
                }),
            );
            Some(value)
        })
    }

    /// Lists the protection of each existing branch, with the API's setting names.
    pub fn protected_branches(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let (url, history) = (self.url(repository), self.world.history(repository));
        let branches: Vec<String> = history.branches().map(str::to_owned).collect();
        branches.into_iter().filter_map(move |branch| {
            let name = segment(&branch);
            let address = format!("repository/{}/branches/{name}", repository.id);
            let item = self.world.collections.collection(&address)?.get("protection")?;
            let mut value = Value::Object(item.fields.clone());
            extend(
                &mut value,
                json!({
                    "type": "protected_branch",
                    "url": format!("{url}/protected_branches/{name}"),
                    "repository": url,
                    "name": branch,
                    "created_at": iso(item.created_at),
                    "updated_at": iso(item.updated_at),
                }),
            );
            Some(value)
        })
    }
}

fn text<'a>(item: &'a StoredItem, member: &str) -> Option<&'a str> {
    item.fields.get(member)?.as_str()
}

fn number(item: &StoredItem, member: &str) -> Option<u64> {
    item.fields.get(member)?.as_u64()
}

/// The review's state, else its event's; without either it was never submitted.
fn review_state(item: &StoredItem) -> &str {
    text(item, "state").unwrap_or(match text(item, "event") {
        Some("APPROVE") => "APPROVED",
        Some("REQUEST_CHANGES") => "CHANGES_REQUESTED",
        Some("COMMENT") => "COMMENTED",
        _ => "PENDING",
    })
}
