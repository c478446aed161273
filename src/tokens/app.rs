//! An app as itself: its key and its JWT (SPECIFICATION, "Apps").
//!
//! A JWT is reused until shortly before its end: signing costs a millisecond of CPU time, and each
//! JWT has `ETag`s of its own. The parent module decides on its use.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderValue;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::json;
use tokio::sync::Notify;

use super::bench::{Bench, Permit, SharedBench, take};
use super::clock_offset::ClockOffset;
use super::{Ids, Rejection, SlotId, TokenId, bearer};
use crate::clock::Timestamp;

/// `iat` lies 60 s in the past (SPECIFICATION, "Apps").
const ISSUED_BEFORE: Duration = Duration::from_secs(60);
/// `exp` lies at most 10 minutes ahead (SPECIFICATION, "Apps").
const AHEAD_MAX: Duration = Duration::from_secs(600);
/// Keeps the span from `iat` to `exp` within [`AHEAD_MAX`] too, whichever span the upstream checks.
const AHEAD: Duration = AHEAD_MAX.saturating_sub(ISSUED_BEFORE);
/// A JWT with less time left is replaced. Our choice: a request may take the upstream's response
/// timeout to arrive, and clocks differ.
const LEFT_MIN: Duration = Duration::from_secs(60);

/// One entry of `[[apps]]` at run time.
#[derive(Debug)]
pub struct App {
    /// Id at the upstream.
    pub id: u64,
    pub slot: SlotId,
    pub bench: SharedBench,
    key: RsaKeyPair,
    signed: Mutex<Option<Signed>>,
}

#[derive(Clone, Debug)]
struct Signed {
    token: TokenId,
    authorization: HeaderValue,
    issued: Timestamp,
    expires: Timestamp,
    times: Times,
}

/// Confidence in a JWT's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// Signed by the estimated offset.
    Believed,
    /// Signed by the clock of an answer that rejected the previous JWT for its time.
    Corrected,
    /// Rejected for its time; the next request signs again.
    Wrong,
}

impl App {
    /// Creates an app with nothing signed; `probe_ended` is notified when a probe after a rejection
    /// ends.
    pub fn new(id: u64, slot: SlotId, key: RsaKeyPair, probe_ended: Arc<Notify>) -> Self {
        Self { id, slot, bench: Bench::notifying(probe_ended), key, signed: Mutex::default() }
    }

    /// Returns its JWT for one request, signing a new one when too little time is left by the
    /// upstream's clock. `None` while the app is benched, or when signing fails.
    pub fn jwt(
        &self,
        now: Timestamp,
        offset: &Mutex<ClockOffset>,
        ids: &Ids,
    ) -> Option<(TokenId, HeaderValue, Permit)> {
        let permit = take(&self.bench, now)?;
        let theirs = offset.lock().upstream(now);
        let mut signed = self.signed.lock();
        let current = match &mut *signed {
            Some(current) if current.is_good(theirs, LEFT_MIN) => current,
            last => {
                let was_wrong = last.as_ref().is_some_and(|last| last.times == Times::Wrong);
                let times = if was_wrong { Times::Corrected } else { Times::Believed };
                last.insert(self.sign(theirs, times, ids)?)
            }
        };
        Some((current.token, current.authorization.clone(), permit))
    }

    pub fn owns(&self, token: TokenId) -> bool {
        self.signed.lock().as_ref().is_some_and(|signed| signed.token == token)
    }

    /// Records that the upstream rejected the JWT `token` in an answer with this `Date`.
    pub fn refused(
        &self,
        token: TokenId,
        permit: &Permit,
        now: Timestamp,
        date: Option<Timestamp>,
        offset: &Mutex<ClockOffset>,
        message: &str,
    ) -> Rejection {
        let mut current = self.signed.lock();
        let Some(signed) = current.as_mut().filter(|signed| signed.token == token) else {
            return Rejection::Old;
        };
        if let Some(date) = date
            && signed.times != Times::Corrected
            && !signed.is_good(date, Duration::ZERO)
        {
            offset.lock().correct(date, now);
            signed.times = Times::Wrong;
            return Rejection::Replaced;
        }
        self.bench.lock().refused(now, permit, message);
        *current = None;
        Rejection::Benched
    }

    fn sign(&self, theirs: Timestamp, times: Times, ids: &Ids) -> Option<Signed> {
        let (issued, expires) = (theirs - ISSUED_BEFORE, theirs + AHEAD);
        let jwt = self.jwt_text(issued, expires)?;
        Some(Signed {
            token: ids.next(self.slot),
            authorization: bearer(&jwt)?,
            issued,
            expires,
            times,
        })
    }

    /// Builds a JWT: RFC 7515 §3.1, with the claims of SPECIFICATION, "Apps".
    fn jwt_text(&self, issued: Timestamp, expires: Timestamp) -> Option<String> {
        let header = json!({ "alg": "RS256", "typ": "JWT" });
        let claims = json!({ "iat": issued.as_secs(), "exp": expires.as_secs(), "iss": self.id.to_string() });
        let encode = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(part);
        let text = format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .ok()?;
        Some(format!("{text}.{}", encode(&signature)))
    }
}

