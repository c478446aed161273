//! The behaviour of every home.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use super::memory::MemoryHome;
use super::redis::RedisHome;
use super::redis_server::RedisServer;
use super::{Closed, Content, Found, Heard, Home, Message};
use crate::clock::{Clock, timer_now};
use crate::config::{Redis, State, fixture};
use crate::decision::fleet::{Answer, CapacityReport, ReplicaId, Report, Use};

const MINUTE: Duration = Duration::from_mins(1);

/// Plays a test against each home. `prefix` tells the tests apart.
async fn each<F: Future<Output = ()>>(prefix: &str, test: impl Fn(Arc<dyn Home>) -> F) {
    test(Arc::new(MemoryHome::new(Clock::system()))).await;
    let server = RedisServer::start(&[]);
    let redis = RedisHome::begin(&settings(&server, prefix));
    redis.connected().await;
    test(Arc::new(redis)).await;
}

/// The settings of a replica with this server.
pub fn settings(server: &RedisServer, prefix: &str) -> Redis {
    state(server, prefix, "").redis.unwrap()
}

/// The section `[state]` with further keys.
pub fn state(server: &RedisServer, prefix: &str, keys: &str) -> State {
    let (url, upstream) = (server.url(), "[upstream]\nurl = \"http://127.0.0.1:1\"\n[state]\n");
    let redis = format!(
        "{upstream}{keys}\nredis = {{ url = \"{url}\", op_timeout = \"5s\", prefix = \"{prefix}\" }}"
    );
    fixture::parsed(&fixture::text(&redis)).state.clone()
}

/// Wants slots of a capacity of 10, of which it holds and uses some.
fn report(number: u64, in_use: u32, wants: u32) -> Report {
    let usage = Use { held: in_use, in_use, wants };
    let name = "slots".to_owned();
    let slots = CapacityReport { name, max: 10, floor: 0, counts_for: MINUTE, usage };
    Report { number, capacities: vec![slots], ..Report::default() }
}

fn closed(name: &str) -> Closed {
    let resources_for = vec![("core".to_owned(), MINUTE)];
    Closed { account: name.to_owned(), whole_for: Duration::from_millis(1_500), resources_for }
}

async fn sync(home: &Arc<dyn Home>, id: u64, report: Report) -> Option<Answer> {
    home.sync("bot", ReplicaId(id), &report).await.unwrap().0
}

fn held(answer: &Answer) -> u32 {
    answer.capacities[0].held
}

/// Reports until the record is old enough to grant something.
async fn first_part(home: &Arc<dyn Home>, id: u64) -> (u64, u32) {
    for number in 1.. {
        let answer = sync(home, id, report(number, 0, 4)).await.unwrap();
        if held(&answer) > 0 {
            return (number, held(&answer));
        }
        tokio::task::yield_now().await;
    }
    unreachable!()
}

#[tokio::test]
async fn a_replica_gets_the_part_that_it_wants() {
    each("part", async |home| {
        assert_eq!(first_part(&home, 1).await.1, 4);
        let (record, _) = home.record("bot").await.unwrap();
        assert_eq!(record.unwrap().taken("slots"), 4);
        assert_eq!(home.record("another").await.unwrap().0, None);
    })
    .await;
}

#[tokio::test]
async fn parts_of_replicas_at_once_are_no_more_than_there_is() {
    each("at-once", async |home| {
        first_part(&home, 1).await;
        let syncs = (2..22).map(|id| {
            let home = Arc::clone(&home);
            tokio::spawn(async move { sync(&home, id, report(1, 0, 3)).await.unwrap() })
        });
        let answers = join_all(syncs).await;
        let parts: u32 = answers.iter().map(|answer| held(answer.as_ref().unwrap())).sum();
        assert_eq!(parts, 6, "all that the first one left");
    })
    .await;
}

