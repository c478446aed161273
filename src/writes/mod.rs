//! Writes that outlive their request: their records and their stores (SPECIFICATION D7,
//! "Asynchronous writes").
//!
//! [`record`] defines a queued write and its bytes; [`memory`], `file` and [`redis`] store those
//! bytes. Left out: sending and retries (`decision`, `gateway`), and HTTP.

#[cfg(test)]
mod conformance;
pub mod file;
pub mod handed;
pub mod memory;
mod outage;
pub mod record;
pub mod redis;

use bytes::Bytes;

use crate::state::Unopened;
use futures_util::future::BoxFuture;

pub use record::{Progress, Write, WriteId, WriteState};
pub use redis::SharedStore;

/// One write in a store: two texts in bytes, of which the second changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The request: [`Write::encode`].
    pub request: Bytes,
    /// The progress: [`Progress::encode`].
    pub progress: Bytes,
}

/// A change of a store. The number in a write's id identifies it, and gives the order of
/// acceptance.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds a write.
    Insert(u64, Stored),
    /// Replaces the progress of a write. An unknown number is ignored, or [`StoreError::Elsewhere`]
    /// in a shared store.
    Progress(u64, Bytes),
    /// Removes writes.
    Remove(Vec<u64>),
}

/// Failure of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No room for new writes; stored ones are safe.
    #[error("there is no room for further writes: {0}")]
    Full(String),
    /// The state that the replicas share is out of reach, and nothing was stored.
    #[error("what the replicas share is out of reach: {0}")]
    Away(String),
    /// Another replica has this write, or it is gone.
    #[error("another replica has this write")]
    Elsewhere,
    /// Another replica has accepted a write with its key.
    #[error("another replica has accepted a write with this key")]
    Keyed {
        /// The number of that write.
        number: u64,
        /// The digest of its request.
        meaning: [u8; 32],
    },
    /// The text of a write was sealed with another key.
    #[error("a write in Redis was sealed with another `state.encrypt_key`, or with none")]
    Sealed,
    /// A read or write failed. Whether the change was stored is unknown until the next start.
    #[error("the store of writes failed: {0}")]
    Failed(String),
}

impl From<Unopened> for StoreError {
    fn from(_: Unopened) -> Self {
        Self::Sealed
    }
}

impl From<record::Unreadable> for StoreError {
    fn from(fault: record::Unreadable) -> Self {
        Self::Failed(fault.to_string())
    }
}

/// A store of writes. Cheap to share.
pub trait Store: Send + Sync {
    /// Makes a change, which is durable once the future resolves, as far as the store is. Changes
    /// are made in the order of these calls, even if a future is dropped or not polled: dropping
    /// cancels nothing. In a shared store a load may come before changes that are not awaited.
    fn apply(&self, change: Change) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Loads a write; `None` for an unknown number.
    fn load(&self, number: u64) -> BoxFuture<'static, Result<Option<Stored>, StoreError>>;

    /// Estimates the bytes of further writes it has room for, while it keeps `kept` bytes; `None`
    /// when unknown. Good enough for sharing the room among clients.
    fn room(&self, kept: u64) -> Option<u64>;

    /// Returns true if its contents survive the process.
    fn is_durable(&self) -> bool;

    /// The store that all replicas share; `None`: it has the writes of one process.
    fn shared(&self) -> Option<&SharedStore> {
        None
    }
}
