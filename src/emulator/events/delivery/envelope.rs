//! The wire format of a delivery: its body, signatures and headers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;

use crate::api::Dialect;
use crate::api::headers::{HUB_SIGNATURE, HUB_SIGNATURE_256};
use crate::emulator::http::hex;
use crate::emulator::world::{Config, ContentType, Delivery, Hook, HookKey, Posted, Signatures};

/// A build suffix of the agent string; made up and constant.
const BUILD: &str = "044aadd";
/// The characters that form encoding leaves as they are (URL standard, form serializer).
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

pub fn posted(config: &Config, delivery: &Delivery) -> Posted {
    let body = body(config.content_type, &delivery.payload);
    let signatures = config.secret.as_deref().map(|secret| Signatures {
        sha256: signature("sha256", hmac::HMAC_SHA256, secret, &body),
        sha1: signature("sha1", hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret, &body),
    });
    Posted { url: config.url.clone(), content_type: config.content_type, signatures }
}

fn body(content_type: ContentType, payload: &str) -> Bytes {
    match content_type {
        ContentType::Json => Bytes::copy_from_slice(payload.as_bytes()),
        ContentType::Form => format!("payload={}", utf8_percent_encode(payload, FORM)).into(),
    }
}

/// Signs the raw body with HMAC, in hexadecimal (SPECIFICATION, "Webhooks in practice").
fn signature(name: &str, algorithm: hmac::Algorithm, secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(algorithm, secret.as_bytes());
    format!("{name}={}", hex(hmac::sign(&key, body).as_ref()))
}

/// Returns the headers (SPECIFICATION, "Deliveries"). Without a secret there is no signature.
pub fn headers(
    dialect: Dialect,
    hook_key: HookKey,
    delivery: &Delivery,
    posted: &Posted,
) -> Vec<(String, String)> {
    let named = |name: &str| dialect.delivery_header(name);
    let agent = match dialect {
        Dialect::Service => "Service-Hookshot",
        Dialect::Github => "GitHub-Hookshot",
    };
    let mut headers = vec![
        (header::ACCEPT.to_string(), "*/*".to_owned()),
        (header::CONTENT_TYPE.to_string(), posted.content_type.media_type().to_owned()),
        (header::USER_AGENT.to_string(), format!("{agent}/{BUILD}")),
        (named("delivery"), delivery.guid.clone()),
        (named("event"), delivery.event.to_string()),
        (named("hook-id"), hook_key.hook.to_string()),
        (named("hook-installation-target-id"), hook_key.target.id().to_string()),
        (named("hook-installation-target-type"), hook_key.target.kind().to_owned()),
    ];
    if let Some(Signatures { sha256, sha1 }) = &posted.signatures {
        headers.push((HUB_SIGNATURE.to_owned(), sha1.clone()));
        headers.push((HUB_SIGNATURE_256.to_owned(), sha256.clone()));
    }
    headers
}

/// Builds the request. `None` for an invalid address, which the webhook's configuration rules out.
pub fn request(
    dialect: Dialect,
    hook: &Hook,
    delivery: &Delivery,
    posted: &Posted,
) -> Option<Request<Bytes>> {
    let mut request =
        Request::post(&posted.url).body(body(posted.content_type, &delivery.payload)).ok()?;
    for (name, value) in headers(dialect, hook.hook_key(), delivery, posted) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(&value)) {
            request.headers_mut().insert(name, value);
        }
    }
    if let Some(mut basic) = basic(&hook.config) {
        basic.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, basic);
    }
    Some(request)
}

/// Basic credentials, an undocumented use. They are write-only, so no delivery record shows them.
fn basic(config: &Config) -> Option<HeaderValue> {
    if config.username.is_none() && config.password.is_none() {
        return None;
    }
    let (username, password) =
        (config.username.as_deref().unwrap_or(""), config.password.as_deref().unwrap_or(""));
    HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{username}:{password}"))))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_check_vector() {
        let signed =
            signature("sha256", hmac::HMAC_SHA256, "It's a Secret to Everybody", b"Hello, World!");
        assert_eq!(
            signed,
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }

    #[test]
    fn the_legacy_signature_is_hmac_sha1() {
        // RFC 2202, test case 2.
        let signed = signature(
            "sha1",
            hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            "Jefe",
            b"what do ya want for nothing?",
        );
        assert_eq!(signed, "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    }

    #[test]
    fn a_form_has_the_payload_as_its_only_field() {
        assert_eq!(
            body(ContentType::Form, r#"{"a":"b &=ü"}"#),
            "payload=%7B%22a%22%3A%22b%20%26%3D%C3%BC%22%7D"
        );
        assert_eq!(body(ContentType::Json, "{}"), "{}");
    }
}
