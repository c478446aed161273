//! Writes in memory: nothing survives the process.

use std::collections::HashMap;
use std::future::ready;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::outage::Outage;
use super::{Change, Store, StoreError, Stored};

/// Bytes of all writes. Our choice: the default size of the cache. Finished writes stay for
/// `retention`, and their answers may be long.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Overhead of a write: its map entry and two allocations.
const ENTRY_BYTES: usize = 160;

/// Writes in memory.
pub struct MemoryStore {
    bytes_max: usize,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    writes: HashMap<u64, Stored>,
    bytes: usize,
    outage: Outage,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_room(BYTES_MAX)
    }
}

impl MemoryStore {
    /// Creates a store with room for so many bytes.
    pub fn with_room(bytes_max: usize) -> Self {
        Self { bytes_max, contents: Mutex::default() }
    }

    fn make(&self, change: Change) -> Result<(), StoreError> {
        let contents = &mut *self.contents.lock();
        match change {
            Change::Insert(number, stored) => {
                let size = size(&stored);
                if contents.bytes + size > self.bytes_max {
                    let mib = self.bytes_max / (1024 * 1024);
                    if contents.outage.refused(size) {
                        tracing::error!(
                            mib,
                            "no new writes are accepted, because there is no room in memory for them; none that was accepted is lost. They are accepted again when finished ones are forgotten"
                        );
                    }
                    return Err(StoreError::Full(format!("{mib} MiB are kept in memory already")));
                }
                if contents.outage.is_over_with(size) {
                    tracing::info!(refused = contents.outage.end(), "writes are kept again");
                }
                contents.bytes += size;
                if let Some(before) = contents.writes.insert(number, stored) {
                    contents.bytes -= self::size(&before);
                }
            }
            // Never refused for room: the loss of an outcome is worse.
            Change::Progress(number, progress) => {
                if let Some(stored) = contents.writes.get_mut(&number) {
                    contents.bytes = contents.bytes - stored.progress.len() + progress.len();
                    stored.progress = progress;
                }
            }
            Change::Remove(numbers) => {
                for number in numbers {
                    if let Some(stored) = contents.writes.remove(&number) {
                        contents.bytes -= size(&stored);
                    }
                }
            }
        }
        Ok(())
    }
}

fn size(stored: &Stored) -> usize {
    ENTRY_BYTES + stored.request.len() + stored.progress.len()
}

impl Store for MemoryStore {
    fn apply(&self, change: Change) -> BoxFuture<'static, Result<(), StoreError>> {
        ready(self.make(change)).boxed()
    }

    fn load(&self, number: u64) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        ready(Ok(self.contents.lock().writes.get(&number).cloned())).boxed()
    }

    fn room(&self, _: u64) -> Option<u64> {
        Some(self.bytes_max.saturating_sub(self.contents.lock().bytes) as u64)
    }

    fn is_durable(&self) -> bool {
        false
    }
}
