//! JSON web tokens, with which an app authenticates as itself (SPECIFICATION, "Apps"): RS256, `iss`
//! is the app's id, `exp` at most ten minutes ahead.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::Value;

use super::credentials::BadCredentials;
use crate::clock::Timestamp;

const EXPIRY_AHEAD_MAX: Duration = Duration::from_mins(10);
/// The tolerated clock skew in either direction.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// DER, from PEM (PKCS#1). Empty for a malformed key, which verifies nothing.
pub fn public_key(pem: &str) -> Vec<u8> {
    let base64: String =
        pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let der = STANDARD.decode(base64).unwrap_or_default();
    RsaKeyPair::from_der(&der).map(|pair| pair.public_key().as_ref().to_vec()).unwrap_or_default()
}

pub fn is_jwt(secret: &str) -> bool {
    secret.split('.').count() == 3
}

/// Checks signature and times. `key_of` returns an app's public key.
pub fn app_of<'k>(
    jwt: &str,
    now: Timestamp,
    key_of: impl Fn(u64) -> Option<&'k [u8]>,
) -> Result<u64, BadCredentials> {
    let (signed, signature) = jwt.rsplit_once('.').ok_or(BadCredentials)?;
    let (header, claims) = signed.split_once('.').ok_or(BadCredentials)?;
    if part(header)?.get("alg").and_then(Value::as_str) != Some("RS256") {
        return Err(BadCredentials);
    }
    let claims = part(claims)?;
    // Clients send the id as a number or a string.
    let issuer = claims
        .get("iss")
        .and_then(|iss| iss.as_u64().or_else(|| iss.as_str()?.parse().ok()))
        .ok_or(BadCredentials)?;
    let key = key_of(issuer).ok_or(BadCredentials)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| BadCredentials)?;
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
        .verify(signed.as_bytes(), &signature)
        .map_err(|_| BadCredentials)?;
    // RFC 7519, section 2, NumericDate: seconds, possibly with a fraction.
    let whole = |value: &Value| {
        value
            .as_u64()
            .or_else(|| Some(Duration::try_from_secs_f64(value.as_f64()?).ok()?.as_secs()))
    };
    let seconds = |name: &str| claims.get(name).and_then(whole);
    let (begins, expires) =
        (seconds("iat").ok_or(BadCredentials)?, seconds("exp").ok_or(BadCredentials)?);
    let now = now.as_secs();
    let in_time = begins <= now + CLOCK_SKEW.as_secs()
        && expires > now
        && expires <= now + EXPIRY_AHEAD_MAX.as_secs() + CLOCK_SKEW.as_secs();
    if in_time { Ok(issuer) } else { Err(BadCredentials) }
}

fn part(text: &str) -> Result<Value, BadCredentials> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadCredentials)?;
    serde_json::from_slice(&bytes).map_err(|_| BadCredentials)
}

#[cfg(test)]
pub mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::RSA_PKCS1_SHA256;
    use serde_json::json;

    use super::*;
    use crate::emulator::seed::APP_KEY;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    pub fn signed(header: &Value, claims: &Value) -> String {
        signed_with(APP_KEY, header, claims)
    }

    pub fn signed_with(pem: &str, header: &Value, claims: &Value) -> String {
        let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let pair = RsaKeyPair::from_der(&STANDARD.decode(base64).expect("base64")).expect("a key");
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .expect("it signs");
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn check(jwt: &str) -> Result<u64, BadCredentials> {
        let key = public_key(APP_KEY);
        app_of(jwt, NOW, |app| (app == 301).then_some(key.as_slice()))
    }

    fn claims(issued: i64, expires: i64) -> Value {
        let now = i64::try_from(NOW.as_secs()).expect("small");
        json!({ "iss": "301", "iat": now + issued, "exp": now + expires })
    }

    #[test]
    fn a_jwt_signed_with_the_apps_key_is_the_app() {
        let header = json!({ "alg": "RS256", "typ": "JWT" });
        assert_eq!(check(&signed(&header, &claims(-60, 540))), Ok(301));
        assert_eq!(
            check(&signed(
                &header,
                &json!({ "iss": 301, "iat": NOW.as_secs(), "exp": NOW.as_secs() + 60 })
            )),
            Ok(301)
        );
    }

    #[test]
    fn a_jwt_of_the_wrong_time_algorithm_app_or_key_is_refused() {
        let header = json!({ "alg": "RS256" });
        for (header, claims) in [
            (header.clone(), claims(-700, -100)),
            (header.clone(), claims(-60, 1_200)),
            (header.clone(), claims(300, 540)),
            (json!({ "alg": "HS256" }), claims(-60, 540)),
            (
                header.clone(),
                json!({ "iss": 302, "iat": NOW.as_secs(), "exp": NOW.as_secs() + 60 }),
            ),
            (header.clone(), json!({ "iss": 301 })),
        ] {
            assert_eq!(check(&signed(&header, &claims)), Err(BadCredentials), "{header} {claims}");
        }
        let good = signed(&header, &claims(-60, 540));
        let forged = format!("{}A", &good[..good.len() - 1]);
        assert_eq!(check(&forged), Err(BadCredentials));
        assert_eq!(check("a.b.c"), Err(BadCredentials));
    }
}
