//! Tests the delivery queue without a network (SPECIFICATION, "Deliveries").

use http::StatusCode;
use serde_json::{Value, json};

use crate::emulator::events::delivery::queue::Outgoing;
use crate::emulator::tests::*;
use crate::emulator::world::{Certificate, Failure, Receipt};

const HOOKS: &str = "/orgs/acme/hooks";

fn create(upstream: &mut Upstream, config: &Value) -> String {
    let hook = upstream
        .post(ADA, HOOKS, &json!({ "name": "web", "config": config, "events": ["*"] }))
        .assert_status(201);
    format!("{HOOKS}/{}", hook.body["id"])
}

fn plain(upstream: &mut Upstream, host: &str) -> String {
    create(upstream, &json!({ "url": format!("http://{host}/") }))
}

/// Takes the due deliveries and returns those to this host; the rest is dropped.
fn taken(upstream: &mut Upstream, host: &str) -> Vec<Outgoing> {
    let now = upstream.now;
    let mut taken = upstream.emulator.take_outgoing(now);
    taken.retain(|outgoing| outgoing.request.uri().host() == Some(host));
    taken
}

fn ping(upstream: &mut Upstream, hook: &str) {
    upstream.post(ADA, &format!("{hook}/pings"), &Value::Null).assert_status(204);
}

fn answered(status: StatusCode) -> Receipt {
    Receipt::answered(status, &HeaderMap::new(), b"thanks", Duration::from_millis(30))
}

fn header<'a>(outgoing: &'a Outgoing, name: &str) -> Option<&'a str> {
    outgoing.request.headers().get(name).and_then(|value| value.to_str().ok())
}

#[test]
fn a_delivery_is_a_signed_post_with_the_headers_of_the_table() {
    let mut upstream = Upstream::new();
    let hook = create(
        &mut upstream,
        &json!({ "url": "https://a.test/x?y=1", "secret": "It's a Secret to Everybody" }),
    );
    ping(&mut upstream, &hook);
    let all = taken(&mut upstream, "a.test");
    let [sent] = all.as_slice() else { panic!("one delivery") };
    assert_eq!(
        (sent.request.method(), sent.request.uri().to_string().as_str()),
        (&Method::POST, "https://a.test/x?y=1")
    );
    let listed = upstream.get(ADA, &format!("{hook}/deliveries")).items()[0].clone();
    let hook_id = hook.rsplit('/').next();
    assert_eq!(header(sent, "x-service-delivery"), listed["guid"].as_str());
    assert_eq!(header(sent, "x-service-event"), Some("ping"));
    assert_eq!(header(sent, "x-service-hook-id"), hook_id);
    assert_eq!(header(sent, "x-service-hook-installation-target-id"), Some("201"));
    assert_eq!(header(sent, "x-service-hook-installation-target-type"), Some("organization"));
    assert_eq!(
        (header(sent, "content-type"), header(sent, "accept")),
        (Some("application/json"), Some("*/*"))
    );
    assert!(
        header(sent, "user-agent")
            .is_some_and(|agent| agent.starts_with("Service-Hookshot/") && agent.len() > 20)
    );
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"It's a Secret to Everybody");
    let expected = crate::emulator::http::validators::hex(
        ring::hmac::sign(&key, sent.request.body()).as_ref(),
    );
    assert_eq!(
        header(sent, "x-hub-signature-256"),
        Some(format!("sha256={expected}").as_str()),
        "over the raw body"
    );
    assert!(
        header(sent, "x-hub-signature")
            .is_some_and(|signature| signature.starts_with("sha1=") && signature.len() == 45)
    );
    assert_eq!(header(sent, "authorization"), None);
    assert_eq!(sent.certificate, Certificate::Verified);
}

