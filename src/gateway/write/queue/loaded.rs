//! Long texts of a file that several requests read at once: one copy for all of them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use crate::writes::{StoreError, Stored};

/// Shorter texts are not shared. Chosen here: one piece that is being written is as long.
pub const SHORT_BYTES_MAX: u32 = 64 * 1024;

/// The progress of writes with long answers, by number, as long as a request has it. The lock
/// admits one load, so that no copies pile up before they are compared.
#[derive(Default)]
pub struct LoadedTexts(Mutex<HashMap<u64, Weak<Bytes>>>);

struct SharedText(Arc<Bytes>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl LoadedTexts {
    /// Loads a write with a long answer. Requests that have the same answer share its text.
    pub async fn share(
        &self,
        number: u64,
        load: impl FnOnce() -> BoxFuture<'static, Result<Option<Stored>, StoreError>>,
    ) -> Result<Option<Stored>, StoreError> {
        let mut loaded = self.0.lock().await;
        let Some(Stored { request, progress }) = load().await? else { return Ok(None) };
        let shared = loaded.get(&number).and_then(Weak::upgrade);
        // An operator's retry may have changed it.
        let shared = shared.filter(|shared| **shared == progress);
        let shared = shared.unwrap_or_else(|| Arc::new(progress));
        loaded.retain(|_, text| text.strong_count() > 0);
        loaded.insert(number, Arc::downgrade(&shared));
        Ok(Some(Stored { request, progress: Bytes::from_owner(SharedText(shared)) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(progress: &'static str) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        let stored = Stored {
            request: Bytes::from_static(b"request"),
            // A copy, as a file makes one.
            progress: Bytes::copy_from_slice(progress.as_bytes()),
        };
        Box::pin(async move { Ok(Some(stored)) })
    }

    async fn loaded(texts: &LoadedTexts, number: u64, progress: &'static str) -> Bytes {
        let stored = texts.share(number, || stored(progress)).await;
        let Ok(Some(Stored { progress, .. })) = stored else { panic!("the load fails") };
        progress
    }

    #[tokio::test]
    async fn readers_of_one_answer_share_its_text() {
        let texts = LoadedTexts::default();
        let first = loaded(&texts, 1, "answer").await;
        for _ in 0..3 {
            let next = loaded(&texts, 1, "answer").await;
            assert_eq!((&*next, next.as_ptr()), (&b"answer"[..], first.as_ptr()));
        }
        let other = loaded(&texts, 2, "answer").await;
        assert_ne!(other.as_ptr(), first.as_ptr());
        let changed = loaded(&texts, 1, "another").await;
        assert_eq!(changed, "another");
        assert_eq!(texts.0.lock().await.len(), 2);
        drop((first, other, changed));
        drop(loaded(&texts, 3, "answer").await);
        assert_eq!(texts.0.lock().await.len(), 1, "others are forgotten");
    }
}
