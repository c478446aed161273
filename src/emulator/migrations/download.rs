//! The download address of an archive: short-lived and signed, so that it needs no credential.
//!
//! The upstream documents only the redirect (302); address and lifetime are the emulator's own.

use ring::hmac;

use crate::clock::Timestamp;
use crate::emulator::http::{Query, hex};

/// Not a secret: it distinguishes issued addresses from invented ones.
const KEY: &[u8] = b"emulated archives";

/// Returns path and query of the archive of migration `guid`, valid until `expires`.
pub fn path(guid: &str, expires: Timestamp) -> String {
    format!(
        "/_archives/{guid}.tar.gz?expires={}&signature={}",
        expires.as_secs(),
        signature(guid, expires.as_secs())
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Expired,
    WrongSignature,
}

/// Checks that the query of an address is signed for this archive and has not expired.
pub fn verify(guid: &str, query: &Query, now: Timestamp) -> Result<(), Refused> {
    let expires: u64 =
        query.get("expires").and_then(|text| text.parse().ok()).ok_or(Refused::WrongSignature)?;
    if query.get("signature") != Some(signature(guid, expires).as_str()) {
        return Err(Refused::WrongSignature);
    }
    if now < Timestamp::from_secs(expires) { Ok(()) } else { Err(Refused::Expired) }
}

fn signature(guid: &str, expires_secs: u64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, KEY);
    hex(hmac::sign(&key, format!("{guid}:{expires_secs}").as_bytes()).as_ref())
}
