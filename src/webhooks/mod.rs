//! Webhook deliveries: their signatures, their duplicates, and what they invalidate (SPECIFICATION,
//! "Events" and "Webhooks in practice").
//!
//! An unsigned body is never parsed. The effect of an event is a fact of the API (`api`); this
//! module reads its payload. Left out: the HTTP side and the store (`gateway`).

mod listing;
mod seen;
mod signature;
mod subject;
mod watch;

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{self, AsHeaderName};
use parking_lot::Mutex;
use percent_encoding::percent_decode;
use serde_json::Value;

use crate::api::{Dialect, Invalidation, any_node, is_known_event, stale_after_event};
use crate::clock::Timestamp;

use seen::Seen;

pub use listing::{HookSettings, ListedDelivery};
pub use signature::{Keys, Signature};
pub use watch::{Check, Findings, SLACK, Watch, WatchStatus};

/// Longest body of a delivery. The documentation names none; the running service sends no longer
/// ones.
pub const BODY_BYTES_MAX: usize = 25 * 1024 * 1024;
/// Longest `guid` that is stored as it is; a UUID is shorter (SPECIFICATION, "Deliveries").
const GUID_BYTES_MAX: usize = 100;

/// A genuine delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Event name; `unknown` for an event without a known effect, which also bounds its values.
    pub event: Cow<'static, str>,
    /// Its effect.
    pub effect: Effect,
}

/// Effect of a genuine delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Stored answers were invalidated.
    Applied,
    /// None: the same delivery had its effect before.
    Duplicate,
}

/// Identifies a delivery, beside its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its GUID.
    pub guid: String,
    /// Its event; `unknown` for one without a known effect.
    pub event: String,
}

/// Reason why a delivery has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Not signed with a secret of ours.
    Signature,
    /// Signed, but not the expected JSON object.
    Malformed,
}

/// Verifies deliveries and applies each once.
pub struct Receiver {
    keys: Keys,
    /// Header names in the upstream's dialect.
    event_header: String,
    delivery_header: String,
    seen: Arc<Mutex<Seen>>,
}

impl Receiver {
    /// Creates a receiver with these keys.
    pub fn new(keys: Keys, dialect: Dialect) -> Self {
        let (event_header, delivery_header) =
            (dialect.delivery_header("event"), dialect.delivery_header("delivery"));
        Self { keys, event_header, delivery_header, seen: Arc::default() }
    }

    /// Takes over the received deliveries of `before`, for a reload.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        Self { seen: Arc::clone(&before.seen), ..self }
    }

    /// Verifies a delivery and calls `apply` with its effect, and with its mark unless it has none.
    /// A duplicate has the same GUID, event,
    /// signature and body, so no delivery can hide another. It counts as received only after its
    /// effect: of two at once, both have it.
    pub fn receive(
        &self,
        headers: &HeaderMap,
        signature: &Signature,
        body: &[u8],
        now: Timestamp,
        apply: impl FnOnce(&[Invalidation], Option<&Mark>),
    ) -> Result<Received, Rejected> {
        if !self.keys.verify(signature, body) {
            return Err(Rejected::Signature);
        }
        let (event, guid) =
            (text(headers, &self.event_header), text(headers, &self.delivery_header));
        let payload = payload(headers, body).ok_or(Rejected::Malformed)?;
        let name = if is_known_event(event) {
            Cow::Owned(event.to_owned())
        } else {
            Cow::Borrowed("unknown")
        };
        let mark = (!guid.is_empty() && guid.len() <= GUID_BYTES_MAX)
            .then(|| Mark { guid: guid.to_owned(), event: name.to_string() });
        if mark.as_ref().is_some_and(|mark| self.seen.lock().has(mark, signature)) {
            return Ok(Received { event: name, effect: Effect::Duplicate });
        }
        let action = payload.get("action").and_then(Value::as_str);
        let mut stale = stale_after_event(event, action, &subject::read(event, &payload));
        let before = stale.len();
        stale.extend(subject::nodes(event, &payload).map(Invalidation::Exactly));
        // Any id may be that of what changed.
        if before > 0 && stale.len() == before && !stale.contains(&Invalidation::Everything) {
            stale.push(any_node());
        }
        apply(&stale, mark.as_ref());
        if let Some(mark) = mark {
            self.note(&mark, signature, now);
        }
        Ok(Received { event: name, effect: Effect::Applied })
    }

    /// Notes a delivery that has had its effect, here or in another replica.
    pub fn note(&self, mark: &Mark, signature: &Signature, now: Timestamp) {
        self.seen.lock().note(mark, signature, now);
    }

    /// Returns true if a delivery of this GUID and event has had its effect. The name of an event
    /// without a known effect is `unknown`.
    pub fn has_received(&self, guid: &str, event: &str) -> bool {
        let mark = Mark { guid: guid.to_owned(), event: event.to_owned() };
        self.seen.lock().has_delivery(&mark)
    }
}

