//! Replicas whose clocks differ.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir::clock::Clock;

use super::{Load, Pace, REPLICAS, assert_none_refused, setup};
use crate::replicas::Replicas;
use crate::support::redis_server::RedisServer;

const APART: Duration = Duration::from_mins(1);
/// Steps of a clock that differs from the machine's.
const TICK: Duration = Duration::from_millis(5);
const BUDGET: usize = 60;
/// Short windows, so that replicas see several of them. Their length is in seconds.
const WINDOW: u64 = 10;
const WINDOWS: usize = 3;
/// The longest time after a window until the next one is used, in seconds.
const UNUSED: u64 = 10;

/// A clock that begins at another time than the machine's, and goes on like it.
fn clock_from(begin: impl FnOnce(&Clock) -> Clock) -> Clock {
    let machine = Clock::system();
    let (clock, mut last) = (begin(&machine), machine.now());
    let going = clock.clone();
    tokio::spawn(async move {
        loop {
            machine.reach(last + TICK).await;
            let now = machine.now();
            going.advance(now.since(last));
            last = now;
        }
    });
    clock
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_whose_clocks_differ_by_a_minute() {
    let redis = RedisServer::start(&[]);
    let ahead = clock_from(|machine| Clock::manual(machine.now() + APART));
    let behind = clock_from(|machine| Clock::manual(machine.now() - APART));
    let each = [None, Some(ahead), Some(behind)].map(|clock| (redis.url(), clock));
    let replicas = Arc::new(Replicas::start_each(setup("1s"), redis, REPLICAS, &each).await);
    replicas.world.set_limits(&json!({ "core.user": BUDGET, "window.primary": WINDOW }));
    let addresses: Vec<_> = (0..REPLICAS).map(|replica| replicas.address(replica)).collect();
    // The one ahead finds the first window, and the others hear of it.
    let first = Load::begin(&replicas, &addresses[1..2]);
    first.served(1).await;
    first.set(Pace::Ended);
    let load = Load::begin(&replicas, &addresses);
    let clock = &replicas.world.clock;
    let begun = clock.now();
    load.end(WINDOWS * BUDGET * 9 / 10).await;
    let took = clock.now().since(begun).as_secs();
    let most = WINDOWS as u64 * (WINDOW + UNUSED);
    assert!(took < most, "{WINDOWS} windows took {took} s");
    assert_none_refused(&replicas);
}
