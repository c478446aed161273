//! The journal of a queued write, as dispatch sees it. The queue implements it.

use futures_util::future::BoxFuture;

use crate::clock::Timestamp;
use crate::decision::retry::Patience;

/// The record of a kept write's attempts.
pub trait Journal: Send + Sync {
    /// The patience that the write's attempts have.
    fn patience(&self) -> Patience;

    /// Attempts of earlier runs.
    fn attempts(&self) -> u32;

    /// True if an earlier attempt may have been executed.
    fn may_have_run(&self) -> bool;

    /// Records that the write is about to be sent. It must not be sent when this fails.
    fn sending(&self) -> BoxFuture<'_, Result<(), MustNotBeSent>>;

    /// Records that an attempt failed; the next one starts at `not_before`.
    fn failed(&self, not_before: Timestamp, may_have_run: bool);
}

/// The write must not be sent: it was cancelled, the gateway shuts down, or the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MustNotBeSent;
