//! The upstream as a test drives it: requests, responses and virtual time. Every response enters
//! the record.
//!
//! The kit uses only the outside: the public functions of `weir::emulator` and the control plane
//! under `/_emulator`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use serde_json::{Value, json};
use weir::api::Dialect;
use weir::clock::Timestamp;
use weir::emulator::{Emulator, Options, RequestId};

use crate::evidence::names_a_route;
use crate::recorder::{Answered, Caller, Event, record, saw_header};

/// The world's time at the start of the emulator; a test starts a little later.
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
/// The base of `url` fields and links.
pub const BASE: &str = "http://upstream.test";
/// No credential.
pub const ANONYMOUS: &str = "";

pub struct Upstream {
    pub(crate) emulator: Emulator,
    pub now: Timestamp,
    /// The source address of the next requests.
    pub peer: IpAddr,
    /// The caller behind each token.
    pub(crate) callers: BTreeMap<String, Caller>,
    /// The first view of the world.
    pub(crate) first_world: Option<Value>,
    sequence: u64,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// Null unless the body is JSON.
    pub body: Value,
    pub bytes: Bytes,
    /// The route as the transcript names it.
    pub endpoint: String,
}

#[derive(Clone, Debug)]
pub struct TestRequest {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl TestRequest {
    pub fn new(method: &str, path: &str) -> Self {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let request =
            Self { method, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() };
        // The control plane takes nothing else.
        let is_control = path.starts_with("/_emulator");
        if is_control { request.header("content-type", "application/json") } else { request }
    }

    /// Adds a credential: a token as Bearer, `CLIENT_ID:CLIENT_SECRET` as Basic, and nothing for
    /// [`ANONYMOUS`].
    pub fn by(self, credential: &str) -> Self {
        match credential {
            ANONYMOUS => self,
            pair if pair.contains(':') => {
                self.header("authorization", &format!("Basic {}", STANDARD.encode(pair)))
            }
            token => self.header("authorization", &format!("Bearer {token}")),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a JSON body; null adds none.
    pub fn json(self, body: &Value) -> Self {
        if body.is_null() { self } else { self.text(&body.to_string()) }
    }

    /// Adds a body as it is, JSON or not.
    pub fn text(mut self, body: &str) -> Self {
        self.body = Bytes::copy_from_slice(body.as_bytes());
        self
    }

    fn authorization(&self) -> &str {
        self.headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            .map_or("", |(_, value)| value)
    }

    fn to_http(&self) -> Request<Bytes> {
        let mut builder = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header("host", "upstream.test");
        for (name, value) in &self.headers {
            builder = builder.header(name, value);
        }
        builder.body(self.body.clone()).expect("a well-formed request")
    }
}

impl Upstream {
    pub fn new() -> Self {
        Self::with(Options { repositories: 12, base_url: BASE.to_owned(), ..Options::default() })
    }

    /// An upstream of the other dialect.
    pub fn github() -> Self {
        Self::with(Options {
            dialect: Dialect::Github,
            repositories: 12,
            base_url: BASE.to_owned(),
            ..Options::default()
        })
    }

    pub fn with(options: Options) -> Self {
        let emulator = Emulator::new(options, START);
        let mut upstream = Self {
            emulator,
            now: START + Duration::from_secs(10),
            peer: Ipv4Addr::LOCALHOST.into(),
            callers: BTreeMap::new(),
            first_world: None,
            sequence: 0,
        };
        upstream.learn_callers();
        upstream
    }

    /// Lets virtual time pass.
    pub fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        record(Event::Passed { seconds });
    }

    /// Sends a request and takes its response at once.
    pub fn send(&mut self, request: &TestRequest) -> Answer {
        let (answer, id) = self.begin(request);
        self.end(id);
        answer
    }

    /// Sends a request that stays in flight until [`Upstream::end`].
    pub fn begin(&mut self, request: &TestRequest) -> (Answer, RequestId) {
        let arrival = self.emulator.arrive(self.now, &request.to_http(), self.peer);
        (self.answer(request, arrival.response), arrival.id)
    }

    pub fn end(&mut self, id: RequestId) {
        self.emulator.finish(self.now, id);
    }

    fn answer(&mut self, request: &TestRequest, response: Response<Bytes>) -> Answer {
        let (parts, bytes) = response.into_parts();
        let entries = self.emulator.transcript(self.sequence);
        let endpoint = entries.last().map_or_else(String::new, |entry| entry.endpoint.clone());
        self.sequence = entries.last().map_or(self.sequence, |entry| entry.sequence);
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let answer =
            Answer { status: parts.status.as_u16(), headers: parts.headers, body, bytes, endpoint };
        let path = request.path.split('?').next().unwrap_or_default();
        if ["/_emulator/reset", "/_emulator/seed"].contains(&path) {
            // The transcript and the world start over.
            self.sequence = 0;
            self.first_world = None;
        }
        record(Event::Answered(Answered {
            method: request.method.to_string(),
            path: path.strip_prefix("/api/v3").unwrap_or(path).to_owned(),
            status: answer.status,
            caller: self.caller(request.authorization()),
            endpoint: answer.endpoint.clone(),
            resource: answer.peek("x-ratelimit-resource").to_owned(),
            limit: answer.peek("x-ratelimit-limit").parse().ok(),
        }));
        answer
    }

    /// The caller behind an `Authorization` header.
    fn caller(&self, authorization: &str) -> Caller {
        let (scheme, credential) = authorization.split_once(' ').unwrap_or((authorization, ""));
        let scheme = scheme.to_ascii_lowercase();
        let decoded = || {
            String::from_utf8(STANDARD.decode(credential).unwrap_or_default()).unwrap_or_default()
        };
        let credential = if scheme == "basic" { decoded() } else { credential.to_owned() };
        let kind = match credential.as_str() {
            _ if scheme.is_empty() => "none",
            jwt if jwt.starts_with("eyJ") => "jwt",
            _ => "bad",
        };
        let known = self
            .callers
            .get(&credential)
            .cloned()
            .unwrap_or_else(|| Caller { kind: kind.to_owned(), ..Caller::default() });
        Caller { scheme, ..known }
    }

    pub fn get(&mut self, token: &str, path: &str) -> Answer {
        self.send(&TestRequest::new("GET", path).by(token))
    }

    pub fn post(&mut self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(&TestRequest::new("POST", path).by(token).json(body))
    }

    pub fn put(&mut self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(&TestRequest::new("PUT", path).by(token).json(body))
    }

    pub fn patch(&mut self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(&TestRequest::new("PATCH", path).by(token).json(body))
    }

    pub fn delete(&mut self, token: &str, path: &str) -> Answer {
        self.send(&TestRequest::new("DELETE", path).by(token))
    }

    /// A write without a body, as the legacy routes require (SPECIFICATION, "Conventions").
    pub fn put_empty(&mut self, token: &str, path: &str) -> Answer {
        self.send(&TestRequest::new("PUT", path).by(token).header("content-length", "0"))
    }

    pub fn set_limit(&mut self, name: &str, value: u64) {
        self.put(ANONYMOUS, "/_emulator/limits", &json!({ name: value })).expect_status(200);
    }

    /// The value of a limit by its name.
    pub fn limit(&mut self, name: &str) -> Option<u64> {
        self.get(ANONYMOUS, "/_emulator/limits").body["limits"][name].as_u64()
    }

    pub fn usage(&mut self) -> Value {
        self.get(ANONYMOUS, "/_emulator/books").expect_status(200).body
    }

    /// Makes an event happen in the world.
    pub fn event(&mut self, event: &Value) -> Answer {
        self.post(ANONYMOUS, "/_emulator/events", event).expect_status(201)
    }

    /// Sends `after` requests that must pass and one that the secondary limit must refuse, and
    /// records that.
    pub fn assert_refuses_after(
        &mut self,
        limit: &'static str,
        after: u64,
        mut send: impl FnMut(&mut Self, u64) -> Answer,
    ) {
        for n in 0..after {
            let answer = send(self, n);
            assert!(
                !answer.is_secondary_refusal(),
                "{limit} refused number {} of {after}: {}",
                n + 1,
                answer.body
            );
        }
        let answer = send(self, after);
        assert!(
            answer.is_secondary_refusal(),
            "{limit} let number {} through: {} {}",
            after + 1,
            answer.status,
            answer.body
        );
        record(Event::Refused { limit, after });
    }
}

impl Answer {
    /// A header, empty when absent and recorded when present.
    pub fn header(&self, name: &str) -> &str {
        if self.headers.contains_key(name) {
            saw_header(name);
        }
        self.peek(name)
    }

