//! JWTs of apps, as an app's own client signs them (SPECIFICATION, "Apps").

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::json;

/// A JWT of an app, valid for nine minutes from `now_secs`; the key is PEM, PKCS#1.
pub fn signed(app_id: u64, key: &str, now_secs: u64) -> String {
    let der: String = key.lines().filter(|line| !line.starts_with("-----")).collect();
    let pair = RsaKeyPair::from_der(&BASE64_STANDARD.decode(der).unwrap()).unwrap();
    let claims = json!({ "iss": app_id.to_string(), "iat": now_secs - 60, "exp": now_secs + 540 });
    let parts = [json!({ "alg": "RS256", "typ": "JWT" }), claims]
        .map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
    let text = parts.join(".");
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}
