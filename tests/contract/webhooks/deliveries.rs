//! Webhook deliveries: the responses that an event invalidates, those it leaves alone, and the
//! signatures that are refused.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::Method;
use ring::hmac;
use serde_json::{Value, json};

use crate::support::raw::Connection;
use crate::support::{Reply, Setup, World, config, eventually};

const SECRET: &str = "It's a Secret to Everybody";
const PATH: &str = "/_weir/webhooks";
const REPOSITORY: &str = "/repos/acme/widgets";
/// All responses of these tests have a lifetime of an hour.
const RULES: [&str; 7] = [
    "/repos/{owner}/{repo}",
    "/repos/{owner}/{repo}/issues",
    "/repos/{owner}/{repo}/issues/{issue_number}",
    "/repos/{owner}/{repo}/commits",
    "/repos/{owner}/{repo}/labels",
    "/repos/{owner}/{repo}/pulls",
    "/repos/{owner}/{repo}/pulls/{pull_number}",
];

fn setup() -> Setup {
    let rules: String = RULES.map(|route| config::cache_ttl(route, "1h")).concat();
    Setup::new()
        .manual_clock()
        .unspaced_writes()
        .config(&rules)
        .config(&format!("[webhooks]\nsecret = {{ value = \"{SECRET}\" }}\nprevious_secret = {{ value = \"the one before\" }}"))
}

/// A world with an organization webhook that delivers to the gateway.
async fn with_webhooks() -> World {
    let world = setup().start().await;
    hook(&world, &["*"]);
    world
}

/// Creates an organization webhook that delivers to the gateway, and returns its id.
fn hook(world: &World, events: &[&str]) -> u64 {
    let config = json!({ "url": format!("http://{}{PATH}", world.address), "content_type": "json", "secret": SECRET });
    let hook = json!({ "name": "web", "config": config, "events": events });
    world.ask_emulator(Method::POST, "/orgs/acme/hooks", &hook)["id"].as_u64().unwrap()
}

/// Makes an event happen upstream.
fn happens(world: &World, event: &Value) {
    world.ask_emulator(Method::POST, "/_emulator/events", event);
}

fn deliveries(world: &World, event: &str, outcome: &str) -> u64 {
    let series =
        format!("weir_webhook_deliveries_total{{event=\"{event}\",outcome=\"{outcome}\"}} ");
    let text = world.gateway.env.metrics.encode();
    text.lines()
        .find_map(|line| line.strip_prefix(&series))
        .map_or(0, |count| count.parse().unwrap())
}

/// Waits until the gateway has accepted a delivery of this event.
async fn delivered(world: &World, event: &str) {
    eventually(|| deliveries(world, event, "accepted") > 0).await;
}

fn seconds(world: &World, count: u64) {
    world.advance_both(Duration::from_secs(count));
}

/// For each path, true if the gateway answers from the cache.
async fn hits(world: &World, paths: &[&str]) -> Vec<bool> {
    let mut hits = Vec::new();
    for path in paths {
        let answer = world.get(path).await;
        answer.assert_status(200);
        hits.push(answer.cache_status() == "weir; hit");
    }
    hits
}

fn signature(secret: &str, body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body.as_bytes());
    let digits = tag.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    format!(
        "sha256={}",
        digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect::<String>()
    )
}

/// A delivery sent by the test itself.
async fn deliver(
    world: &World,
    event: &str,
    guid: &str,
    lines: &[(&str, &str)],
    body: &str,
) -> Reply {
    let mut headers = vec![
        ("authorization", ""),
        ("content-type", "application/json"),
        ("x-github-event", event),
        ("x-github-delivery", guid),
    ];
    headers.extend(lines);
    world.send(Method::POST, PATH, &headers, body).await
}

async fn signed(world: &World, event: &str, guid: &str, body: &str) -> Reply {
    deliver(world, event, guid, &[("x-hub-signature-256", &signature(SECRET, body))], body).await
}

fn issue_event(number: u64) -> String {
    json!({ "action": "edited", "issue": { "number": number }, "repository": { "id": 1, "full_name": "acme/widgets" } }).to_string()
}

