//! Delivered requests: the ones that the emulator sends to a receiver.

use std::time::Duration;

use ring::hmac;
use serde_json::{Value, json};
use weir::emulator::{Outgoing, Receipt};

use crate::document_3::webhooks::HOOKS;
use crate::kit::Upstream;
use crate::recorder::saw_header;

const SECRET: &str = "It's a Secret to Everybody";

/// Creates a hook of acme for these events and returns its id.
fn hook(upstream: &mut Upstream, events: &[&str], content_type: &str) -> u64 {
    let ada = upstream.classic("ada");
    let config = json!({ "url": "https://bots.example.com/hook?x=1", "content_type": content_type, "secret": SECRET });
    let body = json!({ "name": "web", "config": config, "events": events });
    upstream.post(&ada, HOOKS, &body).expect_status(201).body["id"].as_u64().expect("an id")
}

/// The one delivery due to the hook; the receiver answers 200.
fn received(upstream: &mut Upstream, event: &str) -> Outgoing {
    let now = upstream.now;
    let mut found = None;
    for outgoing in upstream.emulator.take_outgoing(now) {
        let receipt = Receipt::Answered {
            status: 200,
            duration: Duration::from_millis(80),
            headers: Vec::new(),
            payload: "thanks".to_owned(),
        };
        upstream.emulator.delivered(outgoing.id, receipt);
        let is_ours = outgoing.request.uri().host() == Some("bots.example.com");
        if is_ours && header(&outgoing, "X-Service-Event") == event {
            found = Some(outgoing);
        }
    }
    found.unwrap_or_else(|| panic!("no {event} is to be sent"))
}

/// A header of a delivered request, recorded when present.
fn header<'a>(outgoing: &'a Outgoing, name: &str) -> &'a str {
    let value = outgoing.request.headers().get(name).and_then(|value| value.to_str().ok());
    if value.is_some() {
        saw_header(name);
    }
    value.unwrap_or("")
}

fn open_an_issue(upstream: &mut Upstream) {
    let ada = upstream.classic("ada");
    upstream
        .post(&ada, "/repos/acme/widgets/issues", &json!({ "title": "told" }))
        .expect_status(201);
}

fn signature(algorithm: hmac::Algorithm, body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(algorithm, SECRET.as_bytes()), body);
    tag.as_ref()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[test]
pub fn a_subscribed_event_is_posted_to_the_url() {
    let mut upstream = Upstream::new();
    hook(&mut upstream, &["issues"], "json");
    open_an_issue(&mut upstream);
    let outgoing = received(&mut upstream, "issues");
    assert_eq!(outgoing.request.method(), "POST");
    assert_eq!(outgoing.request.uri().to_string(), "https://bots.example.com/hook?x=1");
}

#[test]
pub fn the_payload_carries_an_action_and_the_affected_objects() {
    let mut upstream = Upstream::new();
    hook(&mut upstream, &["issues"], "json");
    open_an_issue(&mut upstream);
    let payload: Value =
        serde_json::from_slice(received(&mut upstream, "issues").request.body()).expect("JSON");
    assert_eq!(payload["action"], "opened");
    assert_eq!(payload["issue"]["title"], "told");
    assert_eq!(payload["repository"]["full_name"], "acme/widgets");
}

#[test]
pub fn a_delivery_has_its_headers() {
    let mut upstream = Upstream::new();
    let id = hook(&mut upstream, &["issues"], "json");
    open_an_issue(&mut upstream);
    let outgoing = received(&mut upstream, "issues");
    let ada = upstream.classic("ada");
    let listed = upstream.get(&ada, &format!("{HOOKS}/{id}/deliveries")).body[0].clone();
    assert_eq!(header(&outgoing, "X-Service-Delivery"), listed["guid"]);
    assert_eq!(header(&outgoing, "X-Service-Event"), "issues");
    assert_eq!(header(&outgoing, "X-Service-Hook-ID"), id.to_string());
    assert!(header(&outgoing, "X-Service-Hook-Installation-Target-ID").parse::<u64>().is_ok());
    assert_eq!(header(&outgoing, "X-Service-Hook-Installation-Target-Type"), "organization");
    assert!(header(&outgoing, "User-Agent").to_lowercase().contains("hookshot"));
    assert_eq!(header(&outgoing, "content-type"), "application/json");
    assert_eq!(header(&outgoing, "Accept"), "*/*");
}

