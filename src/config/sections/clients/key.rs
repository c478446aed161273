//! Client keys, of which the config holds only hashes, and their last days.

use ring::digest::{SHA256, SHA256_OUTPUT_LEN};
use ring::rand::SecureRandom;
use secrecy::SecretString;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};
use toml::de::DeValue;
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::config::input::reader::{Entry, Read, Reader};
use crate::config::printer::{inline, list, redacted, text};

/// Prefix of every key, by which secret scanners and people recognise one. Client libraries do not
/// take it for an upstream credential (SPECIFICATION, "Client libraries" 8: no dots, not `ghs_`,
/// not `github_pat_`).
pub const KEY_PREFIX: &str = "weir_";
/// Random bytes of a key: as many as its hash has.
const KEY_BYTES: usize = 32;

/// Hashes a client's key by SHA-256 for `key_sha256`.
///
/// A plain hash is enough: keys are 32 random bytes, unlike passwords too many to guess.
pub fn digest(key: &[u8]) -> [u8; 32] {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    hash.copy_from_slice(ring::digest::digest(&SHA256, key).as_ref());
    hash
}

/// Generates a key: [`KEY_PREFIX`] and 32 random bytes in hex. Fails only when the system has no
/// random numbers.
pub fn generate(random: &dyn SecureRandom) -> Result<SecretString, ring::error::Unspecified> {
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    random.fill(bytes.as_mut())?;
    let mut key = String::with_capacity(KEY_PREFIX.len() + 2 * KEY_BYTES);
    key.push_str(KEY_PREFIX);
    push_hex(&mut key, bytes.as_ref());
    Ok(key.into())
}

/// Hashes a key in the form of `key_sha256`.
pub fn digest_hex(key: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * SHA256_OUTPUT_LEN);
    push_hex(&mut hex, &digest(key));
    hex
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    text.extend(nibbles.filter_map(|nibble| char::from_digit(u32::from(nibble), 16)));
}

/// The value of `key_sha256`. Never quoted, because it may be the key itself by mistake.
pub(crate) struct KeyHash(pub(in crate::config) [u8; 32]);

impl Read for KeyHash {
    fn accepted() -> String {
        "64 hex digits, as `weir key` prints them".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let written = entry.text::<Self>()?;
        if let Some(hash) = from_hex(written) {
            return Some(Self(hash));
        }
        let problem = if written.starts_with(KEY_PREFIX) {
            "a key instead of its hash"
        } else {
            "not 64 hex digits"
        };
        entry.refuse(problem, Self::accepted())
    }
}

/// One key of a client.
#[derive(Clone, Copy)]
pub struct ClientKey {
    /// SHA-256 of the key; see [`digest`].
    pub sha256: [u8; 32],
    /// The first moment at which it identifies nobody any more.
    pub expires: Option<Timestamp>,
}

impl ClientKey {
    /// Reads one entry of `keys`.
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let sha256 = reader.required::<KeyHash>("sha256");
        let expires = reader.if_set("expires", Expiry::read);
        Some(Self { sha256: sha256?.0, expires: expires?.map(|expiry| expiry.0) })
    }

    /// Formats the value of `keys`, without the hashes.
    pub(super) fn printed(keys: &[Self]) -> String {
        list(keys.iter().map(|key| {
            let hash = ("sha256", redacted());
            match key.expires {
                Some(expires) => inline(&[hash, ("expires", text(expires.rfc3339()))]),
                None => inline(&[hash]),
            }
        }))
    }
}

/// The end of a key: the last day on which it is valid, in UTC, or a time.
struct Expiry(Timestamp);

impl Read for Expiry {
    fn accepted() -> String {
        "the last day of the key in UTC, such as \"2027-01-31\", or a time such as \"2027-01-31T18:00:00Z\"".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        // TOML has dates of its own, which look the same without quotes.
        let written = match entry.value {
            DeValue::Datetime(written) => written.to_string(),
            _ => entry.text::<Self>()?.to_owned(),
        };
        let expiry = parse_expiry(&written).map(Self);
        expiry.or_else(|| entry.refuse("neither a day nor a time", Self::accepted()))
    }
}

/// Parses the end of a key: a day, at whose end in UTC it ends, or an RFC 3339 time, which is
/// rounded down to seconds. `None` for anything else, and before 1970.
pub fn parse_expiry(text: &str) -> Option<Timestamp> {
    let day = Date::parse(text, format_description!("[year]-[month]-[day]")).ok();
    let end = match day {
        Some(day) => day.next_day()?.midnight().assume_utc(),
        None => OffsetDateTime::parse(text, &Rfc3339).ok()?,
    };
    u64::try_from(end.unix_timestamp()).ok().map(Timestamp::from_secs)
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok()))
        .collect();
    let bytes: Vec<u8> = digits?
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();
    if text.len() == 2 * SHA256_OUTPUT_LEN { bytes.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn a_printed_hash_is_read_back() {
        assert_eq!(from_hex(&digest_hex(b"key")), Some(digest(b"key")));
        // FIPS 180-2, B.1.
        assert!(digest_hex(b"abc").starts_with("ba7816bf8f01cfea"));
        assert_eq!(from_hex(&digest_hex(b"key").to_uppercase()), Some(digest(b"key")));
        assert_eq!(from_hex(&"0".repeat(63)), None);
        assert_eq!(from_hex(&"0".repeat(65)), None);
        assert_eq!(from_hex(&"ä".repeat(32)), None);
    }

    #[test]
    fn a_day_ends_at_its_end_in_utc_and_a_time_at_once() {
        let parsed = |text| parse_expiry(text).map(Timestamp::rfc3339);
        assert_eq!(parsed("2027-01-31").as_deref(), Some("2027-02-01T00:00:00Z"));
        assert_eq!(parsed("2028-02-28").as_deref(), Some("2028-02-29T00:00:00Z"));
        assert_eq!(parsed("2027-01-31T18:00:00+02:00").as_deref(), Some("2027-01-31T16:00:00Z"));
        for text in ["2027-02-30", "2027-1-31", "31.01.2027", "1960-01-01", "2027-01-31T18:00", ""]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn a_generated_key_is_random_and_has_the_key_prefix() {
        let random = SystemRandom::new();
        let keys = [generate(&random), generate(&random)]
            .map(|key| key.map(|key| key.expose_secret().to_owned()).unwrap_or_default());
        assert_ne!(keys[0], keys[1]);
        for key in keys {
            assert_eq!(key.len(), KEY_PREFIX.len() + 64);
            assert!(
                key.starts_with(KEY_PREFIX)
                    && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            );
        }
    }
}