#[test]
fn without_a_secret_there_is_no_signature() {
    let mut upstream = Upstream::new();
    let hook = create(
        &mut upstream,
        &json!({ "url": "http://a.test/", "insecure_ssl": 1, "username": "emu_user", "password": "emu_password" }),
    );
    ping(&mut upstream, &hook);
    let sent = taken(&mut upstream, "a.test").remove(0);
    assert_eq!(
        (header(&sent, "x-hub-signature-256"), header(&sent, "x-hub-signature")),
        (None, None)
    );
    assert_eq!(sent.certificate, Certificate::Any);
    assert_eq!(header(&sent, "authorization"), Some("Basic ZW11X3VzZXI6ZW11X3Bhc3N3b3Jk"));
    let id = upstream.get(ADA, &format!("{hook}/deliveries")).items()[0]["id"].clone();
    let detail = upstream.get(ADA, &format!("{hook}/deliveries/{id}")).body;
    assert!(
        detail["request"]["headers"].get("authorization").is_none(),
        "credentials are not shown"
    );
}

#[test]
fn the_dialect_names_the_headers_and_the_agent() {
    let mut upstream = Upstream::github();
    let hook = plain(&mut upstream, "a.test");
    ping(&mut upstream, &hook);
    let sent = taken(&mut upstream, "a.test").remove(0);
    assert_eq!(header(&sent, "x-github-event"), Some("ping"));
    assert!(header(&sent, "user-agent").is_some_and(|agent| agent.starts_with("GitHub-Hookshot/")));
    assert!(sent.request.headers().keys().all(|name| !name.as_str().contains("service")));
}

#[test]
fn a_form_body_carries_the_payload_and_is_signed() {
    let mut upstream = Upstream::new();
    let hook = create(
        &mut upstream,
        &json!({ "url": "http://a.test/", "content_type": "form", "secret": "s" }),
    );
    ping(&mut upstream, &hook);
    let sent = taken(&mut upstream, "a.test").remove(0);
    assert_eq!(header(&sent, "content-type"), Some("application/x-www-form-urlencoded"));
    let body = std::str::from_utf8(sent.request.body()).expect("text");
    let payload =
        percent_encoding::percent_decode_str(body.strip_prefix("payload=").expect("a form"))
            .decode_utf8()
            .expect("UTF-8");
    assert!(serde_json::from_str::<Value>(&payload).expect("JSON")["zen"].is_string());
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"s");
    let expected =
        crate::emulator::http::validators::hex(ring::hmac::sign(&key, body.as_bytes()).as_ref());
    assert_eq!(header(&sent, "x-hub-signature-256"), Some(format!("sha256={expected}").as_str()));
}

#[test]
fn the_response_to_a_delivery_is_recorded() {
    let mut upstream = Upstream::new();
    let hook = plain(&mut upstream, "a.test");
    ping(&mut upstream, &hook);
    upstream.pass(3);
    let sent = taken(&mut upstream, "a.test").remove(0);
    let headers = [("content-type", "text/plain"), ("x-a", "1"), ("x-a", "2")];
    let headers = headers
        .into_iter()
        .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
        .collect();
    let receipt = Receipt::answered(
        StatusCode::ACCEPTED,
        &headers,
        "gr\u{fc}n".as_bytes(),
        Duration::from_millis(250),
    );
    upstream.emulator.delivered(sent.id, receipt);
    let listed = upstream.get(ADA, &format!("{hook}/deliveries")).items()[0].clone();
    assert_eq!(
        (&listed["status"], &listed["status_code"], &listed["duration"]),
        (&json!("Accepted"), &json!(202), &json!(0.25))
    );
    assert_eq!(listed["delivered_at"], crate::emulator::http::timestamps::iso(upstream.now));
    let detail = upstream.get(ADA, &format!("{hook}/deliveries/{}", listed["id"])).body;
    assert_eq!(
        detail["response"],
        json!({ "headers": { "content-type": "text/plain", "x-a": "1, 2" }, "payload": "gr\u{fc}n" })
    );
    assert!(upstream.emulator.is_all_delivered());
}

