//! Crashes of replicas and of their Redis: the promises of a gateway alone hold for all of them.

use std::process::Command;
use std::sync::Arc;

use futures_util::future::join_all;
use weir::random::Rng;

use super::{CLIENTS, Killed, Run, chance, judge};
use crate::support::redis_server::RedisServer;

const REPLICAS: usize = 3;
/// Kills; `KILLS=50` is for a figure. A replica takes over what another had after ten seconds.
const KILLS: u32 = 10;
/// After so many kills of replicas comes one of Redis.
const REDIS_EVERY: u32 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn writes_survive_kills_of_replicas_and_of_redis() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_1234_u64);
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let url = redis.url();
    let state = format!("[state]\nredis = {{ url = \"{url}\", op_timeout = \"500ms\" }}\n");
    let run = Arc::new(Run::start_by(REPLICAS, "store = \"redis\"", &state).await);
    let handing = (0..CLIENTS).map(|client| {
        let (run, rng) = (Arc::clone(&run), Rng::for_purpose(seed, 1 + client as u64));
        async move { tokio::spawn(async move { run.hand_over(client, rng).await }).await.unwrap() }
    });
    let handing = join_all(handing);
    let killing = async {
        let start = |replica| run.begin(replica, Command::new(env!("CARGO_BIN_EXE_weir")));
        let mut replicas: Vec<Killed> = (0..REPLICAS).map(start).collect();
        let kills = std::env::var("KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
        for kill in 1..=kills {
            let until = run.events() + chance(&mut rng, 20);
            while run.events() < until {
                tokio::task::yield_now().await;
            }
            let killed = chance(&mut rng, REPLICAS);
            // The old one ends first, because both have one address.
            drop(replicas.remove(killed));
            replicas.insert(killed, start(killed));
            if kill % REDIS_EVERY == 0 {
                redis.kill();
                redis.revive();
            }
        }
        (replicas, redis)
    };
    let (living, accepted) = tokio::join!(killing, handing);
    judge(&run, accepted).await;
    drop(living);
}
