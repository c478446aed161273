//! The event feeds of repositories, which polling clients use instead of webhooks.
//!
//! The shapes follow the running service, because the upstream does not document them. It keeps 300
//! events in each feed; here one feed of 300 serves everybody. `resources::feeds` decides about
//! visibility.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::Timestamp;

const EVENTS_MAX: usize = 300;
/// Payloads contain bodies of issues and comments, which may be long.
const PAYLOAD_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug)]
pub struct Event {
    /// Feeds number their events separately, so that they leave no gaps in other ids.
    pub id: u64,
    /// Such as `IssuesEvent`.
    pub kind: &'static str,
    pub actor: u64,
    pub repository: u64,
    /// A serialized JSON object.
    pub payload: Arc<str>,
    pub created_at: Timestamp,
}

/// The latest events, oldest first.
#[derive(Debug, Default)]
pub struct Feed {
    last_id: u64,
    events: VecDeque<Event>,
    payload_bytes: usize,
    /// The last change of names or of visibility, which invalidates all feeds.
    pub shifted_at: Option<Timestamp>,
}

/// Returns the feed type of a webhook event; `None` for events that no feed has.
pub fn kind(event: &str) -> Option<&'static str> {
    Some(match event {
        "commit_comment" => "CommitCommentEvent",
        "create" => "CreateEvent",
        "delete" => "DeleteEvent",
        "discussion" => "DiscussionEvent",
        "fork" => "ForkEvent",
        "gollum" => "GollumEvent",
        "issue_comment" => "IssueCommentEvent",
        "issues" => "IssuesEvent",
        "member" => "MemberEvent",
        "public" => "PublicEvent",
        "pull_request" => "PullRequestEvent",
        "pull_request_review" => "PullRequestReviewEvent",
        "pull_request_review_comment" => "PullRequestReviewCommentEvent",
        "push" => "PushEvent",
        "release" => "ReleaseEvent",
        "watch" => "WatchEvent",
        _ => return None,
    })
}

impl Feed {
    pub fn note(&mut self, event: Event) {
        self.last_id += 1;
        self.payload_bytes += event.payload.len();
        self.events.push_back(Event { id: self.last_id, ..event });
        while self.events.len() > EVENTS_MAX || self.payload_bytes > PAYLOAD_BYTES_MAX {
            let Some(gone) = self.events.pop_front() else { return };
            self.payload_bytes -= gone.payload.len();
        }
    }

    pub fn newest_first(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(payload: &str) -> Event {
        Event {
            id: 0,
            kind: "PushEvent",
            actor: 1,
            repository: 1,
            payload: payload.into(),
            created_at: Timestamp::from_secs(1),
        }
    }

    #[test]
    fn the_oldest_events_are_dropped_beyond_the_bounds() {
        let mut feed = Feed::default();
        (0..1_000).for_each(|_| feed.note(event("{}")));
        assert_eq!(
            (feed.newest_first().count(), feed.newest_first().next().map(|event| event.id)),
            (EVENTS_MAX, Some(1_000))
        );
        feed.note(event(&" ".repeat(PAYLOAD_BYTES_MAX - 10)));
        assert_eq!(
            (feed.newest_first().count(), feed.payload_bytes <= PAYLOAD_BYTES_MAX),
            (6, true)
        );
        feed.note(event(&" ".repeat(PAYLOAD_BYTES_MAX + 1)));
        assert_eq!((feed.newest_first().count(), feed.payload_bytes), (0, 0));
    }
}
