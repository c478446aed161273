//! The gateway by one config after another, without a restart (CONTRACT §1, SIGHUP; §5, `POST
//! /api/reload`).
//!
//! What goes by a config is never changed: another config makes another [`Gateway`], and
//! [`Current`] says which one new requests get. Those under way end by the one they began with.
//! Both share everything that must not begin anew: books, stored answers, queued writes,
//! connections that are counted. Who is who in both is settled by `config/succession.rs`.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::config::{self, Config, Faults, Reload};
use crate::gateway::assembly::Gateway;
use crate::gateway::background::audit::Audit;
use crate::gateway::background::mint::keep_minting;
use crate::gateway::background::webhook_monitor::{WebhookMonitor, keep_checking_all};
use crate::gateway::cache::invalidation::purge::Prefix;
use crate::gateway::write::recovery::Recovery;
use crate::telemetry::Metrics;
use crate::writes::Store as WriteStore;
use crate::writes::memory::MemoryStore;

/// How long a reload waits for the one before it. Ours: as long as an operator waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The gateway by the config in force.
pub struct Current {
    gateway: ArcSwap<Gateway>,
    /// The file that the config is read from.
    source: OnceLock<PathBuf>,
    /// Held while one config takes the place of another.
    succession: Mutex<()>,
}

/// What came of reading the config again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Keys whose new values take effect at the next start only.
    pub at_next_start: Vec<&'static str>,
}

/// Why the config in force stays.
#[derive(Debug)]
pub enum NotReloaded {
    /// The new one has these faults.
    Faults(Faults),
    /// It was not read from a file.
    NoFile,
    /// An earlier reload has not come to its end.
    Busy,
}

impl fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults(faults) => faults.fmt(f),
            Self::NoFile => f.write_str("the config was not read from a file"),
            Self::Busy => f.write_str("an earlier reload has not come to its end"),
        }
    }
}

impl Current {
    /// [`Current::with_writes`] with queued writes in memory.
    pub fn new(config: Arc<Config>, clock: Clock, metrics: Arc<Metrics>) -> Arc<Self> {
        Self::with_writes(
            config,
            clock,
            metrics,
            Arc::new(MemoryStore::default()),
            Recovery::default(),
        )
    }

    /// Builds everything, starts the timer of the books and the watch over them, and goes on with
    /// the writes that an earlier process left; listens nowhere yet. To be called on a tokio
    /// runtime.
    pub fn with_writes(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
        recovery: Recovery,
    ) -> Arc<Self> {
        let mut config = Arc::unwrap_or_clone(config);
        config.remember_clients(recovery.clients());
        let (gateway, called) = Gateway::start(Arc::new(config), clock, metrics, store);
        let gateway = Arc::new(gateway);
        tokio::spawn(Arc::clone(&gateway.admissions()).run());
        let current = ArcSwap::from(Arc::clone(&gateway));
        let current = Arc::new(Self {
            gateway: current,
            source: OnceLock::new(),
            succession: Mutex::new(()),
        });
        // Weak: none of these tasks must be what keeps an abandoned gateway.
        let weak = Arc::downgrade(&current);
        let writes = {
            let current = Weak::clone(&weak);
            move || Some(Arc::clone(&current.upgrade()?.gateway().writes))
        };
        gateway.queue().start(&gateway.writes, writes, recovery, called);
        let dispatcher = move || Some(Arc::clone(&weak.upgrade()?.gateway().dispatcher));
        tokio::spawn(keep_minting(dispatcher));
        tokio::spawn(Audit::run(Arc::downgrade(&gateway.audit)));
        current.keep_checking_webhooks(&gateway);
        current
    }

    /// By the config in force now.
    pub fn gateway(&self) -> Arc<Gateway> {
        self.gateway.load_full()
    }

    /// Whether a gateway is the one by the config in force.
    pub fn is(&self, gateway: &Arc<Gateway>) -> bool {
        Arc::ptr_eq(&self.gateway.load(), gateway)
    }

    /// Where [`Current::reload`] finds the config.
    pub fn read_from(&self, source: PathBuf) {
        // The first one stays: there is one config file.
        let _ = self.source.set(source);
    }

    /// Reads the config's file again, and puts what it says in force. Takes as long as reading it
    /// and its secrets does.
    pub fn reload(self: &Arc<Self>) -> Result<Reloaded, NotReloaded> {
        let source = self.source.get().ok_or(NotReloaded::NoFile)?;
        // One after the other, also from reading on: the last word is that of whoever read last. A
        // file that cannot be read to its end must not gather all who try.
        let Some(_alone) = self.succession.try_lock_for(PATIENCE) else {
            tracing::error!(
                "the config was not read again: an earlier reload has not come to its end"
            );
            return Err(NotReloaded::Busy);
        };
        match config::load(source) {
            Ok(config) => {
                tell_doubts(&config);
                Ok(self.put_in_force(config))
            }
            Err(faults) => {
                tracing::error!(faults = %faults, "the config has faults; the old one stays in force");
                Err(NotReloaded::Faults(faults))
            }
        }
    }

    /// Puts a config in the place of the one in force.
    pub fn apply_config(self: &Arc<Self>, config: Config) -> Reloaded {
        let _alone = self.succession.lock();
        self.put_in_force(config)
    }

    fn put_in_force(self: &Arc<Self>, config: Config) -> Reloaded {
        let before = self.gateway();
        let Reload { config, at_next_start } = config.reloaded_over(&before.config());
        let has_other_rules = config.cache.rules != before.config().cache.rules;
        let is_other_mode = config.cache.freshness != before.config().cache.freshness;
        let gateway = Arc::new(before.with_config(config));
        // The books first: they know everybody whom a request by the new config may name.
        gateway.dispatcher.reconfigure();
        self.gateway.store(Arc::clone(&gateway));
        if is_other_mode {
            // The two modes do not keep the same of an answer.
            gateway.store().purge(&Prefix::everything(), gateway.clock().now());
        }
        if has_other_rules {
            // How long an answer is good without asking was settled when it came.
            gateway.store().invalidate_prefix("/", gateway.clock().now());
        }
        self.keep_checking_webhooks(&gateway);
        gateway.tokens().reevaluate();
        gateway.queue().reevaluate();
        for key in &at_next_start {
            tracing::warn!(key, "has changed in the config, which takes effect at the next start");
        }
        tracing::info!("the config was reloaded");
        Reloaded { at_next_start }
    }

    fn keep_checking_webhooks(self: &Arc<Self>, gateway: &Gateway) {
        let weak = Arc::downgrade(self);
        let in_force = move |monitor: &Arc<WebhookMonitor>| {
            let current = weak.upgrade();
            current.is_some_and(|current| Arc::ptr_eq(&current.gateway().monitor, monitor))
        };
        keep_checking_all(&gateway.monitor, &in_force);
    }
}

/// Logs what is accepted in a config, and is not active yet or worth a second look.
pub fn tell_doubts(config: &Config) {
    for inactive in config.inactive() {
        tracing::warn!(key = inactive.key, "accepted, not active yet: {}", inactive.why);
    }
    for warning in config.warnings() {
        tracing::warn!(key = warning.key, "{}", warning.problem);
    }
}
