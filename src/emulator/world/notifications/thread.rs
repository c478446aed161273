//! Notification threads of users.

use crate::clock::Timestamp;

/// Why a user is told of a thread (Document 2, Reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    pub const ALL: [Self; 13] = [
        Self::ApprovalRequested,
        Self::Assign,
        Self::Author,
        Self::CiActivity,
        Self::Comment,
        Self::Invitation,
        Self::Manual,
        Self::MemberFeatureRequested,
        Self::Mention,
        Self::ReviewRequested,
        Self::StateChange,
        Self::Subscribed,
        Self::TeamMention,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ApprovalRequested => "approval_requested",
            Self::Assign => "assign",
            Self::Author => "author",
            Self::CiActivity => "ci_activity",
            Self::Comment => "comment",
            Self::Invitation => "invitation",
            Self::Manual => "manual",
            Self::MemberFeatureRequested => "member_feature_requested",
            Self::Mention => "mention",
            Self::ReviewRequested => "review_requested",
            Self::StateChange => "state_change",
            Self::Subscribed => "subscribed",
            Self::TeamMention => "team_mention",
        }
    }

    /// Whether the user itself is asked or took part, which `participating=true` filters by. Which
    /// reasons that is is not shown: all but those that come from watching or from machines.
    pub fn is_participating(self) -> bool {
        !matches!(self, Self::Subscribed | Self::CiActivity | Self::MemberFeatureRequested)
    }
}

/// A user's view of something that it is told about.
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
    /// Any change at all, reading included; what `Last-Modified` tells.
    pub changed_at: Timestamp,
    pub latest_comment: Option<u64>,
    pub subscription: Option<Subscription>,
}

/// Document 2, States and transitions: Notification thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    Unread,
    Read,
    Done,
}

/// Threads to be marked read in the background, as a 202 promised.
#[derive(Debug)]
pub struct BackgroundRead {
    pub due: Timestamp,
    pub user: u64,
    pub up_to: Timestamp,
    pub threads: Vec<u64>,
}

impl Thread {
    /// "`updated_at` at or before `last_read_at`".
    pub fn is_unread_at(&self, up_to: Timestamp) -> bool {
        self.state == ThreadState::Unread && self.updated_at <= up_to
    }
}

/// How a user stands to a thread, if it ever took part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    Subscribed {
        since: Timestamp,
        /// How it came about: by a reply, a mention or by hand.
        reason: Reason,
    },
    /// "All notifications from the thread blocked."
    Ignored { since: Timestamp },
    /// "Muted until the user comments or is @mentioned." Such a subscription does not exist for a
    /// reader.
    Muted,
}

/// What a thread is about; each thing in a repository is one thread of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The issue or pull of that number.
    Numbered(u64),
    /// A workflow run, by its id. Every run is a thread of its own.
    Run(u64),
    /// An invitation to the repository.
    Invitation(u64),
    /// A wish of the organisation's members for a feature.
    FeatureRequest(u64),
}

impl Topic {
    /// The number of an issue or pull.
    pub fn number(self) -> Option<u64> {
        if let Self::Numbered(number) = self { Some(number) } else { None }
    }

    /// What a thread with this reason is about that is not about an issue or pull; `id` names it.
    pub fn of_reason(reason: Reason, id: u64) -> Option<Self> {
        match reason {
            Reason::ApprovalRequested | Reason::CiActivity => Some(Self::Run(id)),
            Reason::Invitation => Some(Self::Invitation(id)),
            Reason::MemberFeatureRequested => Some(Self::FeatureRequest(id)),
            _ => None,
        }
    }
}
