//! Sessions of the page: their cookie, their end, and the bound on wrong logins.
//!
//! The cookie has an expiry and a random number, signed with the admin token. So a session needs no
//! memory, holds in every process with that token, and ends with a changed token.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::ExposeSecret;

use crate::clock::Timestamp;

const COOKIE: &str = "weir-session";
/// Life of a session. Our choice: a shift.
const SESSION_TIME: Duration = Duration::from_hours(12);
/// Purpose of the signature: another use of the token as a key signs nothing that holds here.
const PURPOSE: &[u8] = b"weir admin page, session 1\n";
/// Most sessions that were left and have not expired. Our choice: beyond that the oldest cookie
/// would hold until it expires.
const LEFT_MAX: usize = 1_024;
/// Most logins of an address in [`TRIES_TIME`] until one succeeds. Our choice: a person mistypes.
const TRIES_MAX: u32 = 5;
const TRIES_TIME: Duration = Duration::from_mins(1);
/// Most addresses with tries; beyond that all further ones share their tries.
const ADDRESSES_MAX: usize = 1_024;

/// The sessions that were left, and the tries to log in.
#[derive(Default)]
pub struct Sessions {
    left: Mutex<VecDeque<(String, Timestamp)>>,
    tries: Mutex<HashMap<IpAddr, Tries>>,
}

#[derive(Clone, Copy)]
struct Tries {
    since: Timestamp,
    count: u32,
}

impl Sessions {
    /// Creates the cookie of a new session. `None`: the system gives no random number.
    pub fn begin(
        token: &impl ExposeSecret<str>,
        is_tls: bool,
        now: Timestamp,
    ) -> Option<HeaderValue> {
        let mut number = [0; 16];
        SystemRandom::new().fill(&mut number).ok()?;
        let expiry = (now + SESSION_TIME).as_secs();
        let signed = format!("{expiry}.{}", URL_SAFE_NO_PAD.encode(number));
        let signature = URL_SAFE_NO_PAD.encode(sign(token, &signed));
        let (age, secure) = (SESSION_TIME.as_secs(), if is_tls { "; Secure" } else { "" });
        let cookie = format!(
            "{COOKIE}={signed}.{signature}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"
        );
        HeaderValue::from_str(&cookie).ok()
    }

    /// The cookie that removes that of a session.
    pub fn removal(is_tls: bool) -> HeaderValue {
        HeaderValue::from_static(if is_tls {
            "weir-session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure"
        } else {
            "weir-session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
        })
    }

    /// Returns the session of a request, which may not hold.
    pub fn of(headers: &HeaderMap) -> Option<&str> {
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|value| value.split(';'));
        pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
    }

    /// Returns true if the session was begun with this token, and has neither expired nor been
    /// left.
    pub fn holds(&self, session: &str, token: &impl ExposeSecret<str>, now: Timestamp) -> bool {
        expiry(session, token).is_some_and(|expiry| now < expiry)
            && !self.left.lock().iter().any(|(left, _)| left == session)
    }

    /// Ends a session that holds.
    pub fn leave(&self, session: &str, token: &impl ExposeSecret<str>, now: Timestamp) {
        let Some(expiry) = expiry(session, token).filter(|expiry| now < *expiry) else { return };
        let mut left = self.left.lock();
        left.retain(|(_, expiry)| now < *expiry);
        if left.len() == LEFT_MAX {
            left.pop_front();
        }
        left.push_back((session.to_owned(), expiry));
    }

    /// Counts a try to log in before it is compared. Returns the wait of an address that has tried
    /// too often.
    pub fn try_login(&self, address: IpAddr, now: Timestamp) -> Result<(), Duration> {
        let mut tries = self.tries.lock();
        let is_over = |tries: &Tries| now >= tries.since + TRIES_TIME;
        let mut key = network(address);
        if tries.len() >= ADDRESSES_MAX && !tries.contains_key(&key) {
            tries.retain(|_, tries| !is_over(tries));
            if tries.len() >= ADDRESSES_MAX {
                key = IpAddr::from([0; 4]);
            }
        }
        let own = tries.entry(key).or_insert(Tries { since: now, count: 0 });
        if is_over(own) {
            *own = Tries { since: now, count: 0 };
        }
        if own.count >= TRIES_MAX {
            return Err((own.since + TRIES_TIME).since(now));
        }
        own.count += 1;
        Ok(())
    }

    /// Forgets the tries of an address that has logged in.
    pub fn logged_in(&self, address: IpAddr) {
        self.tries.lock().remove(&network(address));
    }
}

