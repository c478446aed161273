//! When a stored answer was last confirmed: the one thing about an entry that changes while it is stored.
//!
//! Most 304s say what the last one said. Such a one moves the times here; whatever else a 304 says makes a new entry (`read.rs`). What follows from the times is
//! decided in `decision/freshness.rs`.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use http::HeaderMap;
use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::decision::freshness::{Mode, TokenKey};

/// Headers that differ from one 304 to the next and reach neither clients nor what is decided about an entry; rate headers, by their beginning, are others.
const PASSING: [&str; 3] = ["date", "server-timing", "x-request-id"];
/// See [`PASSING`].
const PASSING_PREFIX: &str = "x-ratelimit-";
/// How the upstream's own name for an exchange ends. Clients get that of the answer that last said something new, which is the one they are shown; a plain HTTP
/// cache takes over whatever a 304 says (RFC 9111 §3.2).
const EXCHANGE_SUFFIX: &str = "-request-id";

/// The last confirmation of an entry, or the answer that brought it.
pub struct Confirmation(Mutex<Latest>);

/// What is known of it. The times belong together: they are of one request.
#[derive(Clone, Copy, Debug)]
pub struct Latest {
    /// When that request left: a later change makes the entry doubtful.
    pub requested_at: Timestamp,
    /// When its answer was there.
    pub confirmed_at: Timestamp,
    /// What it said; `None` when another that says the same could mean something else.
    print: Option<Print>,
}

/// What a 304 says, and to which token, as a fingerprint that means nothing in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print(std::num::NonZeroU64);

/// Makes fingerprints.
#[derive(Default)]
pub struct Prints(RandomState);

impl Prints {
    /// Of all headers but those that differ each time.
    pub fn of(&self, token: TokenKey, headers: &HeaderMap, mode: Mode) -> Option<Print> {
        let mut print = self.0.build_hasher();
        print.write_u64(token.0);
        for (name, value) in headers {
            let name = name.as_str();
            let names_exchange = mode == Mode::Revalidate && name.ends_with(EXCHANGE_SUFFIX);
            if !PASSING.contains(&name) && !name.starts_with(PASSING_PREFIX) && !names_exchange {
                for part in [name.as_bytes(), value.as_bytes()] {
                    // With its length, so that no part can pass for the beginning of the next.
                    print.write_usize(part.len());
                    print.write(part);
                }
            }
        }
        std::num::NonZeroU64::new(print.finish()).map(Print)
    }
}

impl Confirmation {
    /// Of an entry that is being made.
    pub fn new(requested_at: Timestamp, confirmed_at: Timestamp, print: Option<Print>) -> Self {
        Self(Mutex::new(Latest { requested_at, confirmed_at, print }))
    }

    /// What is known of it by now.
    pub fn latest(&self) -> Latest {
        *self.0.lock()
    }

    /// A 304 that was asked for at `requested_at` is there at `now`; whether it says what the last one said, so that nothing else changes. One that was asked for
    /// before that confirms nothing that is not known.
    pub fn repeated(&self, print: Option<Print>, requested_at: Timestamp, now: Timestamp) -> bool {
        let mut latest = self.0.lock();
        let is_same = print.is_some() && latest.print == print;
        if is_same && requested_at >= latest.requested_at {
            (latest.requested_at, latest.confirmed_at) = (requested_at, now);
        }
        is_same
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const MINE: TokenKey = TokenKey(1);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_is_said_again_moves_the_times_of_one_request_together_and_never_back() {
        let prints = Prints::default();
        let print = prints.of(MINE, &map(&[("etag", "\"a\"")]), Mode::Revalidate);
        let confirmation = Confirmation::new(at(10), at(11), print);
        let times = || (confirmation.latest().requested_at, confirmation.latest().confirmed_at);
        assert!(confirmation.repeated(print, at(20), at(30)));
        assert_eq!(times(), (at(20), at(30)));
        assert!(confirmation.repeated(print, at(15), at(40)), "it says nothing new");
        assert_eq!(times(), (at(20), at(30)), "what left earlier confirms less");
    }

    #[test]
    fn what_says_something_else_or_is_not_known_changes_nothing() {
        let prints = Prints::default();
        let (one, other) =
            (prints.of(MINE, &map(&[("etag", "\"a\"")]), Mode::Revalidate), prints.of(MINE, &map(&[("etag", "\"b\"")]), Mode::Revalidate));
        for (known, said) in [(one, other), (one, None), (None, one), (None, None)] {
            let confirmation = Confirmation::new(at(10), at(11), known);
            assert!(!confirmation.repeated(said, at(20), at(21)));
            assert_eq!(confirmation.latest().requested_at, at(10));
        }
    }

    #[test]
    fn dates_and_counters_say_nothing_new_and_everything_else_does() {
        let prints = Prints::default();
        let said =
            map(&[("etag", "\"a\""), ("date", "now"), ("x-ratelimit-remaining", "7"), ("x-request-id", "1"), ("cache-control", "private")]);
        let print = prints.of(MINE, &said, Mode::Revalidate);
        for (name, value) in [("date", "later"), ("x-ratelimit-remaining", "6"), ("x-ratelimit-reset", "9"), ("x-request-id", "2")] {
            let mut again = said.clone();
            again.insert(name, HeaderValue::from_static(value));
            assert_eq!(prints.of(MINE, &again, Mode::Revalidate), print, "{name}");
        }
        for (name, value) in [("etag", "\"b\""), ("link", "<a>"), ("x-poll-interval", "60"), ("cache-control", "no-store")] {
            let mut again = said.clone();
            again.insert(name, HeaderValue::from_static(value));
            assert_ne!(prints.of(MINE, &again, Mode::Revalidate), print, "{name}");
        }
        let mut again = said.clone();
        again.insert("x-service-request-id", HeaderValue::from_static("1"));
        assert_eq!(prints.of(MINE, &again, Mode::Revalidate), print, "it names the exchange");
        assert_ne!(prints.of(MINE, &again, Mode::Rfc9111), prints.of(MINE, &said, Mode::Rfc9111));
        assert_ne!(prints.of(TokenKey(2), &said, Mode::Revalidate), print);
    }
}
