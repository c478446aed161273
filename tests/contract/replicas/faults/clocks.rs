//! Replicas whose clocks differ.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::sync::Semaphore;
use weir::clock::Clock;

use super::{Load, Pace, REPLICAS, assert_none_refused, setup};
use crate::replicas::Replicas;
use crate::support::proxy::{TestProxy, Tunnel};
use crate::support::redis_server::RedisServer;
use crate::support::{Setup, eventually};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_not_sent_long_after_its_permission() {
    const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
    /// Half of the time after which another replica takes the write.
    const LONG: Duration = Duration::from_secs(6);
    let permits = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    let proxy = TestProxy::start(Tunnel::Held(Arc::clone(&permits))).await;
    let keys = format!("proxy = \"http://{}\"\nconnect_timeout = \"1m\"", proxy.address);
    let clock = clock_from(|machine| Clock::manual(machine.now()));
    let setup = Setup::new().upstream_keys(&keys).unspaced_writes().clock(clock.clone());
    let redis = RedisServer::start(&[]);
    let each = [(redis.url(), None)];
    let replicas = Replicas::start_each(setup, redis, 1, &each).await;
    let way = Arc::new(Semaphore::new(0));
    proxy.change(Tunnel::Held(Arc::clone(&way)));
    let before = proxy.heads().len();
    let comment = json!({ "body": "late" }).to_string();
    let written = replicas.send(0, Method::POST, COMMENTS, &comment);
    let stands_still = async {
        eventually(|| proxy.heads().len() > before).await;
        clock.advance(LONG);
        proxy.change(Tunnel::Held(permits));
        way.add_permits(1);
    };
    let (answer, ()) = tokio::join!(written, stands_still);
    answer.assert_status(201);
    assert_eq!(proxy.heads().len(), before + 2, "the first connection was not used");
    let seen = replicas.world.upstream_requests();
    let posts = seen.iter().filter(|entry| entry.method == "POST").count();
    assert_eq!(posts, 1, "{seen:#?}");
}
