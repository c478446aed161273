//! The received deliveries by GUID: a redelivery keeps the GUID of the first attempt
//! (SPECIFICATION, "Webhooks in practice").

use std::collections::{HashMap, VecDeque};

use ring::digest;

use super::signature::Signature;
use crate::clock::Timestamp;

/// Most GUIDs kept. Our choice: 27 a second for an hour, in 10 MiB. A forgotten delivery has its
/// effect again when it is repeated.
const SEEN_MAX: usize = 100_000;

/// Prefix of a GUID's digest, long enough to be unique.
type GuidDigest = [u8; 16];

#[derive(Default)]
pub struct Seen {
    by_guid: HashMap<GuidDigest, ([u8; 32], Timestamp)>,
    /// The oldest first.
    order: VecDeque<(GuidDigest, Timestamp)>,
}

impl Seen {
    /// Returns true if a delivery of this GUID and signature, which stands for one body, was
    /// received.
    pub fn has(&self, guid: &str, signature: &Signature) -> bool {
        self.by_guid.get(&key(guid)).is_some_and(|(seen, _)| seen == signature.bytes())
    }

    /// Returns true if a delivery of this GUID was received, with any body.
    pub fn has_guid(&self, guid: &str) -> bool {
        self.by_guid.contains_key(&key(guid))
    }

    pub fn note(&mut self, guid: &str, signature: &Signature, now: Timestamp) {
        let key = key(guid);
        self.by_guid.insert(key, (*signature.bytes(), now));
        self.order.push_back((key, now));
        while self.order.len() > SEEN_MAX {
            let Some((oldest, at)) = self.order.pop_front() else { break };
            // A repetition with another body has a later time and stays.
            if self.by_guid.get(&oldest).is_some_and(|(_, seen_at)| *seen_at == at) {
                self.by_guid.remove(&oldest);
            }
        }
    }
}

fn key(guid: &str) -> GuidDigest {
    let digest = digest::digest(&digest::SHA256, guid.as_bytes());
    digest.as_ref().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_delivery_is_forgotten_beyond_the_bound() {
        let (mut seen, signature) = (Seen::default(), Signature::by(b"k", b"b"));
        for number in 0..=SEEN_MAX {
            seen.note(&number.to_string(), &signature, Timestamp::from_millis(number as u64));
        }
        assert!(
            !seen.has("0", &signature)
                && seen.has("1", &signature)
                && seen.has(&SEEN_MAX.to_string(), &signature)
        );
        assert_eq!((seen.by_guid.len(), seen.order.len()), (SEEN_MAX, SEEN_MAX));
        assert!(!seen.has("1", &Signature::by(b"k", b"another body")));
    }
}