#[test]
pub fn a_delivery_is_signed_with_the_secret() {
    let mut upstream = Upstream::new();
    hook(&mut upstream, &["issues"], "json");
    open_an_issue(&mut upstream);
    let outgoing = received(&mut upstream, "issues");
    let body = outgoing.request.body();
    assert_eq!(
        header(&outgoing, "X-Hub-Signature-256"),
        format!("sha256={}", signature(hmac::HMAC_SHA256, body))
    );
    assert_eq!(
        header(&outgoing, "X-Hub-Signature"),
        format!("sha1={}", signature(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, body))
    );
}

#[test]
pub fn the_content_type_chooses_the_media_type() {
    let mut upstream = Upstream::new();
    hook(&mut upstream, &["issues"], "form");
    open_an_issue(&mut upstream);
    let outgoing = received(&mut upstream, "issues");
    assert_eq!(header(&outgoing, "content-type"), "application/x-www-form-urlencoded");
    assert!(outgoing.request.body().starts_with(b"payload="));
}

#[test]
pub fn a_ping_is_sent() {
    let mut upstream = Upstream::new();
    let id = hook(&mut upstream, &["push"], "json");
    let ada = upstream.classic("ada");
    upstream.post(&ada, &format!("{HOOKS}/{id}/pings"), &Value::Null).expect_status(204);
    received(&mut upstream, "ping");
}

#[test]
pub fn a_redelivery_is_sent_with_the_same_guid() {
    let mut upstream = Upstream::new();
    let id = hook(&mut upstream, &["issues"], "json");
    open_an_issue(&mut upstream);
    let first = received(&mut upstream, "issues");
    let ada = upstream.classic("ada");
    let path = format!("{HOOKS}/{id}/deliveries");
    let delivery = upstream.get(&ada, &path).body[0].clone();
    assert_eq!((&delivery["status"], &delivery["status_code"]), (&json!("OK"), &json!(200)));
    let detail = upstream.get(&ada, &format!("{path}/{}", delivery["id"])).body;
    assert_eq!(detail["response"]["payload"], "thanks");
    upstream
        .post(&ada, &format!("{path}/{}/attempts", delivery["id"]), &Value::Null)
        .expect_status(202);
    let again = received(&mut upstream, "issues");
    assert_eq!(header(&again, "X-Service-Delivery"), header(&first, "X-Service-Delivery"));
    assert_eq!(again.request.body(), first.request.body());
}

#[test]
pub fn the_named_events_occur() {
    let mut upstream = Upstream::new();
    hook(&mut upstream, &["*"], "json");
    open_an_issue(&mut upstream);
    received(&mut upstream, "issues");
    for (kind, event) in [("push", "push"), ("pull_request_opened", "pull_request")] {
        upstream.event(&json!({ "type": kind, "repository": "acme/widgets", "actor": "ada" }));
        received(&mut upstream, event);
    }
}

#[test]
pub fn events_of_an_organization_with_the_app_reach_the_app() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    let before =
        upstream.get(&jwt, "/app/hook/deliveries").expect_status(200).body[0]["id"].clone();
    open_an_issue(&mut upstream);
    let newest = upstream.get(&jwt, "/app/hook/deliveries").expect_status(200).body[0].clone();
    assert_ne!(newest["id"], before);
    assert_eq!(newest["event"], "issues");
    assert!(newest["installation_id"].is_u64(), "{newest}");
}
