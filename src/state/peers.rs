//! The other replicas, as this one hears of them.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::decision::fleet::ReplicaId;

/// A replica that says nothing for so long is none any more. Ours: twenty of its messages.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub struct Peers {
    heard: Mutex<HashMap<ReplicaId, Peer>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    heard_at: Instant,
    /// The last message of this replica with changes that it has noted.
    noted: u64,
}

impl Peers {
    /// Notes that a replica, this one among them, is there.
    pub fn heard(&self, id: ReplicaId, now: Instant) {
        let mut heard = self.heard.lock();
        heard.entry(id).or_insert(Peer { heard_at: now, noted: 0 }).heard_at = now;
        heard.retain(|_, peer| now < peer.heard_at + GONE_AFTER);
    }

    /// Notes that a replica has noted the changes of a message.
    pub fn noted(&self, id: ReplicaId, number: u64, now: Instant) {
        let mut heard = self.heard.lock();
        let peer = heard.entry(id).or_insert(Peer { heard_at: now, noted: 0 });
        (peer.heard_at, peer.noted) = (now, peer.noted.max(number));
        drop(heard);
        self.changed.notify_waiters();
    }

    /// Notes that a replica has left.
    pub fn left(&self, id: ReplicaId) {
        self.heard.lock().remove(&id);
        self.changed.notify_waiters();
    }

    /// Waits until all replicas, at least `own`, have noted the changes of a message.
    pub async fn all_noted(&self, own: ReplicaId, number: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, so that no change is missed in between.
            changed.as_mut().enable();
            {
                let heard = self.heard.lock();
                let has_noted = |peer: &Peer| peer.noted >= number;
                if heard.get(&own).is_some_and(has_noted) && heard.values().all(has_noted) {
                    return;
                }
            }
            changed.await;
        }
    }

    /// The number of replicas, with this one.
    pub fn count(&self) -> usize {
        self.heard.lock().len().max(1)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::timer_now;

    const OWN: ReplicaId = ReplicaId(1);
    const OTHER: ReplicaId = ReplicaId(2);

    #[tokio::test]
    async fn every_replica_notes_a_change() {
        let (peers, now) = (Peers::default(), timer_now());
        peers.heard(OTHER, now);
        peers.noted(OTHER, 1, now);
        assert_eq!(peers.all_noted(OWN, 1).now_or_never(), None, "not heard here");
        peers.noted(OWN, 1, now);
        assert_eq!(peers.all_noted(OWN, 1).now_or_never(), Some(()));
        peers.noted(OWN, 2, now);
        assert_eq!(peers.all_noted(OWN, 2).now_or_never(), None);
        peers.left(OTHER);
        assert_eq!(peers.all_noted(OWN, 2).now_or_never(), Some(()));
    }

    #[test]
    fn a_silent_replica_is_forgotten() {
        let (peers, now) = (Peers::default(), timer_now());
        peers.heard(OTHER, now);
        peers.heard(OWN, now + GONE_AFTER);
        assert_eq!(peers.count(), 1);
    }
}
