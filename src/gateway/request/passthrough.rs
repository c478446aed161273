//! The credentials that clients bring (CONTRACT §2, `[passthrough]`; §3, Key): whose view they
//! show, and whose place in the books they have.
//!
//! A client that names itself by `X-Weir-Key` may show the upstream its own `Authorization`. The
//! account behind it is not in the config: it gets one of a bounded number of places, keeps it
//! while something of it is under way, and loses it to another credential when all are taken and
//! nobody has been away for longer. Of the credential itself nothing is kept beyond its request,
//! only a digest under a secret of this process. What the upstream thinks of it is passed on, and
//! teaches nothing.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use parking_lot::Mutex;
use ring::hmac;

use crate::config::Config;
use crate::decision::AccountId;
use crate::decision::cache::key::CredentialKey;
use crate::tokens::TokenId;

use crate::gateway::dispatch::client_credential::{Brought, Seat};
use crate::gateway::random;

/// Who has which place.
pub struct Guests {
    /// Under which credentials are known.
    secret: hmac::Key,
    /// Of the first place; those of the config come before it.
    first: AccountId,
    places: u32,
    seated: Mutex<Seated>,
}

#[derive(Default)]
struct Seated {
    by_key: HashMap<CredentialKey, Taken>,
    /// How many requests have asked for a place.
    asked: u64,
    /// How many credentials have been given one.
    given: u32,
}

struct Taken {
    seat: Arc<Seat>,
    /// When it was last asked for, as a count of requests.
    used: u64,
}

impl Guests {
    /// None has come yet.
    pub fn new(config: &Config) -> Self {
        Self {
            secret: hmac::Key::new(hmac::HMAC_SHA256, &random::secret()),
            first: AccountId(config.places.first),
            places: config.places.dynamic,
            seated: Mutex::default(),
        }
    }

    /// The credential with a place; `None` when there is none free. `vacate` frees the place of who
    /// has been away longest, unless it finds it in use.
    pub(super) fn seat(
        &self,
        mut authorization: HeaderValue,
        vacate: impl Fn(AccountId) -> bool,
    ) -> Option<Brought> {
        authorization.set_sensitive(true);
        let digest = hmac::sign(&self.secret, authorization.as_bytes());
        let key = CredentialKey::of_digest(digest.as_ref().try_into().ok()?);
        let mut seated = self.seated.lock();
        seated.asked += 1;
        let used = seated.asked;
        if let Some(taken) = seated.by_key.get_mut(&key) {
            taken.used = used;
            return Some(Brought { authorization, seat: Arc::clone(&taken.seat) });
        }
        let in_use = u32::try_from(seated.by_key.len()).unwrap_or(u32::MAX);
        let account = if in_use < self.places {
            AccountId(self.first.0 + in_use)
        } else {
            seated.unseat(vacate)?
        };
        // Its validators belong to it alone; a number that came round again would still be in
        // another scope.
        let token = TokenId::of_client(seated.given);
        seated.given = seated.given.wrapping_add(1);
        let seat = Arc::new(Seat { key, account, token });
        seated.by_key.insert(key, Taken { seat: Arc::clone(&seat), used });
        Some(Brought { authorization, seat })
    }
}

impl Seated {
    /// Takes its place from the credential that has not been used for longest and of which nothing
    /// is under way.
    fn unseat(&mut self, vacate: impl Fn(AccountId) -> bool) -> Option<AccountId> {
        let idle = self.by_key.values().filter(|taken| Arc::strong_count(&taken.seat) == 1);
        let mut idle: Vec<_> =
            idle.map(|taken| (taken.used, taken.seat.key, taken.seat.account)).collect();
        idle.sort_unstable_by_key(|(used, ..)| *used);
        let (_, key, account) = idle.into_iter().find(|(_, _, account)| vacate(*account))?;
        self.by_key.remove(&key);
        Some(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guests(places: u32) -> Guests {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        Guests { secret, first: AccountId(3), places, seated: Mutex::default() }
    }

    pub(super) fn seat(guests: &Guests, credential: &'static str) -> Option<Brought> {
        guests.seat(HeaderValue::from_static(credential), |_| true)
    }

    #[test]
    fn a_credential_keeps_its_place_and_another_has_another() {
        let guests = guests(2);
        let [one, again, other] = ["Bearer a", "Bearer a", "token a"]
            .map(|credential| seat(&guests, credential).unwrap());
        assert_eq!((one.account(), one.scope()), (again.account(), again.scope()));
        assert!(
            one.account() != other.account()
                && one.scope() != other.scope()
                && one.seat.token != other.seat.token
        );
        assert!(one.account().0 >= 3 && other.account().0 >= 3);
    }

    #[test]
    fn the_place_of_whoever_was_away_longest_goes_to_the_next() {
        let guests = guests(2);
        let first = seat(&guests, "Bearer a").unwrap().account();
        drop(seat(&guests, "Bearer b"));
        drop(seat(&guests, "Bearer a"));
        let next = seat(&guests, "Bearer c").unwrap();
        assert_ne!(next.account(), first);
        assert_eq!(seat(&guests, "Bearer a").unwrap().account(), first);
    }

    #[test]
    fn who_is_under_way_keeps_its_place() {
        let guests = guests(1);
        let under_way = seat(&guests, "Bearer a").unwrap();
        assert!(seat(&guests, "Bearer b").is_none());
        drop(under_way);
        assert!(
            guests.seat(HeaderValue::from_static("Bearer b"), |_| false).is_none(),
            "the books know of something"
        );
        assert!(seat(&guests, "Bearer b").is_some());
    }

    #[test]
    fn a_credential_cannot_be_printed() {
        let brought = seat(&guests(1), "Bearer s3cret").unwrap();
        assert!(!format!("{:?}", brought.credential()).contains("s3cret"));
    }
}
