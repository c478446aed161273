//! Participation of users in threads, and the users named in them.

use std::collections::{BTreeMap, BTreeSet};

use super::thread::{Reason, Topic};

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
