//! The texts by which Redis knows numbers, places and keys.

use std::time::Duration;

use super::StoreError;

pub(super) fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// The hex digits of a digest.
pub fn digest_text(digest: &[u8; 32]) -> String {
    use std::fmt::Write as _;
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Reads a place: its replica and its number.
pub(super) fn parsed(place: &str) -> Option<(&str, u64)> {
    let (owner, number) = place.split_once(':')?;
    Some((owner, u64::from_str_radix(number, 16).ok()?))
}

/// Reads what is kept of a key: the number of the write, and the digest of its request.
pub(super) fn keyed(held: &str) -> Option<StoreError> {
    let number = u64::from_str_radix(held.get(..16)?, 16).ok()?;
    let mut meaning = [0; 32];
    for (place, byte) in meaning.iter_mut().enumerate() {
        let at = 16 + 2 * place;
        *byte = u8::from_str_radix(held.get(at..at + 2)?, 16).ok()?;
    }
    Some(StoreError::Keyed { number, meaning })
}
