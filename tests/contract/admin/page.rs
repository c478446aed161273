//! The page of the admin listener over HTTP: its tables, its login, its buttons and its events
//! (SPECIFICATION, "The page"). A real browser has it in `tests/clients/page`.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::json;
use weir::writes::WriteId;

use super::hold_for_five_seconds;
use super::operator::{ADMIN, ISSUES, Operator, TOKEN};
use crate::support::tls_client::{blocking, client_with, connect, get_with};
use crate::support::tls_upstream::certificate_file;
use crate::support::{Reply, Setup, World, bounded, config};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");

/// A browser without a script.
struct Browser {
    operator: Operator,
    cookie: String,
}

impl Browser {
    fn of(world: &World) -> Self {
        Self { operator: Operator::of(world), cookie: String::new() }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        let uri = format!("http://{}{path}", self.operator.address);
        let mut request = Request::builder().method(method).uri(uri).header(HTML.0, HTML.1);
        if !self.cookie.is_empty() {
            request = request.header("cookie", &self.cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_owned()));
        self.operator.send(request.body(body).unwrap()).await
    }

    async fn get(&self, path: &str) -> Reply {
        Reply::read(self.send(Method::GET, path, &[], "").await).await
    }

    /// The page as text.
    async fn page(&self) -> String {
        let reply = self.get("/").await;
        reply.assert_status(200);
        text(&reply)
    }

    /// Submits a form of the page.
    async fn submit(&self, path: &str, body: &str) -> Reply {
        let origin = format!("http://{}", self.operator.address);
        self.submit_from(&origin, path, body).await
    }

    async fn submit_from(&self, origin: &str, path: &str, body: &str) -> Reply {
        let headers = [("origin", origin), ("content-type", "application/x-www-form-urlencoded")];
        Reply::read(self.send(Method::POST, path, &headers, body).await).await
    }

    /// Logs in with the admin token.
    async fn log_in(&mut self) {
        let reply = self.submit("/login", &format!("token={TOKEN}")).await;
        reply.assert_status(303);
        assert_eq!(reply.header("location"), Some("/"));
        let cookie = reply.header("set-cookie").expect("a session");
        assert!(!cookie.contains(TOKEN), "{cookie}");
        for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        assert!(!cookie.contains("Secure"), "plain HTTP: {cookie}");
        cookie.split(';').next().unwrap().clone_into(&mut self.cookie);
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.body.to_vec()).unwrap()
}

fn guarded() -> Setup {
    Setup::new().listen(&format!("{ADMIN}\nadmin_token = {{ value = \"{TOKEN}\" }}"))
}

