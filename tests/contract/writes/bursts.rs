//! Bursts: more writes than the upstream accepts at once are queued, and none is refused, lost or
//! doubled (SPECIFICATION, "Promises"; D5 to D7).
//!
//! Gateway and emulator share an accelerated clock. The emulator's record is the truth.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir::clock::Clock;
use weir::writes::WriteState;

use crate::support::{Reply, Setup, World, config, eventually};

const ASYNC: (&str, &str) = ("prefer", "respond-async");

fn key(bot: usize) -> String {
    format!("weir_key_of_bot_{bot}_in_a_burst")
}

/// Config sections of further clients that all write for one account.
fn bots(count: usize) -> String {
    let keys = "writes = \"account-0\"\nmax_wait = \"10m\"";
    (0..count).map(|bot| config::client(&format!("bot-{bot}"), &key(bot), keys)).collect()
}

/// An hour lasts `3,600 / speed` seconds, so connection timeouts are long.
fn patient(speed: f64) -> Setup {
    Setup::new()
        .clock(Clock::scaled(speed))
        .listen("idle_timeout = \"24h\"\nheader_timeout = \"24h\"")
}

impl World {
    async fn comment(&self, bot: usize, n: usize, headers: &[(&str, &str)]) -> Reply {
        let authorization = format!("Bearer {}", key(bot));
        let headers = [&[("authorization", authorization.as_str())], headers].concat();
        let path = format!("/repos/acme/widgets/issues/{}/comments", bot + 1);
        self.send(
            Method::POST,
            &path,
            &headers,
            &json!({ "body": format!("{bot}-{n}") }).to_string(),
        )
        .await
    }

    /// The comments of a bot in their order.
    fn comments_of(&self, bot: usize) -> Vec<String> {
        let path = format!("/repos/acme/widgets/issues/{}/comments?per_page=100", bot + 1);
        let listed = self.ask_emulator(Method::GET, &path, &Value::Null);
        let ours = format!("{bot}-");
        let texts =
            listed.as_array().unwrap().iter().filter_map(|comment| comment["body"].as_str());
        texts.filter(|text| text.starts_with(&ours)).map(str::to_owned).collect()
    }

    fn emulator_counters(&self) -> Value {
        self.ask_emulator(Method::GET, "/_emulator/books", &Value::Null)
    }

    fn unfinished(&self) -> u64 {
        self.gateway
            .writes
            .queue()
            .counts()
            .iter()
            .filter(|(state, _)| !state.is_final())
            .map(|(_, count)| count)
            .sum()
    }
}

/// Half of the writes are synchronous, half are queued. The refusal comes in the middle of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_secondary_limit_during_a_burst_costs_only_time() {
    const BOTS: usize = 6;
    const EACH: usize = 6;
    for refusal in
        [json!({ "fault": "secondary" }), json!({ "fault": "secondary", "retry_after": 90 })]
    {
        // One write at a time, so that none is on its way at the refusal.
        let spaced = patient(60.0).writes("spacing = \"1ms\"\nnotify_spacing = \"1ms\"");
        let world = spaced.config(&bots(BOTS)).start().await;
        let mut armed = refusal.clone();
        armed["match"] = json!({ "method": "POST", "nth": 10 });
        world.arm(&armed);
        let each = (0..BOTS).map(|bot| {
            let world = &world;
            async move {
                for n in 0..EACH {
                    if bot % 2 == 0 {
                        world.comment(bot, n, &[ASYNC]).await.assert_status(202);
                    } else {
                        world.comment(bot, n, &[]).await.assert_status(201);
                    }
                }
            }
        });
        join_all(each).await;
        eventually(|| world.unfinished() == 0).await;
        for bot in 0..BOTS {
            let expected: Vec<_> = (0..EACH).map(|n| format!("{bot}-{n}")).collect();
            assert_eq!(world.comments_of(bot), expected, "{refusal}");
        }
        let struck = world.upstream_requests().iter().filter(|entry| entry.fault.is_some()).count();
        let counters = world.emulator_counters();
        assert_eq!(
            (struck, &counters["sent_while_limited"], &counters["banned"]),
            (1, &json!(0), &json!([])),
            "{refusal}: {counters}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_bots_use_an_hours_content_limit_without_a_refusal() {
    const BOTS: usize = 20;
    const EACH: usize = 30;
    const SPEED: f64 = 150.0;
    let world = patient(SPEED).unspaced_writes().config(&bots(BOTS)).start().await;
    let began = world.clock.now();
    let hand_over = (0..BOTS).map(|bot| {
        let world = &world;
        async move {
            let mut locations = Vec::new();
            for n in 0..EACH {
                let accepted = world.comment(bot, n, &[ASYNC]).await;
                accepted.assert_status(202);
                locations.push(accepted.header("location").unwrap().to_owned());
            }
            locations
        }
    });
    let locations = join_all(hand_over).await;
    world.clock.reach(began + std::time::Duration::from_secs(3_600)).await;

    let mut by_minute: BTreeMap<u64, usize> = BTreeMap::new();
    let made: Vec<_> = world
        .upstream_requests()
        .into_iter()
        .filter(|entry| entry.method == "POST" && entry.executed)
        .map(|entry| entry.at_millis)
        .filter(|at| at - began.as_millis() < 3_600_000)
        .collect();
    for at in &made {
        *by_minute.entry((at - began.as_millis()) / 60_000).or_default() += 1;
    }
    let mut waits = Vec::new();
    for (bot, locations) in locations.iter().enumerate() {
        for location in locations {
            let authorization = format!("Bearer {}", key(bot));
            let reported =
                world.get_with(location, &[("authorization", &authorization)]).await.json();
            if reported["state"] == WriteState::Done.name() {
                waits.push(seconds(&reported["finished_at"]) - seconds(&reported["accepted_at"]));
            }
        }
    }
    waits.sort_unstable();
    let p99 = waits[(waits.len() * 99).div_ceil(100) - 1];
    println!(
        "{} of 500 in an hour, queue time p50 {} s, p99 {p99} s; by minute {by_minute:?}",
        made.len(),
        waits[waits.len() / 2]
    );
    let counters = world.emulator_counters();
    assert_eq!(
        (&counters["refused_primary"], &counters["refused_secondary"]),
        (&json!(0), &json!(0)),
        "{counters}"
    );
    assert!((475..=500).contains(&made.len()), "{} writes of 500", made.len());
    for pair in made.windows(81) {
        assert!(pair[80] - pair[0] >= 60_000, "more than 80 within a minute");
    }
}

/// The seconds since the epoch of a time like `2026-11-22T11:27:36Z`.
fn seconds(time: &Value) -> i64 {
    OffsetDateTime::parse(time.as_str().unwrap(), &Rfc3339).unwrap().unix_timestamp()
}
