//! `temp_clone_token`, a short-lived secret of private repositories.
//!
//! The upstream documents neither its lifetime nor its rights. Here it lives for an hour, differs
//! between users and grants nothing; public repositories have none.

use ring::digest::{SHA256, digest};

use crate::clock::Timestamp;
use crate::emulator::accounts::Caller;
use crate::emulator::http::hex;
use crate::emulator::world::repositories::repository::{Repository, Visibility};

/// Undocumented; the lifetime of an installation token, which grants the same access.
const LIFETIME_SECS: u64 = 3_600;

#[derive(Debug, Default)]
pub struct CloneSecrets {
    since: Timestamp,
}

impl CloneSecrets {
    pub fn turn(&mut self, now: Timestamp) {
        self.since = Timestamp::from_secs(now.as_secs() - now.as_secs() % LIFETIME_SECS);
    }

    /// Empty for public repositories and without a token, as in webhook payloads.
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

    /// Returns the time since when representations of a repository contain this secret.
    pub fn changed_at(&self, repository: &Repository) -> Timestamp {
        if repository.visibility == Visibility::Private { self.since } else { Timestamp::EPOCH }
    }
}
