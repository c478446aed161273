//! The history of issues and pull requests: what `/issues/events` and the timelines list.

use std::collections::VecDeque;

use crate::clock::Timestamp;

/// The most events of one repository; beyond it the oldest are dropped.
const EVENTS_MAX: usize = 20_000;
/// Issue events are numbered above all other ids, so that they leave no gaps in them.
const IDS_ABOVE: u64 = 20_000_000_000;

#[derive(Clone, Debug)]
pub struct IssueEvent {
    pub id: u64,
    /// Such as `closed`, in the running service's words.
    pub name: &'static str,
    pub number: u64,
    pub actor: u64,
    pub detail: Detail,
    pub created_at: Timestamp,
}

/// The subject of an event, beside its issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    #[default]
    None,
    /// Name and color, which outlive the label.
    Label(String, String),
    Assignee(u64),
    Reviewer(u64),
    /// A team of the repository's organization.
    ReviewingTeam(u64),
    /// A milestone by its title.
    Milestone(String),
    /// The titles before and after.
    Rename(String, String),
    Lock(Option<&'static str>),
    /// The commit of a merge.
    Commit(String),
    /// The review and the reason of its dismissal.
    Dismissal(u64, String),
}

/// The latest events of one repository, oldest first.
#[derive(Debug, Default)]
pub struct IssueEvents {
    noted: u64,
    events: VecDeque<IssueEvent>,
}

impl IssueEvents {
    pub fn note(&mut self, repository: u64, mut event: IssueEvent) {
        const EACH: u64 = 10_000_000;
        self.noted += 1;
        event.id = IDS_ABOVE + repository * EACH + self.noted;
        self.events.push_back(event);
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &IssueEvent> {
        self.events.iter()
    }
}

/// Returns the name of the issue event that a webhook's action makes, if it makes one.
pub fn name_of(action: &str) -> Option<&'static str> {
    const NAMES: [&str; 12] = [
        "assigned",
        "closed",
        "demilestoned",
        "labeled",
        "locked",
        "milestoned",
        "reopened",
        "review_request_removed",
        "review_requested",
        "unassigned",
        "unlabeled",
        "unlocked",
    ];
    NAMES.into_iter().find(|name| *name == action)
}
