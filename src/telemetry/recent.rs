//! The last requests and their stories, for `GET /api/requests` (SPECIFICATION, "Admin listener").
//!
//! There are three lists, so that a flood of one kind leaves the others: requests that were
//! refused, failed or waited; others that went upstream; and the rest, mostly hits. All are
//! bounded. A hit never waits for a reader of its list.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::outcome::{LogText, Outcome, WaitCause};
use crate::clock::Timestamp;

/// Length of each list. Ours: some MiB, and minutes of a busy gateway.
const KEPT: [usize; 3] = [4_096, 4_096, 1_024];
/// Wait from which a request counts as one that waited. Ours: people notice it.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// Steps of one story. Ours: more than a request has attempts and waits.
pub const STEPS_MAX: usize = 32;

/// One finished request.
#[derive(Clone, Debug)]
pub struct Story {
    /// Position among the requests of this process; the later is greater.
    pub number: u64,
    /// Its end.
    pub finished_at: Timestamp,
    /// Its end, as the log line has it.
    pub outcome: Outcome,
    /// Its way, in the order of time; at most [`STEPS_MAX`].
    pub steps: Vec<Step>,
}

/// One step on the way of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time since its head had come.
    pub after: Duration,
    /// The step.
    pub event: Event,
}

/// Kinds of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A limit, a turn or a mint held it for this long.
    Held(WaitCause, Duration),
    /// A limit denied it.
    Denied(WaitCause),
    /// It was accepted as the queued write with this id.
    Queued(String),
    /// It was sent upstream.
    Sent {
        /// Account name in the config.
        account: Arc<str>,
        /// Resource of the budget.
        resource: Arc<str>,
        /// Reason for this account.
        chosen: Chosen,
    },
    /// The head of the answer came.
    Answered {
        /// Status of the answer.
        status: u16,
        /// Time from sending to the end of the exchange.
        took: Duration,
        /// The upstream's id of the request.
        upstream_request_id: Option<LogText>,
    },
    /// No answer came.
    Failed {
        /// The error for the operator.
        error: LogText,
        /// Time from sending to the failure.
        took: Duration,
    },
}

/// Reason for the account of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// No other may send it now.
    Only,
    /// It owns the validator of the stored answer, for a free 304.
    Validator,
    /// It had most left, of so many.
    MostLeft(u32),
}

/// See the module.
#[derive(Debug, Default)]
pub struct RecentRequests {
    lists: [Mutex<VecDeque<Arc<Story>>>; 3],
    next: AtomicU64,
}

impl RecentRequests {
    /// Adds a finished request, and returns its story.
    pub fn add(
        &self,
        finished_at: Timestamp,
        mut outcome: Outcome,
        steps: Vec<Step>,
    ) -> Arc<Story> {
        // It may be a part of a large head, which must not live as long.
        outcome.user_agent = outcome.user_agent.as_ref().and_then(LogText::short_user_agent);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let kind = kind(&outcome);
        let story = Arc::new(Story { number, finished_at, outcome, steps });
        let list = &self.lists[kind];
        let is_of_hits = kind + 1 == KEPT.len();
        let locked = if is_of_hits { list.try_lock() } else { Some(list.lock()) };
        let Some(mut list) = locked else { return story };
        let oldest = if list.len() >= KEPT[kind] { list.pop_front() } else { None };
        list.push_back(Arc::clone(&story));
        drop(list);
        // Freed without the lock.
        drop(oldest);
        story
    }

    /// Returns all that are kept, the latest first.
    pub fn all(&self) -> Vec<Arc<Story>> {
        let mut all = Vec::new();
        for list in &self.lists {
            all.extend(list.lock().iter().cloned());
        }
        all.sort_unstable_by_key(|story| std::cmp::Reverse(story.number));
        all
    }
}

/// The list of a request.
fn kind(outcome: &Outcome) -> usize {
    let is_bad = outcome.refusal.is_some() || outcome.status >= 500 || outcome.status == 0;
    if is_bad || outcome.queue >= LONG_WAIT || outcome.shadowed.is_some() {
        0
    } else if outcome.upstream_attempts > 0 {
        1
    } else {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(id: &str) -> Outcome {
        Outcome { status: 200, ..Outcome::new(&http::Method::GET, "/a", id) }
    }

    fn ids(recent: &RecentRequests) -> Vec<String> {
        recent.all().iter().map(|story| story.outcome.request_id.as_str().to_owned()).collect()
    }

    #[test]
    fn the_latest_come_first_whatever_their_kind() {
        let recent = RecentRequests::default();
        let refused = Outcome { refusal: Some("primary"), ..outcome("refused") };
        let sent = Outcome { upstream_attempts: 1, ..outcome("sent") };
        for outcome in [refused, outcome("hit"), sent] {
            recent.add(Timestamp::EPOCH, outcome, Vec::new());
        }
        assert_eq!(ids(&recent), ["sent", "hit", "refused"]);
    }

    #[test]
    fn a_flood_of_hits_leaves_the_others() {
        let recent = RecentRequests::default();
        let waited = Outcome { queue: LONG_WAIT, ..outcome("waited") };
        recent.add(Timestamp::EPOCH, waited, Vec::new());
        for number in 0..KEPT[2] * 3 {
            recent.add(Timestamp::EPOCH, outcome(&number.to_string()), Vec::new());
        }
        let all = ids(&recent);
        assert_eq!(all.len(), KEPT[2] + 1);
        assert_eq!(all.last().map(String::as_str), Some("waited"));
        assert_eq!(all[0], (KEPT[2] * 3 - 1).to_string());
    }

    #[test]
    fn half_a_credential_is_not_kept() {
        let recent = RecentRequests::default();
        let raw = format!("{} ghp_{}", "x".repeat(240), "a1B2".repeat(9));
        let user_agent = Some(http::HeaderValue::from_str(&raw).unwrap());
        let story =
            recent.add(Timestamp::EPOCH, Outcome { user_agent, ..outcome("a") }, Vec::new());
        let kept = story.outcome.user_agent.as_ref().unwrap().to_str().unwrap();
        assert!(kept.starts_with("xxx") && !kept.contains("ghp_"), "{kept}");
    }

    #[test]
    fn a_hit_does_not_wait_for_a_reader() {
        let recent = RecentRequests::default();
        let reader = recent.lists[2].lock();
        recent.add(Timestamp::EPOCH, outcome("hit"), Vec::new());
        drop(reader);
        assert_eq!(ids(&recent), Vec::<String>::new());
    }
}