    fn peek(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    pub fn number(&self, name: &str) -> u64 {
        self.header(name)
            .parse()
            .unwrap_or_else(|_| panic!("no number in {name} of {} {}", self.status, self.body))
    }

    pub fn remaining(&self) -> u64 {
        self.number("x-ratelimit-remaining")
    }

    #[track_caller]
    pub fn expect_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} {}", self.endpoint, self.body);
        self
    }

    /// True if the emulator has a route for the request.
    pub fn is_of_a_route(&self) -> bool {
        names_a_route(&self.endpoint)
    }

    #[track_caller]
    pub fn items(&self) -> &Vec<Value> {
        self.body.as_array().unwrap_or_else(|| panic!("no list: {} {}", self.status, self.body))
    }

    /// The message of an error (SPECIFICATION, "Errors").
    #[track_caller]
    pub fn message(&self) -> &str {
        self.body["message"]
            .as_str()
            .unwrap_or_else(|| panic!("{} without a message: {}", self.status, self.body))
    }

    /// Asserts a 422 that names this field.
    #[track_caller]
    pub fn assert_names_field(&self, field: &str) {
        assert_eq!(self.status, 422, "{}", self.body);
        let errors = self.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(errors.iter().any(|error| error["field"] == field), "{field} in {}", self.body);
    }

    /// The URL of a relation in `Link`, as a path.
    pub fn link(&self, relation: &str) -> Option<String> {
        let wanted = format!("rel=\"{relation}\"");
        let entry = self.header("link").split(", ").find(|entry| entry.ends_with(&wanted))?;
        let address = entry.trim_start_matches('<').split('>').next()?;
        Some(address.strip_prefix(BASE).unwrap_or(address).to_owned())
    }

    /// Follows the rule for secondary refusals (SPECIFICATION, "Errors").
    pub fn is_secondary_refusal(&self) -> bool {
        [403, 429].contains(&self.status)
            && self.body["message"].as_str().is_some_and(|message| message.contains("secondary"))
    }

    /// Follows the rule for primary refusals (SPECIFICATION, "Errors").
    pub fn is_primary_refusal(&self) -> bool {
        [403, 429].contains(&self.status)
            && self.peek("x-ratelimit-remaining") == "0"
            && !self.is_secondary_refusal()
    }
}