#[tokio::test]
async fn an_event_ends_a_confirmation() {
    let webhooks = format!("[webhooks]\nsecret = {{ value = \"{SECRET}\" }}");
    let setup = Setup::new().manual_clock().config(&webhooks);
    let world = setup.cache("revalidate_at_most = \"30s\"").start().await;
    let [issue, other] = [3, 4].map(|number| format!("{REPOSITORY}/issues/{number}"));
    let pages = [&*issue, &other];
    assert_eq!(hits(&world, &pages).await, [false, false]);
    assert_eq!(hits(&world, &pages).await, [true, true]);
    seconds(&world, 1);
    signed(&world, "issues", "7", &issue_event(3)).await.assert_status(202);
    assert_eq!(hits(&world, &pages).await, [false, true]);
}

#[tokio::test]
async fn an_event_invalidates_what_it_touched_and_nothing_else() {
    let world = with_webhooks().await;
    let issue = format!("{REPOSITORY}/issues/3");
    let other = format!("{REPOSITORY}/issues/4");
    let pages = [
        &issue,
        &format!("{REPOSITORY}/issues?per_page=5"),
        &other,
        &format!("{REPOSITORY}/commits"),
        &format!("{REPOSITORY}/labels"),
    ];
    let pages = pages.map(String::as_str);
    hits(&world, &pages).await;
    seconds(&world, 60);
    assert_eq!(hits(&world, &pages).await, [true; 5]);
    world.ask_emulator(Method::PATCH, &issue, &json!({ "title": "changed around the gateway" }));
    delivered(&world, "issues").await;
    assert_eq!(hits(&world, &pages).await, [false, false, true, true, true]);
    assert_eq!(world.get(&issue).await.json()["title"], "changed around the gateway");
}

#[tokio::test]
async fn a_push_invalidates_commits_and_repository_but_no_issue() {
    let world = with_webhooks().await;
    let pages = [
        REPOSITORY,
        &format!("{REPOSITORY}/commits"),
        &format!("{REPOSITORY}/issues/3"),
        &format!("{REPOSITORY}/labels"),
    ];
    let pages = pages.map(|page| page);
    hits(&world, &pages).await;
    seconds(&world, 60);
    happens(&world, &json!({ "type": "push", "repository": "acme/widgets", "text": "more" }));
    delivered(&world, "push").await;
    assert_eq!(hits(&world, &pages).await, [false, false, true, true]);
}

#[tokio::test]
async fn an_unknown_event_invalidates_its_repository_only() {
    let world = with_webhooks().await;
    let pages = [
        REPOSITORY,
        &format!("{REPOSITORY}/labels"),
        "/repos/acme/gadgets",
        "/repos/ACME/Widgets/labels",
    ];
    hits(&world, &pages).await;
    seconds(&world, 60);
    happens(&world, &json!({ "type": "custom", "event": "brewed", "repository": "acme/widgets" }));
    delivered(&world, "unknown").await;
    assert_eq!(hits(&world, &pages).await, [false, false, true, false]);
}

#[tokio::test]
async fn a_change_is_revalidated_after_two_and_ten_seconds() {
    let world = with_webhooks().await;
    let issue = format!("{REPOSITORY}/issues/3");
    world.get(&issue).await.assert_status(200);
    seconds(&world, 60);
    signed(&world, "issues", "g-1", &issue_event(3)).await.assert_status(202);
    let mut hit = Vec::new();
    for _ in 0..15 {
        seconds(&world, 1);
        hit.extend(hits(&world, &[&issue]).await);
    }
    let misses: Vec<usize> = (1..=15).filter(|second| !hit[second - 1]).collect();
    assert_eq!(misses, [1, 2, 10]);
}

#[tokio::test]
async fn a_fetch_from_before_an_event_is_neither_joined_nor_trusted() {
    let world = with_webhooks().await;
    let issue = format!("{REPOSITORY}/issues/3");
    // From here on the gateway knows the budget, so two requests may be in flight.
    world.get(REPOSITORY).await.assert_status(200);
    let gate = world.close_gate("GET", &issue);
    let first = world.get(&issue);
    let (late, ()) = tokio::join!(first, async {
        world.held(gate, 1).await;
        seconds(&world, 1);
        signed(&world, "issues", "g-1", &issue_event(3)).await.assert_status(202);
        seconds(&world, 1);
        let (second, ()) = tokio::join!(world.get(&issue), async {
            world.held(gate, 2).await;
            world.open_gate(gate);
        });
        second.assert_fetched_and_stored();
    });
    late.assert_status(200);
    assert_eq!(world.upstream_requests().iter().filter(|entry| entry.path == issue).count(), 2);
}

