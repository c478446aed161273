//! Reload: [`Current`] holds the current gateway and swaps it (SPECIFICATION, "Commands").
//!
//! A config never changes; another config makes another [`Gateway`]. Requests in progress finish
//! with the one they began with. Both share all lasting state: the quota ledger, stored answers,
//! queued writes. `config/reload.rs` keeps the indexes of accounts and clients stable.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::timeout;

use crate::clock::{Clock, Timestamp};
use crate::config::{self, Config, Faults, Reload, SecretFile};
use crate::gateway::assembly::Gateway;
use crate::gateway::background::webhook_monitor::{WebhookMonitor, keep_checking_all};
use crate::gateway::background::{
    audit::Audit,
    issuer_keys::keep_fetching_all,
    key_expiry::keep_warning,
    mint::keep_minting,
    news::{Concerned, keep_hearing, keep_telling},
    questions::keep_asking,
    replicas::{keep_syncing, leave},
    secret_files::keep_looking,
    snapshots::Snapshots,
    upstream_probe::keep_probing,
};
use crate::gateway::cache::invalidation::purge::Prefix;
use crate::gateway::connections::descriptors;
use crate::gateway::upstream::trust::missing_authorities;
use crate::gateway::write::recovery::Recovery;
use crate::telemetry::Metrics;
use crate::writes::{Store as WriteStore, memory::MemoryStore};

/// The longest wait of a reload for the previous one. Chosen here: an operator's patience.
const PATIENCE: Duration = Duration::from_secs(10);

/// Accounts that the upstream refuses, which are to be reported on at once. A lost one is
/// reported on soon anyway.
const LIMITED_MAX: usize = 1_000;

/// The longest time for leaving the other replicas. Ours: Redis answers in a millisecond.
const LEFT_WITHIN: Duration = Duration::from_secs(1);

/// The holder of the current gateway.
pub struct Current {
    gateway: ArcSwap<Gateway>,
    snapshots: Option<Arc<Snapshots>>,
    /// The turns of queued writes, until [`Current::open_writes`].
    called: Mutex<Option<UnboundedReceiver<u64>>>,
    source: OnceLock<PathBuf>,
    /// Serializes reloads.
    reload_lock: Mutex<()>,
    last_reload: Mutex<Option<LastReload>>,
}

/// The last reading of the config since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReload {
    /// Time of its end.
    pub at: Timestamp,
    /// Its result: the faults leave the old config in force.
    pub result: Result<Reloaded, Faults>,
}

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// The changed keys that take effect only at the next start.
    pub at_next_start: Vec<&'static str>,
}

/// The reason why the config stays.
#[derive(Debug, thiserror::Error)]
pub enum NotReloaded {
    /// The new config has these faults.
    #[error("{0}")]
    Faults(Faults),
    /// The config was not read from a file.
    #[error("the config was not read from a file")]
    NoFile,
    /// An earlier reload is still running.
    #[error("an earlier reload has not come to its end")]
    Busy,
}

impl Current {
    /// [`Current::with_writes`] with an in-memory write store.
    pub fn new(config: Arc<Config>, clock: Clock, metrics: Arc<Metrics>) -> Arc<Self> {
        let store = Arc::new(MemoryStore::default());
        Self::with_writes(config, clock, metrics, store, Recovery::default())
    }

    /// Builds everything, starts the background tasks, and resumes the writes of an earlier
    /// process. Does not listen yet. Must run on a tokio runtime.
    pub fn with_writes(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
        recovery: Recovery,
    ) -> Arc<Self> {
        let recovered = || Ok::<_, Infallible>(recovery);
        let Ok(current) = Self::with_writes_from(config, clock, metrics, store, recovered);
        current
    }

    /// The same with the result of `recover`, which opens the store. It is called when everything
    /// is built, so that its caller can read the store meanwhile. If it fails, no background task
    /// has begun.
    pub fn with_writes_from<E>(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
        recover: impl FnOnce() -> Result<Recovery, E>,
    ) -> Result<Arc<Self>, E> {
        let built = Gateway::start(config, clock, metrics, store);
        let recovery = recover()?;
        let current = Self::begin(built, None);
        current.open_writes(recovery);
        Ok(current)
    }

    /// Builds everything beside a predecessor, which has written its snapshot into this file.
    /// Queued writes wait for [`Current::open_writes`].
    pub fn beside(
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
        store: Arc<dyn WriteStore>,
        handover: Option<&Path>,
    ) -> Arc<Self> {
        let current = Self::begin(Gateway::start(config, clock, metrics, store), handover);
        current.gateway().writes.queue().await_store();
        current
    }

