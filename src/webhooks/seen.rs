//! The deliveries that were received, by GUID: a redelivery keeps the one of the first attempt
//! (UPSTREAM.md, Webhooks).

use std::collections::{HashMap, VecDeque};

use ring::digest;

use super::signature::Signature;
use crate::clock::Timestamp;

/// How many are remembered. Ours: 27 a second for an hour, in 10 MiB. What is forgotten has its
/// effect once more when it comes again.
const SEEN_MAX: usize = 100_000;

/// Enough of a GUID's digest to tell all of them apart.
type GuidDigest = [u8; 16];

#[derive(Default)]
pub struct Seen {
    by_guid: HashMap<GuidDigest, ([u8; 32], Timestamp)>,
    /// The oldest first.
    order: VecDeque<(GuidDigest, Timestamp)>,
}

impl Seen {
    /// Whether a delivery of this GUID with this signature, which is that of one body, was seen.
    pub fn has(&self, guid: &str, signature: &Signature) -> bool {
        self.by_guid.get(&key(guid)).is_some_and(|(seen, _)| seen == signature.bytes())
    }

    /// Whether a delivery of this GUID was seen, whatever was in it.
    pub fn has_guid(&self, guid: &str) -> bool {
        self.by_guid.contains_key(&key(guid))
    }

    /// It was seen.
    pub fn note(&mut self, guid: &str, signature: &Signature, now: Timestamp) {
        let key = key(guid);
        self.by_guid.insert(key, (*signature.bytes(), now));
        self.order.push_back((key, now));
        while self.order.len() > SEEN_MAX {
            let Some((oldest, at)) = self.order.pop_front() else { break };
            // Unless it came again with another body.
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
    fn the_oldest_is_forgotten_first_and_what_is_kept_is_bounded() {
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
