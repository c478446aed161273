//! Writes whose first attempt is stored with them, which saves a round trip: their turn came at
//! once, and no limit was known to hold them. It is taken back if the attempt does not begin soon.
//!
//! Until then nobody else cancels or takes such a write, and after a crash it may have been
//! executed, like one that is being sent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::Inner;
use crate::clock::timer_now;
use crate::writes::StoreError;

/// The time within which the attempt begins. Ours: a write that waits longer has met a limit.
const AHEAD: Duration = Duration::from_millis(250);

/// The progress of a first attempt, which Redis has before the attempt.
#[derive(Debug)]
pub(super) struct Ahead {
    pub sending: Bytes,
    /// The progress before it.
    pub queued: Bytes,
    /// The time of the insertion at the earliest.
    pub since: Instant,
}

impl Inner {
    /// True if Redis has this progress of a write already, and still has it.
    pub(super) fn is_ahead(&self, number: u64, progress: &Bytes) -> bool {
        // Whatever else it is, it replaces what Redis has.
        let ahead = self.own.lock().take_ahead(number);
        ahead.is_some_and(|ahead| ahead.sending == *progress && timer_now() - ahead.since < AHEAD)
    }

    /// Takes the attempt of this write back, unless it begins in time.
    pub(super) fn watch_ahead(self: &Arc<Self>, number: u64) {
        let this: Weak<Self> = Arc::downgrade(self);
        self.runtime.spawn(async move {
            sleep(AHEAD).await;
            let Some(this) = this.upgrade() else { return };
            this.take_back_or_say(number).await;
        });
    }

    /// Takes the attempt of this write back, unless it has begun.
    pub(super) async fn take_back(self: &Arc<Self>, number: u64) -> Result<(), StoreError> {
        let Some(ahead) = self.own.lock().take_ahead(number) else { return Ok(()) };
        self.progress(number, ahead.queued, false).await
    }

    /// Takes all attempts back that have not begun: others may go on with these writes.
    pub(super) async fn take_all_back(self: &Arc<Self>) {
        let ahead = self.own.lock().ahead();
        for number in ahead {
            self.take_back_or_say(number).await;
        }
    }

    async fn take_back_or_say(self: &Arc<Self>, number: u64) {
        if let Err(error) = self.take_back(number).await {
            tracing::debug!(write = number, %error, "a write is still kept as being sent");
        }
    }
}
