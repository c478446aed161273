//! Faults under load: the upstream refuses nothing, no client sees what its accounts may not, and
//! all is well again soon after.

mod clocks;
mod links;
mod processes;
mod servers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use weir::clock::Clock;
use weir::gateway::Current;
use weir::state::Reach;

use super::{Replicas, is_away};
use crate::support::redis_server::RedisServer;
use crate::support::{KEY, OTHER_KEY, Setup, config, eventually};

const BUDGET: usize = 400;
const REPLICAS: usize = 3;
/// The replicas use Redis again this soon after it is back.
const BACK_WITHIN: Duration = Duration::from_secs(5);
/// A repository that only the account of `ci` may read.
const PRIVATE: &str = "/repos/acme/gadgets";
/// One of so many requests of a bot is for it, by one client or the other.
const PRIVATE_EVERY: usize = 8;

/// Replicas with a Redis of their own, and load on all of them.
struct Stage {
    redis: RedisServer,
    replicas: Arc<Replicas>,
    load: Load,
}

impl Stage {
    async fn begin(arguments: &[&str]) -> Self {
        let redis = RedisServer::start(arguments);
        let each = vec![(redis.url(), None); REPLICAS];
        Self::begin_each(redis, &each).await
    }

    /// The same with a way to Redis and a clock for each.
    async fn begin_each(redis: RedisServer, each: &[(String, Option<Clock>)]) -> Self {
        let mut replicas = Replicas::start_each(setup("1s"), redis, REPLICAS, each).await;
        replicas.world.set_limits(&json!({ "core.user": BUDGET }));
        let redis = replicas.redis.take().unwrap();
        let replicas = Arc::new(replicas);
        let addresses: Vec<_> = (0..each.len()).map(|replica| replicas.address(replica)).collect();
        let load = Load::begin(&replicas, &addresses);
        load.served(BUDGET / 4).await;
        Self { redis, replicas, load }
    }

    /// Waits until a replica finds that Redis is away.
    async fn is_noticed(&self) {
        eventually(|| self.replicas.all().any(|current| is_away(current))).await;
    }

    /// Waits until all replicas use Redis.
    async fn is_used_again(&self) {
        let is_back = eventually(|| self.replicas.all().all(|current| is_in_reach(current)));
        tokio::time::timeout(BACK_WITHIN, is_back).await.expect("Redis is used again");
    }

    /// Judges the fault, which is repaired.
    async fn end(self) {
        self.is_used_again().await;
        self.load.end(BUDGET * 8 / 10).await;
        assert_none_refused(&self.replicas);
        eventually(|| self.replicas.all().all(|current| is_in_reach(current))).await;
    }
}

/// Two accounts in pools of their own. Only that of `ci` may read everything. `patience`: the
/// longest wait of a request.
fn setup(patience: &str) -> Setup {
    let patience = format!("max_wait = \"{patience}\"");
    let ours = format!("reads = \"ours\"\nwrites = \"ada\"\n{patience}");
    let theirs = format!("reads = \"theirs\"\nwrites = \"dan\"\n{patience}");
    let credentials = config::user("ada", "emu_classic_ada_all_scopes")
        + &config::user("dan", "emu_classic_dan_all_scopes")
        + &config::pool("ours", &["ada"])
        + &config::pool("theirs", &["dan"])
        + &config::client("ci", KEY, &ours)
        + &config::client("other", OTHER_KEY, &theirs);
    Setup::new().credentials(credentials)
}

fn assert_none_refused(replicas: &Replicas) {
    let seen = replicas.world.upstream_requests();
    let refused: Vec<_> = seen.iter().filter(|entry| entry.refused.is_some()).collect();
    assert!(refused.is_empty(), "refused: {refused:#?}");
}

/// Requests through all replicas, one after the other by each bot.
struct Load {
    pace: watch::Sender<Pace>,
    results: Arc<Results>,
    bots: Vec<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Full,
    Paused,
    Ended,
}

#[derive(Default)]
struct Results {
    served: AtomicUsize,
    denied: AtomicUsize,
    /// Answers about the private repository, to each of the two clients.
    private: [AtomicUsize; 2],
    /// Answers from another view.
    misplaced: Mutex<Vec<String>>,
}

impl Load {
    fn begin(replicas: &Arc<Replicas>, addresses: &[SocketAddr]) -> Self {
        let (pace, at_present) = watch::channel(Pace::Full);
        let results = Arc::<Results>::default();
        let bots = (0..2 * addresses.len()).map(|bot| {
            let (replicas, mut pace) = (Arc::clone(replicas), at_present.clone());
            let (results, address) = (Arc::clone(&results), addresses[bot % addresses.len()]);
            tokio::spawn(async move {
                for page in 0.. {
                    let pace = pace.wait_for(|pace| *pace != Pace::Paused).await.map(|pace| *pace);
                    if !matches!(pace, Ok(Pace::Full)) {
                        return;
                    }
                    if page % PRIVATE_EVERY == 0 {
                        // Each client asks from the beginning, through one bot or another.
                        let is_other = (page / PRIVATE_EVERY + bot) % 2 == 1;
                        results.read_private(&replicas, address, is_other).await;
                    }
                    let path = format!("/repos/acme/widgets/issues?page={page}&bot={bot}");
                    let Some(answer) = replicas.world.get_from(address, KEY, &path).await else {
                        // Its replica is gone.
                        return;
                    };
                    let is_served = answer.status == 200;
                    let counter = if is_served { &results.served } else { &results.denied };
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        Self { bots: bots.collect(), pace, results }
    }

    fn set(&self, pace: Pace) {
        self.pace.send_replace(pace);
    }

    async fn served(&self, count: usize) {
        eventually(|| self.results.served.load(Ordering::SeqCst) >= count).await;
    }

    /// Ends the load when this many are served, and the gateways deny more: nothing is left.
    async fn end(self, served: usize) {
        self.served(served).await;
        let denied = || self.results.denied.load(Ordering::SeqCst);
        let before = denied();
        eventually(|| denied() > before + 2 * self.bots.len()).await;
        self.set(Pace::Ended);
        for bot in self.bots {
            bot.await.unwrap();
        }
        let misplaced = self.results.misplaced.lock();
        assert!(misplaced.is_empty(), "from another view: {misplaced:#?}");
        let private = self.results.private.each_ref().map(|count| count.load(Ordering::SeqCst));
        assert!(private.iter().all(|count| *count > 0), "{private:?} answers prove nothing");
    }
}

impl Results {
    /// Reads the private repository. The two clients must see different answers, or none.
    async fn read_private(&self, replicas: &Replicas, address: SocketAddr, is_other: bool) {
        let key = if is_other { OTHER_KEY } else { KEY };
        let Some(answer) = replicas.world.get_from(address, key, PRIVATE).await else { return };
        let (due, wrong) = if is_other { (404, 200) } else { (200, 404) };
        if answer.status == due {
            self.private[usize::from(is_other)].fetch_add(1, Ordering::SeqCst);
        } else if answer.status == wrong {
            self.misplaced.lock().push(format!("{key}: {answer:?}"));
        }
    }
}

fn is_in_reach(current: &Current) -> bool {
    let gateway = current.gateway();
    gateway.env.replica.as_ref().is_some_and(|replica| {
        replica.look(gateway.env.clock.now());
        replica.reach() == Reach::In
    })
}