/// Returns the value of a header; empty if it is missing or no text.
fn text(headers: &HeaderMap, name: impl AsHeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Reads the payload, as JSON or in the field `payload` of a form.
fn payload(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let content_type = text(headers, header::CONTENT_TYPE);
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let json = if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        // The upstream has only this field in its forms. A JSON body with its text inside must
        // not be taken for a form, because no signature covers the type.
        let form = body.strip_prefix(b"payload=")?;
        let field = form.split(|byte| *byte == b'&').next().unwrap_or_default();
        let spaced: Vec<u8> =
            field.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        Cow::Owned(percent_decode(&spaced).collect::<Vec<u8>>())
    } else {
        Cow::Borrowed(body)
    };
    serde_json::from_slice(&json).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);
    const SECRET: &[u8] = b"s3cret";

    fn receiver() -> Receiver {
        Receiver::new(Keys::new([SECRET]), Dialect::Github)
    }

    fn headers(event: &str, guid: &str, content_type: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-github-event", event.parse().unwrap());
        headers.insert("x-github-delivery", guid.parse().unwrap());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers
    }

    /// Returns the result of a delivery, and what it invalidated.
    fn receive(
        receiver: &Receiver,
        headers: &HeaderMap,
        body: &str,
    ) -> (Result<Received, Rejected>, Vec<Invalidation>) {
        let mut stale = Vec::new();
        let signature = Signature::by(SECRET, body.as_bytes());
        let outcome = receiver.receive(headers, &signature, body.as_bytes(), NOW, |changed, _| {
            stale = changed.to_vec();
        });
        (outcome, stale)
    }

    const BODY: &str = r#"{"action":"opened","issue":{"number":5},"repository":{"id":7,"full_name":"acme/widgets","owner":{"login":"acme"}}}"#;

    fn stale(
        (received, stale): (Result<Received, Rejected>, Vec<Invalidation>),
    ) -> Vec<Invalidation> {
        assert_eq!(received.map(|received| received.effect), Ok(Effect::Applied));
        stale
    }

    #[test]
    fn an_event_invalidates_paths_by_name_and_by_number() {
        let stale =
            stale(receive(&receiver(), &headers("issues", "g-1", "application/json"), BODY));
        for path in ["/repos/acme/widgets/issues", "/repositories/7/issues"] {
            assert!(stale.contains(&Invalidation::Exactly(path.into())), "{stale:#?}");
        }
        assert!(stale.contains(&Invalidation::Below("/repos/acme/widgets/issues/5".into())));
        assert!(
            !stale
                .iter()
                .any(|stale| matches!(stale, Invalidation::Below(path) if path == "/repos/acme/widgets" || path == "/repos/acme/widgets/issues"))
        );
    }

    #[test]
    fn a_form_is_signed_as_sent_and_read_as_its_json() {
        let form = format!(
            "payload={}",
            percent_encoding::utf8_percent_encode(BODY, percent_encoding::NON_ALPHANUMERIC)
        );
        let as_form = stale(receive(
            &receiver(),
            &headers("issues", "g-1", "application/x-www-form-urlencoded"),
            &form,
        ));
        assert_eq!(
            as_form,
            stale(receive(&receiver(), &headers("issues", "g-1", "application/json"), BODY))
        );
    }

    #[test]
    fn a_duplicate_has_no_second_effect_and_hides_no_other_delivery() {
        let receiver = receiver();
        let first = headers("issues", "g-1", "application/json");
        assert!(!stale(receive(&receiver, &first, BODY)).is_empty());
        let (again, nothing) = receive(&receiver, &first, BODY);
        assert_eq!((again.unwrap().effect, nothing), (Effect::Duplicate, Vec::new()));
        let other = BODY.replace('5', "6");
        assert!(
            !stale(receive(&receiver, &first, &other)).is_empty(),
            "another body is no duplicate"
        );
        assert!(
            !stale(receive(&receiver, &headers("issues", "g-2", "application/json"), BODY))
                .is_empty()
        );
        assert!(
            !stale(receive(&receiver, &headers("issues", "", "application/json"), BODY)).is_empty()
        );
    }

    #[test]
    fn a_malformed_delivery_does_not_count_as_received() {
        let receiver = receiver();
        let headers = headers("issues", "g-1", "application/json");
        for body in ["", "{", "[]", "\"issues\"", "payload={}"] {
            assert_eq!(
                receive(&receiver, &headers, body),
                (Err(Rejected::Malformed), Vec::new()),
                "{body}"
            );
        }
        let wrong = receiver.receive(
            &headers,
            &Signature::by(b"another", BODY.as_bytes()),
            BODY.as_bytes(),
            NOW,
            |_, _| panic!("it has no effect"),
        );
        assert_eq!(wrong, Err(Rejected::Signature));
        assert!(!stale(receive(&receiver, &headers, BODY)).is_empty());
    }

    #[test]
    fn an_unknown_event_invalidates_all_that_it_names() {
        let (received, changed) =
            receive(&receiver(), &headers("brewed", "g-1", "application/json"), BODY);
        assert_eq!(received.unwrap().event, "unknown");
        assert_eq!(
            changed,
            ["/repos/acme/widgets", "/repositories/7", "/graphql/node"]
                .map(|path| Invalidation::Below(path.into()))
        );
        for event in ["brewed", "issues"] {
            let nowhere =
                stale(receive(&receiver(), &headers(event, "g-1", "application/json"), "{}"));
            assert_eq!(
                nowhere,
                [Invalidation::Everything],
                "a known one that does not say where, too"
            );
        }
    }

    #[test]
    fn a_ping_changes_nothing() {
        assert_eq!(
            stale(receive(
                &receiver(),
                &headers("ping", "g-1", "application/json"),
                "{\"zen\":\"…\"}"
            )),
            []
        );
    }
}