#[tokio::test]
async fn a_duplicate_has_no_second_effect_and_a_late_event_has_one() {
    let world = with_webhooks().await;
    let issue = format!("{REPOSITORY}/issues/3");
    let mut answers = Vec::new();
    for _ in 0..3 {
        world.get(&issue).await.assert_status(200);
        seconds(&world, 60);
        let answer = signed(&world, "issues", "g-1", &issue_event(3)).await;
        answers.push((answer.status.as_u16(), hits(&world, &[&issue]).await[0]));
        seconds(&world, 60);
    }
    assert_eq!(answers, [(202, false), (202, true), (202, true)]);
    assert_eq!(
        (deliveries(&world, "issues", "accepted"), deliveries(&world, "issues", "duplicate")),
        (1, 2)
    );
}

/// The signature covers the body, but neither the event nor the type.
#[tokio::test]
async fn a_replay_as_another_event_hides_no_delivery() {
    let world = with_webhooks().await;
    let issue = format!("{REPOSITORY}/issues/3");
    world.get(&issue).await.assert_status(200);
    let body = json!({
        "action": "edited", "issue": { "number": 3, "body": "&payload=%7B%7D&" },
        "repository": { "id": 1, "full_name": "acme/widgets" },
    });
    let body = body.to_string();
    seconds(&world, 60);
    signed(&world, "ping", "g-1", &body).await.assert_status(202);
    let signature = signature(SECRET, &body);
    let form = [
        ("authorization", ""),
        ("content-type", "application/x-www-form-urlencoded"),
        ("x-github-event", "issues"),
        ("x-github-delivery", "g-1"),
        ("x-hub-signature-256", signature.as_str()),
    ];
    world.send(Method::POST, PATH, &form, &body).await.assert_status(400);
    assert_eq!(hits(&world, &[&issue]).await, [true]);
    signed(&world, "issues", "g-1", &body).await.assert_status(202);
    assert_eq!(hits(&world, &[&issue]).await, [false]);
}

#[tokio::test]
async fn a_delivery_with_a_wrong_signature_is_refused() {
    let world = with_webhooks().await;
    let issue = format!("{REPOSITORY}/issues/3");
    world.get(&issue).await.assert_status(200);
    seconds(&world, 60);
    let body = issue_event(3);
    let right = signature(SECRET, &body);
    let wrong: [&[(&str, &str)]; 6] = [
        &[],
        &[("x-hub-signature", "sha1=da39a3ee5e6b4b0d3255bfef95601890afd80709")],
        &[("x-hub-signature-256", &signature("another", &body))],
        &[("x-hub-signature-256", &right), ("x-hub-signature-256", &right)],
        &[("x-hub-signature-256", "sha256=")],
        &[("x-hub-signature-256", &signature(SECRET, "{}"))],
    ];
    for lines in wrong {
        let answer = deliver(&world, "issues", "g-1", lines, &body).await;
        answer.assert_status(401);
        assert!(answer.json()["message"].as_str().unwrap().contains("X-Hub-Signature-256"));
    }
    assert_eq!(hits(&world, &[&issue]).await, [true]);
    assert_eq!(deliveries(&world, "unverified", "wrong_signature"), 6);
    let with_a_key = world.send(Method::POST, PATH, &[], &body).await;
    with_a_key.assert_status(401);
    let before = deliver(
        &world,
        "issues",
        "g-1",
        &[("x-hub-signature-256", &signature("the one before", &body))],
        &body,
    )
    .await;
    before.assert_status(202);
}

