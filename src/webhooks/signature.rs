//! The signature of a delivery: HMAC-SHA-256 of its raw body, as `sha256=<hex>` (SPECIFICATION,
//! "Deliveries").
//!
//! The legacy SHA-1 header is ignored.

use http::HeaderMap;
use ring::hmac;

use crate::api::headers::HUB_SIGNATURE_256;

/// The claimed signature of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature([u8; 32]);

impl From<[u8; 32]> for Signature {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// The secrets that sign deliveries: the current one, and during a rotation the previous one.
pub struct Keys(Vec<hmac::Key>);

impl Keys {
    /// Creates keys from the secrets.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s [u8]>) -> Self {
        Self(secrets.into_iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect())
    }

    /// Returns true if one of the keys made this signature of this body. Takes constant time.
    pub fn verify(&self, signature: &Signature, body: &[u8]) -> bool {
        self.0.iter().any(|key| hmac::verify(key, body, &signature.0).is_ok())
    }
}

impl Signature {
    /// Reads the signature header; `None` unless there is exactly one of the right form.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(HUB_SIGNATURE_256).iter();
        let (Some(value), None) = (given.next(), given.next()) else { return None };
        let hex = value.as_bytes().strip_prefix(b"sha256=")?;
        let mut bytes = [0; 32];
        if hex.len() != bytes.len() * 2 {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let [high, low] = digits else { return None };
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }

    /// Returns the 32 bytes of the HMAC, decoded from hexadecimal.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn by(secret: &[u8], body: &[u8]) -> Self {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
        Self(tag.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documented check vector (SPECIFICATION, "Webhooks in practice").
    const SECRET: &[u8] = b"It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const HEX: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn signed(lines: &[(&'static str, &str)]) -> Option<Signature> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        Signature::of(&headers)
    }

    #[test]
    fn only_the_signature_of_the_check_vector_is_valid() {
        let signature = signed(&[("x-hub-signature-256", &format!("sha256={HEX}"))]).unwrap();
        let keys = Keys::new([SECRET]);
        assert!(keys.verify(&signature, BODY));
        assert!(!keys.verify(&signature, b"Hello, World?") && !keys.verify(&signature, b""));
        assert!(!Keys::new([b"another".as_slice()]).verify(&signature, BODY));
        assert!(!Keys::new([]).verify(&signature, BODY), "without a secret nothing is genuine");
    }

    #[test]
    fn both_secrets_are_valid_during_a_rotation() {
        let keys = Keys::new([b"new".as_slice(), b"old"]);
        for secret in [b"new", b"old"] {
            assert!(keys.verify(&Signature::by(secret, BODY), BODY));
        }
        assert!(!keys.verify(&Signature::by(b"older", BODY), BODY));
    }

    #[test]
    fn a_delivery_without_exactly_one_sha256_is_unsigned() {
        let right = format!("sha256={HEX}");
        assert!(
            signed(&[("x-hub-signature-256", &right.to_uppercase().replace("SHA256", "sha256"))])
                .is_some(),
            "hex has no case"
        );
        for lines in [
            &[][..],
            &[("x-hub-signature", "sha1=da39a3ee5e6b4b0d3255bfef95601890afd80709")],
            &[("x-hub-signature-256", right.as_str()), ("x-hub-signature-256", right.as_str())],
            &[("x-hub-signature-256", HEX)],
            &[("x-hub-signature-256", "sha256=")],
            &[("x-hub-signature-256", "sha256=7571")],
            &[("x-hub-signature-256", "sha1=da39a3ee5e6b4b0d3255bfef95601890afd80709")],
        ] {
            assert_eq!(signed(lines), None, "{lines:?}");
        }
        assert_eq!(signed(&[("x-hub-signature-256", &format!("{right}, {right}"))]), None);
        assert_eq!(signed(&[("x-hub-signature-256", &right.replace('7', "g"))]), None);
    }
}
