//! The keys of an issuer: a JSON Web Key Set (RFC 7517) as public keys, and their signatures.
//!
//! The library reads tokens and keys; the signatures are verified by the process's one crypto
//! library. Left out: the reading of a key set (the config does it).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature as ring_signature;
use ring::signature::{RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::json;

use crate::config::{PublicKey, parse_key_set};

/// One public key.
pub struct SigningKey {
    jwk: Jwk,
    pub key: DecodingKey,
    /// The algorithms of its kind, of one family; only one, if the issuer says so.
    pub algorithms: Vec<Algorithm>,
    in_force: AtomicBool,
}

impl SigningKey {
    /// True until the issuer takes the key back.
    pub fn is_in_force(&self) -> bool {
        self.in_force.load(Ordering::Acquire)
    }
}

/// The keys of an issuer by their names (`kid`), which may belong to several (RFC 7517 §4.5).
#[derive(Default)]
pub struct SigningKeys(HashMap<String, Vec<Arc<SigningKey>>>);

impl SigningKeys {
    /// Parses a key set. Fails if it has no key that can sign tokens.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut keys = HashMap::<_, Vec<_>>::new();
        for PublicKey { name, jwk, key, algorithms } in parse_key_set(text)? {
            let in_force = AtomicBool::new(true);
            let key = SigningKey { jwk, key, algorithms, in_force };
            keys.entry(name).or_default().push(Arc::new(key));
        }
        Ok(Self(keys))
    }

    /// The set as [`SigningKeys::parse`] reads it.
    pub fn to_text(&self) -> String {
        let keys: Vec<_> = self.0.values().flatten().map(|key| &key.jwk).collect();
        json!({ "keys": keys }).to_string()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn named(&self, name: &str) -> &[Arc<SigningKey>] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Keeps the keys that `before` has too, and ends the others of `before`.
    pub fn replacing(mut self, before: &Self) -> Self {
        for (name, old) in &before.0 {
            let mut new = self.0.get_mut(name);
            for old in old {
                let mut same = new.iter_mut().flat_map(|new| new.iter_mut());
                match same.find(|new| new.jwk == old.jwk).filter(|_| old.is_in_force()) {
                    Some(new) => *new = Arc::clone(old),
                    None => old.in_force.store(false, Ordering::Release),
                }
            }
        }
        self
    }
}

/// The verification of signatures by the process's one crypto library.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| verifier(*algorithm, key),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes the library verify by `ring`. Later calls change nothing.
pub fn install_provider() {
    // Fails only if it is there already.
    let _ = PROVIDER.install_default();
}

fn verifier(algorithm: Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let is_of_kind = key.family().algorithms().contains(&algorithm);
    if !is_of_kind || key.family() == AlgorithmFamily::Hmac {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Verification { algorithm, key: key.kind().clone() }))
}

struct Verification {
    algorithm: Algorithm,
    key: DecodingKeyKind,
}

impl JwtVerifier for Verification {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Verification {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match &self.key {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let parameters = match self.algorithm {
                    Algorithm::RS256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::RS384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::RS512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::PS256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::PS384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::PS512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
                    _ => return Err(signature::Error::new()),
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            DecodingKeyKind::SecretOrDer(point) => {
                let algorithm: &dyn ring_signature::VerificationAlgorithm = match self.algorithm {
                    Algorithm::ES256 => &ring_signature::ECDSA_P256_SHA256_FIXED,
                    Algorithm::ES384 => &ring_signature::ECDSA_P384_SHA384_FIXED,
                    Algorithm::EdDSA => &ring_signature::ED25519,
                    _ => return Err(signature::Error::new()),
                };
                UnparsedPublicKey::new(algorithm, point).verify(message, signature)
            }
        };
        verified.map_err(|_| signature::Error::new())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use jsonwebtoken::{Validation, decode};
    use ring::rand::SystemRandom;
    use ring::signature::{
        Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding,
        RsaKeyPair,
    };
    use serde_json::{Map, Value};

    use super::*;
    use crate::config::rsa_key;

    fn encode(bytes: impl AsRef<[u8]>) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    fn rsa() -> RsaKeyPair {
        rsa_key(include_str!("../../../emulator/seed/app_key.pem")).unwrap()
    }

    fn rsa_jwk(name: &str, more: &Value) -> Value {
        let public = ring_signature::RsaPublicKeyComponents::<Vec<u8>>::from(rsa().public());
        let mut jwk =
            json!({ "kty": "RSA", "kid": name, "n": encode(public.n), "e": encode(public.e) });
        jwk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        jwk
    }

