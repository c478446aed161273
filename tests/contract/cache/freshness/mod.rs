//! Freshness: no response is older than its mode allows. Bots read and write the same resources
//! concurrently, through the gateway and around it. Responses are lost, replicas lag, clients
//! leave, and webhooks are lost, late or doubled. Each response is compared with the truth at the
//! time of its request.
//!
//! `REQUESTS=1000000 cargo test --release --test contract freshness -- --nocapture` makes a million
//! of them.

mod history;
mod mangler;
mod replicas;
mod traffic;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir::random::Rng;

use crate::support::{Setup, World, config};
use history::Allowed;
use mangler::Mangler;
use traffic::{Rules, Traffic};

/// Limits too high to be met: these tests are about content.
pub(crate) const UNLIMITED: &str = r#"
[limits]
concurrency = 10000
rest_points_per_minute = 100000000
cpu_seconds_per_minute = 100000000
content_per_minute = 100000000
content_per_hour = 100000000
[writes]
spacing = "0s"
notify_spacing = "0s"
"#;

/// Requests by default: enough to find a fault in the rules, within seconds.
const REQUESTS: usize = 4_000;

/// A round that takes longer waits for the clock.
const STUCK: Duration = Duration::from_millis(300);
const TTL: Duration = Duration::from_secs(40);
/// The `s-maxage` of the upstream's responses (SPECIFICATION, "Conditional requests in practice").
const S_MAXAGE: Duration = Duration::from_secs(60);
/// The time for which a replica hides a change, shorter than the ten seconds before the last
/// refetch.
const LAG: Duration = Duration::from_secs(6);

const RULES: &str = r#"
[[cache.rules]]
route = "/repos/{owner}/{repo}/issues"
ttl = "40s"
[[cache.rules]]
route = "/repos/{owner}/{repo}/issues/{issue_number}/comments"
ttl = "40s"
[[cache.rules]]
route = "/repos/{owner}/{repo}/pulls/{pull_number}"
ttl = "40s"
"#;

/// Long, because webhooks report the changes.
const LONG_TTL: Duration = Duration::from_secs(900);

fn with_webhooks() -> String {
    let routes = [
        "",
        "/issues",
        "/issues/{issue_number}",
        "/issues/{issue_number}/comments",
        "/pulls/{pull_number}",
    ];
    let rule = |route: &str| {
        config::cache_ttl(
            &format!("/repos/{{owner}}/{{repo}}{route}"),
            &format!("{}s", LONG_TTL.as_secs()),
        )
    };
    format!(
        "{}[webhooks]\nsecret = {{ value = \"{}\" }}\n",
        routes.map(rule).concat(),
        mangler::SECRET
    )
}

/// The same for all routes.
const fn everywhere(allowed: Allowed) -> Rules {
    Rules { issue: allowed, list: allowed, comments: allowed, pull: allowed, repository: allowed }
}

/// The permitted ages that follow from `RULES`.
const fn with_rules() -> Rules {
    let ttl = Allowed::Ttl(TTL);
    Rules { list: ttl, comments: ttl, pull: ttl, ..everywhere(Allowed::Nothing) }
}

/// The requests of one scenario.
fn requests() -> usize {
    std::env::var("REQUESTS").ok().and_then(|count| count.parse().ok()).unwrap_or(REQUESTS)
        / SCENARIOS
}

async fn world(sections: &str) -> Arc<World> {
    let world =
        Setup::new().accounts(2).manual_clock().config(UNLIMITED).config(sections).start().await;
    lift_limits(&world);
    Arc::new(world)
}

fn lift_limits(world: &World) {
    world.set_limits(&json!({
        "core": 1_000_000_000, "points.rest": 100_000_000, "content.minute": 100_000_000, "content.hour": 100_000_000, "cpu": 1_000_000, "cpu.burst": 1_000_000,
        "concurrency": 10_000,
    }));
}

/// Rounds of concurrent requests, with time passing between them.
async fn play(traffic: &Arc<Traffic>, world: &World, mangler: Option<&Mangler>, seed: u64) {
    play_part(traffic, world, mangler, seed, requests()).await;
}