impl Signed {
    /// Returns true if the upstream accepts it at `theirs` on its clock, with at least `left` to
    /// go.
    fn is_good(&self, theirs: Timestamp, left: Duration) -> bool {
        self.times != Times::Wrong
            && self.issued <= theirs
            && theirs + left < self.expires
            && self.expires <= theirs + AHEAD_MAX
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;
    use crate::config::rsa_key;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const KEY: &str = include_str!("../emulator/seed/app_key.pem");

    struct Bed {
        app: App,
        offset: Mutex<ClockOffset>,
        ids: Ids,
    }

    fn bed() -> Bed {
        Bed {
            app: App::new(301, SlotId(0), rsa_key(KEY).expect("a key"), Arc::default()),
            offset: Mutex::default(),
            ids: Ids::new(),
        }
    }

    impl Bed {
        fn jwt(&self, now: Timestamp) -> (TokenId, Value) {
            let (token, authorization, _) =
                self.app.jwt(now, &self.offset, &self.ids).expect("a JWT");
            assert!(authorization.is_sensitive());
            let text =
                authorization.to_str().expect("text").strip_prefix("Bearer ").expect("a bearer");
            let (signed, signature) = text.rsplit_once('.').expect("three parts");
            let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).expect("base64");
            let public = UnparsedPublicKey::new(
                &RSA_PKCS1_2048_8192_SHA256,
                self.app.key.public_key().as_ref(),
            );
            public.verify(signed.as_bytes(), &signature).expect("signed with the app's key");
            let claims = BASE64_URL_SAFE_NO_PAD
                .decode(signed.split_once('.').expect("two parts").1)
                .expect("base64");
            (token, serde_json::from_slice(&claims).expect("claims"))
        }

        fn refused(&self, token: TokenId, now: Timestamp, date: Timestamp) -> Rejection {
            self.app.refused(token, &Permit::Plain, now, Some(date), &self.offset, "401")
        }
    }

    #[test]
    fn a_jwt_begins_a_minute_ago_and_ends_within_ten_minutes() {
        let (_, claims) = bed().jwt(NOW);
        assert_eq!(
            claims,
            json!({ "iss": "301", "iat": NOW.as_secs() - 60, "exp": NOW.as_secs() + 540 })
        );
    }

    #[test]
    fn a_jwt_is_kept_until_shortly_before_its_end() {
        let bed = bed();
        let (first, _) = bed.jwt(NOW);
        assert_eq!(bed.jwt(NOW + Duration::from_secs(479)).0, first);
        assert_ne!(
            bed.jwt(NOW + Duration::from_secs(480)).0,
            first,
            "another JWT is another token to validators"
        );
    }

    #[test]
    fn a_jwt_refused_for_its_time_is_signed_again_once() {
        let bed = bed();
        for ahead in [300_i64, -300, 40_000] {
            *bed.offset.lock() = ClockOffset::default();
            *bed.app.signed.lock() = None;
            *bed.app.bench.lock() = super::super::bench::Bench::default();
            let theirs = Timestamp::from_secs(NOW.as_secs().saturating_add_signed(ahead));
            let (token, _) = bed.jwt(NOW);
            let rejection = bed.refused(token, NOW, theirs);
            if ahead == 300 {
                // Within the ten minutes its time is right.
                assert_eq!(rejection, Rejection::Benched);
                continue;
            }
            assert_eq!(rejection, Rejection::Replaced, "{ahead}");
            let (second, claims) = bed.jwt(NOW);
            assert_ne!(second, token);
            assert!(
                claims["iat"].as_u64().is_some_and(|iat| iat.abs_diff(theirs.as_secs() - 60) <= 1),
                "{claims}"
            );
            let still_wrong = theirs + Duration::from_secs(7_200);
            assert_eq!(bed.refused(second, NOW, still_wrong), Rejection::Benched, "tried once");
            assert!(bed.app.jwt(NOW, &bed.offset, &bed.ids).is_none());
        }
    }

    #[test]
    fn a_refusal_of_an_older_jwt_changes_nothing() {
        let bed = bed();
        let (old, _) = bed.jwt(NOW);
        let later = NOW + Duration::from_secs(500);
        let (current, _) = bed.jwt(later);
        assert_eq!(bed.refused(old, later, later), Rejection::Old);
        assert!(bed.app.owns(current) && !bed.app.owns(old));
    }

    #[test]
    fn a_corrected_clock_makes_a_new_jwt_with_its_times() {
        let bed = bed();
        let (first, _) = bed.jwt(NOW);
        bed.offset.lock().correct(NOW - Duration::from_secs(300), NOW);
        let (second, claims) = bed.jwt(NOW);
        assert_ne!(first, second);
        assert!(
            claims["exp"].as_u64().is_some_and(|exp| exp.abs_diff(NOW.as_secs() + 240) <= 1),
            "{claims}"
        );
    }

    #[test]
    fn neither_key_nor_jwt_is_in_the_debug_text() {
        let bed = bed();
        let (_, authorization, _) = bed.app.jwt(NOW, &bed.offset, &bed.ids).expect("a JWT");
        let shown = format!("{:?}", bed.app);
        assert!(
            !shown.contains(&authorization.to_str().expect("text")[7..40])
                && !shown.contains("BEGIN"),
            "{shown}"
        );
    }
}
