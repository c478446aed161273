//! A queued write in memory and in bytes: its request, and its progress.
//!
//! Both are stored as a length, a JSON text and a raw body: people can read the text, later
//! versions can extend it, and bodies need no escaping. No credential is stored: a write names its
//! client and its account.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// Identifies a write in its status URL and to operators: `NUMBER-SALT` in hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriteId {
    /// Order of acceptance; never reused by a store.
    pub number: u64,
    /// Distinguishes writes of the same number from stores that lost their contents.
    pub salt: u64,
}

/// State of a write, in the words of the status resource.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum WriteState {
    /// No attempt is under way.
    Queued,
    /// An attempt is under way: from right before its first byte until its result is known.
    Sending,
    /// The upstream answered, and its answer of any status is the outcome.
    Done,
    /// It was not executed and will not be: the gateway gave up.
    Failed,
    /// It may have been executed or not.
    Unknown,
    /// It was cancelled before anything was sent.
    Cancelled,
}

/// The upstream address of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Address {
    /// The REST API.
    Rest,
    /// The GraphQL endpoint.
    Graphql,
    /// The upload host.
    Uploads,
}

/// The base URL that a client uses, and that its answers show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// `/repos/…`.
    Plain,
    /// `/api/v3/repos/…`.
    V3,
}

/// The request of a write; immutable.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Identity.
    pub id: WriteId,
    /// Client name in the config.
    pub client: Arc<str>,
    /// Name in the config of the account that carries it.
    pub account: Arc<str>,
    /// Request method.
    pub method: Method,
    /// Upstream address.
    pub address: Address,
    /// Base URL in its answer.
    pub shape: Shape,
    /// Canonical path, without `/api/v3` and similar prefixes.
    pub path: String,
    /// Raw query without `?`.
    pub query: Option<String>,
    /// End-to-end headers, without credentials.
    pub headers: HeaderMap,
    /// Body as received.
    pub body: Bytes,
    /// Time of acceptance.
    pub accepted: Timestamp,
    /// The client's `Idempotency-Key`, and the request it was used for.
    pub key: Option<Key>,
}

/// An `Idempotency-Key` and its request, as SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Digest of the key.
    pub name: [u8; 32],
    /// Digest of method, path, query and body.
    pub meaning: [u8; 32],
}

/// Progress of a write.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Current state.
    pub state: WriteState,
    /// Attempts so far.
    pub attempts: u32,
    /// Earliest time of the next attempt.
    pub not_before: Timestamp,
    /// Time at which an unsent write is given up.
    pub deadline: Timestamp,
    /// True if only a waiting client knows of it: without the client it is not begun.
    pub has_waiter: bool,
    /// True if an attempt so far may have been executed.
    pub may_have_run: bool,
    /// Time of its end.
    pub finished: Option<Timestamp>,
    /// The upstream's answer.
    pub response: Option<Box<Response>>,
    /// Reason of an end without an answer.
    pub reason: Option<Box<Reason>>,
}

/// An answer of the upstream as it is kept: without secrets, with the upstream's URLs.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// Status of the final response.
    pub status: StatusCode,
    /// Headers for the client, URLs not rewritten yet.
    pub headers: HeaderMap,
    /// Body; `None`: it was too long to keep.
    pub body: Option<Bytes>,
}

/// Reason why a write has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A word from a closed set, as in metrics and logs.
    pub word: String,
    /// Text for people.
    pub message: String,
    /// Status of the answer to a waiting client.
    pub status: u16,
}

/// Bytes that are no record of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a write that this version can read: {0}")]
pub struct Unreadable(String);

impl WriteState {
    /// All states in the order of a life.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Sending, Self::Done, Self::Failed, Self::Unknown, Self::Cancelled];

    /// Returns the lower-case name, as in JSON, metrics and the log.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns true if only an operator's action changes it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Unknown | Self::Cancelled)
    }
}

impl Progress {
    /// Creates the progress of a write that was just accepted.
    pub const fn queued(now: Timestamp, deadline: Timestamp) -> Self {
        Self {
            state: WriteState::Queued,
            attempts: 0,
            not_before: now,
            deadline,
            has_waiter: false,
            may_have_run: false,
            finished: None,
            response: None,
            reason: None,
        }
    }

    /// Returns the progress with one more attempt, which begins.
    #[must_use]
    pub fn sending(&self) -> Self {
        Self { state: WriteState::Sending, attempts: self.attempts + 1, ..self.clone() }
    }

    /// Encodes the progress for the store.
    pub fn encode(&self) -> Bytes {
        let response = self.response.as_deref();
        let body = response.and_then(|response| response.body.as_deref());
        let head = ProgressHead {
            state: self.state,
            attempts: self.attempts,
            not_before: self.not_before.as_millis(),
            deadline: self.deadline.as_millis(),
            has_waiter: self.has_waiter,
            may_have_run: self.may_have_run,
            finished: self.finished.map(Timestamp::as_millis),
            status: response.map(|response| response.status.as_u16()),
            headers: response.map(|response| to_text(&response.headers)).unwrap_or_default(),
            has_body: body.is_some(),
            reason: self.reason.as_deref().cloned(),
        };
        joined(&head, body.unwrap_or_default())
    }

