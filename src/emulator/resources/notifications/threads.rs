//! The topic of a notification thread, and its rendering as `subject` (SPECIFICATION,
//! "Notifications").
//!
//! The upstream documents only the type `Issue`; other types and their titles follow the running
//! service where it has them.

use serde_json::{Value, json};

use crate::emulator::render::Renderer;
use crate::emulator::world::{Reason, Repository, Thread, Topic};

/// Renders `{title, url, latest_comment_url, type}`, all of them strings.
pub fn subject(renderer: Renderer<'_>, repository: &Repository, thread: &Thread) -> Value {
    let base = renderer.repository_url(repository);
    let full_name = renderer.world.full_name(repository);
    let (title, url, kind) = match thread.topic {
        Topic::Numbered(number) => return numbered(&base, repository, thread, number),
        Topic::Run(id) => {
            let what = if thread.reason == Reason::ApprovalRequested {
                "is waiting for approval"
            } else {
                "completed"
            };
            (format!("CI workflow run {what}"), format!("{base}/actions/runs/{id}"), "CheckSuite")
        }
        Topic::Invitation(_) => {
            (format!("Invitation to {full_name}"), base, "RepositoryInvitation")
        }
        Topic::FeatureRequest(_) => {
            ("Members ask to enable a feature".to_owned(), base, "MemberFeatureRequest")
        }
    };
    json!({ "title": title, "url": url, "latest_comment_url": url, "type": kind })
}

/// Without a comment, the latest one is the issue itself. A deleted issue still has an address.
fn numbered(base: &str, repository: &Repository, thread: &Thread, number: u64) -> Value {
    let issue = repository.issues.get(&number);
    let is_pull = issue.is_some_and(|issue| issue.pull_from.is_some());
    let (collection, kind) = if is_pull { ("pulls", "PullRequest") } else { ("issues", "Issue") };
    let url = format!("{base}/{collection}/{number}");
    let latest = thread
        .latest_comment
        .map_or_else(|| url.clone(), |id| format!("{base}/issues/comments/{id}"));
    json!({ "title": issue.map_or("", |issue| issue.title.as_str()), "url": url, "latest_comment_url": latest, "type": kind })
}
