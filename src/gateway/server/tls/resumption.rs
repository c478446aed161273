//! The sessions of TLS that clients resume.
//!
//! Nothing verifies the certificate of a resumed session, and the client cannot present another
//! one. So a session ends with its certificate: a full handshake follows, in which the client
//! presents the certificate that it has by then. Left out: the secrets of a session, which the TLS
//! library keeps.

use std::sync::Arc;

use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};

use crate::clock::Clock;
use crate::gateway::request::certified::CertificateNames;

/// Sessions that are stored for clients of TLS 1.2 that take no tickets. The library's own default.
const STORED_MAX: usize = 256;

/// The tickets and the stored sessions of a listener, each up to the end of its certificate.
#[derive(Debug)]
pub struct Sessions {
    clock: Clock,
    tickets: Arc<dyn ProducesTickets>,
    stored: Arc<dyn StoresServerSessions>,
}

impl Sessions {
    /// The sessions of these tickets, at the time of this clock.
    pub fn new(tickets: Arc<dyn ProducesTickets>, clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, tickets, stored: ServerSessionMemoryCache::new(STORED_MAX) })
    }

    /// Returns a session unless its client's certificate has ended.
    fn unless_ended(&self, session: Vec<u8>) -> Option<Vec<u8>> {
        let until = certificate_in(&session).map(|der| CertificateNames::of(der).until());
        until.is_none_or(|until| self.clock.now() < until).then_some(session)
    }
}

impl ProducesTickets for Sessions {
    fn enabled(&self) -> bool {
        self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.tickets.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.unless_ended(self.tickets.decrypt(cipher)?)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.stored.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.unless_ended(self.stored.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.unless_ended(self.stored.take(key)?)
    }

    fn can_cache(&self) -> bool {
        self.stored.can_cache()
    }
}

/// The client's certificate in a session, as rustls 0.23 writes it.
///
/// The library has no way to ask for it. If another version writes sessions differently, none is
/// found, or one that cannot be read and counts as ended. Then an ended one is refused after the
/// handshake, or no session is resumed; tests of both fail.
fn certificate_in(session: &[u8]) -> Option<&[u8]> {
    let mut rest = session;
    let is_there = |flag: &[u8]| *flag == [1];
    // The name that the client asked for.
    if is_there(take(&mut rest, 1)?) {
        vector(&mut rest, 1)?;
    }
    // The version, the cipher suite, the secret, and a flag of its derivation.
    take(&mut rest, 2 + 2)?;
    vector(&mut rest, 1)?;
    take(&mut rest, 1)?;
    if !is_there(take(&mut rest, 1)?) {
        return None;
    }
    let mut chain = vector(&mut rest, 3)?;
    vector(&mut chain, 3)
}

/// Takes bytes from the beginning of `rest`.
fn take<'s>(rest: &mut &'s [u8], bytes: usize) -> Option<&'s [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

/// The same with a length of so many bytes before them (RFC 8446 §3.4).
fn vector<'s>(rest: &mut &'s [u8], length_bytes: usize) -> Option<&'s [u8]> {
    let length = take(rest, length_bytes)?;
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    take(rest, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session with a name or without, before the certificates.
    fn begun(name: &[u8]) -> Vec<u8> {
        [name, &[3, 4, 0x13, 1, 3], b"key", &[1]].concat()
    }

    #[test]
    fn the_certificate_of_a_session_is_found() {
        for name in [&[0][..], &[1, 4, b'w', b'e', b'i', b'r']] {
            let chain = [&[1, 0, 0, 11, 0, 0, 4][..], b"leaf", &[0, 0, 1], b"i", &[0]].concat();
            let session = [begun(name), chain].concat();
            assert_eq!(certificate_in(&session), Some(&b"leaf"[..]));
            let without = [begun(name), vec![0, 0]].concat();
            assert_eq!(certificate_in(&without), None);
        }
    }

    #[test]
    fn a_session_that_breaks_off_has_no_certificate() {
        let session = [begun(&[0]), vec![1, 0, 0, 7, 0, 0, 4], b"leaf".to_vec()].concat();
        assert!(certificate_in(&session).is_some());
        for length in 0..session.len() {
            assert_eq!(certificate_in(&session[..length]), None, "{length}");
        }
    }
}