#[tokio::test]
async fn a_signed_delivery_without_json_is_a_400_and_may_be_resent() {
    let world = with_webhooks().await;
    signed(&world, "issues", "g-1", "{\"issue\":").await.assert_status(400);
    signed(&world, "issues", "g-1", &issue_event(3)).await.assert_status(202);
    assert_eq!(deliveries(&world, "issues", "accepted"), 1);
}

#[tokio::test]
async fn without_a_secret_the_webhook_route_is_a_404() {
    let world = Setup::new().start().await;
    let body = issue_event(3);
    signed(&world, "issues", "g-1", &body).await.assert_status(404);
    world.send(Method::GET, PATH, &[], "").await.assert_status(404);
}

#[tokio::test]
async fn a_write_shows_wherever_its_resource_is_shown() {
    let world = setup().start().await;
    let pages = [
        &format!("{REPOSITORY}/issues/3"),
        REPOSITORY,
        &format!("{REPOSITORY}/commits"),
        &format!("{REPOSITORY}/labels"),
    ];
    let pages = pages.map(|page| page);
    hits(&world, &pages).await;
    seconds(&world, 60);
    world
        .post(&format!("{REPOSITORY}/issues/3/comments"), json!({ "body": "hello" }))
        .await
        .assert_status(201);
    assert_eq!(hits(&world, &pages).await, [false, false, true, true]);
}

#[tokio::test]
async fn an_event_for_a_new_resource_ends_its_stored_404() {
    let world = setup().start().await;
    let (fork, issue) = ("/repos/ben/widgets", "/repos/acme/gears/issues/900");
    for missing in [fork, issue] {
        for _ in 0..2 {
            world.get(missing).await.assert_status(404);
        }
    }
    seconds(&world, 60);
    let from = json!({ "id": 1, "full_name": "acme/widgets" });
    let forked = json!({ "repository": from, "forkee": { "full_name": "ben/widgets", "owner": { "login": "ben" } } });
    let changes =
        json!({ "new_issue": { "number": 900 }, "new_repository": { "full_name": "acme/gears" } });
    let moved = json!({ "action": "transferred", "issue": { "number": 3 }, "repository": from, "changes": changes });
    for (event, guid, body, path) in
        [("fork", "g-1", forked, fork), ("issues", "g-2", moved, issue)]
    {
        assert_eq!(world.get(path).await.cache_status(), "weir; hit", "{event}");
        signed(&world, event, guid, &body.to_string()).await.assert_status(202);
        assert_ne!(world.get(path).await.cache_status(), "weir; hit", "{event}");
    }
}

/// Begins unsigned deliveries of this length.
async fn begin_unsigned(world: &World, count: usize, length: usize) -> Vec<Connection> {
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256={}\r\nContent-Length: {length}\r\n\r\n{{",
        "0".repeat(64)
    );
    let mut connections = Vec::new();
    for _ in 0..count {
        let mut connection = Connection::open(world.address).await;
        connection.send(head.as_bytes()).await;
        connections.push(connection);
    }
    connections
}

/// KiB of memory that deliveries have at present.
fn taken(world: &World) -> u64 {
    world.gateway.webhooks.bodies().taken()
}

#[tokio::test]
async fn unfinished_deliveries_keep_nobody_out_and_time_out() {
    const MANY: usize = 400;
    let world = setup().start().await;
    let mut connections = begin_unsigned(&world, MANY, 25 * 1024 * 1024).await;
    // Each has sent a byte.
    eventually(|| taken(&world) == MANY as u64).await;
    let answer =
        world.post(&format!("{REPOSITORY}/issues"), json!({ "title": "all the same" })).await;
    answer.assert_status(201);
    signed(&world, "issues", "g-1", &issue_event(3)).await.assert_status(202);
    // Bytes keep arriving, but too slowly for the time that the upstream itself would wait.
    seconds(&world, 9);
    for connection in &mut connections {
        connection.send(b" ").await;
    }
    assert_eq!(taken(&world), MANY as u64);
    seconds(&world, 1);
    for connection in &mut connections {
        assert!(connection.read_to_close().await.starts_with("HTTP/1.1 408 "));
    }
    assert_eq!(taken(&world), 0);
}

#[tokio::test]
async fn an_address_that_sends_much_keeps_no_large_delivery_out() {
    let world = setup().start().await;
    let mut connections = begin_unsigned(&world, 3, 25 * 1024 * 1024).await;
    for (connection, kib) in connections.iter_mut().zip([24 * 1024, 24 * 1024, 15 * 1024]) {
        connection.send(&vec![b' '; kib * 1024 - 1]).await;
    }
    eventually(|| taken(&world) == 63 * 1024).await;
    let body = issue_event(3) + &" ".repeat(24 * 1024 * 1024);
    let delivery = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: g-1\r\n\
         Content-Type: application/json\r\nX-Hub-Signature-256: {}\r\nContent-Length: {}\r\n\r\n\
         {body}",
        signature(SECRET, &body),
        body.len()
    );
    for (last, status) in [(1, 503), (2, 202)] {
        let address = Ipv4Addr::new(127, 0, 0, last);
        let mut connection = Connection::open_from(address, world.address).await;
        connection.send(delivery.as_bytes()).await;
        let answer = connection.read_head().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{address}: {answer}");
    }
}

