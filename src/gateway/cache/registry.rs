//! The bodies too large to hold that are being read right now, so that who asks for the same a
//! moment later may join at the beginning (`large.rs`).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::decision::cache::cache_control::CacheControl;
use crate::decision::cache::key::CacheKey;
use crate::telemetry::{CacheOutcome, Fetch};

use crate::gateway::Gateway;
use crate::gateway::address::path_of;
use crate::gateway::cache::read::{Question, ReadAnswer};
use crate::gateway::cache::resume::Again;
use crate::gateway::cache::shared_body::{Landing, Large};
use crate::gateway::cache::single_flight::Role;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::answer::Answer;

/// How long after its request was sent a body can be joined by others than those who waited for it.
/// Ours: while it is read slowly, what it shows becomes old.
const JOINED_AFTER_MAX: Duration = Duration::from_secs(2);

/// Those that others may join. The ones that have ended are forgotten when another begins.
#[derive(Default)]
pub struct Streams {
    by_key: Mutex<HashMap<CacheKey, Weak<Large>, foldhash::fast::RandomState>>,
}

impl Streams {
    /// One has begun.
    pub fn begun(&self, key: CacheKey, stream: &Arc<Large>) {
        let mut by_key = self.by_key.lock();
        by_key.retain(|_, stream| stream.strong_count() > 0);
        by_key.insert(key, Arc::downgrade(stream));
    }

    /// The one under this key.
    pub fn find(&self, key: &CacheKey) -> Option<Arc<Large>> {
        let by_key = self.by_key.lock();
        // Mostly there is none, which needs no hash of the key.
        if by_key.is_empty() { None } else { by_key.get(key)?.upgrade() }
    }
}

impl Gateway {
    /// An answer whose body is too large to hold, for those who waited for it and whoever comes
    /// before its beginning is gone.
    pub fn begin_stream(&self, key: CacheKey, question: &Question, answer: Answer) -> Arc<Landing> {
        let vary = Entry::vary_of(&answer.headers, &question.asked);
        // RFC 9111 §5.2.2.5.
        let is_for_others = !CacheControl::parse(&answer.headers).no_store;
        let is_failure = answer.status.is_server_error();
        let stream = Arc::new(Large::new(answer, vary, is_for_others));
        if is_for_others && !is_failure {
            self.streams.begun(key, &stream);
        }
        Arc::new(Landing(stream))
    }

    /// One that another request has begun, if it is what was asked for and its beginning is still
    /// there.
    pub fn join_stream(
        self: &Arc<Self>,
        key: &CacheKey,
        question: &Arc<Question>,
    ) -> Option<ReadAnswer> {
        let stream = self.streams.find(key).filter(|stream| stream.fits(&question.asked))?;
        let (now, requested_at) = (self.clock.now(), stream.head.requested_at);
        let is_new = now.since(requested_at) <= JOINED_AFTER_MAX;
        let is_right =
            is_new && self.store.trust(path_of(&question.job.target), requested_at).holds(now);
        if is_right { self.streamed(&stream, question, Role::Follower) } else { None }
    }

    /// A place at the beginning of a body for the one who asks this.
    pub fn streamed(
        self: &Arc<Self>,
        stream: &Arc<Large>,
        question: &Arc<Question>,
        role: Role,
    ) -> Option<ReadAnswer> {
        let again = Again { gateway: Arc::clone(self), question: Arc::clone(question) };
        let reader = stream.join(Some(again))?;
        let cache = match role {
            Role::Leader => CacheOutcome::Fetched(Fetch::TooLarge),
            Role::Follower => CacheOutcome::Collapsed(Fetch::TooLarge),
        };
        Some(ReadAnswer::Streamed(Box::new(reader), cache))
    }
}