/// The expiry of a session by this token.
fn expiry(session: &str, token: &impl ExposeSecret<str>) -> Option<Timestamp> {
    let (signed, signature) = session.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    // In constant time.
    hmac::verify(&key(token), &message(signed), &signature).ok()?;
    let seconds = signed.split('.').next()?.parse().ok()?;
    Some(Timestamp::from_secs(seconds))
}

fn sign(token: &impl ExposeSecret<str>, signed: &str) -> hmac::Tag {
    hmac::sign(&key(token), &message(signed))
}

fn key(token: &impl ExposeSecret<str>) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.expose_secret().as_bytes())
}

fn message(signed: &str) -> Vec<u8> {
    [PURPOSE, signed.as_bytes()].concat()
}

/// The address of IPv4, or the network of 64 bits in which an owner of IPv6 has any address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => IpAddr::from((address.to_bits() >> 64 << 64).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn session_of(cookie: &HeaderValue) -> String {
        let mut headers = HeaderMap::new();
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        headers.insert(header::COOKIE, format!("a=b; {pair}").parse().unwrap());
        Sessions::of(&headers).unwrap().to_owned()
    }

    fn begun(token: &impl ExposeSecret<str>) -> String {
        session_of(&Sessions::begin(token, false, NOW).unwrap())
    }

    #[test]
    fn a_session_holds_for_its_token_and_its_time() {
        let (token, sessions) = (SecretString::from("one token"), Sessions::default());
        let session = begun(&token);
        assert!(sessions.holds(&session, &token, NOW));
        assert!(!sessions.holds(&session, &SecretString::from("another token"), NOW));
        assert!(sessions.holds(&session, &token, NOW + SESSION_TIME - Duration::from_secs(1)));
        assert!(!sessions.holds(&session, &token, NOW + SESSION_TIME));
        assert_ne!(session, begun(&token));
    }

    #[test]
    fn a_changed_session_does_not_hold() {
        let (token, sessions) = (SecretString::from("one token"), Sessions::default());
        let session = begun(&token);
        let (expiry, rest) = session.split_once('.').unwrap();
        let later = format!("{}.{rest}", expiry.parse::<u64>().unwrap() + 1);
        for changed in [&*later, "", ".", "..", expiry, &session[..session.len() - 2]] {
            assert!(!sessions.holds(changed, &token, NOW), "{changed}");
        }
    }

    #[test]
    fn a_session_that_was_left_is_over_alone() {
        let (token, sessions) = (SecretString::from("one token"), Sessions::default());
        let (left, other) = (begun(&token), begun(&token));
        sessions.leave(&left, &token, NOW);
        assert!(!sessions.holds(&left, &token, NOW));
        assert!(sessions.holds(&other, &token, NOW));
        for _ in 0..2 * LEFT_MAX {
            sessions.leave(&begun(&token), &token, NOW);
        }
        assert_eq!(sessions.left.lock().len(), LEFT_MAX);
    }

    #[test]
    fn tries_of_an_address_are_bounded_in_each_minute() {
        let sessions = Sessions::default();
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        for _ in 0..TRIES_MAX {
            assert_eq!(sessions.try_login(one, NOW), Ok(()));
        }
        let later = NOW + Duration::from_secs(20);
        assert_eq!(sessions.try_login(one, later), Err(Duration::from_secs(40)));
        assert_eq!(sessions.try_login(other, later), Ok(()));
        assert_eq!(sessions.try_login(one, NOW + TRIES_TIME), Ok(()));
    }

    #[test]
    fn tries_of_a_network_of_ipv6_are_one_address() {
        let sessions = Sessions::default();
        for address in 0..u128::from(TRIES_MAX) {
            let address = IpAddr::from((0x2001_0db8 << 96 | address).to_be_bytes());
            assert_eq!(sessions.try_login(address, NOW), Ok(()));
        }
        let another = IpAddr::from((0x2001_0db8_u128 << 96 | 0x63).to_be_bytes());
        assert!(sessions.try_login(another, NOW).is_err());
    }

    #[test]
    fn addresses_beyond_the_bound_share_their_tries() {
        let sessions = Sessions::default();
        for address in 0..u32::try_from(ADDRESSES_MAX).unwrap() {
            sessions.try_login(IpAddr::from(address.to_be_bytes().map(|byte| byte | 8)), NOW).ok();
            sessions.try_login(IpAddr::from((1 << 24 | address).to_be_bytes()), NOW).ok();
        }
        let last = |number: u8| IpAddr::from([99, 9, 9, number]);
        let refused = (0..20).filter(|number| sessions.try_login(last(*number), NOW).is_err());
        assert!(refused.count() >= 15);
        assert!(sessions.tries.lock().len() <= ADDRESSES_MAX + 1);
    }
}
