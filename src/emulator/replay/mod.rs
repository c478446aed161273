//! Replay: answers from recorded exchanges of the real service instead of the seed world.
//!
//! The published recordings use the github dialect; the emulator's own headers follow its options.
//!
//! Method, path, query and body select a record. Several records of one request are served in
//! order, the last one for ever. Recorded budgets are years old, so the emulator counts its own.
//! Recorded addresses become the emulator's, with uploads at `/api/uploads`, because one address
//! cannot be two hosts. Records of other hosts are not served, and links to them stay.

mod load;
mod rewrite;

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::http::{ApiArea, Body, Canonical, Query, Reply, Tag, Urls, path};
use crate::emulator::limits::Resource;

pub use self::load::LoadError;

/// The number of similar recorded requests in the response to an unknown one.
const NEAREST_MAX: usize = 5;

/// Recorded exchanges, in the order they were made.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    exchanges: Vec<Exchange>,
}

impl Recording {
    /// Returns the number of exchanges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// Returns true without any exchanges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    method: String,
    site: Site,
    path: String,
    query: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Site {
    Api,
    Uploads,
}

#[derive(Clone, Debug)]
struct Exchange {
    key: Key,
    /// Absent for uploads, the bodies of which are only counted.
    body: Option<Value>,
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    answer: RecordedBody,
    /// The header's value, with its quotes.
    etag: Option<String>,
    content_type: Option<String>,
    last_modified: Option<Timestamp>,
    resource: Resource,
}

#[derive(Clone, Debug)]
enum RecordedBody {
    Empty,
    Json(Value),
    Bytes(Bytes),
}

#[derive(Debug)]
pub struct Replayer {
    pub recording: Recording,
    by_key: BTreeMap<Key, Vec<usize>>,
    /// Times served, by the first position with the same key and body.
    served: BTreeMap<usize, usize>,
}

impl Replayer {
    pub fn new(recording: Recording) -> Self {
        let mut by_key: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (position, exchange) in recording.exchanges.iter().enumerate() {
            by_key.entry(exchange.key.clone()).or_default().push(position);
        }
        Self { recording, by_key, served: BTreeMap::new() }
    }

    /// Accepts any credential and gives each a budget of its own.
    pub fn caller(headers: &HeaderMap, peer: IpAddr) -> Caller {
        let Some(credential) = headers.get(AUTHORIZATION) else { return Caller::anonymous(peer) };
        let text = credential.to_str().unwrap_or("");
        let secret = text.split_once(' ').map_or(text, |(_, secret)| secret);
        let digest = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
        // Enough to tell credentials apart, too little to guess one by.
        let short =
            digest.as_ref().iter().take(4).fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        Caller { account: AccountId::Replayed(short), token: None }
    }

    /// Returns the resource that the recorded response was charged to.
    pub fn resource(&self, request: &Request<Bytes>, canonical: Canonical<'_>) -> Resource {
        let first =
            self.by_key.get(&key(request, canonical)).and_then(|positions| positions.first());
        let exchange = first.and_then(|position| self.recording.exchanges.get(*position));
        exchange.map_or(Resource::CORE, |exchange| exchange.resource)
    }

    /// Returns the endpoint's name for counting: all unknown requests share one.
    pub fn endpoint(&self, request: &Request<Bytes>, canonical: Canonical<'_>) -> String {
        let key = key(request, canonical);
        if self.by_key.contains_key(&key) {
            format!("{} {}", key.method, key.path)
        } else {
            format!("{} (not recorded)", key.method)
        }
    }

    pub fn answer(
        &mut self,
        request: &Request<Bytes>,
        canonical: Canonical<'_>,
        urls: &Urls,
    ) -> Reply {
        let key = key(request, canonical);
        let Some(positions) = self.by_key.get(&key) else {
            return self.unknown(&key, "No recorded exchange for");
        };
        let sent = body_value(request.body());
        let matching_by = |is_match: fn(&Value, &Value) -> bool| -> Vec<usize> {
            let has_body = |at: &usize| {
                let exchange = self.recording.exchanges.get(*at);
                exchange.is_some_and(|exchange| {
                    exchange.body.as_ref().is_none_or(|recorded| is_match(&sent, recorded))
                })
            };
            positions.iter().copied().filter(has_body).collect()
        };
        let mut matching = matching_by(Value::eq);
        if matching.is_empty() {
            matching = matching_by(contains);
        }
        let Some(first) = matching.first() else {
            return self.unknown(&key, "Recorded with another body only:");
        };
        let served = self.served.entry(*first).or_default();
        let position = matching.get(*served).or(matching.last()).copied().unwrap_or(*first);
        *served += 1;
        match self.recording.exchanges.get(position) {
            Some(exchange) => exchange.reply(urls),
            None => self.unknown(&key, "No recorded exchange for"),
        }
    }

    fn unknown(&self, key: &Key, problem: &str) -> Reply {
        let alike = |other: &Key| {
            let same = key.path.bytes().zip(other.path.bytes()).take_while(|(a, b)| a == b).count();
            (same, other.method == key.method)
        };
        let mut nearest: Vec<&Key> = self.by_key.keys().collect();
        nearest.sort_by_key(|other| std::cmp::Reverse(alike(other)));
        let names: Vec<String> =
            nearest.into_iter().take(NEAREST_MAX).map(Key::to_string).collect();
        let message = format!("{problem} {key}; the nearest are: {}", names.join(", "));
        Reply::json(StatusCode::NOT_FOUND, json!({ "message": message, "nearest": names }))
    }
}

/// Some clients send members that the recorded request lacks.
fn contains(sent: &Value, recorded: &Value) -> bool {
    match (sent, recorded) {
        (Value::Object(sent), Value::Object(recorded)) => {
            recorded.iter().all(|(name, value)| sent.get(name) == Some(value))
        }
        _ => false,
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let site = if self.site == Site::Uploads { "/api/uploads" } else { "" };
        write!(f, "{} {site}{}", self.method, self.path)?;
        for (index, (name, value)) in self.query.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

fn key(request: &Request<Bytes>, canonical: Canonical<'_>) -> Key {
    // A HEAD is answered from its GET.
    let method =
        if request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    let uploads = canonical.area == ApiArea::Uploads
        || path::is_upload(request.method(), request.uri().path());
    Key {
        method: method.to_string(),
        site: if uploads { Site::Uploads } else { Site::Api },
        path: canonical.path.to_owned(),
        query: Query::parse(request.uri().query()).sorted(),
    }
}

/// Parses a body for comparison: JSON, else text. No body and an empty object are equal.
fn body_value(body: &[u8]) -> Value {
    if body.is_empty() {
        return json!({});
    }
    serde_json::from_slice(body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()))
}

impl Exchange {
    fn reply(&self, urls: &Urls) -> Reply {
        let mut headers = self.headers.clone();
        for (name, value) in &mut headers {
            rewrite::header(name, value, urls);
        }
        let body = match &self.answer {
            RecordedBody::Empty => Body::Empty,
            RecordedBody::Json(value) => {
                let mut value = value.clone();
                rewrite::json(&mut value, urls);
                let bytes = serde_json::to_vec(&value).unwrap_or_default();
                Body::Raw(self.content_type.clone(), bytes.into())
            }
            RecordedBody::Bytes(bytes) => Body::Raw(self.content_type.clone(), bytes.clone()),
        };
        let tag = self.etag.clone().map_or(Tag::None, Tag::Recorded);
        Reply { status: self.status, body, changed_at: self.last_modified, tag, headers }
    }
}