/// The same, with this many requests.
async fn play_part(
    traffic: &Arc<Traffic>,
    world: &World,
    mangler: Option<&Mangler>,
    seed: u64,
    requests: usize,
) {
    let mut dice = Rng::for_purpose(seed, 1);
    let mut left = requests;
    while left > 0 {
        let count = usize::try_from(dice.between(1, 120)).unwrap().min(left);
        left -= count;
        let is_troubled = dice.percent(10.0);
        if is_troubled {
            inject_fault(world, &mut dice);
        }
        let mut round = Box::pin(traffic.round(&mut dice, count, !is_troubled));
        // The clock advances for requests that wait for a time, such as retries.
        while tokio::time::timeout(STUCK, &mut round).await.is_err() {
            world.advance_both(Duration::from_secs(1));
        }
        drop(round);
        if let Some(mangler) = mangler {
            mangler.hand_on_late().await;
        }
        if is_troubled {
            world.ask_emulator(Method::DELETE, "/_emulator/faults", &Value::Null);
        }
        let pause = if dice.percent(3.0) { dice.between(60, 900) } else { dice.below(9) };
        world.advance_both(Duration::from_secs(pause));
    }
    let figures = &traffic.figures;
    println!("seed {seed}: {figures:?}");
    let findings = traffic.findings.lock();
    assert!(
        findings.is_empty(),
        "{} answers were too old (seed {seed}):\n{}",
        figures.too_old.load(Ordering::Relaxed),
        findings.join("\n")
    );
    let changes = figures
        .changes_through
        .load(Ordering::Relaxed)
        .min(figures.changes_around.load(Ordering::Relaxed));
    assert!(changes * 100 > requests as u64, "too little changed to prove anything: {figures:?}");
}

/// Makes the upstream fail for a round.
fn inject_fault(world: &World, dice: &mut Rng) {
    let fault = match dice.below(4) {
        0 => json!({ "fault": "reset_after", "match": { "method": "PATCH", "times": 1 } }),
        1 => json!({ "fault": "reset_before", "match": { "method": "PATCH", "times": 1 } }),
        2 => {
            json!({ "fault": "status", "status": 502, "executed": true, "match": { "method": "POST", "times": 1 } })
        }
        _ => json!({ "fault": "status", "status": 503, "match": { "method": "GET", "times": 5 } }),
    };
    world.arm(&fault);
}

/// Plays one of the scenarios.
async fn scenario(config: &str, rules: Rules, lag: Duration, seed: u64) {
    let world = world(config).await;
    if !lag.is_zero() {
        world.arm(&json!({ "fault": "stale_read", "seconds": lag.as_secs() }));
    }
    let traffic = Arc::new(Traffic::new(Arc::clone(&world), rules, lag));
    play(&traffic, &world, None, seed).await;
}

const SCENARIOS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn with_revalidation_each_response_shows_all_completed_changes() {
    scenario("", everywhere(Allowed::Nothing), Duration::ZERO, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_hides_only_outside_changes_and_only_for_the_ttl() {
    scenario(RULES, with_rules(), Duration::ZERO, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_cache_hides_only_outside_changes_while_fresh() {
    scenario(
        "[cache]\nfreshness = \"rfc9111\"",
        everywhere(Allowed::Ttl(S_MAXAGE)),
        Duration::ZERO,
        3,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lagging_replicas_hide_a_change_for_ten_seconds_at_most() {
    scenario(RULES, with_rules(), LAG, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_shows_changes_at_once_and_a_lost_one_at_the_ttl() {
    let world = world(&with_webhooks()).await;
    let traffic = Arc::new(Traffic::new(
        Arc::clone(&world),
        everywhere(Allowed::Unreported(LONG_TTL)),
        Duration::ZERO,
    ));
    let mangler = Mangler::start(&world, &traffic, 5).await;
    play(&traffic, &world, Some(&mangler), 5).await;
    let reported = traffic.figures.reported.load(Ordering::Relaxed);
    assert!(reported > 0, "no webhook came through");
}

/// Restarts of one scenario; every second one is a crash.
const RESTARTS: u64 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn restarts_with_a_snapshot_bring_no_old_answer_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.cache");
    let cache = format!("[cache]\n{}\n{RULES}", config::snapshot(&path));
    let started = world(&cache).await;
    let mut traffic = Arc::new(Traffic::new(Arc::clone(&started), with_rules(), Duration::ZERO));
    drop(started);
    let (mut restored, part) = (0, requests() / usize::try_from(RESTARTS).unwrap());
    for number in 0..RESTARTS {
        let now = Arc::clone(traffic.world());
        play_part(&traffic, &now, None, 6 + number, part / 2).await;
        let snapshots = Arc::clone(now.current.snapshots().unwrap());
        assert!(snapshots.write_now(Arc::clone(&now.gateway.cache)).await);
        play_part(&traffic, &now, None, 60 + number, part / 2).await;
        drop((now, snapshots));
        // A crash leaves the file as it is before the drain replaces it.
        let crashed = (number % 2 == 1).then(|| std::fs::read(&path).unwrap());
        let traffic_before = Arc::into_inner(traffic).expect("nobody has it beside");
        let replace = |_: &weir::emulator::Handle| {
            if let Some(file) = crashed {
                std::fs::write(&path, file).unwrap();
            }
        };
        traffic = Arc::new(traffic_before.restarted(replace).await);
        restored += traffic.world().gateway.cache.store().size().0;
    }
    assert!(restored > RESTARTS * 5, "{restored} answers came back");
}
