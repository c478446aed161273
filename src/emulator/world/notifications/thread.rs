//! Notification threads of users, who takes part in them, and the users named in them.

use std::collections::{BTreeMap, BTreeSet};

use strum::{IntoStaticStr, VariantArray};

use crate::clock::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Reason {
    ApprovalRequested,
    Assign,
    Author,
    CiActivity,
    Comment,
    Invitation,
    Manual,
    MemberFeatureRequested,
    Mention,
    ReviewRequested,
    StateChange,
    Subscribed,
    TeamMention,
}

impl Reason {
    /// Undocumented for `participating=true`: all reasons except watching and automation.
    pub fn is_participating(self) -> bool {
        !matches!(self, Self::Subscribed | Self::CiActivity | Self::MemberFeatureRequested)
    }
}

#[derive(Debug)]
pub struct Thread {
    pub id: u64,
    pub user: u64,
    pub repository: u64,
    pub topic: Topic,
    pub reason: Reason,
    pub state: ThreadState,
    pub updated_at: Timestamp,
    pub last_read_at: Option<Timestamp>,
    /// The last change of any kind, reading included; the value of `Last-Modified`.
    pub changed_at: Timestamp,
    pub latest_comment: Option<CommentKey>,
    pub subscription: Option<Subscription>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    Unread,
    Read,
    Done,
}

/// Threads to be marked read in the background, after a 202.
#[derive(Debug)]
pub struct BackgroundRead {
    pub due: Timestamp,
    pub user: u64,
    pub up_to: Timestamp,
    pub threads: Vec<u64>,
}

impl Thread {
    /// Compares with the last update.
    pub fn is_unread_at(&self, up_to: Timestamp) -> bool {
        self.state == ThreadState::Unread && self.updated_at <= up_to
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    Subscribed {
        since: Timestamp,
        /// The origin: a reply, a mention or a manual subscription.
        reason: Reason,
    },
    /// Blocks all notifications from the thread.
    Ignored { since: Timestamp },
    /// Muted until the user comments or is mentioned; the API shows no subscription.
    Muted,
}

/// A comment that a thread may show as its latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommentKey {
    Issue(u64),
    /// On the changes of a pull request.
    Review(u64),
    Commit(u64),
}

/// The bytes of a commit's SHA.
pub type CommitKey = [u8; 20];

/// `None` for a text that is no SHA.
pub fn commit_key(sha: &str) -> Option<CommitKey> {
    if sha.len() != 40 || !sha.is_ascii() {
        return None;
    }
    let mut key = CommitKey::default();
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(sha.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(key)
}

/// The topic of a thread; a user has one thread for each topic in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Numbered(u64),
    /// Comments on a commit.
    Commit(CommitKey),
    /// A workflow run, by its id.
    Run(u64),
    Invitation(u64),
    /// A feature request by the organisation's members.
    FeatureRequest(u64),
}

impl Topic {
    pub fn number(self) -> Option<u64> {
        if let Self::Numbered(number) = self { Some(number) } else { None }
    }

    /// `None` for reasons about an issue or pull request; `id` identifies the topic.
    pub fn of_reason(reason: Reason, id: u64) -> Option<Self> {
        match reason {
            Reason::ApprovalRequested | Reason::CiActivity => Some(Self::Run(id)),
            Reason::Invitation => Some(Self::Invitation(id)),
            Reason::MemberFeatureRequested => Some(Self::FeatureRequest(id)),
            _ => None,
        }
    }
}

/// A workflow run that a thread of the seed is about.
#[derive(Clone, Copy, Debug)]
pub struct SeededRun {
    pub id: u64,
    pub repository: u64,
    pub actor: u64,
    /// It waits for approval.
    pub is_waiting: bool,
    pub at: Timestamp,
}

/// User, repository and topic of a thread.
pub type Key = (u64, u64, Topic);

#[derive(Debug, Default)]
pub struct Participation {
    /// The last participation since the user was notified.
    pub took_part: BTreeMap<Key, Reason>,
    /// By repository and number, so that each user is notified once. Issues without mentions have
    /// no entry.
    pub named: BTreeMap<(u64, u64), NamedUsers>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedUsers {
    pub mentions: Mentions,
    pub assignees: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    pub users: BTreeSet<u64>,
    /// The members of mentioned teams and of their child teams.
    pub of_teams: BTreeSet<u64>,
}
