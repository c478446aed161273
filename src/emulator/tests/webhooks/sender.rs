//! Tests deliveries over real sockets: arrival, records, and misbehaving receivers.

use std::collections::BTreeSet;

use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::receiver::{Habit, PATIENCE, Receiver, certificate};
use crate::clock::Clock;
use crate::emulator::events::delivery::sender::WebhookSender;
use crate::emulator::server::{Handle, Server};
use crate::emulator::tests::*;

struct Socket {
    handle: Handle,
    clock: Clock,
}

impl Socket {
    async fn start(sender: WebhookSender) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let clock = Clock::manual(START);
        let emulator = Emulator::new(Options::default(), clock.now());
        let handle = Server::start_with(listener, emulator, clock.clone(), Duration::ZERO, sender);
        Self { handle, clock }
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut request = request(method, ADA, path, &[], body);
        *request.uri_mut() =
            format!("http://{}{path}", self.handle.addr()).parse().expect("an address");
        request.headers_mut().remove("host");
        let response = client.request(request.map(Full::new)).await.expect("an answer");
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, &Value::Null).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    async fn hook(&self, config: Value, events: &[&str]) -> String {
        let (status, hook) = self
            .ask(
                Method::POST,
                "/orgs/acme/hooks",
                &json!({ "name": "web", "config": config, "events": events }),
            )
            .await;
        assert_eq!(status, 201, "{hook}");
        format!("/orgs/acme/hooks/{}", hook["id"])
    }

    async fn ping(&self, hook: &str) {
        assert_eq!(self.ask(Method::POST, &format!("{hook}/pings"), &Value::Null).await.0, 204);
    }

    async fn all_delivered(&self) {
        tokio::time::timeout(PATIENCE, self.handle.wait_until_delivered())
            .await
            .expect("everything is delivered");
    }

    async fn outcome(&self, hook: &str) -> Value {
        self.all_delivered().await;
        let id = self.get(&format!("{hook}/deliveries?per_page=1")).await[0]["id"].clone();
        self.get(&format!("{hook}/deliveries/{id}")).await
    }

    async fn outcome_of_ping(&self, config: Value) -> Value {
        let hook = self.hook(config, &["push"]).await;
        self.ping(&hook).await;
        self.outcome(&hook).await
    }
}

