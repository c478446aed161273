//! The account that met a secondary limit stays silent (SPECIFICATION, "After a limit").

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::support::{Setup, World};

/// The upstream's `Retry-After`.
const QUIET_SECS: u64 = 90;

/// A page that no request has named before, so that it goes upstream.
async fn read(world: &World, page: &mut u32) {
    *page += 1;
    world
        .get(&format!("/repos/acme/widgets/issues?per_page=1&page={page}"))
        .await
        .assert_status(200);
}

#[tokio::test]
async fn a_limited_account_is_silent_while_the_other_serves_reads() {
    let world = Setup::new().accounts(2).manual_clock().start().await;
    let mut page = 0;
    for _ in 0..4 {
        read(&world, &mut page).await;
    }
    let refused = world.upstream_requests()[0].account.clone();
    let sent_by = |from: usize, account: &str| {
        world.upstream_requests()[from..].iter().filter(|entry| entry.account == account).count()
    };
    assert!((1..4).contains(&sent_by(0, &refused)), "both carry reads");

    let fault = json!({ "fault": "secondary", "retry_after": QUIET_SECS, "match": { "account": refused, "times": 1 } });
    world.ask_emulator(Method::POST, "/_emulator/faults", &fault);
    let before = world.upstream_requests().len();
    while sent_by(before, &refused) == 0 {
        read(&world, &mut page).await;
    }
    let refused_at = world.clock.now();
    assert!(
        world
            .upstream_requests()
            .iter()
            .any(|entry| entry.refused.is_some() || entry.fault.is_some())
    );

    let quiet = world.upstream_requests().len();
    let mut other = 0;
    while world.clock.now() < refused_at + Duration::from_secs(QUIET_SECS - 1) {
        read(&world, &mut page).await;
        other += 1;
        world.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(sent_by(quiet, &refused), 0, "silent until the named time");
    assert!(world.upstream_requests().len() - quiet >= other, "the other account carries them");

    world.clock.advance(Duration::from_secs(5));
    let after = world.upstream_requests().len();
    for _ in 0..6 {
        read(&world, &mut page).await;
    }
    assert!(sent_by(after, &refused) > 0, "it is used again");
    let counters = world.ask_emulator(Method::GET, "/_emulator/books", &Value::Null);
    assert_eq!(
        (&counters["sent_while_limited"], &counters["banned"]),
        (&json!(0), &json!([])),
        "{counters}"
    );
}
