//! Deliveries of webhooks: without the right signature nothing happens; with it, once, and what
//! they invalidate are plain paths.

use std::fmt::Write;

use http::{HeaderMap, HeaderValue, header};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use ring::hmac;
use serde_json::Value;

use super::pieces::headers_and_rest;
use crate::api::headers::HUB_SIGNATURE_256;
use crate::api::{Dialect, Invalidation, is_known_event};
use crate::clock::Timestamp;
use crate::webhooks::{Effect, Keys, Mark, Received, Receiver, Rejected, Signature};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const SECRET: &[u8] = b"It's a Secret to Everybody";
/// Longest name in a path (`webhooks/subject.rs`), and room for a route around several names.
const PATH_BYTES_MAX: usize = 100 * 4 + 100;
/// More paths than any payload can name: a few for each name and route.
const PATHS_MAX: usize = 2_000;

/// The input is the head of a delivery, an empty line, and its body.
pub fn webhook(input: &[u8]) {
    let (mut headers, body) = headers_and_rest(input);
    claimed(&headers, body);
    let signature = signed(SECRET, body);
    for wrong in [signed(b"another", body), signed(SECRET, &[body, b" "].concat())] {
        assert_eq!(
            receive(&receiver(), &headers, &wrong, body),
            (Err(Rejected::Signature), vec![])
        );
    }
    let own = receiver();
    let (received, stale) = receive(&own, &headers, &signature, body);
    let Ok(Received { event, effect }) = received else {
        assert_eq!((received, stale), (Err(Rejected::Malformed), vec![]));
        malformed(&headers, body);
        return;
    };
    assert_eq!(effect, Effect::Applied, "the first delivery");
    let name = text(&headers, "x-github-event");
    assert_eq!(event, if is_known_event(name) { name } else { "unknown" });
    plain_paths(&stale);
    other_forms(&headers, body, &stale);
    let guid = text(&headers, "x-github-delivery").to_owned();
    let is_remembered = !guid.is_empty() && guid.len() <= 100;
    assert_eq!(own.has_received(&guid, &event), is_remembered);
    let (again, second) = receive(&own, &headers, &signature, body);
    let effect = if is_remembered { Effect::Duplicate } else { Effect::Applied };
    assert_eq!(again, Ok(Received { event: event.clone(), effect }));
    assert_eq!(second, if is_remembered { vec![] } else { stale });
    let other = if event == "star" { "watch" } else { "star" };
    headers.insert("x-github-event", HeaderValue::from_static(other));
    let (renamed, _) = receive(&own, &headers, &signature, body);
    assert_eq!(renamed.map(|received| received.effect), Ok(Effect::Applied), "another event");
}

fn receiver() -> Receiver {
    Receiver::new(Keys::new([SECRET, b"older"]), Dialect::Github)
}

fn receive(
    receiver: &Receiver,
    headers: &HeaderMap,
    signature: &Signature,
    body: &[u8],
) -> (Result<Received, Rejected>, Vec<Invalidation>) {
    let mut stale = Vec::new();
    let apply = |changed: &[Invalidation], _: Option<&Mark>| stale = changed.to_vec();
    let result = receiver.receive(headers, signature, body, NOW, apply);
    (result, stale)
}

/// The signature, read from the header that carries it.
fn signed(secret: &[u8], body: &[u8]) -> Signature {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
    let mut line = "sha256=".to_owned();
    for byte in tag.as_ref() {
        write!(line, "{byte:02x}").expect("a string can be written");
    }
    let line = HeaderValue::from_str(&line).expect("digits are a header value");
    let signature = Signature::of(&HeaderMap::from_iter([(
        header::HeaderName::from_static(HUB_SIGNATURE_256),
        line,
    )]));
    let signature = signature.expect("the signature is read as it is written");
    assert_eq!(signature.bytes(), tag.as_ref());
    signature
}

/// The input's own signature is that of its body, or wrong.
fn claimed(headers: &HeaderMap, body: &[u8]) {
    let Some(claimed) = Signature::of(headers) else { return };
    assert_eq!(headers.get_all(HUB_SIGNATURE_256).iter().count(), 1);
    let is_valid = Keys::new([SECRET]).verify(&claimed, body);
    assert_eq!(is_valid, claimed == signed(SECRET, body));
}

/// A malformed delivery is no JSON object, and is not remembered.
fn malformed(headers: &HeaderMap, body: &[u8]) {
    let is_form = text(headers, "content-type").to_ascii_lowercase().contains("form");
    let is_object = serde_json::from_slice::<Value>(body).is_ok_and(|value| value.is_object());
    assert!(is_form || !is_object, "an object is refused");
}

/// Invalidations are paths without queries, dots and blanks, and few.
fn plain_paths(stale: &[Invalidation]) {
    assert!(stale.len() <= PATHS_MAX, "{} paths", stale.len());
    for changed in stale {
        let path = match changed {
            Invalidation::Exactly(path) | Invalidation::Below(path) => path,
            Invalidation::Everything => continue,
        };
        assert!(path.starts_with('/') && path.len() > 1 && !path.ends_with('/'), "{path:?}");
        assert!(!path.contains("//") && path.len() <= PATH_BYTES_MAX, "{path:?}");
        assert!(!path.split('/').any(|segment| matches!(segment, "." | "..")), "{path:?}");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.{}*".contains(&byte);
        assert!(path.bytes().all(is_plain), "{path:?}");
    }
}

/// The same payload as a form, and with a further member, invalidates the same.
fn other_forms(headers: &HeaderMap, body: &[u8], stale: &[Invalidation]) {
    let Ok(Value::Object(mut payload)) = serde_json::from_slice(body) else { return };
    let mut typed = headers.clone();
    let mut same = |kind: &'static str, body: &[u8]| {
        typed.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        let (received, other) = receive(&receiver(), &typed, &signed(SECRET, body), body);
        assert!(received.is_ok(), "{kind}: {received:?}");
        assert_eq!(other, stale, "{kind}");
    };
    let form = format!("payload={}&a=b", percent_encode(body, NON_ALPHANUMERIC));
    same("application/x-www-form-urlencoded; charset=utf-8", form.as_bytes());
    payload.insert("zz_further".to_owned(), serde_json::json!({ "repository": { "id": 1 } }));
    same("application/json", Value::Object(payload).to_string().as_bytes());
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
