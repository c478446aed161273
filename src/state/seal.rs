//! What replicas keep in Redis, unreadable there: AES-256-GCM with the keys of the config.
//!
//! Each text has a key of its own, derived from the config's with a random salt (HKDF, RFC 5869).
//! So no number of texts wears a key out. A text is bound to its place: moved to another one it
//! cannot be opened.

use std::sync::Arc;

use bytes::Bytes;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::ExposeSecret;

use crate::config;

/// Stands before each sealed text: the version of its form.
const FORM: u8 = 1;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// Bytes before the sealed text: form, salt and nonce.
const HEAD_BYTES: usize = 1 + SALT_BYTES + 12;

/// The text cannot be opened with the keys of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unopened;

/// The keys of a config. Without any, texts are kept as they are.
#[derive(Clone, Default)]
pub struct Seal {
    /// The first one seals; all of them open.
    keys: Arc<[Prk]>,
}

impl Seal {
    /// The keys of a config.
    pub fn of(state: &config::State) -> Self {
        let keys = [state.encrypt_key.as_ref(), state.previous_encrypt_key.as_ref()];
        let derived = |key: &config::Secret| {
            Salt::new(HKDF_SHA256, b"weir").extract(key.expose_secret().as_bytes())
        };
        Self { keys: keys.into_iter().flatten().map(derived).collect() }
    }

    /// Seals a text for a place.
    pub fn seal(&self, place: &str, text: Bytes) -> Result<Bytes, Unopened> {
        let Some(key) = self.keys.first() else { return Ok(text) };
        let mut sealed = Vec::with_capacity(HEAD_BYTES + text.len() + AES_256_GCM.tag_len());
        sealed.resize(HEAD_BYTES, FORM);
        // Without random numbers nothing may be sealed.
        SystemRandom::new().fill(&mut sealed[1..]).map_err(|_| Unopened)?;
        let (key, nonce) = of_text(key, &sealed).ok_or(Unopened)?;
        let mut inner = text.to_vec();
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(place), &mut inner);
        let tag = tag.map_err(|_| Unopened)?;
        sealed.append(&mut inner);
        sealed.extend(tag.as_ref());
        Ok(sealed.into())
    }

    /// Opens what was sealed for a place.
    pub fn open(&self, place: &str, sealed: Bytes) -> Result<Bytes, Unopened> {
        if self.keys.is_empty() {
            return Ok(sealed);
        }
        if sealed.first() != Some(&FORM) {
            return Err(Unopened);
        }
        let body = sealed.get(HEAD_BYTES..).ok_or(Unopened)?;
        let opened = self.keys.iter().find_map(|key| {
            let (key, nonce) = of_text(key, &sealed)?;
            let mut text = body.to_vec();
            let length = key.open_in_place(nonce, Aad::from(place), &mut text).ok()?.len();
            text.truncate(length);
            Some(text.into())
        });
        opened.ok_or(Unopened)
    }
}

/// The key and the nonce of a text, by its head.
fn of_text(key: &Prk, head: &[u8]) -> Option<(LessSafeKey, Nonce)> {
    let salt = head.get(1..1 + SALT_BYTES)?;
    let nonce = Nonce::try_assume_unique_for_key(head.get(1 + SALT_BYTES..HEAD_BYTES)?).ok()?;
    let info = [salt];
    let derived = key.expand(&info, &AES_256_GCM).ok()?;
    Some((LessSafeKey::new(UnboundKey::from(derived)), nonce))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture;

    const ONE: &str = "encrypt_key = { value = \"0123456789abcdef0123456789abcdef\" }";
    const OTHER: &str = "encrypt_key = { value = \"ffffffffffffffffffffffffffffffff\" }";

    fn seal(keys: &str) -> Seal {
        let redis = "redis = \"redis://127.0.0.1:1\"";
        let text = format!("[upstream]\nurl = \"http://127.0.0.1:1\"\n[state]\n{redis}\n{keys}");
        Seal::of(&fixture::parsed(&fixture::text(&text)).state)
    }

    #[test]
    fn a_text_is_opened_at_its_place_with_its_key_alone() {
        let (one, text) = (seal(ONE), Bytes::from_static(b"the body of an answer"));
        let sealed = one.seal("place", text.clone()).unwrap();
        assert!(!sealed.windows(4).any(|part| text.windows(4).any(|plain| plain == part)));
        assert_eq!(one.open("place", sealed.clone()), Ok(text.clone()));
        assert_eq!(one.open("another", sealed.clone()), Err(Unopened));
        assert_eq!(seal(OTHER).open("place", sealed.clone()), Err(Unopened));
        assert_ne!(one.seal("place", text.clone()).unwrap(), sealed, "each has its own salt");
        let rotated = seal(&format!("{OTHER}\nprevious_{ONE}"));
        assert_eq!(rotated.open("place", sealed.clone()), Ok(text.clone()));
        let resealed = rotated.seal("place", text.clone()).unwrap();
        assert_eq!(seal(OTHER).open("place", resealed), Ok(text.clone()));
        assert_eq!(seal("").seal("place", text.clone()), Ok(text), "without a key it is plain");
    }

    #[test]
    fn a_damaged_or_plain_text_is_not_opened() {
        let one = seal(ONE);
        let sealed = one.seal("place", Bytes::from_static(b"text")).unwrap();
        for place in 0..sealed.len() {
            let mut damaged = sealed.to_vec();
            damaged[place] ^= 1;
            assert_eq!(one.open("place", damaged.into()), Err(Unopened), "byte {place}");
        }
        for length in 0..sealed.len() {
            assert_eq!(one.open("place", sealed.slice(..length)), Err(Unopened), "{length} bytes");
        }
        let plain = Bytes::from_static(b"a text of an earlier config without a key, long enough");
        assert_eq!(one.open("place", plain), Err(Unopened));
    }
}
