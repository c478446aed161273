//! The address that an archive is downloaded from: short-lived and signed, so that whoever was told
//! it needs no credential.
//!
//! The specification says only that a download redirects (302) to the archive; where that is and
//! for how long is not shown.

use ring::hmac;

use crate::clock::Timestamp;
use crate::emulator::http::{Query, hex};

/// Not a secret: an emulator guards nothing. It keeps apart addresses that were handed out from
/// those that were made up.
const KEY: &[u8] = b"emulated archives";

/// Path and query of the archive of migration `guid`, good until `expires`.
pub fn path(guid: &str, expires: Timestamp) -> String {
    format!(
        "/_archives/{guid}.tar.gz?expires={}&signature={}",
        expires.as_secs(),
        hex(signature(guid, expires.as_secs()).as_ref())
    )
}

/// Why an address does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Expired,
    WrongSignature,
}

/// Whether the query of an address was signed for this archive and is still good.
pub fn verify(guid: &str, query: &Query, now: Timestamp) -> Result<(), Refused> {
    let expires: u64 =
        query.get("expires").and_then(|text| text.parse().ok()).ok_or(Refused::WrongSignature)?;
    let signed = query.get("signature").unwrap_or("");
    if hex(signature(guid, expires).as_ref()) != signed {
        return Err(Refused::WrongSignature);
    }
    if now < Timestamp::from_secs(expires) { Ok(()) } else { Err(Refused::Expired) }
}

fn signature(guid: &str, expires_secs: u64) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY), format!("{guid}:{expires_secs}").as_bytes())
}
