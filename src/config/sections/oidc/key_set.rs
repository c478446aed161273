//! The keys of an issuer: a JSON Web Key Set (RFC 7517).
//!
//! Left out: keys without a name, symmetric keys, keys for encryption, and those that cannot be
//! read (§5).

use std::ops::RangeInclusive;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Most keys of an issuer. Chosen here: public issuers have fewer than ten.
const KEYS_MAX: usize = 100;

/// Sizes of RSA keys whose signatures the verifier accepts (RFC 7518 §3.3).
const RSA_BITS: RangeInclusive<usize> = 2_048..=8_192;

/// A public key that can sign tokens.
pub struct PublicKey {
    /// Its name (`kid`).
    pub name: String,
    /// The key as the issuer describes it.
    pub jwk: Jwk,
    /// The same, for the verification of signatures.
    pub key: DecodingKey,
    /// The algorithms of its kind, of one family; only one, if the issuer says so.
    pub algorithms: Vec<Algorithm>,
}

#[derive(Deserialize)]
struct Written {
    keys: Vec<Value>,
}

/// Parses a key set; keys of no use are left out. Fails if none is left.
pub fn parse(text: &[u8]) -> Result<Vec<PublicKey>, String> {
    let set: Written =
        serde_json::from_slice(text).map_err(|_| "it is no set of keys in JSON".to_owned())?;
    if set.keys.len() > KEYS_MAX {
        return Err(format!("it has more than {KEYS_MAX} keys"));
    }
    let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
    let keys: Vec<_> = keys.filter_map(PublicKey::new).collect();
    if keys.is_empty() {
        return Err("it has no key with a name (kid) that can sign tokens: RSA from 2,048 bits, P-256, P-384 or Ed25519".to_owned());
    }
    Ok(keys)
}

impl PublicKey {
    fn new(jwk: Jwk) -> Option<Self> {
        let name = jwk.common.key_id.clone()?;
        let is_for_signatures = jwk
            .common
            .public_key_use
            .as_ref()
            .is_none_or(|usage| *usage == PublicKeyUse::Signature);
        let operations = jwk.common.key_operations.as_ref();
        let may_verify =
            operations.is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let mut algorithms = match &jwk.algorithm {
            AlgorithmParameters::RSA(key) if RSA_BITS.contains(&bits(&key.n)?) => {
                AlgorithmFamily::Rsa.algorithms().to_vec()
            }
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            // A symmetric key in a public document is nobody's secret.
            _ => return None,
        };
        if let Some(only) = jwk.common.key_algorithm {
            let only = Algorithm::try_from(only).ok()?;
            algorithms.retain(|algorithm| *algorithm == only);
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let is_usable = is_for_signatures && may_verify && !algorithms.is_empty();
        is_usable.then_some(Self { name, jwk, key, algorithms })
    }
}

/// The length of a number in Base64; `None` if it is none.
fn bits(number: &str) -> Option<usize> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(number).ok()?;
    let leading = bytes.iter().position(|byte| *byte != 0)?;
    Some((bytes.len() - leading) * 8 - bytes[leading].leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(keys: &Value) -> Result<Vec<String>, String> {
        let keys = parse(json!({ "keys": keys }).to_string().as_bytes())?;
        Ok(keys.into_iter().map(|key| key.name).collect())
    }

    #[test]
    fn keys_of_no_use_are_left_out() {
        let number = |bytes: usize| BASE64_URL_SAFE_NO_PAD.encode(vec![0xff; bytes]);
        let good = json!({ "kty": "RSA", "kid": "one", "n": number(256), "e": "AQAB" });
        let with = |name: &str, value: Value| {
            let mut key = good.clone();
            key[name] = value;
            key
        };
        let numbered = with("kid", json!(1));
        assert_eq!(names(&json!([numbered, good])), Ok(vec!["one".to_owned()]));
        for useless in [
            numbered,
            with("use", json!("enc")),
            with("key_ops", json!(["sign"])),
            with("alg", json!("ES256")),
            json!({ "kty": "oct", "kid": "one", "k": "AQAB" }),
            json!({ "kty": "RSA", "n": number(256), "e": "AQAB" }),
            with("n", json!(number(255))),
            with("n", json!(number(1_025))),
            with("n", json!("")),
        ] {
            assert!(names(&json!([useless])).is_err(), "{useless}");
        }
        assert!(names(&Value::from(vec![good; KEYS_MAX + 1])).is_err());
    }
}
