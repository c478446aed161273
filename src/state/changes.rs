//! The changes that this replica has noted and the others are still to hear of.
//!
//! The request that notes one waits until all replicas have noted it too ([`Changes::all_noted`]),
//! before it answers its client. Changes of the same moment go in one message.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

/// Changes in one message. More of them count as a change of everything. Ours: a webhook delivery
/// changes a dozen paths.
const CHANGES_MAX: usize = 1_000;

/// A change that invalidates stored answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Of a path, with any query.
    Exactly(String),
    /// Of a path and all below it.
    Below(String),
    /// An operator's purge of a prefix.
    Purged(String),
    /// A webhook delivery has had its effect, which the changes before it are.
    Delivered(Delivered),
}

/// A webhook delivery, for [`Change::Delivered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Its GUID.
    pub guid: String,
    /// The name of its event.
    pub event: String,
    /// Its signature, which stands for its body.
    pub signature: [u8; 32],
}

/// See the module.
#[derive(Default)]
pub struct Changes {
    pending: Mutex<Pending>,
    grown: Notify,
    noted: watch::Sender<u64>,
    are_stuck: AtomicBool,
}

#[derive(Default)]
struct Pending {
    changes: Vec<Change>,
    /// The number of all changes so far.
    count: u64,
}

impl Changes {
    /// Notes a change.
    pub fn note(&self, change: Change) {
        let mut pending = self.pending.lock();
        pending.count += 1;
        if pending.changes.len() < CHANGES_MAX {
            pending.changes.push(change);
        } else {
            pending.changes = vec![Change::Below("/".to_owned())];
        }
        drop(pending);
        self.grown.notify_one();
    }

    /// Waits for changes, and takes them with the number of all so far.
    pub async fn next(&self) -> (Vec<Change>, u64) {
        loop {
            let grown = self.grown.notified();
            {
                let mut pending = self.pending.lock();
                if !pending.changes.is_empty() {
                    return (std::mem::take(&mut pending.changes), pending.count);
                }
            }
            grown.await;
        }
    }

    /// Adds further changes to those that could not be said. Returns the number of all so far.
    pub fn add_to(&self, changes: &mut Vec<Change>) -> u64 {
        let mut pending = self.pending.lock();
        changes.append(&mut pending.changes);
        if changes.len() > CHANGES_MAX {
            *changes = vec![Change::Below("/".to_owned())];
        }
        pending.count
    }

    /// Notes whether the last attempt to say changes has failed.
    pub fn set_stuck(&self, are_stuck: bool) {
        self.are_stuck.store(are_stuck, Ordering::Release);
    }

    /// True if there are changes that could not be said. Their clients wait no longer for ever.
    pub fn are_stuck(&self) -> bool {
        self.are_stuck.load(Ordering::Acquire)
    }

    /// All changes up to this number have been noted by all replicas.
    pub fn noted(&self, count: u64) {
        self.noted.send_replace(count);
    }

    /// Waits until all changes that were noted here so far have been noted by all replicas.
    pub async fn all_noted(&self) {
        let count = self.pending.lock().count;
        // The sender lives as long as this.
        let _ = self.noted.subscribe().wait_for(|noted| *noted >= count).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_change_is_noted_after_the_message_that_has_it() {
        let changes = Changes::default();
        assert_eq!(changes.all_noted().now_or_never(), Some(()), "there is none");
        changes.note(Change::Exactly("/a".to_owned()));
        let (first, count) = changes.next().await;
        assert_eq!((first.len(), count), (1, 1));
        changes.note(Change::Below("/b".to_owned()));
        changes.noted(count);
        assert_eq!(changes.all_noted().now_or_never(), None, "the second one is not");
        let (_, count) = changes.next().await;
        changes.noted(count);
        assert_eq!(changes.all_noted().now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn changes_that_could_not_be_said_take_later_ones_along() {
        let changes = Changes::default();
        changes.note(Change::Exactly("/a".to_owned()));
        let (mut said, _) = changes.next().await;
        changes.note(Change::Exactly("/b".to_owned()));
        assert_eq!(changes.add_to(&mut said), 2);
        assert_eq!(said, ["/a", "/b"].map(|path| Change::Exactly(path.to_owned())));
        assert!(changes.next().now_or_never().is_none());
        for number in 0..CHANGES_MAX {
            changes.note(Change::Exactly(format!("/{number}")));
        }
        changes.add_to(&mut said);
        assert_eq!(said, [Change::Below("/".to_owned())]);
    }

    #[tokio::test]
    async fn very_many_changes_are_one_of_everything() {
        let changes = Changes::default();
        for number in 0..=CHANGES_MAX {
            changes.note(Change::Exactly(format!("/{number}")));
        }
        let (all, count) = changes.next().await;
        assert_eq!(all, [Change::Below("/".to_owned())]);
        assert_eq!(count, 1_001);
    }
}