#[tokio::test]
async fn a_delivery_is_sent_signed_recorded_and_redelivered() {
    let socket = Socket::start(WebhookSender::default()).await;
    let mut receiver = Receiver::start(Habit::Answers(200, 3)).await;
    let hook = socket
        .hook(json!({ "url": receiver.url("http"), "secret": "emu_secret" }), &["issues"])
        .await;
    let (status, issue) = socket
        .ask(Method::POST, "/repos/acme/widgets/issues", &json!({ "title": "Delivered" }))
        .await;
    assert_eq!(status, 201);

    let first = receiver.next().await;
    assert_eq!((&first.method, first.path.as_str()), (&Method::POST, "/hook?x=1"));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"emu_secret");
    let expected =
        crate::emulator::http::validators::hex(ring::hmac::sign(&key, &first.body).as_ref());
    assert_eq!(first.header("x-hub-signature-256"), format!("sha256={expected}"));
    let payload = first.json();
    assert_eq!(
        (&payload["action"], &payload["issue"]["number"]),
        (&json!("opened"), &issue["number"])
    );
    for name in [
        "x-service-delivery",
        "x-service-hook-id",
        "x-hub-signature",
        "user-agent",
        "host",
        "content-length",
    ] {
        assert!(!first.header(name).is_empty(), "{name}");
    }

    let recorded = socket.outcome(&hook).await;
    assert_eq!(
        (&recorded["status"], &recorded["status_code"], &recorded["redelivery"]),
        (&json!("OK"), &json!(200), &json!(false))
    );
    assert_eq!(
        (&recorded["guid"], &recorded["request"]["payload"]),
        (&json!(first.header("x-service-delivery")), &payload)
    );
    assert_eq!(
        (&recorded["response"]["payload"], &recorded["response"]["headers"]["x-receiver"]),
        (&json!("xxx"), &json!("test"))
    );
    for (name, value) in recorded["request"]["headers"].as_object().expect("an object") {
        assert_eq!(
            Some(first.header(name)),
            value.as_str(),
            "the record shows the sent header: {name}"
        );
    }

    let attempts = format!("{hook}/deliveries/{}/attempts", recorded["id"]);
    assert_eq!(socket.ask(Method::POST, &attempts, &Value::Null).await.0, 202);
    let second = receiver.next().await;
    assert_eq!(
        (second.header("x-service-delivery"), &second.body),
        (first.header("x-service-delivery"), &first.body)
    );
    let again = socket.outcome(&hook).await;
    assert_eq!(
        (&again["redelivery"], &again["guid"], &again["status"]),
        (&json!(true), &recorded["guid"], &json!("OK"))
    );
    assert_ne!(again["id"], recorded["id"]);
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn a_receiver_that_reads_back_sees_the_new_state() {
    let socket = Socket::start(WebhookSender::default()).await;
    let mut receiver = Receiver::start(Habit::Answers(200, 0)).await;
    socket.hook(json!({ "url": receiver.url("http") }), &["issues"]).await;
    // The response to the request may be held back, while the delivery already leaves.
    let (_, gate) = socket
        .ask(
            Method::POST,
            "/_emulator/gates",
            &json!({ "match": { "method": "POST", "path": "/repos/*" } }),
        )
        .await;
    let body = json!({ "title": "Seen" });
    let opening = socket.ask(Method::POST, "/repos/acme/widgets/issues", &body);
    let reading_back = async {
        let number = receiver.next().await.json()["issue"]["number"].clone();
        let seen = socket.get(&format!("/repos/acme/widgets/issues/{number}")).await;
        assert_eq!(seen["title"], "Seen");
        socket.ask(Method::DELETE, &format!("/_emulator/gates/{}", gate["id"]), &Value::Null).await;
    };
    assert_eq!(tokio::join!(opening, reading_back).0.0, 201);
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn deliveries_arrive_in_the_order_of_the_events() {
    let socket = Socket::start(WebhookSender::default()).await;
    let mut receiver = Receiver::start(Habit::Answers(204, 0)).await;
    socket.hook(json!({ "url": receiver.url("http") }), &["issues"]).await;
    for index in 0..20 {
        socket
            .ask(
                Method::POST,
                "/repos/acme/widgets/issues",
                &json!({ "title": format!("{index}") }),
            )
            .await;
    }
    for index in 0..20 {
        assert_eq!(receiver.next().await.json()["issue"]["title"], format!("{index}"));
    }
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn a_hanging_receiver_times_out_and_delays_no_other_hook() {
    let socket =
        Socket::start(WebhookSender::default().with_time_out(Duration::from_millis(800))).await;
    let (mut slow, mut quick) =
        (Receiver::start(Habit::Hangs).await, Receiver::start(Habit::Answers(200, 0)).await);
    let slow_hook = socket.hook(json!({ "url": slow.url("http") }), &["issues"]).await;
    socket.hook(json!({ "url": quick.url("http") }), &["issues"]).await;
    for index in 0..2 {
        socket
            .ask(
                Method::POST,
                "/repos/acme/widgets/issues",
                &json!({ "title": format!("{index}") }),
            )
            .await;
    }
    assert_eq!(slow.next().await.json()["issue"]["title"], "0");
    for index in 0..2 {
        assert_eq!(quick.next().await.json()["issue"]["title"], format!("{index}"));
    }
    let outcome = socket.outcome(&slow_hook).await;
    assert_eq!((&outcome["status"], &outcome["status_code"]), (&json!("Timed out"), &json!(0)));
    assert!(
        outcome["duration"].as_f64().is_some_and(|secs| (0.75..10.0).contains(&secs)),
        "real seconds: {}",
        outcome["duration"]
    );
    assert_eq!(slow.next().await.json()["issue"]["title"], "1", "its next one came after");
    assert!(quick.is_idle());
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_hanging_receiver() {
    let socket =
        Socket::start(WebhookSender::default().with_time_out(Duration::from_secs(3_600))).await;
    let mut slow = Receiver::start(Habit::Hangs).await;
    let hook = socket.hook(json!({ "url": slow.url("http") }), &["push"]).await;
    socket.ping(&hook).await;
    slow.next().await;
    assert_eq!(socket.get(&format!("{hook}/deliveries")).await[0]["status"], "Pending");
    tokio::time::timeout(PATIENCE, socket.handle.shutdown()).await.expect("it ends");
}

#[tokio::test]
async fn the_outcome_of_a_delivery_is_recorded() {
    let socket = Socket::start(WebhookSender::default()).await;
    let cases = [
        (Habit::Answers(500, 4), json!("Internal Server Error"), json!(500)),
        (Habit::Answers(204, 0), json!("No Content"), json!(204)),
        (Habit::Answers(299, 0), json!("Unknown status"), json!(299)),
        (Habit::Closes, json!("Connection closed"), json!(0)),
        (Habit::Babbles, json!("Invalid HTTP response"), json!(0)),
    ];
    for (habit, status, code) in cases {
        let receiver = Receiver::start(habit).await;
        let outcome = socket.outcome_of_ping(json!({ "url": receiver.url("http") })).await;
        assert_eq!((&outcome["status"], &outcome["status_code"]), (&status, &code), "{habit:?}");
    }
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn an_unreachable_receiver_is_recorded_with_its_cause() {
    let socket = Socket::start(WebhookSender::default()).await;
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port")
        .local_addr()
        .expect("an address");
    let outcome = socket.outcome_of_ping(json!({ "url": format!("http://{free}/") })).await;
    assert_eq!(
        (&outcome["status"], &outcome["status_code"]),
        (&json!("Connection refused"), &json!(0))
    );
    let outcome =
        socket.outcome_of_ping(json!({ "url": "https://receiver.example.com/hook" })).await;
    assert_eq!(
        (&outcome["status"], &outcome["response"]),
        (&json!("Failed to resolve host"), &json!({ "headers": {}, "payload": "" }))
    );
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let socket = Socket::start(WebhookSender::default()).await;
    let mut receiver = Receiver::start(Habit::Redirects).await;
    let outcome = socket.outcome_of_ping(json!({ "url": receiver.url("http") })).await;
    assert_eq!(
        (&outcome["status"], &outcome["response"]["headers"]["location"]),
        (&json!("Found"), &json!("/elsewhere"))
    );
    receiver.next().await;
    assert!(receiver.is_idle());
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn a_response_of_5_mb_is_cut_to_64_kib() {
    let socket = Socket::start(WebhookSender::default()).await;
    let receiver = Receiver::start(Habit::Answers(200, 5_000_000)).await;
    let outcome = socket.outcome_of_ping(json!({ "url": receiver.url("http") })).await;
    assert_eq!(
        (&outcome["status"], outcome["response"]["payload"].as_str().map(str::len)),
        (&json!("OK"), Some(64 * 1024))
    );
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn insecure_ssl_0_verifies_the_certificate_and_1_does_not() {
    let socket = Socket::start(WebhookSender::default()).await;
    let mut receiver = Receiver::start_tls();
    for verified in [json!("0"), json!(0)] {
        let outcome = socket
            .outcome_of_ping(json!({ "url": receiver.url("https"), "insecure_ssl": verified }))
            .await;
        assert_eq!(
            (&outcome["status"], &outcome["status_code"]),
            (&json!("Certificate not trusted"), &json!(0))
        );
    }
    assert!(receiver.is_idle(), "an untrusted receiver gets nothing");
    for any in [json!("1"), json!(1)] {
        let outcome = socket
            .outcome_of_ping(json!({ "url": receiver.url("https"), "insecure_ssl": any }))
            .await;
        assert_eq!(
            (&outcome["status"], &outcome["response"]["payload"]),
            (&json!("OK"), &json!("ok"))
        );
        assert_eq!(receiver.next().await.header("x-service-event"), "ping");
    }
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn a_trusted_certificate_is_accepted_with_insecure_ssl_0() {
    let socket = Socket::start(WebhookSender::default().with_trusted(certificate().to_vec())).await;
    let mut receiver = Receiver::start_tls();
    let outcome = socket.outcome_of_ping(json!({ "url": receiver.url("https") })).await;
    assert_eq!(outcome["status"], "OK", "{outcome}");
    assert_eq!(receiver.next().await.path, "/hook?x=1");
    let plain = Receiver::start(Habit::Answers(200, 0)).await;
    let outcome = socket.outcome_of_ping(json!({ "url": plain.url("https") })).await;
    assert_ne!(outcome["status"], "OK", "it does not speak TLS");
    assert_eq!(outcome["status_code"], 0);
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn the_app_receives_events_with_its_installation() {
    let socket = Socket::start(WebhookSender::default()).await;
    let mut receiver = Receiver::start(Habit::Answers(200, 0)).await;
    let now = START.as_secs();
    let jwt = crate::emulator::auth::jwt::tests::signed(
        &json!({ "alg": "RS256" }),
        &json!({ "iss": 301, "iat": now, "exp": now + 500 }),
    );
    let patch = request(
        Method::PATCH,
        &jwt,
        "/app/hook/config",
        &[],
        &json!({ "url": receiver.url("http") }),
    );
    let answer = socket.handle.with_emulator(|emulator| emulator.respond(START, &patch, PEER));
    assert_eq!(answer.status(), 200);
    socket.ask(Method::POST, "/repos/acme/widgets/labels", &json!({ "name": "told" })).await;
    let delivery = receiver.next().await;
    assert_eq!(
        (
            delivery.header("x-service-event"),
            delivery.header("x-service-hook-installation-target-type")
        ),
        ("label", "integration")
    );
    assert!(
        delivery.header("x-hub-signature-256").starts_with("sha256="),
        "the secret was not touched"
    );
    assert_eq!(delivery.json()["installation"]["id"], 311);
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn a_hundred_webhooks_each_get_their_delivery() {
    let socket = Socket::start(WebhookSender::default()).await;
    let mut receiver = Receiver::start(Habit::Answers(200, 0)).await;
    for _ in 0..100 {
        socket.hook(json!({ "url": receiver.url("http") }), &["deployment"]).await;
    }
    let event = json!({ "type": "custom", "event": "deployment", "repository": "acme/widgets" });
    let (_, made) = socket.ask(Method::POST, "/_emulator/events", &event).await;
    assert_eq!(made["deliveries"], 101, "the app's too, which nobody receives");
    let mut hooks = BTreeSet::new();
    for _ in 0..100 {
        hooks.insert(receiver.next().await.header("x-service-hook-id").to_owned());
    }
    assert_eq!(hooks.len(), 100);
    socket.all_delivered().await;
    socket.handle.shutdown().await;
}

#[tokio::test]
async fn seeded_webhooks_are_never_sent_anywhere() {
    let socket = Socket::start(WebhookSender::default()).await;
    let event = json!({ "title": "Raises an event for each seeded webhook" });
    let (status, _) = socket.ask(Method::POST, "/repos/acme/widgets/issues", &event).await;
    assert_eq!(status, 201);
    let world = socket.get("/_emulator/world").await;
    for hook in world["hooks"].as_array().expect("hooks") {
        let url = hook["url"].as_str().expect("an address");
        assert!(url.starts_with("https://") && url.contains(".example.com/"), "{url}");
    }
    let hooks = socket.get("/orgs/acme/hooks").await;
    let outcome = socket.outcome(&format!("/orgs/acme/hooks/{}", hooks[0]["id"])).await;
    assert_eq!((&outcome["status_code"], &outcome["event"]), (&json!(0), &json!("issues")));
}

#[tokio::test]
async fn a_run_is_delivered_to_its_end_without_a_request() {
    let socket = Socket::start(WebhookSender::default()).await;
    let mut receiver = Receiver::start(Habit::Answers(200, 3)).await;
    // No delivery of this event comes with the dispatch itself.
    socket.hook(json!({ "url": receiver.url("http") }), &["check_suite"]).await;
    let (status, _) = socket
        .ask(
            Method::POST,
            "/repos/acme/widgets/actions/workflows/ci.yml/dispatches",
            &json!({ "ref": "main" }),
        )
        .await;
    assert_eq!(status, 204);
    socket.clock.advance(Duration::from_secs(15));
    let payload = receiver.next().await.json();
    assert_eq!(
        (&payload["action"], &payload["check_suite"]["conclusion"]),
        (&json!("completed"), &json!("success"))
    );
}