#[test]
fn a_failed_delivery_records_its_cause_and_is_filterable() {
    let mut upstream = Upstream::new();
    let hook = plain(&mut upstream, "a.test");
    for (failure, text) in
        [(Failure::TimedOut, "Timed out"), (Failure::Refused, "Connection refused")]
    {
        ping(&mut upstream, &hook);
        let sent = taken(&mut upstream, "a.test").remove(0);
        upstream
            .emulator
            .delivered(sent.id, Receipt::Failed { failure, duration: Duration::from_secs(10) });
        let listed = upstream.get(ADA, &format!("{hook}/deliveries")).items()[0].clone();
        assert_eq!(
            (&listed["status"], &listed["status_code"], &listed["duration"]),
            (&json!(text), &json!(0), &json!(10.0))
        );
    }
    ping(&mut upstream, &hook);
    let shown = |upstream: &mut Upstream, status: &str| {
        upstream.get(ADA, &format!("{hook}/deliveries?status={status}")).items().len()
    };
    assert_eq!(
        (shown(&mut upstream, "failure"), shown(&mut upstream, "success")),
        (2, 0),
        "a pending delivery is neither"
    );
}

#[test]
fn each_webhook_sends_one_delivery_at_a_time() {
    let mut upstream = Upstream::new();
    let (slow, quick) = (plain(&mut upstream, "slow.test"), plain(&mut upstream, "quick.test"));
    for _ in 0..3 {
        ping(&mut upstream, &slow);
        ping(&mut upstream, &quick);
    }
    let now = upstream.now;
    let first = upstream.emulator.take_outgoing(now);
    let hosts: Vec<_> = first.iter().filter_map(|outgoing| outgoing.request.uri().host()).collect();
    assert_eq!(hosts, ["slow.test", "quick.test"]);
    ping(&mut upstream, &slow);
    assert!(!upstream.emulator.has_outgoing() && upstream.emulator.take_outgoing(now).is_empty());
    upstream.emulator.delivered(first[1].id, answered(StatusCode::OK));
    let second = upstream.emulator.take_outgoing(now);
    assert_eq!(second.len(), 1, "the slow one does not hold up the quick one");
    assert_eq!(second[0].request.uri().host(), Some("quick.test"));
    let order = upstream.get(ADA, &format!("{quick}/deliveries"));
    assert_eq!(
        header(&second[0], "x-service-delivery"),
        order.items()[1]["guid"].as_str(),
        "in the order of the events"
    );
}

#[test]
fn at_most_200_deliveries_are_in_flight() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 100_000);
    for index in 0..220 {
        plain(&mut upstream, &format!("h{index}.test"));
    }
    let event = json!({ "type": "custom", "event": "deployment", "repository": "acme/widgets" });
    assert_eq!(
        upstream.post(NOBODY, "/_emulator/events", &event).assert_status(201).body["deliveries"],
        221,
        "the app's as well"
    );
    let now = upstream.now;
    let first = upstream.emulator.take_outgoing(now);
    assert_eq!((first.len(), upstream.emulator.has_outgoing()), (200, false));
    upstream.emulator.delivered(first[0].id, answered(StatusCode::OK));
    assert_eq!(upstream.emulator.take_outgoing(now).len(), 1);
}

#[test]
fn unsent_deliveries_stay_pending_and_their_number_is_bounded() {
    let mut upstream = Upstream::new();
    for name in ["points.rest", "core", "content.minute", "content.hour"] {
        upstream.set_limit(name, 1_000_000);
    }
    let hook = plain(&mut upstream, "a.test");
    for _ in 0..10_100 {
        ping(&mut upstream, &hook);
    }
    let newest = upstream.get(ADA, &format!("{hook}/deliveries?per_page=100"));
    assert!(newest.items().iter().all(|delivery| delivery["status"] == "Pending"));
    let mut page = newest;
    let mut count = page.items().len();
    while let Some(next) = page.link("next") {
        page = upstream.get(ADA, next.strip_prefix("http://upstream.test").expect("our address"));
        count += page.items().len();
    }
    assert_eq!(count, 10_000);
    let oldest = page.items().last().expect("the oldest")["guid"].clone();
    let sent = taken(&mut upstream, "a.test").remove(0);
    assert_eq!(
        header(&sent, "x-service-delivery"),
        oldest.as_str(),
        "an evicted delivery is not sent"
    );
}

