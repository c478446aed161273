//! `temp_clone_token`: "a short-lived secret" (Document 3, Repository object).
//!
//! How long it lives and what it opens are not shown. Here it lives for an hour, differs between
//! users, opens nothing, and only private repositories have one: a public one is cloned without.

use ring::digest::{SHA256, digest};

use crate::clock::Timestamp;
use crate::emulator::accounts::Caller;
use crate::emulator::http::hex;
use crate::emulator::world::repositories::repository::{Repository, Visibility};

/// Not shown; that of an installation's token, which opens the same things.
const LIFETIME_SECS: u64 = 3_600;

/// The secrets in force.
#[derive(Debug, Default)]
pub struct CloneSecrets {
    since: Timestamp,
}

impl CloneSecrets {
    /// Time has passed: new secrets when the old ones have ended.
    pub fn turn(&mut self, now: Timestamp) {
        self.since = Timestamp::from_secs(now.as_secs() - now.as_secs() % LIFETIME_SECS);
    }

    /// The secret of a repository for a caller; empty for a public one, and for whoever is no
    /// caller, as a webhook's receiver.
    pub fn of(&self, repository: &Repository, caller: &Caller) -> String {
        let Some(token) = caller.token().filter(|_| repository.visibility == Visibility::Private)
        else {
            return String::new();
        };
        let input = format!(
            "{}:{}:{}:{}",
            repository.id,
            token.user.unwrap_or(0),
            token.account,
            self.since.as_secs()
        );
        let digest = digest(&SHA256, input.as_bytes());
        format!("emu_clone_{}", hex(&digest.as_ref()[..10]))
    }

    /// Since when what shows a repository shows this secret.
    pub fn changed_at(&self, repository: &Repository) -> Timestamp {
        if repository.visibility == Visibility::Private { self.since } else { Timestamp::EPOCH }
    }
}
