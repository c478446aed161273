//! Participation of users in threads, and the users named in them.

use std::collections::{BTreeMap, BTreeSet};

use super::thread::{Reason, Topic};

/// Whose thread in which repository about what.
pub type Key = (u64, u64, Topic);

/// What is remembered from one notification to the next, beside the threads.
#[derive(Debug, Default)]
pub struct Participation {
    /// How a user took part in something since it was last told of it.
    pub took_part: BTreeMap<Key, Reason>,
    /// Whom an issue names, by repository and number, so that each is told once. Issues that name
    /// nobody have no entry.
    pub named: BTreeMap<(u64, u64), NamedUsers>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedUsers {
    pub mentions: Mentions,
    pub assignees: BTreeSet<u64>,
}

/// The users that a text names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    pub users: BTreeSet<u64>,
    /// The members of the teams named, and of the teams nested in those.
    pub of_teams: BTreeSet<u64>,
}
