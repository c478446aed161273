//! The basics that every part of the gateway shares under one config.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::config::{Config, Freshness, PASSTHROUGH_ACCOUNT};
use crate::decision::{AccountId, cache::freshness::Mode};
use crate::gateway::active::Active;
use crate::gateway::certificates::InForce;
use crate::gateway::connections::Connections;
use crate::gateway::random::salt;
use crate::gateway::spool::space::SpoolSpace;
use crate::gateway::url_rewrite::map::UrlMap;
use crate::state::Replica;
use crate::telemetry::Metrics;

/// The longest way to a part of a limit. Chosen here: the pause before a report to the others'
/// record, and its answer over a slow network.
const PART_WITHIN: Duration = Duration::from_millis(250);

/// The config in force, the clock, the metrics, and what follows from the config at once.
pub struct Environment {
    pub config: Arc<Config>,
    pub clock: Clock,
    /// The machine's clock, for timeouts of the upstream: sockets follow no other.
    pub timeouts: Clock,
    pub metrics: Arc<Metrics>,
    /// Requests in progress.
    pub active: Arc<Active>,
    /// The certificates that the listeners serve.
    pub certificates: Arc<InForce>,
    /// Open connections of clients.
    pub connections: Arc<Connections>,
    /// The temporary files of large answers.
    pub spool_space: Arc<SpoolSpace>,
    pub mode: Mode,
    pub urls: UrlMap,
    /// This replica among several; `None`: the gateway is alone.
    pub replica: Option<Arc<Replica>>,
    /// The one name of all accounts that the config does not know.
    passthrough_name: Arc<str>,
}

impl Environment {
    /// The requests in progress, the connections, the served certificates and the temporary files
    /// are those of `before`, and so is the replica.
    pub fn new(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        before: Option<&Self>,
    ) -> Arc<Self> {
        let active = before.map_or_else(Arc::default, |before| Arc::clone(&before.active));
        let certificates =
            before.map_or_else(Arc::default, |before| Arc::clone(&before.certificates));
        let connections = match before {
            Some(before) => {
                before.connections.bound(&config.listen);
                Arc::clone(&before.connections)
            }
            None => Connections::new(&config.listen, &metrics),
        };
        let (spool_max, folder) = (config.cache.spool_max, config.cache.spool_folder.clone());
        let spool_space = match before {
            Some(before) => SpoolSpace::changed(&before.spool_space, spool_max, folder),
            None => SpoolSpace::new(spool_max, folder, &metrics),
        };
        let upstream = &config.upstream;
        let urls = UrlMap::new(
            upstream.url.as_str(),
            upstream.graphql_url.as_str(),
            upstream.uploads_url.as_str(),
        );
        let mode = match config.cache.freshness {
            Freshness::Revalidate => Mode::Revalidate,
            Freshness::Rfc9111 => Mode::Rfc9111,
        };
        let replica = before.map_or_else(
            || {
                let redis = config.state.redis.as_ref()?;
                Some(Replica::begin(redis, salt(), clock.now()))
            },
            |before| before.replica.clone(),
        );
        if let Some(replica) = &replica {
            replica.use_keys_of(&config.state);
        }
        certificates.put_for_upstream(config.upstream.client_certificate.as_ref(), clock.now());
        let passthrough_name = PASSTHROUGH_ACCOUNT.into();
        let timeouts = Clock::system();
        Arc::new(Self {
            config,
            clock,
            timeouts,
            metrics,
            active,
            certificates,
            connections,
            spool_space,
            mode,
            urls,
            replica,
            passthrough_name,
        })
    }

    /// The environment of a config without secrets of its own, for unit tests.
    #[cfg(test)]
    pub fn of_test(text: &str) -> Arc<Self> {
        let config = crate::config::fixture::parsed(text);
        Self::new(Arc::new(config), Clock::system(), Arc::new(Metrics::new()), None)
    }

    /// The config's name of an account; accounts that the config does not know share one name.
    pub fn account_name(&self, account: AccountId) -> &str {
        self.shared_name(account)
    }

    pub fn shared_name(&self, account: AccountId) -> &Arc<str> {
        self.config.account(account).map_or(&self.passthrough_name, |account| &account.name)
    }

    pub fn is_draining(&self) -> bool {
        self.active.is_draining()
    }

    /// The largest body of a write that is held in memory, in bytes: at most half of the memory for
    /// bodies, because one connection can have no more than 88 % of it.
    pub fn write_body_max(&self) -> usize {
        let bytes = self.config.writes.max_body.min(self.config.listen.body_memory / 2);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The largest answer that is held in memory, in bytes.
    pub fn hold_max(&self) -> usize {
        usize::try_from(self.config.cache.max_object).unwrap_or(usize::MAX)
    }

    /// The time for which a request of this patience may wait. One of several replicas may have to
    /// ask for a part of a limit that has room, and that takes its time.
    pub fn patience(&self, wait: Duration) -> Duration {
        if self.replica.is_some() { wait.max(PART_WITHIN) } else { wait }
    }

    pub async fn wait_until(&self, at: Timestamp) {
        self.clock.reach(at).await;
    }
}