    fn begin(
        (gateway, called): (Gateway, mpsc::UnboundedReceiver<u64>),
        handover: Option<&Path>,
    ) -> Arc<Self> {
        let gateway = Arc::new(gateway);
        let snapshots = Snapshots::begin(&gateway.cache, handover);
        tokio::spawn(Arc::clone(gateway.dispatcher.admissions()).run());
        let current = Arc::new(Self {
            gateway: ArcSwap::from(Arc::clone(&gateway)),
            snapshots,
            called: Mutex::new(Some(called)),
            source: OnceLock::new(),
            reload_lock: Mutex::new(()),
            last_reload: Mutex::new(None),
        });
        // Weak: a background task must not keep an abandoned gateway alive.
        let weak = Arc::downgrade(&current);
        if let Some(snapshots) = current.snapshots() {
            let current = Weak::clone(&weak);
            let cache = move || Some(Arc::clone(&current.upgrade()?.gateway().cache));
            tokio::spawn(Arc::clone(snapshots).keep_writing(cache));
        }
        let env = {
            let current = Weak::clone(&weak);
            move || Some(Arc::clone(&current.upgrade()?.gateway().env))
        };
        tokio::spawn(keep_warning(env));
        let config = {
            let current = Weak::clone(&weak);
            move || Some(Arc::clone(&current.upgrade()?.gateway().env.config))
        };
        let read_again = {
            let current = Weak::clone(&weak);
            move |changed: &[PathBuf]| {
                if let Some(current) = current.upgrade() {
                    current.read_files_again(changed);
                }
            }
        };
        tokio::spawn(keep_looking(config, read_again));
        let dispatcher = move || Some(Arc::clone(&weak.upgrade()?.gateway().dispatcher));
        for breaker in gateway.dispatcher.breakers().all() {
            tokio::spawn(keep_probing(Arc::clone(breaker), dispatcher.clone()));
        }
        if let Some(replica) = &gateway.env.replica {
            let (limited, heard) = mpsc::channel(LIMITED_MAX);
            tokio::spawn(keep_syncing(Arc::clone(replica), dispatcher.clone(), heard));
            let weak = Arc::downgrade(&current);
            let forget_forms = {
                let weak = Weak::clone(&weak);
                move || {
                    if let Some(current) = weak.upgrade() {
                        current.gateway().responder.compressed_forms().forget();
                    }
                }
            };
            let concerned = move || {
                let gateway = weak.upgrade()?.gateway();
                let (cache, webhooks) = (Arc::clone(&gateway.cache), Arc::clone(&gateway.webhooks));
                let dispatcher = Arc::clone(&gateway.dispatcher);
                Some(Concerned { cache, webhooks, dispatcher })
            };
            tokio::spawn(keep_hearing(Arc::clone(replica), concerned, forget_forms, limited));
            tokio::spawn(keep_telling(Arc::clone(replica)));
        }
        tokio::spawn(keep_minting(dispatcher.clone()));
        tokio::spawn(keep_asking(dispatcher));
        tokio::spawn(Audit::run(Arc::downgrade(&gateway.audit)));
        current.keep_checking_webhooks(&gateway);
        keep_fetching_all(gateway.issuers(), &gateway.env.clock);
        current
    }

    /// Resumes the writes of an earlier process. Only the first call does anything.
    pub fn open_writes(self: &Arc<Self>, recovery: Recovery) {
        let Some(called) = self.called.lock().take() else { return };
        {
            // A reload meanwhile must not be undone.
            let _alone = self.reload_lock.lock();
            let mut config = Config::clone(&self.gateway().env.config);
            let clients = config.clients.len();
            config.remember_clients(recovery.clients());
            if config.clients.len() > clients {
                announced(self.put_in_force(config));
            }
        }
        let weak = Arc::downgrade(self);
        let current = move || Some(Arc::clone(&weak.upgrade()?.gateway().writes));
        let gateway = self.gateway();
        gateway.writes.queue().start(&gateway.writes, current, recovery, called);
    }

    /// Writes a snapshot for a successor: what is known of budgets, limits and stored answers.
    pub async fn write_handover(&self, path: PathBuf) -> io::Result<()> {
        let cache = Arc::clone(&self.gateway().cache);
        let written = tokio::task::spawn_blocking(move || cache.write_handover(&path)).await;
        written.map_err(io::Error::other)?.map(drop)
    }

