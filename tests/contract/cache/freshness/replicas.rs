//! The same over three replicas, while their Redis fails in all ways: no answer is too old.
//!
//! `REQUESTS=200000` is for a figure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir::random::Rng;
use weir::state::TOUCH;

use super::history::Allowed;
use super::traffic::{Rules, Traffic};
use super::{UNLIMITED, everywhere, lift_limits, play_part};
use crate::replicas::{Replicas, is_away};
use crate::support::link::{Link, Passage};
use crate::support::redis_server::RedisServer;
use crate::support::{Setup, eventually};

const REPLICAS: usize = 3;
/// Requests by default: a few seconds.
const REQUESTS: usize = 3_000;
/// Requests between two faults.
const FAULT_EVERY: u64 = 300;
/// The lifetime of some answers. These clocks are the machine's.
const TTL: Duration = Duration::from_secs(10);
/// The longest time from the upstream's view of an answer to its age, on a busy machine.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
const SEED: u64 = 7;

fn rules() -> Rules {
    let ttl = Allowed::Ttl(TTL.saturating_add(ON_ITS_WAY));
    Rules { list: ttl, comments: ttl, pull: ttl, ..everywhere(Allowed::Nothing) }
}

/// The kinds of faults.
const FAULTS: u64 = 6;

/// Plays one fault, and repairs it as soon as a replica has noticed it.
async fn play_fault(number: u64, replicas: &Replicas, redis: &mut RedisServer, link: &Link) {
    let is_noticed = || eventually(|| replicas.all().any(|current| is_away(current)));
    match number % FAULTS {
        0 => {
            redis.kill();
            is_noticed().await;
            redis.revive();
        }
        1 => {
            redis.freeze();
            is_noticed().await;
            redis.thaw();
        }
        2 => _ = redis.run("FLUSHALL"),
        3 => _ = redis.run("CLIENT KILL TYPE pubsub"),
        4 => {
            let before = link.cuts();
            link.set(Passage::CutsReplies(40));
            eventually(|| link.cuts() > before + 1).await;
            link.set(Passage::Open);
        }
        _ => {
            link.set(Passage::Silent);
            is_noticed().await;
            // The others go on meanwhile without this one.
            let clock = &replicas.world.clock;
            clock.reach(clock.now() + 3 * TOUCH).await;
            link.set(Passage::Open);
        }
    }
    eventually(|| replicas.all().all(|current| !is_away(current))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_show_no_old_answer_while_redis_fails() {
    let redis = RedisServer::start(&[]);
    let link = Link::start(redis.port()).await;
    let mut each = vec![(redis.url(), None); REPLICAS];
    // One of them has a way of its own to Redis, which fails alone.
    each[REPLICAS - 1].0 = link.url();
    let seconds = format!("{}s", TTL.as_secs());
    let sections = format!("{UNLIMITED}\n{}", super::RULES.replace("40s", &seconds));
    let setup = Setup::new().accounts(2).config(&sections);
    let mut replicas = Replicas::start_each(setup, redis, REPLICAS, &each).await;
    lift_limits(&replicas.world);
    let mut redis = replicas.redis.take().unwrap();
    let addresses = (0..REPLICAS).map(|replica| replicas.address(replica)).collect();
    let traffic = Traffic::new(Arc::clone(&replicas.world), rules(), Duration::ZERO);
    let traffic = Arc::new(traffic.over(addresses));
    let requests = std::env::var("REQUESTS").map_or(REQUESTS, |count| count.parse().unwrap());

    let faults = AtomicU64::new(0);
    let failing = async {
        let mut dice = Rng::for_purpose(SEED, 3);
        let reads = || traffic.figures.reads.load(Ordering::Relaxed);
        for number in 0.. {
            let until = reads() + FAULT_EVERY / 2 + dice.below(FAULT_EVERY);
            eventually(|| reads() >= until).await;
            play_fault(number, &replicas, &mut redis, &link).await;
            faults.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::select! {
        () = play_part(&traffic, &replicas.world, None, SEED, requests) => {}
        () = failing => {}
    }
    let (faults, hits) = (faults.into_inner(), traffic.figures.hits.load(Ordering::Relaxed));
    println!("{faults} faults");
    assert!(faults >= FAULTS && hits > 0, "{faults} faults and {hits} hits prove nothing");
}
