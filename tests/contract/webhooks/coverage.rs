//! Webhook coverage: the lifetime that a healthy webhook allows, and the recovery of a lost
//! delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::admin::operator::Operator;
use crate::support::{Setup, World, eventually};

const SECRET: &str = "It's a Secret to Everybody";
const ISSUE: &str = "/repos/acme/widgets/issues/3";
const OTHER: &str = "/repos/acme/widgets/issues/4";

/// A relay between upstream and gateway that drops deliveries on command.
struct Relay {
    url: String,
    to_lose: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
}

impl Relay {
    async fn start(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/_weir/webhooks", listener.local_addr().unwrap());
        let (to_lose, lost, gateway) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), world.address);
        let relay = Self { url, to_lose: Arc::clone(&to_lose), lost: Arc::clone(&lost) };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let loses = to_lose
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                    .is_ok();
                let lost = Arc::clone(&lost);
                tokio::spawn(async move {
                    if loses {
                        let _ = stream.write_all(b"HTTP/1.1 500 Lost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
                        let _ = stream.shutdown().await;
                        lost.fetch_add(1, Ordering::SeqCst);
                        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                    } else if let Ok(mut onward) = TcpStream::connect(gateway).await {
                        let _ = tokio::io::copy_bidirectional(&mut stream, &mut onward).await;
                    }
                });
            }
        });
        relay
    }

    async fn loses(&self, count: usize) {
        eventually(|| self.lost.load(Ordering::SeqCst) == count).await;
    }
}

fn create_hook(world: &World, url: &str, events: &[&str]) -> u64 {
    let config = json!({ "url": url, "content_type": "json", "secret": SECRET });
    let hook = json!({ "name": "web", "config": config, "events": events });
    world.ask_emulator(Method::POST, "/orgs/acme/hooks", &hook)["id"].as_u64().unwrap()
}

/// The id of the first webhook of a new world.
async fn next_hook() -> u64 {
    create_hook(&Setup::new().start().await, "http://127.0.0.1:9/", &["*"])
}

/// A gateway with a webhook for these events, from which it has received nothing. Issues stay valid
/// for six hours while it is healthy.
async fn world_with_hook(events: &[&str]) -> (World, Relay) {
    let rules = "[[cache.rules]]\nroute = \"/repos/{owner}/{repo}/issues/{issue_number}\"\nwebhook_ttl = \"6h\"";
    let hook = format!(
        "[[webhooks.hooks]]\nat = \"/orgs/acme/hooks/{}\"\naccount = \"account-0\"\ncheck_every = \"1m\"",
        next_hook().await
    );
    let section = format!("[webhooks]\nsecret = {{ value = \"{SECRET}\" }}\n{hook}");
    let world = Setup::new().manual_clock().config(rules).config(&section).start().await;
    checks(&world, 1).await;
    let relay = Relay::start(&world).await;
    create_hook(&world, &relay.url, events);
    // The webhook is healthy from its first check on, for responses fetched some seconds later.
    minutes(&world, 1).await;
    world.advance_both(Duration::from_secs(11));
    (world, relay)
}

fn requests_sent(world: &World, method: &str, end: &str) -> usize {
    let of_hooks = |entry: &weir::emulator::Entry| {
        entry.path.contains("/hooks/") && entry.path.ends_with(end) && entry.method == method
    };
    world.upstream_requests().iter().filter(|entry| of_hooks(entry)).count()
}

/// Waits until this many checks have ended.
async fn checks(world: &World, count: u64) {
    eventually(|| world.gateway.monitor.checks() >= count).await;
}

/// Lets minutes pass, with the checks that fall due.
async fn minutes(world: &World, count: u64) {
    for _ in 0..count {
        let before = world.gateway.monitor.checks();
        world.advance_both(Duration::from_secs(60));
        checks(world, before + 1).await;
    }
}

async fn is_hit(world: &World, path: &str) -> bool {
    let answer = world.get(path).await;
    answer.assert_status(200);
    answer.cache_status() == "weir; hit"
}

fn change(world: &World, title: &str) {
    world.ask_emulator(Method::PATCH, ISSUE, &json!({ "title": title }));
}