    fn keys(jwks: &[Value]) -> Result<SigningKeys, String> {
        SigningKeys::parse(json!({ "keys": jwks }).to_string().as_bytes())
    }

    fn is_accepted(key: &SigningKey, token: &str) -> bool {
        install_provider();
        let mut validation = Validation::default();
        validation.algorithms.clone_from(&key.algorithms);
        (validation.validate_exp, validation.validate_aud) = (false, false);
        validation.required_spec_claims.clear();
        decode::<Map<String, Value>>(token, &key.key, &validation).is_ok()
    }

    fn text(algorithm: &str) -> String {
        let header = encode(json!({ "alg": algorithm, "kid": "one" }).to_string());
        format!("{header}.{}", encode("{}"))
    }

    fn by_rsa(algorithm: &str, encoding: &'static dyn RsaEncoding) -> String {
        let (pair, text) = (rsa(), text(algorithm));
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(encoding, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
        format!("{text}.{}", encode(signature))
    }

    #[test]
    fn tokens_by_rsa_are_verified_by_the_algorithm_that_they_name() {
        let any = keys(&[rsa_jwk("one", &json!({}))]).unwrap();
        let only = keys(&[rsa_jwk("one", &json!({ "alg": "RS256" }))]).unwrap();
        let (any, only) = (&any.named("one")[0], &only.named("one")[0]);
        for (token, by_any, by_only) in [
            (by_rsa("RS256", &RSA_PKCS1_SHA256), true, true),
            (by_rsa("RS512", &RSA_PKCS1_SHA512), true, false),
            (by_rsa("PS256", &RSA_PSS_SHA256), true, false),
            (by_rsa("RS256", &RSA_PKCS1_SHA512), false, false),
            (by_rsa("ES256", &RSA_PKCS1_SHA256), false, false),
            (by_rsa("HS256", &RSA_PKCS1_SHA256), false, false),
        ] {
            assert_eq!((is_accepted(any, &token), is_accepted(only, &token)), (by_any, by_only));
        }
    }

    #[test]
    fn tokens_by_ed25519_are_verified() {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let x = encode(pair.public_key());
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x });
        let set = keys(&[jwk]).unwrap();
        let text = text("EdDSA");
        let token = format!("{text}.{}", encode(pair.sign(text.as_bytes())));
        assert!(is_accepted(&set.named("one")[0], &token));
        let cut = &token[..token.len() - 4];
        assert!(!is_accepted(&set.named("one")[0], cut));
    }

    #[test]
    fn keys_of_no_use_are_left_out() {
        let symmetric = json!({ "kty": "oct", "kid": "a", "k": "c2VjcmV0" });
        let unknown = json!({ "kty": "XYZ", "kid": "b" });
        let curve = json!({ "kty": "EC", "crv": "P-521", "kid": "c", "x": "AQ", "y": "AQ" });
        let for_encryption = rsa_jwk("d", &json!({ "use": "enc" }));
        let other_use = rsa_jwk("e", &json!({ "alg": "RSA-OAEP" }));
        let by_hmac = rsa_jwk("f", &json!({ "alg": "HS256" }));
        let mut nameless = rsa_jwk("g", &json!({}));
        nameless.as_object_mut().unwrap().remove("kid");
        let useless = [symmetric, unknown, curve, for_encryption, other_use, by_hmac, nameless];
        assert!(keys(&useless).is_err());
        let all = [&useless[..], &[rsa_jwk("h", &json!({ "use": "sig" }))]].concat();
        assert!(keys(&all).is_ok_and(|keys| keys.0.len() == 1 && keys.named("h").len() == 1));
        assert!(SigningKeys::parse(b"{}").is_err() && SigningKeys::parse(b"[").is_err());
        let many: Vec<_> = (0..=100).map(|n| rsa_jwk(&n.to_string(), &json!({}))).collect();
        assert!(keys(&many).is_err());
    }

    #[test]
    fn a_key_that_is_published_no_more_is_out_of_force() {
        let set = |names: &[&str]| {
            let jwks: Vec<_> = names.iter().map(|name| rsa_jwk(name, &json!({}))).collect();
            keys(&jwks).unwrap()
        };
        let before = set(&["a", "b"]);
        let (a, b) = (Arc::clone(&before.named("a")[0]), &before.named("b")[0]);
        let after = set(&["a", "c"]).replacing(&before);
        assert!(Arc::ptr_eq(&a, &after.named("a")[0]) && a.is_in_force());
        assert!(!b.is_in_force() && after.named("b").is_empty() && after.named("c").len() == 1);
    }
}
