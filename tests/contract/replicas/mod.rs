//! Several gateways that share a real Redis, in front of one emulator.

mod faults;
mod findings;
mod freshness;
mod limits;
mod lost_data;
mod saturated;
mod sealed;
mod topologies;
mod writes;

use std::net::SocketAddr;
use std::sync::Arc;

use http::Method;

use weir::clock::Clock;
use weir::gateway::{Current, Listening};

use crate::support::redis_server::RedisServer;
use crate::support::setup::gateway_by;
use crate::support::{Reply, Setup, World, eventually};

/// Replicas with one config.
pub(crate) struct Replicas {
    /// `None`: a test has taken it.
    pub(crate) redis: Option<RedisServer>,
    pub(crate) world: Arc<World>,
    others: Vec<(Arc<Current>, Listening)>,
}

impl Replicas {
    /// Starts a Redis, and this many gateways that are in touch with it.
    async fn start(setup: Setup, count: usize) -> Self {
        Self::start_with(setup, count, &[]).await
    }

    /// The same with arguments of the redis-server.
    async fn start_with(setup: Setup, count: usize, arguments: &[&str]) -> Self {
        Self::start_with_keys(setup, count, arguments, "").await
    }

    /// The same with further keys of `[state]`.
    async fn start_with_keys(setup: Setup, count: usize, arguments: &[&str], keys: &str) -> Self {
        let redis = RedisServer::start(arguments);
        let same = vec![(redis.url(), None); count];
        let state = format!("{}\n{keys}", state_of(&redis.url(), count));
        Self::start_by(setup.config(&state), redis, &same).await
    }

    /// Starts gateways, each with its own way to Redis, and its own clock if it has one. `max`:
    /// the most replicas that there will be.
    pub(crate) async fn start_each(
        setup: Setup,
        redis: RedisServer,
        max: usize,
        each: &[(String, Option<Clock>)],
    ) -> Self {
        Self::start_by(setup.config(&state_of(&each[0].0, max)), redis, each).await
    }

    async fn start_by(setup: Setup, redis: RedisServer, each: &[(String, Option<Clock>)]) -> Self {
        let url = &each[0].0;
        let world = Arc::new(setup.start().await);
        let start = |(own, clock): &(String, Option<Clock>)| {
            gateway_by(&world.text.replace(url, own), clock.as_ref().unwrap_or(&world.clock))
        };
        let others = each[1..].iter().map(start).collect();
        let replicas = Self { redis: Some(redis), world, others };
        eventually(|| replicas.all().all(|current| !is_away(current))).await;
        replicas
    }

    /// Starts one more.
    fn join(&mut self) {
        self.others.push(gateway_by(&self.world.text, &self.world.clock));
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Current>> {
        std::iter::once(&self.world.current).chain(self.others.iter().map(|(current, _)| current))
    }

    pub(crate) fn address(&self, replica: usize) -> SocketAddr {
        match replica.checked_sub(1) {
            None => self.world.address,
            Some(other) => self.others[other].1.addresses[0],
        }
    }

    /// A GET by the client `ci` through one of them.
    async fn get(&self, replica: usize, path: &str) -> Reply {
        self.send(replica, Method::GET, path, "").await
    }

    async fn send(&self, replica: usize, method: Method, path: &str, body: &str) -> Reply {
        self.world.send_to(self.address(replica), method, path, &[], body).await
    }
}

/// The config's section. The timeout is longer than a busy machine delays an answer.
fn state_of(url: &str, max: usize) -> String {
    format!("[state]\nredis = {{ url = \"{url}\", op_timeout = \"500ms\" }}\nreplicas_max = {max}")
}

/// True if a replica has no connection, or has not heard itself for a while.
pub(crate) fn is_away(current: &Current) -> bool {
    let env = &current.gateway().env;
    env.replica.as_ref().is_none_or(|replica| {
        replica.home().away().is_some() || replica.is_out_of_touch(env.clock.now())
    })
}
