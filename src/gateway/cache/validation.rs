//! The time of the last validation: the only mutable part of a stored entry.
//!
//! Most 304s repeat the previous one and only move these times. A 304 with news makes a new entry.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::RandomState;
use http::HeaderMap;

use crate::clock::Timestamp;
use crate::decision::TokenKey;
use crate::decision::cache::freshness::Mode;

/// Headers that vary between 304s and matter to neither clients nor decisions.
const PASSING: [&str; 2] = ["server-timing", "x-request-id"];
const PASSING_PREFIX: &str = "x-ratelimit-";
/// The suffix of the upstream's request id header. Clients keep the id of the answer that last
/// had news; a plain HTTP cache takes it, and `Date`, from every 304 (RFC 9111 §3.2).
const EXCHANGE_SUFFIX: &str = "-request-id";

/// Bits of [`ValidationTimes`] for the duration of the answer: a quarter of an hour in
/// milliseconds. A longer one counts as an earlier validation.
const TOOK_BITS: u32 = 20;
const TOOK_MAX: u64 = (1 << TOOK_BITS) - 1;
/// The latest request time that fits, in the year 2527; later ones are clamped.
const REQUESTED_MAX: u64 = u64::MAX >> TOOK_BITS;

/// The last validation of an entry: the time of its request, with the duration of its answer in the
/// lower bits. As one number, both belong to one request, and later requests are greater.
pub struct ValidationTimes(AtomicU64);

/// The validator fingerprint of a 304: its headers and its token. Zero means unknown. The hash
/// differs per process and has 48 bits, which fit into an entry. A collision (once in 10^14) only
/// hides a change of headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint([u16; 3]);

#[derive(Default)]
pub struct Fingerprints(RandomState);

impl Fingerprints {
    /// Covers all headers except those that always vary.
    pub fn of(&self, token: TokenKey, headers: &HeaderMap, mode: Mode) -> Fingerprint {
        let mut fingerprint = self.0.build_hasher();
        fingerprint.write_u64(token.0);
        for (name, value) in headers {
            let name = name.as_str();
            let names_exchange =
                mode == Mode::Revalidate && (name == "date" || name.ends_with(EXCHANGE_SUFFIX));
            if !PASSING.contains(&name) && !name.starts_with(PASSING_PREFIX) && !names_exchange {
                for part in [name.as_bytes(), value.as_bytes()] {
                    // With its length, so that parts cannot run into each other.
                    fingerprint.write_usize(part.len());
                    fingerprint.write(part);
                }
            }
        }
        let bytes = fingerprint.finish().to_le_bytes();
        Fingerprint([0, 2, 4].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]])))
    }
}

impl Fingerprint {
    pub fn repeats(self, other: Self) -> bool {
        self != Self::default() && self == other
    }
}

impl Clone for ValidationTimes {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Acquire)))
    }
}

impl ValidationTimes {
    pub fn new(requested_at: Timestamp, now: Timestamp) -> Self {
        Self(AtomicU64::new(packed(requested_at, now)))
    }

    /// The time of the request; a later change invalidates the entry.
    pub fn requested_at(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Acquire) >> TOOK_BITS)
    }

    pub fn validated_at(&self) -> Timestamp {
        let both = self.0.load(Ordering::Acquire);
        Timestamp::from_millis((both >> TOOK_BITS) + (both & TOOK_MAX))
    }

    /// Records a repeated 304. A request older than the last validation changes nothing.
    pub fn repeated(&self, requested_at: Timestamp, now: Timestamp) {
        self.0.fetch_max(packed(requested_at, now), Ordering::AcqRel);
    }
}

fn packed(requested_at: Timestamp, now: Timestamp) -> u64 {
    let took = now.as_millis().saturating_sub(requested_at.as_millis()).min(TOOK_MAX);
    requested_at.as_millis().min(REQUESTED_MAX) << TOOK_BITS | took
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const TOKEN: TokenKey = TokenKey(1);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_repeated_304_moves_both_times_together_and_never_back() {
        let validation = ValidationTimes::new(at(10), at(11));
        let times = || (validation.requested_at(), validation.validated_at());
        assert_eq!(times(), (at(10), at(11)));
        validation.repeated(at(20), at(30));
        assert_eq!(times(), (at(20), at(30)));
        validation.repeated(at(15), at(40));
        assert_eq!(times(), (at(20), at(30)), "an earlier request moves nothing");
    }

    #[test]
    fn times_out_of_range_count_as_earlier_ones() {
        let validation = ValidationTimes::new(at(10), at(10_000));
        assert!(validation.requested_at() == at(10) && validation.validated_at() < at(10_000));
        let validation = ValidationTimes::new(Timestamp::FAR_FUTURE, Timestamp::FAR_FUTURE);
        assert!(validation.validated_at() < Timestamp::FAR_FUTURE);
    }

    #[test]
    fn a_different_or_unknown_fingerprint_repeats_nothing() {
        let fingerprints = Fingerprints::default();
        let [one, other] = ["\"a\"", "\"b\""]
            .map(|etag| fingerprints.of(TOKEN, &map(&[("etag", etag)]), Mode::Revalidate));
        assert!(one.repeats(one) && !one.repeats(other));
        for (known, other) in [
            (one, Fingerprint::default()),
            (Fingerprint::default(), one),
            (Fingerprint::default(), Fingerprint::default()),
        ] {
            assert!(!other.repeats(known));
        }
    }

    #[test]
    fn fingerprints_ignore_only_dates_counters_and_request_ids() {
        let fingerprints = Fingerprints::default();
        let headers = map(&[
            ("etag", "\"a\""),
            ("date", "now"),
            ("x-ratelimit-remaining", "7"),
            ("x-request-id", "1"),
            ("cache-control", "private"),
        ]);
        let fingerprint = fingerprints.of(TOKEN, &headers, Mode::Revalidate);
        for (name, value) in [
            ("date", "later"),
            ("x-ratelimit-remaining", "6"),
            ("x-ratelimit-reset", "9"),
            ("x-request-id", "2"),
        ] {
            let mut again = headers.clone();
            again.insert(name, HeaderValue::from_static(value));
            assert_eq!(fingerprints.of(TOKEN, &again, Mode::Revalidate), fingerprint, "{name}");
        }
        for (name, value) in [
            ("etag", "\"b\""),
            ("link", "<a>"),
            ("x-poll-interval", "60"),
            ("cache-control", "no-store"),
        ] {
            let mut again = headers.clone();
            again.insert(name, HeaderValue::from_static(value));
            assert_ne!(fingerprints.of(TOKEN, &again, Mode::Revalidate), fingerprint, "{name}");
        }
        let mut again = headers.clone();
        again.insert("x-service-request-id", HeaderValue::from_static("1"));
        assert_eq!(
            fingerprints.of(TOKEN, &again, Mode::Revalidate),
            fingerprint,
            "it names the exchange"
        );
        assert_ne!(
            fingerprints.of(TOKEN, &again, Mode::Rfc9111),
            fingerprints.of(TOKEN, &headers, Mode::Rfc9111)
        );
        assert_ne!(fingerprints.of(TokenKey(2), &headers, Mode::Revalidate), fingerprint);
    }
}