    /// The names of the clients with writes that are not done.
    pub fn clients_with_writes(&self) -> Vec<String> {
        let gateway = self.gateway();
        let clients = gateway.writes.turns().clients().into_iter();
        let named = clients.filter_map(|client| {
            let index = usize::try_from(client).ok()?;
            Some(gateway.env.config.clients.get(index)?.name.to_string())
        });
        named.collect()
    }

    /// Holds the writes of these clients until [`Current::open_writes`].
    pub fn hold_writes_of(&self, clients: &[String]) {
        let gateway = self.gateway();
        let all = (0..).zip(&gateway.env.config.clients);
        let held = all.filter(|(_, client)| clients.iter().any(|name| **name == *client.name));
        gateway.writes.queue().hold_clients(held.map(|(index, _)| index).collect());
    }

    /// True if answers were invalidated since that snapshot.
    pub fn has_changed_since_handover(&self) -> bool {
        self.gateway().cache.has_changed()
    }

    /// Notes the end of a predecessor, which may have changed what is stored here.
    pub async fn predecessor_ended(&self, has_changed: bool) {
        let cache = Arc::clone(&self.gateway().cache);
        if has_changed {
            cache.confirm_all();
        }
        if let Some(snapshots) = self.snapshots() {
            snapshots.write_now(cache).await;
        }
    }

    /// Leaves the other replicas, after the last request.
    pub async fn leave_replicas(&self) {
        let gateway = self.gateway();
        if let Some(replica) = &gateway.env.replica {
            // A Redis that is away must not hold the end up.
            let _ = timeout(LEFT_WITHIN, gateway.writes.queue().leave()).await;
            let _ = timeout(LEFT_WITHIN, leave(replica, &gateway.dispatcher)).await;
        }
    }

    /// The current gateway.
    pub fn gateway(&self) -> Arc<Gateway> {
        self.gateway.load_full()
    }

    /// The snapshots of the cache, if it has any.
    pub fn snapshots(&self) -> Option<&Arc<Snapshots>> {
        self.snapshots.as_ref()
    }

    /// Begins to ask the upstream with every token, so that a dead one is known before a request.
    pub fn begin_look(&self) {
        let dispatcher = Arc::clone(&self.gateway().dispatcher);
        tokio::spawn(async move { dispatcher.look_at_tokens().await });
    }

    /// True if this gateway is the current one.
    pub fn is(&self, gateway: &Arc<Gateway>) -> bool {
        Arc::ptr_eq(&self.gateway.load(), gateway)
    }

    /// Sets the file for [`Current::reload`].
    pub fn read_from(&self, source: PathBuf) {
        // The first call wins: there is one config file.
        let _ = self.source.set(source);
    }

    /// Reads the config file again and applies it; as slow as the file and its secrets.
    pub fn reload(self: &Arc<Self>) -> Result<Reloaded, NotReloaded> {
        let source = self.source.get().ok_or(NotReloaded::NoFile)?;
        // Serialized from the reading on, so that the latest reading wins. A file that cannot be
        // read to its end must not pile up reloads.
        let Some(_alone) = self.reload_lock.try_lock_for(PATIENCE) else {
            tracing::error!(
                "the config was not read again: an earlier reload has not come to its end"
            );
            return Err(NotReloaded::Busy);
        };
        let loaded = config::load(source);
        let env = &self.gateway().env;
        env.metrics.reloaded(loaded.is_ok(), env.clock.now());
        let result = match loaded {
            Ok(config) => {
                log_warnings(&config);
                Ok(announced(self.put_in_force(config)))
            }
            Err(faults) => {
                tracing::error!(faults = %faults, "the config has faults; the old one stays in force");
                Err(faults)
            }
        };
        self.note_reload(result.clone());
        result.map_err(NotReloaded::Faults)
    }

    fn note_reload(&self, result: Result<Reloaded, Faults>) {
        let at = self.gateway().env.clock.now();
        *self.last_reload.lock() = Some(LastReload { at, result });
    }

    /// The last [`Current::reload`] that came to its end, or files of secrets that could not be
    /// read again; `None` before the first.
    pub fn last_reload(&self) -> Option<LastReload> {
        self.last_reload.lock().clone()
    }

    /// Applies a config.
    pub fn apply_config(self: &Arc<Self>, config: Config) -> Reloaded {
        let _alone = self.reload_lock.lock();
        announced(self.put_in_force(config))
    }