#[tokio::test]
async fn a_report_that_comes_late_has_no_answer() {
    each("late", async |home| {
        assert!(sync(&home, 1, report(2, 0, 1)).await.is_some());
        assert_eq!(sync(&home, 1, report(1, 0, 1)).await, None);
        assert_eq!(sync(&home, 1, report(2, 0, 1)).await, None);
    })
    .await;
}

#[tokio::test]
async fn the_part_of_a_replica_that_left_still_counts() {
    each("left", async |home| {
        first_part(&home, 1).await;
        home.leave("bot", ReplicaId(1)).await.unwrap();
        home.leave("unknown", ReplicaId(1)).await.unwrap();
        let answer = sync(&home, 2, report(1, 0, 10)).await.unwrap();
        assert_eq!(held(&answer), 6, "four count for a minute");
    })
    .await;
}

#[tokio::test]
async fn every_listener_hears_messages_in_order() {
    each("messages", async |home| {
        let mut listeners = [home.listen(), home.listen()];
        for news in &mut listeners {
            assert_eq!(news.next().await, Some(Heard::Gap));
        }
        let message =
            |name: &str| Message { from: ReplicaId(7), content: Content::Limited(closed(name)) };
        for name in ["a", "b", "c"] {
            home.publish(&message(name)).await.unwrap();
        }
        for news in &mut listeners {
            for name in ["a", "b", "c"] {
                assert_eq!(news.next().await, Some(Heard::Message(message(name))));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_thing_is_made_by_one_and_found_by_all() {
    each("things", async |home| {
        let find = |holder: &'static str, lifetime| {
            let home = Arc::clone(&home);
            async move { home.find_or_claim("key", holder, lifetime, MINUTE).await.unwrap() }
        };
        assert_eq!(find("a", MINUTE).await, Found::Claimed);
        assert_eq!(find("b", MINUTE).await, Found::Busy);
        home.give_up("key", "b").await.unwrap();
        assert_eq!(find("b", MINUTE).await, Found::Busy, "only its holder gives it up");
        home.give_up("key", "a").await.unwrap();
        assert_eq!(find("b", Duration::from_millis(1)).await, Found::Claimed);
        while find("a", MINUTE).await == Found::Busy {
            tokio::task::yield_now().await;
        }
        let thing = Bytes::from_static(b"\0\xffbinary");
        let made_at = timer_now() - Duration::from_secs(7);
        home.keep("key", thing.clone(), made_at, MINUTE).await.unwrap();
        home.give_up("key", "a").await.unwrap();
        let Found::Kept(found, age) = find("b", MINUTE).await else { panic!("it is kept") };
        assert_eq!((found, age.as_secs()), (thing.clone(), 7));
        let newer = async |holder, lifetime| {
            let age_max = Duration::from_secs(6);
            home.find_or_claim("key", holder, lifetime, age_max).await.unwrap()
        };
        assert_eq!(newer("b", MINUTE).await, Found::Claimed, "it is too old");
        assert_eq!(find("a", MINUTE).await, Found::Busy);
        home.give_up("key", "b").await.unwrap();
        assert!(matches!(find("a", MINUTE).await, Found::Kept(..)), "it is there again");
        assert_eq!(newer("b", Duration::from_millis(1)).await, Found::Claimed);
        while find("a", MINUTE).await == Found::Busy {
            tokio::task::yield_now().await;
        }
        assert!(matches!(find("a", MINUTE).await, Found::Kept(..)), "the claim is over");
        let long = Bytes::from(vec![7; 200_000]);
        home.keep("key", long.clone(), made_at, MINUTE).await.unwrap();
        let Found::Kept(found, _) = find("a", MINUTE).await else { panic!("it is kept") };
        assert!(found == long);
        assert!(newer("b", Duration::from_millis(1)).await == Found::Claimed);
        let found = loop {
            match find("a", MINUTE).await {
                Found::Kept(found, _) => break found,
                _ => tokio::task::yield_now().await,
            }
        };
        assert!(found == long, "the thing behind a claim that is over");
        home.keep("key", thing, timer_now(), Duration::from_millis(1)).await.unwrap();
        while find("a", MINUTE).await != Found::Claimed {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
