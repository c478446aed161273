//! Concurrency: as many requests in flight as the upstream allows, and never one more.
//!
//! Real sockets and a manual clock make the result independent of the machine's speed.

use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

use weir::emulator::{Entry, FaultId};

use crate::support::{KEY, Setup, World};

const CLIENTS: usize = 1_000;
const SLOTS: usize = 100;
/// Connections shared by the clients, 50 each. HTTP/2, because some systems limit a process to
/// fewer than two thousand sockets.
const CONNECTIONS: usize = 20;
/// The paths, and the upstream's seconds for each. They differ so that slots become free one after
/// the other.
const ANSWERS: [(&str, u64); 5] =
    [("issues", 3), ("labels", 4), ("commits", 5), ("pulls", 7), ("milestones", 11)];

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_keep_exactly_a_hundred_in_flight() {
    let limits = "[limits]\nrest_points_per_minute = 1000000\ncpu_seconds_per_minute = 1000000";
    let setup = Setup::new().single_client().manual_clock();
    let world = setup.config(limits).client("max_wait = \"1h\"").start().await;
    world.set_limits(&json!({ "points.rest": 1_000_000 }));
    world.get("/repos/acme/widgets").await.assert_status(200);
    for (list, seconds) in ANSWERS {
        let fault = json!({ "fault": "stall", "seconds": seconds, "match": { "path": format!("/repos/acme/widgets/{list}"), "times": CLIENTS } });
        world.ask_emulator(Method::POST, "/_emulator/faults", &fault);
    }
    // A fault that matches every request and changes nothing that a gateway may depend on. The test
    // waits for its strikes.
    let fault =
        json!({ "fault": "wobble", "seconds": 1, "match": { "path": "/repos/acme/widgets/*" } });
    let arrivals = FaultId(
        world.ask_emulator(Method::POST, "/_emulator/faults", &fault)["id"].as_u64().unwrap(),
    );
    let (statuses, seen) = tokio::join!(send_all(&world), keep_time(&world, arrivals));
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert!(
        seen.iter().all(|entry| entry.refused.is_none() && (entry.concurrency as usize) < SLOTS)
    );
    let average = average_in_flight(&seen, seen[CLIENTS - SLOTS].at_millis);
    assert!(average >= 95.0, "{average} in flight on average");
}

/// One request by each client, all for different URLs.
async fn send_all(world: &World) -> Vec<http::StatusCode> {
    let connections: Vec<Client<_, Empty<bytes::Bytes>>> = (0..CONNECTIONS)
        .map(|_| Client::builder(TokioExecutor::new()).http2_only(true).build_http())
        .collect();
    let answers = (0..CLIENTS).map(|n| {
        let connection = &connections[n % CONNECTIONS];
        let url = format!(
            "http://{}/repos/acme/widgets/{}?per_page=1&page={n}",
            world.address,
            ANSWERS[n % ANSWERS.len()].0
        );
        let request = Request::get(url)
            .header("authorization", format!("Bearer {KEY}"))
            .body(Empty::new())
            .unwrap();
        async move {
            let answer = connection.request(request).await.unwrap();
            let status = answer.status();
            answer.into_body().collect().await.unwrap();
            status
        }
    });
    join_all(answers).await
}

/// Advances the clock whenever every slot is taken, and returns the requests that arrived upstream.
/// A gateway that leaves a slot free while requests wait blocks here.
async fn keep_time(world: &World, arrivals: FaultId) -> Vec<Entry> {
    // The first request, sent before.
    let before = 1;
    loop {
        let mut seen = world.emulator.with_emulator(|emulator| emulator.transcript(before));
        // The gateway itself asks for `/rate_limit` or `/`, if the machine is slow (SPECIFICATION
        // D22).
        seen.retain(|entry| entry.path.starts_with("/repos/acme/widgets/"));
        let now = world.clock.now().as_millis();
        let left = seen.iter().filter(|entry| leaves_at(entry) <= now).count();
        if left == CLIENTS {
            return seen;
        }
        let expected = CLIENTS.min(left + SLOTS);
        let slots_are_taken = world.emulator.wait_until_struck(arrivals, expected as u64);
        assert!(
            tokio::time::timeout(Duration::from_secs(60), slots_are_taken).await.is_ok(),
            "{} arrived of {expected}",
            seen.len()
        );
        world.clock.advance(Duration::from_millis(500));
    }
}

fn leaves_at(entry: &Entry) -> u64 {
    let (_, seconds) = ANSWERS
        .iter()
        .find(|(list, _)| entry.endpoint.ends_with(list))
        .unwrap_or_else(|| panic!("{entry:?}"));
    entry.at_millis + seconds * 1_000
}

/// The time-weighted average of the requests in flight until `end`.
fn average_in_flight(seen: &[Entry], end: u64) -> f64 {
    let begin = seen[0].at_millis;
    let stay = |entry: &Entry| leaves_at(entry).min(end).saturating_sub(entry.at_millis);
    let total: u64 = seen.iter().map(stay).sum();
    #[expect(clippy::cast_precision_loss, reason = "seconds in milliseconds, times a hundred")]
    let average = total as f64 / (end - begin) as f64;
    average
}
