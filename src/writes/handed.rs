//! A store of writes that one process lets go of, and the next one opens while it serves requests.
//!
//! Left out: the wait of requests for it (the queue of writes).

use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;

use super::{Change, Store, StoreError, Stored};

/// A durable store, before it is opened, open, or released.
#[derive(Default)]
pub struct HandedStore(RwLock<Access>);

#[derive(Default)]
enum Access {
    #[default]
    Awaited,
    Open(Arc<dyn Store>),
    Released,
}

impl HandedStore {
    /// Puts the store in force. Returns false if it was released before.
    pub fn open(&self, store: Arc<dyn Store>) -> bool {
        let mut access = self.0.write();
        if matches!(*access, Access::Released) {
            return false;
        }
        *access = Access::Open(store);
        true
    }

    /// Returns true once another process may open it.
    pub fn is_released(&self) -> bool {
        matches!(*self.0.read(), Access::Released)
    }

    /// Closes the store after all changes that were submitted, and waits for that. It is not opened
    /// again.
    pub async fn release(&self) {
        let store = std::mem::replace(&mut *self.0.write(), Access::Released);
        // It waits for the disk. A panic in it has been logged.
        let _ = tokio::task::spawn_blocking(move || drop(store)).await;
    }

    fn with<T: Send + 'static>(
        &self,
        run: impl FnOnce(&dyn Store) -> BoxFuture<'static, Result<T, StoreError>>,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        if let Access::Open(store) = &*self.0.read() {
            return run(&**store);
        }
        ready(Err(StoreError::Failed("another process has it".into()))).boxed()
    }
}

impl Store for HandedStore {
    fn apply(&self, change: Change) -> BoxFuture<'static, Result<(), StoreError>> {
        self.with(|store| store.apply(change))
    }

    fn load(&self, number: u64) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        self.with(|store| store.load(number))
    }

    fn room(&self, kept: u64) -> Option<u64> {
        match &*self.0.read() {
            Access::Open(store) => store.room(kept),
            Access::Awaited | Access::Released => None,
        }
    }

    fn is_durable(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::writes::memory::MemoryStore;

    #[tokio::test]
    async fn a_released_store_takes_no_change() {
        let store = HandedStore::default();
        let stored = || Stored { request: Bytes::new(), progress: Bytes::new() };
        assert!(store.apply(Change::Insert(1, stored())).await.is_err());
        assert!(store.open(Arc::new(MemoryStore::default())) && !store.is_released());
        store.apply(Change::Insert(1, stored())).await.unwrap();
        assert!(store.load(1).await.unwrap().is_some());
        store.release().await;
        assert!(store.apply(Change::Insert(2, stored())).await.is_err());
        assert!(store.load(1).await.is_err());
        assert!(store.is_released() && !store.open(Arc::new(MemoryStore::default())));
    }
}