/// The next events of a stream up to this text.
async fn events_until(stream: &mut Response<Incoming>, awaited: &str) -> String {
    let mut events = String::new();
    while !events.contains(awaited) {
        let frame = bounded(stream.body_mut().frame()).await.expect("no end").unwrap();
        events.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    events
}

/// Queues a comment and returns the id of the write.
async fn queue(world: &World, text: &str) -> String {
    let body = json!({ "body": text }).to_string();
    let accepted = world.send(Method::POST, COMMENTS, &[("prefer", "respond-async")], &body).await;
    accepted.assert_status(202);
    accepted.json()["id"].as_str().unwrap().to_owned()
}

async fn end_of(world: &World, id: &str) -> String {
    let id: WriteId = id.parse().unwrap();
    world.gateway.writes.queue().ended(id).await;
    world.gateway.writes.queue().write_status(id).unwrap().state.name().to_owned()
}

#[tokio::test]
async fn the_page_shows_every_section_without_a_script() {
    let world = Setup::new().listen(ADMIN).start().await;
    let browser = Browser::of(&world);
    world.get(ISSUES).await.assert_status(200);
    world.get(ISSUES).await.assert_status(200);
    let reply = browser.get("/").await;
    let page = text(&reply);
    for section in [
        "attention",
        "budgets",
        "waiting",
        "clients",
        "writes",
        "cache",
        "tokens",
        "webhooks",
        "replicas",
        "refusals",
        "config",
    ] {
        assert!(page.contains(&format!("<section id=\"{section}\"")), "{section}: {page}");
    }
    for shown in ["All is well.", "4,999 of 5,000", "account-0", "No request waits.", "1 of 1 can"]
    {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(
        page.contains("GET /repos/{owner}/{repo}/issues") || page.contains("{owner}"),
        "{page}"
    );
    assert_eq!(page.matches("<table").count(), page.matches("<caption").count());
    assert!(page.contains("<th scope=\"row\">") && page.contains("<th scope=\"col\">"));
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.contains("style=") && !page.contains("<script>") && !page.contains(" onclick"));
    assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn the_files_of_the_page_have_their_types() {
    let world = guarded().start().await;
    let browser = Browser::of(&world);
    for (path, media_type) in [
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let reply = browser.get(path).await;
        reply.assert_status(200);
        assert_eq!(reply.header("content-type"), Some(media_type));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    let head = Reply::read(browser.send(Method::HEAD, "/page.css", &[], "").await).await;
    assert!(head.body.is_empty() && head.number("content-length") > 1_000, "{head:?}");
    browser.submit("/page.css", "").await.assert_status(405);
    browser.get("/login").await.assert_status(405);
}

#[tokio::test]
async fn a_browser_logs_in_and_a_program_gets_the_usual_401() {
    let world = guarded().start().await;
    let mut browser = Browser::of(&world);
    let form = browser.get("/").await;
    form.assert_status(401);
    assert!(text(&form).contains("action=\"/login\"") && !text(&form).contains("account-0"));
    for path in ["/", "/live", "/nothing"] {
        let reply = browser.operator.ask(Method::GET, path, None).await;
        reply.assert_status(401);
        assert!(reply.json()["message"].as_str().unwrap().contains("Authorization: Bearer"));
    }
    browser.log_in().await;
    assert!(browser.page().await.contains("action=\"/logout\""));
    for path in ["/api/budgets", "/metrics", "/api/writes"] {
        browser.get(path).await.assert_status(401);
    }
    let authorization = format!("Bearer {TOKEN}");
    let reply = browser.operator.ask(Method::GET, "/", Some(&authorization)).await;
    reply.assert_status(200);
    assert!(!text(&reply).contains("/logout"), "a program has no session");
}

#[tokio::test]
async fn a_wrong_token_begins_no_session() {
    let world = guarded().manual_clock().start().await;
    let browser = Browser::of(&world);
    for body in ["token=wrong", "", "token=", "token=%ff"] {
        let reply = browser.submit("/login", body).await;
        reply.assert_status(401);
        assert!(text(&reply).contains("not the admin token"), "{reply:?}");
        assert_eq!(reply.header("set-cookie"), None);
    }
    browser.submit("/login", "token=wrong").await.assert_status(401);
    let right = format!("token={TOKEN}");
    let refused = browser.submit("/login", &right).await;
    refused.assert_status(429);
    assert_eq!(refused.number("retry-after"), 60);
    world.clock.advance(Duration::from_secs(60));
    browser.submit("/login", &right).await.assert_status(303);
}

#[tokio::test]
async fn a_session_ends_by_logout_time_and_another_token() {
    let world = guarded().manual_clock().start().await;
    let mut browser = Browser::of(&world);
    browser.log_in().await;
    let left = browser.cookie.clone();
    let reply = browser.submit("/logout", "").await;
    reply.assert_status(303);
    assert!(reply.header("set-cookie").unwrap().contains("Max-Age=0"), "{reply:?}");
    browser.get("/").await.assert_status(401);
    browser.log_in().await;
    assert_ne!(browser.cookie, left);
    world.clock.advance(Duration::from_secs(12 * 3_600 - 1));
    browser.page().await;
    world.clock.advance(Duration::from_secs(1));
    browser.get("/").await.assert_status(401);
    browser.log_in().await;
    world.reload(|text| text.replace(TOKEN, "another-token-of-the-operators"));
    browser.get("/").await.assert_status(401);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_use_a_session() {
    let world = guarded().unspaced_writes().start().await;
    let mut browser = Browser::of(&world);
    let right = format!("token={TOKEN}");
    browser.submit_from("https://evil.example", "/login", &right).await.assert_status(403);
    browser.log_in().await;
    let gate = world.close_gate("POST", COMMENTS);
    let (first, second) = (queue(&world, "one").await, queue(&world, "two").await);
    world.held(gate, 1).await;
    let cancel = format!("/writes/{second}/cancel");
    for origin in ["https://evil.example", "null", "http://127.0.0.1"] {
        browser.submit_from(origin, &cancel, "").await.assert_status(403);
        browser.submit_from(origin, "/logout", "").await.assert_status(403);
    }
    let unmarked = Reply::read(browser.send(Method::POST, &cancel, &[], "").await).await;
    unmarked.assert_status(403);
    let own = format!("http://{}", browser.operator.address);
    let sites = [("sec-fetch-site", "same-site"), ("origin", &own)];
    let marked = Reply::read(browser.send(Method::POST, &cancel, &sites, "").await).await;
    marked.assert_status(403);
    world.open_gate(gate);
    assert_eq!(end_of(&world, &first).await, "done");
    assert_eq!(end_of(&world, &second).await, "done");
}

#[tokio::test]
async fn a_page_of_another_site_gets_no_open_page() {
    let world = Setup::new().listen(ADMIN).start().await;
    let browser = Browser::of(&world);
    for headers in [
        [("origin", "https://evil.example")],
        [("sec-fetch-site", "cross-site")],
        [("host", "evil.example")],
    ] {
        for path in ["/", "/live", "/page.js"] {
            let reply = Reply::read(browser.send(Method::GET, path, &headers, "").await).await;
            reply.assert_status(403);
        }
    }
    browser.submit("/login", "token=any").await.assert_status(303);
}

#[tokio::test]
async fn a_button_cancels_a_queued_write() {
    let world = guarded().unspaced_writes().start().await;
    let mut browser = Browser::of(&world);
    browser.log_in().await;
    let gate = world.close_gate("POST", COMMENTS);
    let (first, second) = (queue(&world, "one").await, queue(&world, "two").await);
    world.held(gate, 1).await;
    let page = browser.page().await;
    let action = |id: &str, verb| format!("action=\"/writes/{id}/{verb}\"");
    assert!(page.contains(&action(&second, "cancel")), "{page}");
    assert!(!page.contains(&action(&first, "cancel")), "it is on its way: {page}");
    let done = browser.submit(&format!("/writes/{second}/cancel"), "").await;
    done.assert_status(303);
    let after = text(&browser.get(done.header("location").unwrap()).await);
    assert!(after.contains(&format!("Write {second} was cancelled.")), "{after}");
    assert!(after.contains(&action(&second, "retry")), "{after}");
    let again = browser.submit(&format!("/writes/{second}/cancel"), "").await;
    again.assert_status(409);
    assert!(text(&again).contains("was not cancelled: only a write that is queued"), "{again:?}");
    browser.submit("/writes/that/cancel", "").await.assert_status(422);
    browser.submit("/writes/ff-0000000000000000/retry", "").await.assert_status(404);
    world.open_gate(gate);
    assert_eq!(end_of(&world, &first).await, "done");
}

#[tokio::test]
async fn a_button_retries_a_write_and_an_unknown_one_with_care() {
    let world = Setup::new().listen(ADMIN).unspaced_writes().start().await;
    let browser = Browser::of(&world);
    world.arm(&json!({ "match": { "method": "POST", "nth": 1 }, "fault": "reset_after" }));
    let id = queue(&world, "twice").await;
    assert_eq!(end_of(&world, &id).await, "unknown");
    let page = browser.page().await;
    assert!(page.contains("may have been executed or not"), "{page}");
    assert!(page.contains("name=\"even_if_executed\""), "{page}");
    let retry = format!("/writes/{id}/retry");
    let refused = browser.submit(&retry, "").await;
    refused.assert_status(409);
    assert!(text(&refused).contains("role=\"alert\""), "{refused:?}");
    let done = browser.submit(&retry, "even_if_executed=true").await;
    done.assert_status(303);
    assert_eq!(end_of(&world, &id).await, "done");
}

#[tokio::test]
async fn hostile_names_are_shown_as_text() {
    let world = Setup::new()
        .listen(ADMIN)
        .config(&config::client("<script>alert(1)</script>", "weir_key_of_a_hostile_name", ""))
        .start()
        .await;
    let browser = Browser::of(&world);
    let id = [("x-request-id", "<img/src=x>\"'&")];
    world.get_with("/no/such/route", &id).await;
    let key = [("authorization", "Bearer weir_key_of_nobody"), id[0]];
    world.get_with(ISSUES, &key).await.assert_status(401);
    let page = browser.page().await;
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{page}");
    assert!(!page.contains("<script>alert") && !page.contains("<img"), "{page}");
}

#[tokio::test]
async fn a_wait_is_shown_with_its_reason() {
    let world = Setup::new().listen(ADMIN).limits("concurrency = 1").manual_clock().start().await;
    let browser = Browser::of(&world);
    let (_, page) = hold_for_five_seconds(&world, async || browser.page().await).await;
    assert!(page.contains("all slots of the account are taken"), "{page}");
    assert!(page.contains("<code>concurrency</code>"), "{page}");
}

#[tokio::test]
async fn a_refusal_is_shown_with_its_request() {
    let world = Setup::new().listen(ADMIN).client("allow = [\"GET /repos/**\"]").start().await;
    let browser = Browser::of(&world);
    world.get_with("/user", &[("x-request-id", "the-refused-one")]).await.assert_status(403);
    let page = browser.page().await;
    assert!(page.contains("<code>the-refused-one</code>"), "{page}");
}

#[tokio::test]
async fn a_broken_token_needs_attention_first() {
    let world = Setup::new().listen(ADMIN).accounts(2).broken_token(1).start().await;
    let browser = Browser::of(&world);
    world.gateway.dispatcher.look_at_tokens().await;
    let page = browser.page().await;
    assert!(page.contains("1 of 2 tokens cannot be used."), "{page}");
    let tokens = page.split("<section id=\"tokens\"").nth(1).unwrap();
    let (ill, well) = (tokens.find("account-1").unwrap(), tokens.find("account-0").unwrap());
    assert!(ill < well, "{tokens}");
    let since = tokens.find("<time datetime=").unwrap();
    assert!(ill < since && since < well, "{tokens}");
}

#[tokio::test]
async fn the_faults_of_the_last_reload_are_shown() {
    let world = Setup::new().listen(ADMIN).start().await;
    let browser = Browser::of(&world);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, format!("{}\n[limits]\nconcurrency = 0\n", world.text)).unwrap();
    world.current.read_from(file.clone());
    world.current.reload().unwrap_err();
    let page = browser.page().await;
    assert!(page.contains("limits.concurrency") && page.contains("was refused"), "{page}");
    std::fs::write(&file, &world.text).unwrap();
    world.current.reload().unwrap();
    let page = browser.page().await;
    assert!(page.contains("All is well.") && page.contains("was reloaded at"), "{page}");
}

#[tokio::test]
async fn many_clients_are_counted_and_not_listed() {
    let mut clients = String::new();
    for number in 0..200 {
        let key = format!("weir_key_of_the_client_{number}_in_tests");
        // Writing to a string cannot fail.
        let _ = write!(clients, "{}", config::client(&format!("bot-{number}"), &key, ""));
    }
    let world = Setup::new().listen(ADMIN).config(&clients).start().await;
    let browser = Browser::of(&world);
    world.get(ISSUES).await.assert_status(200);
    let page = browser.page().await;
    let clients = page.split("<section id=\"clients\"").nth(1).unwrap();
    let clients = clients.split("</section>").next().unwrap();
    assert!(clients.contains("… and 172 more clients"), "{clients}");
    assert!(clients.find("ci").unwrap() < clients.find("bot-").unwrap(), "the spender comes first");
}

#[tokio::test]
async fn a_change_comes_as_an_event() {
    let world = guarded().start().await;
    let mut browser = Browser::of(&world);
    browser.log_in().await;
    let mut stream = browser.send(Method::GET, "/live", &[], "").await;
    assert_eq!(stream.status(), 200);
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let first = events_until(&mut stream, "event: now").await;
    assert_eq!(first.matches("event: section").count(), 11, "{first}");
    world.get(ISSUES).await.assert_status(200);
    let change = events_until(&mut stream, "4,999 of 5,000").await;
    assert!(!change.contains("\"id\":\"webhooks\""), "it has not changed: {change}");
    browser.submit("/logout", "").await.assert_status(303);
    let rest = bounded(stream.into_body().collect()).await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&rest).contains("login"), "only an end");
}

#[tokio::test]
async fn streams_are_bounded() {
    let world = Setup::new().listen(ADMIN).start().await;
    let browser = Browser::of(&world);
    let mut streams = Vec::new();
    for _ in 0..16 {
        let stream = browser.send(Method::GET, "/live", &[], "").await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let refused = Reply::read(browser.send(Method::GET, "/live", &[], "").await).await;
    refused.assert_status(503);
    browser.page().await;
    drop(streams);
    let is_free = async || browser.send(Method::GET, "/live", &[], "").await.status() == 200;
    bounded(async { while !is_free().await {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_tls_is_secure() {
    let server = certificate_file("server.pem");
    let listen = format!(
        "{ADMIN}\nadmin_tls = {{ cert = '{0}', key = '{0}' }}\nadmin_token = {{ value = \"{TOKEN}\" }}",
        server.display()
    );
    let world = Setup::new().listen(&listen).start().await;
    let admin = weir::admin::Admin::open(&world.current).unwrap().address().unwrap();
    let answer = blocking(move || {
        let config = client_with(rustls::ALL_VERSIONS, &[], None);
        let mut stream = connect(&config, admin, "localhost").unwrap();
        let body = format!("token={TOKEN}");
        let length = body.len();
        std::io::Write::write_all(
            &mut stream,
            format!(
                "POST /login HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )
        .unwrap();
        get_with(&mut stream, "/healthz", "").unwrap()
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 303 "), "{answer}");
    assert!(answer.contains("; Secure\r\n"), "{answer}");
}
