//! Tests the emulator as a caller sees it, sentence by sentence of the upstream's documentation.

mod auth;
mod changes;
mod control;
mod generic;
mod graphql;
mod limits;
mod messages;
mod migrations;
mod notifications;
mod organizations;
mod repositories;
mod webhooks;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};

use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::pipeline::emulator::Emulator;
use crate::emulator::seed::options::Options;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ADA: &str = "emu_classic_ada_all_scopes";
const ADA_FINE: &str = "emu_fine_grained_ada_all_permissions";
const ADA_NO_PERMISSIONS: &str = "emu_fine_grained_ada_no_permissions";
const ADA_NO_SCOPES: &str = "emu_classic_ada_no_scopes";
const BEN: &str = "emu_classic_ben_all_scopes";
const DAN: &str = "emu_classic_dan_all_scopes";
const INSTALLATION: &str = "emu_installation_acme";
const WORKFLOW: &str = "emu_workflow_widgets";
const OAUTH: &str = "emu_oauth_ada";
const NOBODY: &str = "";

struct Upstream {
    emulator: Emulator,
    now: Timestamp,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Value,
    bytes: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    fn remaining(&self) -> u32 {
        self.header("x-ratelimit-remaining").parse().expect("every answer has a remaining count")
    }

    fn link(&self, relation: &str) -> Option<String> {
        let wanted = format!("rel=\"{relation}\"");
        let entry =
            self.header("link").split(", ").find(|entry| entry.ends_with(&wanted))?.to_owned();
        Some(entry.trim_start_matches('<').split('>').next().unwrap_or("").to_owned())
    }

    fn items(&self) -> &Vec<Value> {
        self.body.as_array().unwrap_or_else(|| panic!("{} {}", self.status, self.body))
    }

    fn assert_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    fn assert_names_field(&self, field: &str) {
        assert_eq!(self.status, 422, "{}", self.body);
        let errors = self.body["errors"].as_array().expect("a 422 has errors");
        assert!(errors.iter().any(|error| error["field"] == field), "{field} in {}", self.body);
    }
}

impl Upstream {
    fn new() -> Self {
        Self::with(Options { base_url: "http://upstream.test".to_owned(), ..Options::default() })
    }

    fn with(options: Options) -> Self {
        Self { emulator: Emulator::new(options, START), now: START + Duration::from_secs(10) }
    }

    fn github() -> Self {
        Self::with(Options { dialect: Dialect::Github, ..Options::default() })
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn send(&mut self, request: &Request<Bytes>) -> Answer {
        let response = self.emulator.respond(self.now, request, PEER);
        let (parts, bytes) = response.into_parts();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status: parts.status.as_u16(), headers: parts.headers, body, bytes }
    }

    fn get(&mut self, token: &str, path: &str) -> Answer {
        self.send(&request(Method::GET, token, path, &[], &Value::Null))
    }

    fn get_with(&mut self, token: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(&request(Method::GET, token, path, headers, &Value::Null))
    }

    fn post(&mut self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(&request(Method::POST, token, path, &[], body))
    }

    fn patch(&mut self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(&request(Method::PATCH, token, path, &[], body))
    }

    fn put(&mut self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(&request(Method::PUT, token, path, &[], body))
    }

    fn delete(&mut self, token: &str, path: &str) -> Answer {
        self.send(&request(Method::DELETE, token, path, &[], &Value::Null))
    }

    fn set_limit(&mut self, name: &str, value: u64) {
        self.put(NOBODY, "/_emulator/limits", &json!({ name: value })).assert_status(200);
    }

    fn usage(&mut self) -> Value {
        self.get(NOBODY, "/_emulator/books").body
    }
}

/// Builds a request; null is no body.
fn request(
    method: Method,
    token: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Request<Bytes> {
    let mut builder = Request::builder().method(method).uri(path).header("host", "upstream.test");
    if !token.is_empty() {
        builder = builder.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if path.starts_with("/_emulator") && !has_type {
        builder = builder.header("content-type", "application/json");
    }
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    builder.body(body).expect("a well-formed request")
}
