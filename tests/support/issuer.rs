//! An issuer of OIDC tokens on loopback, with keys that a test exchanges.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::origin::Origin;

/// The running issuer.
pub struct Issuer {
    origin: Origin,
    state: Arc<Mutex<State>>,
    /// A permit for each answer.
    answers: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    url: String,
    keys: Vec<Value>,
    is_down: bool,
}

impl Issuer {
    /// Listens until the runtime ends, and publishes these keys.
    pub async fn start(keys: &[&Signer]) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let answers = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let (shared, permits) = (Arc::clone(&state), Arc::clone(&answers));
        let origin = Origin::start(move |request| {
            let (state, permits) = (Arc::clone(&shared), Arc::clone(&permits));
            async move {
                permits.acquire().await.unwrap().forget();
                let state = state.lock();
                let body = match request.uri().path() {
                    "/.well-known/openid-configuration" => json!({
                        "issuer": state.url,
                        "jwks_uri": format!("{}/keys", state.url),
                    }),
                    "/keys" => json!({ "keys": state.keys }),
                    path => panic!("nobody asks for {path}"),
                };
                let mut response = Response::new(Bytes::from(body.to_string()));
                if state.is_down {
                    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                }
                response
            }
        })
        .await;
        state.lock().url = origin.url();
        let issuer = Self { origin, state, answers };
        issuer.publish(keys);
        issuer
    }

    pub fn url(&self) -> String {
        self.origin.url()
    }

    pub fn address(&self) -> SocketAddr {
        self.url().strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// Exchanges the published keys.
    pub fn publish(&self, keys: &[&Signer]) {
        self.state.lock().keys = keys.iter().map(|key| key.jwk()).collect();
    }

    /// Makes every answer a 503, or no longer.
    pub fn set_down(&self, is_down: bool) {
        self.state.lock().is_down = is_down;
    }

    /// Holds all further answers.
    pub fn hold(&self) {
        self.answers.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// The number of answered requests. A fetch of keys takes two.
    pub fn requests(&self) -> usize {
        self.origin.exchanges().len()
    }

    /// The config's section of this issuer.
    pub fn section(&self) -> String {
        format!("[[issuers]]\nname = \"actions\"\nurl = \"{}\"\naudience = \"weir\"\n", self.url())
    }

    /// The claims of a token for the gateway from a second before until five minutes after this
    /// time.
    pub fn claims(&self, now_secs: u64) -> Value {
        json!({
            "iss": self.url(),
            "aud": "weir",
            "sub": "repo:acme/tools:ref:refs/heads/main",
            "repository": "acme/tools",
            "ref": "refs/heads/main",
            "iat": now_secs - 1,
            "nbf": now_secs - 1,
            "exp": now_secs + 300,
        })
    }
}

/// A key of an issuer, on the curve P-256.
pub struct Signer {
    name: String,
    pair: EcdsaKeyPair,
}

impl Signer {
    pub fn new(name: &str) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Self { name: name.to_owned(), pair }
    }

    /// The public key as the issuer publishes it.
    pub fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let point = self.public();
        json!({
            "kty": "EC",
            "crv": "P-256",
            "use": "sig",
            "alg": "ES256",
            "kid": self.name,
            "x": encode(&point[1..33]),
            "y": encode(&point[33..]),
        })
    }

    pub fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({ "alg": "ES256", "typ": "JWT", "kid": self.name }), claims)
    }

    /// A token with this header, signed as ES256 whatever the header says.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let text = unsigned(header, claims);
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Header and claims, without a signature.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    let encode = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}", encode(header), encode(claims))
}
