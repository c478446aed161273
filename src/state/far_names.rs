//! Names of views and tokens that are the same in every replica with the same config, for the
//! copies of answers that they share (`gateway/cache/snapshot/far.rs`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::Config;
use crate::decision::TokenKey;
use crate::decision::cache::key::Scope;

/// Copies on their way at once; more are left out.
const KEEPING_MAX: usize = 64;
/// The time for which names are used. Tokens of apps change.
const NAMES_FOR: Duration = Duration::from_secs(10);

/// Copies that other replicas have kept lately. Ours: some megabytes of names; a forgotten one
/// costs this replica one fetch.
const NEWER_MAX: u64 = 50_000;
const NEWER_FOR: Duration = Duration::from_hours(1);

/// The names of views and tokens that all replicas share, the copies on their way, and those that
/// others have made.
pub struct FarCopies {
    names: Mutex<Option<Cached>>,
    keeping: Arc<Semaphore>,
    newer: Cache<String, ()>,
}

/// Names of a config, with their time.
struct Cached {
    since: Instant,
    config: Arc<Config>,
    names: Arc<FarNames>,
}

/// Names that are the same in every replica with the same config.
pub(crate) struct FarNames {
    /// Keys all names.
    pub salt: [u8; 32],
    /// Of the views.
    pub scopes: HashMap<Scope, String>,
    /// Of the tokens.
    pub names: HashMap<TokenKey, String>,
    /// The tokens by their names.
    pub tokens: HashMap<String, TokenKey>,
    /// Of the places for tokens, and the places by their names.
    pub slots: HashMap<TokenKey, String>,
    pub slot_of: HashMap<String, TokenKey>,
    /// Digest of the rules of the config.
    pub rules: String,
}

impl Default for FarCopies {
    fn default() -> Self {
        Self {
            names: Mutex::default(),
            keeping: Arc::new(Semaphore::new(KEEPING_MAX)),
            newer: Cache::builder().max_capacity(NEWER_MAX).time_to_live(NEWER_FOR).build(),
        }
    }
}

impl FarCopies {
    /// The names of a config, as they were a moment ago or as `new` makes them.
    pub(crate) fn names(
        &self,
        now: Instant,
        config: &Arc<Config>,
        new: impl FnOnce() -> FarNames,
    ) -> Arc<FarNames> {
        let mut cached = self.names.lock();
        if let Some(Cached { since, config: of, names }) = &*cached
            && now < *since + NAMES_FOR
            && Arc::ptr_eq(of, config)
        {
            return Arc::clone(names);
        }
        let names = Arc::new(new());
        let config = Arc::clone(config);
        *cached = Some(Cached { since: now, config, names: Arc::clone(&names) });
        names
    }

    /// Notes that another replica has kept a copy.
    pub fn has_newer(&self, name: String) {
        self.newer.insert(name, ());
    }

    /// True once after another replica has kept a copy.
    pub fn take_newer(&self, name: &str) -> bool {
        self.newer.remove(name).is_some()
    }

    /// The right to send a copy beside the requests; `None`: too many are on their way.
    pub(crate) fn keeping(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.keeping).try_acquire_owned().ok()
    }
}