#[test]
fn large_payloads_evict_the_oldest_deliveries() {
    let mut upstream = Upstream::new();
    let hook = plain(&mut upstream, "a.test");
    let event = json!({ "type": "custom", "event": "large", "repository": "acme/widgets", "payload": { "text": "x".repeat(1024 * 1024 - 1_000) } });
    for _ in 0..40 {
        upstream.post(NOBODY, "/_emulator/events", &event).assert_status(201);
    }
    let kept = upstream.get(ADA, &format!("{hook}/deliveries?per_page=100")).items().len();
    assert_eq!(kept, 31, "32 MiB of payloads wait");
    while let Some(outgoing) = taken(&mut upstream, "a.test").pop() {
        upstream.emulator.delivered(outgoing.id, answered(StatusCode::OK));
    }
    assert_eq!(
        upstream.get(ADA, &format!("{hook}/deliveries?per_page=100")).items().len(),
        7,
        "8 MiB of payloads are kept"
    );
}

#[test]
fn a_recorded_response_is_cut_to_64_kib() {
    let mut upstream = Upstream::new();
    let hook = plain(&mut upstream, "a.test");
    ping(&mut upstream, &hook);
    let sent = taken(&mut upstream, "a.test").remove(0);
    let receipt = Receipt::answered(
        StatusCode::OK,
        &HeaderMap::new(),
        &vec![b'x'; 5 * 1024 * 1024],
        Duration::ZERO,
    );
    upstream.emulator.delivered(sent.id, receipt);
    let id = upstream.get(ADA, &format!("{hook}/deliveries")).items()[0]["id"].clone();
    let detail = upstream.get(ADA, &format!("{hook}/deliveries/{id}")).body;
    assert_eq!(detail["response"]["payload"].as_str().map(str::len), Some(64 * 1024));
}

#[test]
fn a_deleted_webhook_sends_nothing_more() {
    let mut upstream = Upstream::new();
    let hook = plain(&mut upstream, "a.test");
    ping(&mut upstream, &hook);
    ping(&mut upstream, &hook);
    let sent = taken(&mut upstream, "a.test").remove(0);
    upstream.delete(ADA, &hook).assert_status(204);
    upstream.emulator.delivered(sent.id, answered(StatusCode::OK));
    assert!(taken(&mut upstream, "a.test").is_empty() && upstream.emulator.is_all_delivered());
    let hook = plain(&mut upstream, "a.test");
    ping(&mut upstream, &hook);
    upstream.delete(ADA, &hook).assert_status(204);
    assert!(!upstream.emulator.has_outgoing());
}

#[test]
fn a_receipt_from_before_a_reset_is_ignored() {
    let mut upstream = Upstream::new();
    let hook = plain(&mut upstream, "a.test");
    ping(&mut upstream, &hook);
    let old = taken(&mut upstream, "a.test").remove(0);
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    let hook = plain(&mut upstream, "a.test");
    ping(&mut upstream, &hook);
    let new = taken(&mut upstream, "a.test").remove(0);
    assert_ne!(old.id, new.id);
    upstream.emulator.delivered(old.id, answered(StatusCode::OK));
    assert_eq!(upstream.get(ADA, &format!("{hook}/deliveries")).items()[0]["status"], "Pending");
    upstream.emulator.delivered(new.id, answered(StatusCode::OK));
    assert_eq!(upstream.get(ADA, &format!("{hook}/deliveries")).items()[0]["status"], "OK");
}

#[test]
fn seeded_deliveries_are_never_sent() {
    let mut upstream = Upstream::new();
    let now = upstream.now;
    assert!(upstream.emulator.take_outgoing(now).is_empty());
}