    /// Reads the config in force again, with the present content of these changed files.
    /// They are to be looked at again if that fails.
    fn read_files_again(self: &Arc<Self>, changed: &[PathBuf]) {
        let Some(_alone) = self.reload_lock.try_lock_for(PATIENCE) else { return };
        let before = Arc::clone(&self.gateway().env.config);
        let (config, faults) = match before.with_present_files(changed) {
            Ok(config) => (Some(config), None),
            Err(_) => before.with_each_present_file(changed),
        };
        if let Some(faults) = faults {
            let last = self.last_reload().and_then(|last| last.result.err());
            // Once: they are read again and again, until that succeeds.
            if last.is_none_or(|last| last.to_string() != faults.to_string()) {
                tracing::error!(faults = %faults, "secrets were not read again: what their files held before stays in force");
                self.note_reload(Err(faults));
            }
        }
        let Some(config) = config else { return };
        for file in &config.loaded_files {
            if let Some(problem) = &file.problem {
                let key = &file.key;
                tracing::warn!(
                    key,
                    problem,
                    "a file was not read again: what it held before stays in force"
                );
            }
        }
        for file in config.secret_files.iter().filter(|file| changed.contains(&file.path)) {
            if let Some(problem) = &file.problem {
                let (key, path) = (&file.key, file.path.display());
                tracing::warn!(key, %path, problem, "a secret was not read again: what its file held before stays in force");
            }
        }
        let files = config.secret_files.iter().zip(&before.secret_files);
        let others = files.filter(|(file, before)| !file.is_same(before)).map(|(file, _)| file);
        let named = |file: &SecretFile| format!("{} ({})", file.key, file.path.display());
        let others: Vec<_> = others.map(named).collect();
        // Also without another content: the config says which states of the files were read.
        let Reloaded { at_next_start } = self.put_in_force(config);
        if !others.is_empty() {
            let keys = others.join(", ");
            tracing::info!(keys, "secrets were read again: their files have changed");
        }
        if !at_next_start.is_empty() {
            let keys = at_next_start.join(", ");
            tracing::warn!(keys, "a changed secret takes effect at the next start only");
        }
    }

    fn put_in_force(self: &Arc<Self>, config: Config) -> Reloaded {
        let before = self.gateway();
        let Reload { config, at_next_start } = config.reloaded_over(&before.env.config);
        let (rules, rules_before) = (&config.cache, &before.env.config.cache);
        let has_other_rules =
            rules.rules != rules_before.rules || rules.query_rules != rules_before.query_rules;
        let is_other_mode = config.cache.freshness != before.env.config.cache.freshness;
        let gateway = Arc::new(before.with_config(config));
        // First: the ledger must know every account and client that a new request may name.
        gateway.dispatcher.reconfigure();
        let (old, new) = (before.dispatcher.tokens(), gateway.dispatcher.tokens());
        self.gateway.store(Arc::clone(&gateway));
        // A new token may be another person's.
        gateway.cache.forget_replaced(|account| new.is_new_in(account, old));
        if is_other_mode {
            // The two modes store different parts of an answer.
            gateway.cache.store().purge(&Prefix::everything(), gateway.env.clock.now());
        }
        if has_other_rules {
            // Lifetimes were fixed when the answers arrived.
            gateway.cache.store().log.changed_below("/", gateway.env.clock.now());
        }
        self.keep_checking_webhooks(&gateway);
        keep_fetching_all(gateway.issuers(), &gateway.env.clock);
        gateway.dispatcher.tokens().reevaluate();
        gateway.writes.queue().reevaluate();
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

/// Logs a reload.
fn announced(reloaded: Reloaded) -> Reloaded {
    for key in &reloaded.at_next_start {
        tracing::warn!(key, "has changed in the config, which takes effect at the next start");
    }
    tracing::info!("the config was reloaded");
    reloaded
}

/// Logs accepted settings that deserve a warning.
pub fn log_warnings(config: &Config) {
    if let Some(problem) = missing_authorities(&config.upstream) {
        tracing::warn!(key = "upstream.ca_file", "{problem}");
    }
    if let Some(problem) = descriptors::warning(config.listen.connections_max) {
        tracing::warn!(key = "listen.connections_max", "{problem}");
    }
    for warning in config.warnings() {
        tracing::warn!(key = warning.key, "{}", warning.problem);
    }
}
