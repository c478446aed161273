//! The other replicas, as this one hears of them.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::decision::fleet::ReplicaId;

/// Nobody waits for a replica that has said nothing for so long. Ours: twenty of its messages.
const AWAITED_FOR: Duration = Duration::from_secs(5);
/// A replica that says nothing for so long is none any more. Its last write began within a second
/// of its last message, and the upstream executes none for longer than 10 s (SPECIFICATION, "Limits
/// in practice"). Ours: some seconds more.
const GONE_AFTER: Duration = Duration::from_secs(15);

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
    /// Notes that a replica, this one among them, is there. Returns true if another one has been
    /// silent for so long that it is forgotten.
    pub fn heard(&self, id: ReplicaId, now: Instant) -> bool {
        let mut heard = self.heard.lock();
        heard.entry(id).or_insert(Peer { heard_at: now, noted: 0 }).heard_at = now;
        let before = heard.len();
        heard.retain(|_, peer| now < peer.heard_at + GONE_AFTER);
        heard.len() < before
    }

    /// The time since the last word of the replica that has been silent for longest.
    pub fn silence(&self, now: Instant) -> Duration {
        let heard = self.heard.lock();
        let silences = heard.values().map(|peer| now.saturating_duration_since(peer.heard_at));
        silences.max().unwrap_or_default()
    }

    /// Notes that a replica has noted the changes of a message. That is no sign that it is there:
    /// it says so only after its own changes, and no more when it has left.
    pub fn noted(&self, id: ReplicaId, number: u64) {
        if let Some(peer) = self.heard.lock().get_mut(&id) {
            peer.noted = peer.noted.max(number);
        }
        self.changed.notify_waiters();
    }

    /// Notes that a replica has left.
    pub fn left(&self, id: ReplicaId) {
        self.heard.lock().remove(&id);
        self.changed.notify_waiters();
    }

    /// Waits until all replicas that were heard of late, and at least `own`, have noted the changes
    /// of a message.
    pub async fn all_noted(&self, own: ReplicaId, number: u64, now: impl Fn() -> Instant) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, so that no change is missed in between.
            changed.as_mut().enable();
            {
                let (heard, now) = (self.heard.lock(), now());
                let has_noted = |peer: &Peer| peer.noted >= number;
                let mut awaited = heard.values().filter(|peer| now < peer.heard_at + AWAITED_FOR);
                if heard.get(&own).is_some_and(has_noted) && awaited.all(has_noted) {
                    return;
                }
            }
            changed.await;
        }
    }

    /// The number of replicas that were heard of late, with this one.
    pub fn count(&self, now: Instant) -> usize {
        let heard = self.heard.lock();
        heard.values().filter(|peer| now < peer.heard_at + AWAITED_FOR).count().max(1)
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
        peers.heard(OWN, now);
        peers.heard(OTHER, now);
        peers.noted(OTHER, 1);
        let are_noted = |number, at| peers.all_noted(OWN, number, move || at).now_or_never();
        assert_eq!(are_noted(1, now), None, "not heard here");
        peers.noted(OWN, 1);
        assert_eq!(are_noted(1, now), Some(()));
        peers.noted(OWN, 2);
        assert_eq!(are_noted(2, now), None);
        assert_eq!(are_noted(2, now + AWAITED_FOR), Some(()), "it has been silent");
        peers.left(OTHER);
        assert_eq!(are_noted(2, now), Some(()));
        peers.noted(OTHER, 3);
        peers.noted(OWN, 3);
        assert_eq!(peers.count(now), 1, "it does not come back by that");
    }

    #[test]
    fn a_silent_replica_is_forgotten() {
        let (peers, now) = (Peers::default(), timer_now());
        assert!(!peers.heard(OTHER, now));
        let later = now + AWAITED_FOR;
        assert!(!peers.heard(OWN, later));
        assert_eq!((peers.count(later), peers.silence(later)), (1, AWAITED_FOR));
        assert!(peers.heard(OWN, now + GONE_AFTER), "nobody knows what it has changed");
        assert_eq!(peers.silence(now + GONE_AFTER), Duration::ZERO);
    }
}
