//! The received deliveries by GUID and event: a redelivery keeps those of the first attempt
//! (SPECIFICATION, "Webhooks in practice").
//!
//! The signature covers the body alone. So anybody who has seen a delivery can send it again under
//! another event's name, which must not pass for the real one.

use std::collections::{HashMap, VecDeque};

use ring::digest;

use super::Mark;
use super::signature::Signature;
use crate::clock::Timestamp;

/// Most GUIDs kept. Our choice: 27 a second for an hour, in 10 MiB. A forgotten delivery has its
/// effect again when it is repeated.
const SEEN_MAX: usize = 100_000;

/// Prefix of the digest of a GUID and an event, long enough to be unique.
type DeliveryDigest = [u8; 16];

#[derive(Default)]
pub struct Seen {
    by_delivery: HashMap<DeliveryDigest, ([u8; 32], Timestamp)>,
    /// The oldest first.
    order: VecDeque<(DeliveryDigest, Timestamp)>,
}

impl Seen {
    /// Returns true if a delivery of this GUID, event and signature, which stands for one body, was
    /// received.
    pub fn has(&self, mark: &Mark, signature: &Signature) -> bool {
        let seen = self.by_delivery.get(&key(mark));
        seen.is_some_and(|(seen, _)| seen == signature.bytes())
    }

    /// Returns true if a delivery of this GUID and event was received, with any body.
    pub fn has_delivery(&self, mark: &Mark) -> bool {
        self.by_delivery.contains_key(&key(mark))
    }

    pub fn note(&mut self, mark: &Mark, signature: &Signature, now: Timestamp) {
        let key = key(mark);
        self.by_delivery.insert(key, (*signature.bytes(), now));
        self.order.push_back((key, now));
        while self.order.len() > SEEN_MAX {
            let Some((oldest, at)) = self.order.pop_front() else { break };
            // A repetition with another body has a later time and stays.
            if self.by_delivery.get(&oldest).is_some_and(|(_, seen_at)| *seen_at == at) {
                self.by_delivery.remove(&oldest);
            }
        }
    }
}

fn key(Mark { guid, event }: &Mark) -> DeliveryDigest {
    let mut digest = digest::Context::new(&digest::SHA256);
    digest.update(guid.as_bytes());
    // No header value contains this byte.
    digest.update(&[0]);
    digest.update(event.as_bytes());
    digest.finish().as_ref().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: usize, event: &str) -> Mark {
        Mark { guid: number.to_string(), event: event.to_owned() }
    }

    #[test]
    fn the_oldest_delivery_is_forgotten_beyond_the_bound() {
        let (mut seen, signature) = (Seen::default(), Signature::by(b"k", b"b"));
        for number in 0..=SEEN_MAX {
            let now = Timestamp::from_millis(number as u64);
            seen.note(&mark(number, "push"), &signature, now);
        }
        let has = |number| seen.has(&mark(number, "push"), &signature);
        assert!(!has(0) && has(1) && has(SEEN_MAX));
        assert_eq!((seen.by_delivery.len(), seen.order.len()), (SEEN_MAX, SEEN_MAX));
        assert!(!seen.has(&mark(1, "push"), &Signature::by(b"k", b"another body")));
        assert!(!seen.has(&mark(1, "ping"), &signature) && !seen.has_delivery(&mark(1, "ping")));
    }
}