fn counted(world: &World, outcome: &str) -> u64 {
    let series =
        format!("weir_webhook_deliveries_total{{event=\"issues\",outcome=\"{outcome}\"}} ");
    world
        .gateway
        .env
        .metrics
        .encode()
        .lines()
        .find_map(|line| line.strip_prefix(&series))
        .map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn covered_responses_last_hours_and_end_with_an_event() {
    let (world, _relay) = world_with_hook(&["*"]).await;
    world.get(ISSUE).await.assert_status(200);
    world.get("/repos/acme/widgets/labels").await.assert_status(200);
    minutes(&world, 5).await;
    assert!(is_hit(&world, ISSUE).await);
    assert!(!is_hit(&world, "/repos/acme/widgets/labels").await, "no rule names it");
    change(&world, "told of");
    eventually(|| counted(&world, "accepted") == 1).await;
    let answer = world.get(ISSUE).await;
    assert_eq!(
        (answer.cache_status(), &answer.json()["title"]),
        ("weir; fwd=stale; fwd-status=200", &json!("told of"))
    );
    assert_eq!(counted(&world, "missed"), 0);
}

/// Polls an issue each second for twenty seconds of four minutes, in two of which it has changed.
/// Returns the number of requests sent for it.
async fn polled(world: &World, webhook: bool) -> u64 {
    for minute in 0..4 {
        if minute % 2 == 1 {
            change(world, &format!("in minute {minute}"));
            if webhook {
                eventually(|| counted(world, "accepted") == minute / 2 + 1).await;
            }
        }
        for _ in 0..20 {
            world.get(ISSUE).await.assert_status(200);
            world.advance_both(Duration::from_secs(1));
        }
        let before = world.gateway.monitor.checks();
        world.advance_both(Duration::from_secs(40));
        if webhook {
            checks(world, before + 1).await;
        }
    }
    let requests = world.upstream_requests();
    requests.iter().filter(|entry| entry.method == "GET" && entry.path == ISSUE).count() as u64
}

#[tokio::test]
async fn an_advised_webhook_ttl_saves_what_was_promised() {
    let world = Setup::new().listen("admin = \"127.0.0.1:0\"").manual_clock().start().await;
    let without = polled(&world, false).await;
    let advice = Operator::of(&world).get("/api/cache/advice").await.json();
    let rules = advice["rules"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["setting"] == "webhook_ttl").unwrap();
    let promised = rule["saved_requests"].as_u64().unwrap();
    let (world, _relay) = world_with_hook(&["*"]).await;
    let saved = without - polled(&world, true).await;
    assert!(saved >= 65 && saved.abs_diff(promised) <= 2, "{saved} saved: {advice}");
}

#[tokio::test]
async fn a_lost_delivery_is_noticed_and_redelivered() {
    let (world, relay) = world_with_hook(&["*"]).await;
    for path in [ISSUE, OTHER] {
        world.get(path).await.assert_status(200);
    }
    minutes(&world, 2).await;
    relay.to_lose.store(1, Ordering::SeqCst);
    change(&world, "nobody heard");
    relay.loses(1).await;
    assert!(is_hit(&world, ISSUE).await, "nobody can know yet");
    minutes(&world, 1).await;
    assert_eq!((requests_sent(&world, "POST", "/attempts"), counted(&world, "missed")), (1, 1));
    eventually(|| counted(&world, "accepted") == 1).await;
    let answer = world.get(ISSUE).await;
    assert_eq!(answer.json()["title"], "nobody heard");
    // The gateway knows the missed event. The next check, which follows soon, sees that it has
    // arrived.
    let before = world.gateway.monitor.checks();
    world.advance_both(Duration::from_secs(10));
    checks(&world, before + 1).await;
    assert!(is_hit(&world, OTHER).await);
    assert_eq!(requests_sent(&world, "POST", "/attempts"), 1);
}

#[tokio::test]
async fn a_missing_delivery_suspends_the_coverage() {
    let (world, relay) = world_with_hook(&["*"]).await;
    for path in [ISSUE, OTHER] {
        world.get(path).await.assert_status(200);
    }
    minutes(&world, 1).await;
    relay.to_lose.store(2, Ordering::SeqCst);
    change(&world, "lost twice");
    relay.loses(1).await;
    minutes(&world, 1).await;
    relay.loses(2).await;
    assert_eq!(
        world.get(ISSUE).await.json()["title"],
        "lost twice",
        "it is asked for all the same"
    );
    assert!(!is_hit(&world, OTHER).await);
    minutes(&world, 5).await;
    assert_eq!(requests_sent(&world, "POST", "/attempts"), 2, "once more after five minutes");
    eventually(|| counted(&world, "accepted") == 1).await;
    minutes(&world, 1).await;
    assert!(is_hit(&world, OTHER).await);
}

#[tokio::test]
async fn an_unreadable_webhook_covers_nothing_after_two_checks() {
    let (world, _relay) = world_with_hook(&["*"]).await;
    world.get(ISSUE).await.assert_status(200);
    world.arm(&json!({ "match": { "method": "GET", "path": "/orgs/acme/hooks/*" }, "fault": "status", "status": 404 }));
    minutes(&world, 1).await;
    assert!(is_hit(&world, ISSUE).await);
    minutes(&world, 2).await;
    assert!(!is_hit(&world, ISSUE).await);
}

#[tokio::test]
async fn webhook_ttl_needs_a_healthy_webhook_with_the_event() {
    let (world, _relay) = world_with_hook(&["push", "label"]).await;
    world.get(ISSUE).await.assert_status(200);
    minutes(&world, 1).await;
    assert!(!is_hit(&world, ISSUE).await);
    let other = world_with_hook(&["*"]).await.0;
    let hook = other.ask_emulator(Method::GET, "/orgs/acme/hooks", &Value::Null);
    let id = hook.as_array().unwrap().iter().filter_map(|hook| hook["id"].as_u64()).max().unwrap();
    other.ask_emulator(
        Method::PATCH,
        &format!("/orgs/acme/hooks/{id}"),
        &json!({ "active": false }),
    );
    other.get(ISSUE).await.assert_status(200);
    minutes(&other, 1).await;
    assert!(!is_hit(&other, ISSUE).await, "it is not active any more");
}
