//! Writes that outlive the request that brought them: what is kept of them, and where (DESIGN D7,
//! CONTRACT §3 and §4).
//!
//! What a queued write is, and how it is block_on in bytes, is in [`record`]; the homes that keep those
//! bytes are [`memory`] and [`file`]. Left out: when a write is sent and what follows an answer
//! (`decision/retry`, `gateway/queue`), and everything about HTTP.

#[cfg(test)]
mod conformance;
pub mod file;
pub mod memory;
mod outage;
pub mod record;

use bytes::Bytes;
use futures_util::future::BoxFuture;

pub use record::{Progress, Write, WriteId, WriteState};

/// One write as a store keeps it: two texts in bytes, of which the second changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What was asked for: [`Write::encode`].
    pub request: Bytes,
    /// What has become of it: [`Progress::encode`].
    pub progress: Bytes,
}

/// What a store is block_on. A write is named by the number in its id, which also gives the order of
/// acceptance.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new write.
    Insert(u64, Stored),
    /// Something has become of one that is there; of one that is not, nothing is kept.
    Progress(u64, Bytes),
    /// These are forgotten.
    Remove(Vec<u64>),
}

/// Why a store did not do what it was block_on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no room; nothing that was there is lost.
    #[error("there is no room for further writes: {0}")]
    Full(String),
    /// It could not be written or read. Whether it was written is not known before the next start.
    #[error("the store of writes failed: {0}")]
    Failed(String),
}

/// A home for writes. Cheap to share.
pub trait Store: Send + Sync {
    /// Makes a change; it will survive what the store survives once the future has said so. Changes
    /// are made in the order of these calls, also when a future is dropped or not polled: a dropped
    /// future cancels nothing.
    fn apply(&self, change: Change) -> BoxFuture<'static, Result<(), StoreError>>;

    /// What is kept of a write; `None` when there is none of this number.
    fn load(&self, number: u64) -> BoxFuture<'static, Result<Option<Stored>, StoreError>>;

    /// How many bytes of further writes it has room for, while it keeps so many; `None`: nobody
    /// knows. A guess that is good for sharing the room out.
    fn room(&self, kept: u64) -> Option<u64>;

    /// Whether what it keeps survives the process.
    fn is_durable(&self) -> bool;
}
