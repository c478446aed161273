//! Changes of issues and comments, as [`Change`]s.

use serde_json::json;

use super::issues;
use super::notifications::Notice;
use crate::clock::Timestamp;
use crate::emulator::http::Urls;
use crate::emulator::render;
use crate::emulator::world::notifications::thread::CommentKey;
use crate::emulator::world::{Comment, Detail, Issue, Topic, World};

pub use super::record::{Change, record};
pub use super::webhooks::{EventContext, EventScope, WebhookEvent};

pub fn issue_changed(
    world: &mut World,
    urls: &Urls,
    now: Timestamp,
    repository: u64,
    number: u64,
    actor: u64,
    (action, detail): (&'static str, Detail),
) {
    let context = EventContext { urls, now, scope: EventScope::Repository(repository), actor };
    let assignee = if let Detail::Assignee(user) = detail { Some(user) } else { None };
    let notice = Notice::Issue { number, action };
    let entries = issues::entries(action, detail);
    issues::raise(world, context, (repository, number), (action, entries), notice, |renderer| {
        assignee
            .map_or_else(|| json!({}), |user| json!({ "assignee": renderer.user_summary(user) }))
    });
}

/// Returns its number; `None` without such a repository.
pub fn open_issue(
    world: &mut World,
    urls: &Urls,
    now: Timestamp,
    repository: u64,
    author: u64,
    title: String,
) -> Option<u64> {
    let id = world.next_id();
    let found = world.repositories.get_mut(&repository)?;
    let number = found.issues.keys().next_back().copied().unwrap_or(0) + 1;
    found.issues.insert(number, Issue::new(id, number, title, author, now));
    found.updated_at = now;
    issue_changed(world, urls, now, repository, number, author, ("opened", Detail::None));
    Some(number)
}

/// Returns its id; `None` without such an issue.
pub fn comment(
    world: &mut World,
    urls: &Urls,
    now: Timestamp,
    repository: u64,
    number: u64,
    author: u64,
    body: &str,
) -> Option<u64> {
    let id = world.next_id();
    let found = world.repositories.get_mut(&repository)?;
    let issue = found.issues.get_mut(&number)?;
    issue.comments.push(id);
    issue.updated_at = now;
    let comment = Comment {
        id,
        issue: number,
        author,
        body: body.to_owned(),
        created_at: now,
        updated_at: now,
    };
    found.comments.insert(id, comment);
    let context =
        EventContext { urls, now, scope: EventScope::Repository(repository), actor: author };
    let (topic, comment) = (Topic::Numbered(number), Some(CommentKey::Issue(id)));
    let change = Change::of(WebhookEvent::new("issue_comment", "created"))
        .notifying(Notice::Comment { topic, text: body, comment });
    record(world, context, change, |renderer| render::comment_objects(renderer, repository, id));
    Some(id)
}