    /// Decodes the bytes of [`Progress::encode`].
    pub fn decode(bytes: &Bytes) -> Result<Self, Unreadable> {
        let (mut head, body): (ProgressHead<HeaderLines>, Bytes) = split(bytes)?;
        let response = match head.status {
            Some(status) => Some(Box::new(Response {
                status: StatusCode::from_u16(status).map_err(unreadable)?,
                headers: from_text(&std::mem::take(&mut head.headers))?,
                body: head.has_body.then_some(body),
            })),
            None => None,
        };
        Ok(Self::of(head, response))
    }

    /// The same without the response.
    pub fn decode_state(bytes: &Bytes) -> Result<Self, Unreadable> {
        split::<ProgressHead<Skipped>>(bytes).map(|(head, _)| Self::of(head, None))
    }

    fn of<H>(head: ProgressHead<H>, response: Option<Box<Response>>) -> Self {
        Self {
            state: head.state,
            attempts: head.attempts,
            not_before: Timestamp::from_millis(head.not_before),
            deadline: Timestamp::from_millis(head.deadline),
            has_waiter: head.has_waiter,
            may_have_run: head.may_have_run,
            finished: head.finished.map(Timestamp::from_millis),
            response,
            reason: head.reason.map(Box::new),
        }
    }
}

impl Write {
    /// Returns path and query as they go upstream.
    pub fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// Returns true if executing it twice equals executing it once. For a GraphQL mutation the
    /// method does not tell.
    pub fn is_idempotent(&self) -> bool {
        self.address != Address::Graphql && self.method.is_idempotent()
    }

    /// Encodes the write for the store.
    pub fn encode(&self) -> Bytes {
        let head = WriteHead {
            id: self.id.to_string(),
            client: self.client.to_string(),
            account: self.account.to_string(),
            method: self.method.as_str().to_owned(),
            address: self.address,
            shape: self.shape,
            path: self.path.clone(),
            query: self.query.clone(),
            headers: to_text(&self.headers),
            accepted: self.accepted.as_millis(),
            key: self.key.map(|key| (hex(&key.name), hex(&key.meaning))),
        };
        joined(&head, &self.body)
    }

    /// Decodes the bytes of [`Write::encode`].
    pub fn decode(bytes: &Bytes) -> Result<Self, Unreadable> {
        let (mut head, body): (WriteHead<HeaderLines>, Bytes) = split(bytes)?;
        let headers = from_text(&std::mem::take(&mut head.headers))?;
        Ok(Self { headers, body, ..Self::of(head)? })
    }

    /// The same without headers and body.
    pub fn decode_outline(bytes: &Bytes) -> Result<Self, Unreadable> {
        split::<WriteHead<Skipped>>(bytes).and_then(|(head, _)| Self::of(head))
    }

    fn of<H>(head: WriteHead<H>) -> Result<Self, Unreadable> {
        let key = |(name, meaning): (String, String)| -> Result<Key, Unreadable> {
            Ok(Key { name: unhex(&name)?, meaning: unhex(&meaning)? })
        };
        Ok(Self {
            id: head.id.parse()?,
            client: head.client.into(),
            account: head.account.into(),
            method: head.method.parse().map_err(unreadable)?,
            address: head.address,
            shape: head.shape,
            path: head.path,
            query: head.query,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            accepted: Timestamp::from_millis(head.accepted),
            key: head.key.map(key).transpose()?,
        })
    }
}

impl fmt::Display for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:016x}", self.number, self.salt)
    }
}

impl FromStr for WriteId {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let id = text.split_once('-').and_then(|(number, salt)| {
            Some(Self {
                number: u64::from_str_radix(number, 16).ok()?,
                salt: u64::from_str_radix(salt, 16).ok()?,
            })
        });
        // Accepts one spelling only, so that text and id correspond one to one.
        id.filter(|id| id.to_string() == text).ok_or_else(|| Unreadable("its id is not one".into()))
    }
}

type HeaderLines = Vec<(String, String)>;

/// Header lines that nobody needs now.
#[derive(Default, Deserialize)]
#[serde(transparent)]
struct Skipped(IgnoredAny);

#[derive(Serialize, Deserialize)]
struct WriteHead<H> {
    id: String,
    client: String,
    account: String,
    method: String,
    address: Address,
    shape: Shape,
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    headers: H,
    accepted: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<(String, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(bound(
    serialize = "H: Serialize + AsRef<[(String, String)]>",
    deserialize = "H: Deserialize<'de> + Default"
))]
struct ProgressHead<H> {
    state: WriteState,
    attempts: u32,
    not_before: u64,
    deadline: u64,
    #[serde(rename = "attended", default, skip_serializing_if = "std::ops::Not::not")]
    has_waiter: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    may_have_run: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "is_empty")]
    headers: H,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_body: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