/// Opens a pull request upstream as the gateway's account, and returns its path.
fn open_pull(world: &World) -> String {
    let main = format!("{REPOSITORY}/branches/main");
    let head = world.ask_emulator(Method::GET, &main, &Value::Null);
    let branch = json!({ "ref": "refs/heads/topic", "sha": head["commit"]["sha"] });
    world.ask_emulator(Method::POST, &format!("{REPOSITORY}/git/refs"), &branch);
    let file = json!({ "message": "More", "content": "eA==", "branch": "topic" });
    world.ask_emulator(Method::PUT, &format!("{REPOSITORY}/contents/more.md"), &file);
    let wanted = json!({ "title": "Better", "head": "topic", "base": "main" });
    let pull = world.ask_emulator(Method::POST, &format!("{REPOSITORY}/pulls"), &wanted);
    format!("{REPOSITORY}/pulls/{}", pull["number"])
}

/// Merges a pull request upstream as another user, and returns the commit.
fn merge_as_ben(world: &World, pull: &str) -> Value {
    let request = http::Request::put(format!("{pull}/merge"))
        .header("authorization", "Bearer emu_classic_ben_all_scopes")
        .body(bytes::Bytes::new())
        .unwrap();
    let now = world.clock.now();
    let answer = world
        .emulator
        .with_emulator(|emulator| emulator.respond(now, &request, Ipv4Addr::LOCALHOST.into()));
    let answer: Value = serde_json::from_slice(answer.body()).unwrap();
    answer["sha"].clone()
}

#[tokio::test]
async fn a_merge_around_the_gateway_changes_what_it_shows() {
    let world = with_webhooks().await;
    let pull = open_pull(&world);
    delivered(&world, "pull_request").await;
    let list = format!("{REPOSITORY}/pulls");
    let (commits, issue) = (format!("{REPOSITORY}/commits"), format!("{REPOSITORY}/issues/3"));
    let pages = [pull.as_str(), &list, &commits, &issue];
    let feed = "/notifications?per_page=5";
    let newest = async || world.get(feed).await.json()[0]["subject"]["url"].clone();
    // Revalidations settle the invalidation by the events so far.
    for _ in 0..3 {
        hits(&world, &pages).await;
        seconds(&world, 60);
    }
    assert_eq!(hits(&world, &pages).await, [true; 4]);
    let is_about_pull = |url: Value| url.as_str().is_some_and(|url| url.ends_with(&pull));
    assert!(!is_about_pull(newest().await));
    let sha = merge_as_ben(&world, &pull);
    eventually(|| deliveries(&world, "pull_request", "accepted") > 1).await;
    assert_eq!(hits(&world, &pages).await, [false, false, false, true]);
    let shown = world.get(&pull).await.json();
    assert_eq!((&shown["merged"], &shown["merge_commit_sha"]), (&json!(true), &sha));
    let open = world.get(&list).await.json();
    let number = &shown["number"];
    assert!(open.as_array().unwrap().iter().all(|one| one["number"] != *number));
    // Notifications keep their poll interval, which an event must not shorten.
    seconds(&world, 61);
    assert!(is_about_pull(newest().await));
}