fn is_empty(lines: &impl AsRef<[(String, String)]>) -> bool {
    lines.as_ref().is_empty()
}

fn joined(head: &impl Serialize, body: &[u8]) -> Bytes {
    // Texts and numbers always serialise to JSON.
    let head = serde_json::to_vec(head).unwrap_or_default();
    let mut bytes = BytesMut::with_capacity(4 + head.len() + body.len());
    bytes.put_u32_le(u32::try_from(head.len()).unwrap_or(u32::MAX));
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(body);
    bytes.freeze()
}

fn split<H: for<'de> Deserialize<'de>>(bytes: &Bytes) -> Result<(H, Bytes), Unreadable> {
    let short = || Unreadable("it is cut short".into());
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(unreadable)?;
    let head = rest.get(..length).ok_or_else(short)?;
    Ok((serde_json::from_slice(head).map_err(unreadable)?, bytes.slice(4 + length..)))
}

fn unreadable(fault: impl fmt::Display) -> Unreadable {
    Unreadable(fault.to_string())
}

/// Maps each byte of a header's value to a character, because values need not be UTF-8 (RFC 9110
/// §5.5).
fn to_text(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

fn from_text(lines: &[(String, String)]) -> Result<HeaderMap, Unreadable> {
    let mut headers = HeaderMap::with_capacity(lines.len());
    for (name, value) in lines {
        let bytes: Result<Vec<u8>, _> = value.chars().map(|c| u8::try_from(u32::from(c))).collect();
        let value = HeaderValue::from_bytes(&bytes.map_err(unreadable)?).map_err(unreadable)?;
        headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(unreadable)?, value);
    }
    Ok(headers)
}

fn hex(bytes: &[u8; 32]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Result<[u8; 32], Unreadable> {
    if text.len() != 64 {
        return Err(Unreadable("a digest has 64 digits".into()));
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(unreadable)?;
        *byte = u8::from_str_radix(pair, 16).map_err(unreadable)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(body: Vec<u8>, value: Vec<u8>, key: Option<[u8; 32]>) -> Write {
        let mut headers = HeaderMap::new();
        for value in [value, b"second".to_vec()] {
            headers.append("x-note", HeaderValue::from_bytes(&value).unwrap());
        }
        Write {
            id: WriteId { number: 0x1f, salt: 7 },
            client: "ci".into(),
            account: "bot".into(),
            method: Method::POST,
            address: Address::Rest,
            shape: Shape::V3,
            path: "/repos/acme/w%20x/issues".into(),
            query: Some("a=b".into()),
            headers,
            body: body.into(),
            accepted: Timestamp::from_millis(1_234),
            key: key.map(|name| Key { name, meaning: [9; 32] }),
        }
    }

    #[test]
    fn a_mutation_is_idempotent_by_no_method() {
        let by = |address, method| {
            Write { method, address, ..write(Vec::new(), Vec::new(), None) }.is_idempotent()
        };
        assert!(
            by(Address::Rest, Method::PUT)
                && by(Address::Rest, Method::DELETE)
                && !by(Address::Rest, Method::POST)
        );
        assert!(!by(Address::Graphql, Method::GET) && !by(Address::Graphql, Method::PUT));
    }

    proptest! {
        #[test]
        fn a_record_decodes_to_the_encoded_value(
            body in prop::collection::vec(any::<u8>(), 0..200),
            value in prop::collection::vec((0x20_u8..=0xff).prop_filter("DEL", |byte| *byte != 0x7f), 0..20),
            key in prop::option::of(any::<[u8; 32]>()),
            attempts in any::<u32>(),
            has_body in any::<bool>(),
        ) {
            let write = write(body.clone(), value, key);
            prop_assert_eq!(Write::decode(&write.encode()), Ok(write.clone()));
            let response = Response { status: StatusCode::CREATED, headers: write.headers, body: has_body.then(|| body.into()) };
            let progress = Progress { attempts, response: Some(Box::new(response)), state: WriteState::Done, ..Progress::queued(write.accepted, Timestamp::FAR_FUTURE) };
            prop_assert_eq!(Progress::decode(&progress.encode()), Ok(progress));
        }

        #[test]
        fn truncated_or_foreign_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..100), cut in any::<prop::sample::Index>()) {
            prop_assert!(Write::decode(&bytes.clone().into()).is_err());
            prop_assert!(Progress::decode(&bytes.into()).is_err());
            let whole = write(Vec::new(), b"x".to_vec(), None).encode();
            prop_assert!(Write::decode(&whole.slice(..cut.index(whole.len()))).is_err());
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = WriteId { number: 0x1f, salt: 7 };
        assert_eq!(id.to_string(), "1f-0000000000000007");
        assert_eq!("1f-0000000000000007".parse(), Ok(id));
        for other in [
            "",
            "1f",
            "1F-0000000000000007",
            "01f-0000000000000007",
            "1f-7",
            "+1-0000000000000007",
            "1f-0000000000000007-",
        ] {
            assert!(other.parse::<WriteId>().is_err(), "{other}");
        }
    }
}
