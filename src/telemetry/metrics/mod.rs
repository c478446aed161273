//! The metrics (SPECIFICATION, "Metrics") and their measurement.
//!
//! Counters and histograms are updated as events happen. Gauges show the present, so
//! [`Metrics::scrape`] sets them for each scrape; what is gone since the last one, such as a
//! removed account, disappears from the text.
//!
//! A request costs one hash of its labels, one read lock and four atomic operations. It allocates
//! nothing once its label set exists. Left out: the names (`names`), and the
//! listener (`admin`).

mod durations;
mod process;
mod refusals;
mod replicas;
mod spending;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use self::durations::{DURATIONS, RequestDurations, UpstreamDurations};
use super::labels::{
    AccountLimitLabels, AddressLabels, BudgetLabels, CertificateLabels, ClientKeyLabels,
    ClientLabels, ConnectionLabels, InvariantLabels, IssuerLabels, IssuerTokenLabels, LabelSet,
    ListenerLabels, Name, PredictionLabels, ReasonLabels, RefusedLabels, RequestDurationLabels,
    RequestLabels, StateLabels, Status, TokenLabels, UpstreamDurationLabels, UpstreamLabels,
    WebhookLabels,
};
use super::names::Metric;
use super::outcome::Outcome;
use super::registry::{
    Counter, Gauge, Histogram, Layout, Measured, Registry, Snapshot, TextFormat,
};
use super::series::{SERIES_MAX, Series};
use super::tally::{ClientFigures, Tally};
use crate::clock::Timestamp;
pub use durations::UpstreamOutcome;
pub use process::BUILD_COMMIT;
use process::ProcessFigures;
pub use refusals::RecentRefusal;
use refusals::RecentRefusals;
use replicas::ReplicaFigures;
use spending::Spending;
pub use spending::{Spent, SpentSum};

/// A queued write waits for up to a day: the bounds include the windows of the limits, a minute and
/// an hour.
const QUEUE_BUCKETS_S: [f64; 14] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];
/// 0 stands for a write cancelled before it was sent; 8 is the default of `max_attempts`.
const ATTEMPT_BUCKETS: [f64; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0];
static QUEUE_LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout::new(&QUEUE_BUCKETS_S));
static ATTEMPT_LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout::new(&ATTEMPT_BUCKETS));

/// Labels are names from the config and words of closed sets, so no outsider can choose them to
/// collide.
type Hasher = foldhash::fast::RandomState;
type Count<S> = Series<S, Counter>;
type Level<S> = Series<S, Gauge>;
type Fraction<S> = Series<S, Gauge<f64>>;
type Durations<S> = Series<S, Histogram>;

/// Every metric of the gateway. Shared behind an `Arc`; all methods take `&self` and none blocks on
/// I/O.
pub struct Metrics {
    registry: Registry,
    /// Serialises scrapes: each owns the gauges from clearing to encoding.
    scraping: Mutex<()>,
    counts: Counts,
    gauges: Gauges,
    /// Handles that [`Metrics::record`] counts into, resolved once per label set.
    handles: RwLock<HashMap<RequestLabels, RequestHandles, Hasher>>,
    /// By client; clients without room share the overflow name.
    tallies: RwLock<HashMap<Name, Arc<Tally>>>,
    recent: RecentRefusals,
}

struct RequestHandles {
    count: Counter,
    duration: Histogram,
    tally: Arc<Tally>,
}

impl RequestHandles {
    fn count(&self, outcome: &Outcome) {
        self.count.inc();
        self.duration.observe_traced(outcome.total.as_secs_f64(), outcome.trace.as_ref());
        self.tally.request(outcome.queue);
    }
}

/// Counters and histograms, updated as events happen.
struct Counts {
    requests: Count<RequestLabels>,
    request_duration: RequestDurations,
    upstream_requests: Count<UpstreamLabels>,
    upstream_duration: UpstreamDurations,
    upstream_limited: Count<AccountLimitLabels>,
    spending: Spending,
    refused: Count<RefusedLabels>,
    connections_accepted: Count<ListenerLabels>,
    connections_ended: Count<ReasonLabels>,
    accept_pauses: Count<ReasonLabels>,
    wait: Durations<ReasonLabels>,
    write_attempts: Series<StateLabels, Histogram>,
    write_queue: Durations<StateLabels>,
    cache_evictions: Counter,
    spool_evictions: Counter,
    background_revalidations: Counter,
    predicted_etags: Count<PredictionLabels>,
    webhook_deliveries: Count<WebhookLabels>,
    invariant_broken: Count<InvariantLabels>,
    issuer_tokens: Count<IssuerTokenLabels>,
    replicas: ReplicaFigures,
    process: ProcessFigures,
}

/// Gauges, set for each scrape.
struct Gauges {
    connections: Level<ConnectionLabels>,
    budget_limit: Level<BudgetLabels>,
    budget_remaining: Level<BudgetLabels>,
    budget_reserved: Level<BudgetLabels>,
    budget_reset: Level<BudgetLabels>,
    secondary_in_use: Fraction<AccountLimitLabels>,
    waiting: Level<ClientLabels>,
    writes: Level<StateLabels>,
    writes_oldest: Gauge<f64>,
    cache_entries: Gauge,
    cache_bytes: Gauge,
    spool_files: Gauge,
    spool_bytes: Gauge,
    snapshot_time: Gauge,
    upstream_down: Level<AddressLabels>,
    token_healthy: Level<TokenLabels>,
    certificate_days_left: Fraction<CertificateLabels>,
    client_key_expiry: Series<ClientKeyLabels, Gauge<i64>>,
    issuer_keys: Level<IssuerLabels>,
}

impl Metrics {
    /// Creates all metrics, registered and at zero. A metric with labels appears in the text with
    /// its first label set.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let counts = Counts::registered(&mut registry);
        let gauges = Gauges::registered(&mut registry);
        Self {
            registry,
            scraping: Mutex::new(()),
            counts,
            gauges,
            handles: RwLock::default(),
            tallies: RwLock::default(),
            recent: RecentRefusals::default(),
        }
    }

    /// Counts a finished client request: once, its duration, its wait, and its error if the gateway
    /// refused it.
    pub fn record(&self, outcome: &Outcome) {
        let labels = RequestLabels {
            client: Name::of_client(outcome.client.as_ref()),
            method: outcome.method.as_str(),
            endpoint: outcome.endpoint,
            status: outcome.status.into(),
            cache: outcome.cache.label(),
        };
        if let Some(reason) = outcome.refusal {
            self.count_refusal(labels.client.clone(), reason);
        }
        if let Some(known) = self.handles.read().get(&labels) {
            known.count(outcome);
            return;
        }
        self.count_first(labels, outcome);
    }

    /// Counts the first request of a label set, or one of the overflow.
    #[cold]
    fn count_first(&self, labels: RequestLabels, outcome: &Outcome) {
        let duration = RequestDurationLabels {
            scheme: outcome.scheme,
            method: labels.method,
            endpoint: labels.endpoint,
            status: labels.status,
            cache: labels.cache,
        };
        let handles = RequestHandles {
            count: self.counts.requests.of(&labels),
            duration: self.counts.request_duration.of(&duration),
            tally: self.tally(&labels.client),
        };
        handles.count(outcome);
        let mut known = self.handles.write();
        if known.len() < SERIES_MAX {
            known.insert(labels, handles);
        }
    }

    /// Counts one request sent upstream.
    pub fn upstream(&self, outcome: &UpstreamOutcome<'_>) {
        let labels = UpstreamLabels {
            account: outcome.account.into(),
            resource: outcome.resource.into(),
            endpoint: outcome.endpoint,
            status: outcome.status.map_or(Status::NONE, Status::from),
        };
        self.counts.upstream_requests.of(&labels).inc();
        let duration = self.counts.upstream_duration.of(&UpstreamDurationLabels {
            upstream: outcome.server_address.into(),
            method: outcome.method.as_str(),
            endpoint: outcome.endpoint,
            status: labels.status,
        });
        duration.observe_traced(outcome.duration.as_secs_f64(), outcome.trace);
    }

    /// Counts an upstream limit. `limit` comes from a closed set: `primary`, or the secondary
    /// limit's name.
    pub fn limited(&self, account: &str, limit: &'static str) {
        let labels = AccountLimitLabels { account: account.into(), limit };
        self.counts.upstream_limited.of(&labels).inc();
    }

    /// Counts an accepted connection. `listener` comes from a closed set.
    pub fn connection_accepted(&self, listener: &'static str) {
        self.counts.connections_accepted.of(&ListenerLabels { listener }).inc();
    }

    /// Counts a connection that the gateway ended or refused. `reason` comes from a closed set.
    pub fn connection_ended(&self, reason: &'static str) {
        self.counts.connections_ended.of(&ReasonLabels { reason }).inc();
    }

    /// Counts a pause of the accepts. `reason` comes from a closed set.
    pub fn accept_paused(&self, reason: &'static str) {
        self.counts.accept_pauses.of(&ReasonLabels { reason }).inc();
    }

    fn tally(&self, client: &Name) -> Arc<Tally> {
        if let Some(tally) = self.tallies.read().get(client) {
            return Arc::clone(tally);
        }
        let mut tallies = self.tallies.write();
        let has_room = tallies.len() < SERIES_MAX;
        let name = if has_room { client.clone() } else { ClientLabels::overflow().client };
        Arc::clone(tallies.entry(name).or_default())
    }

    /// Returns a client's requests, waits and gateway errors so far; `None` stands for all requests
    /// without an accepted key.
    pub fn client_figures(&self, client: Option<&Arc<str>>) -> ClientFigures {
        let tallies = self.tallies.read();
        tallies.get(&Name::of_client(client)).map(|tally| tally.figures()).unwrap_or_default()
    }

    /// Adds one wait with its reason and duration.
    pub fn wait(&self, reason: &'static str, duration: Duration) {
        self.counts.wait.of(&ReasonLabels { reason }).observe(duration.as_secs_f64());
    }

    /// Adds a finished write of the queue: its state, its attempts, and the time since its
    /// acceptance.
    pub fn write_ended(&self, state: &'static str, attempts: u32, after: Duration) {
        let labels = StateLabels { state };
        self.counts.write_attempts.of(&labels).observe(f64::from(attempts));
        self.counts.write_queue.of(&labels).observe(after.as_secs_f64());
    }

    /// Adds `entries` to the stored answers evicted for room.
    pub fn evicted(&self, entries: u64) {
        self.counts.cache_evictions.inc_by(entries);
    }

    /// Counts a stored answer on disk that was evicted for room.
    pub fn spool_evicted(&self) {
        self.counts.spool_evictions.inc();
    }

    /// Counts a revalidation that no client waits for.
    pub fn background_revalidation(&self) {
        self.counts.background_revalidations.inc();
    }

    /// Returns the stored answers evicted for room.
    pub fn evictions(&self) -> u64 {
        self.counts.cache_evictions.get()
    }

    /// Returns the stored answers on disk evicted for room.
    pub fn spool_evictions(&self) -> u64 {
        self.counts.spool_evictions.get()
    }

    /// Returns finished requests by cache outcome, in the words of the label. Label sets in the
    /// overflow are missing.
    pub fn answers_by_cache(&self) -> BTreeMap<&'static str, u64> {
        let mut answers = BTreeMap::new();
        for (labels, handles) in self.handles.read().iter() {
            *answers.entry(labels.cache).or_default() += handles.count.get();
        }
        answers
    }

    /// Counts a predicted `ETag` that was sent. `outcome` comes from a closed set: `confirmed`,
    /// `changed` or `wrong`.
    pub fn predicted(&self, endpoint: &'static str, outcome: &'static str) {
        self.counts.predicted_etags.of(&PredictionLabels { endpoint, outcome }).inc();
    }

    /// Counts a webhook delivery. Pass `event` from the delivery only if its signature was valid.
    pub fn webhook(&self, event: &str, outcome: &'static str) {
        self.counts.webhook_deliveries.of(&WebhookLabels { event: event.into(), outcome }).inc();
    }

    /// Counts a token that was verified. `outcome` comes from a closed set: `accepted`, or the
    /// reason of the refusal. `None` if it names no issuer of the config.
    pub fn issuer_token(&self, issuer: Option<&Arc<str>>, outcome: &'static str) {
        let issuer = Name::of_client(issuer);
        self.counts.issuer_tokens.of(&IssuerTokenLabels { issuer, outcome }).inc();
    }

    /// Sets the time of the last successful fetch of an issuer's keys.
    pub fn set_issuer_keys(&self, issuer: &str, fetched_at: Option<Timestamp>) {
        let labels = IssuerLabels { issuer: issuer.into() };
        set(&self.gauges.issuer_keys, &labels, fetched_at.map_or(0, Timestamp::as_secs));
    }

    /// Adds `times` to the violations of an invariant. Zero makes it appear as 0, so that an alert
    /// has a series to watch.
    pub fn invariant_broken(&self, name: &'static str, times: u64) {
        self.counts.invariant_broken.of(&InvariantLabels { invariant: name }).inc_by(times);
    }

    /// Sets the gauges of an account's budget for a resource.
    pub fn set_budget(
        &self,
        account: &str,
        resource: &str,
        limit: u64,
        remaining: u64,
        reserved: u64,
        reset: Timestamp,
    ) {
        let labels = BudgetLabels { account: account.into(), resource: resource.into() };
        let gauges = &self.gauges;
        for (gauge, value) in [
            (&gauges.budget_limit, limit),
            (&gauges.budget_remaining, remaining),
            (&gauges.budget_reserved, reserved),
            (&gauges.budget_reset, reset.as_secs_ceil()),
        ] {
            set(gauge, &labels, value);
        }
    }

    /// Sets the use of a secondary limit, in the limit's own unit (requests, points, CPU seconds).
    pub fn set_secondary(&self, account: &str, limit: &'static str, in_use: f64) {
        let labels = AccountLimitLabels { account: account.into(), limit };
        if let Some(gauge) = self.gauges.secondary_in_use.fitting(&labels) {
            gauge.set(in_use);
        }
    }

    /// Sets the number of open connections of a listener in a state.
    pub fn set_connections(&self, listener: &'static str, state: &'static str, open: u64) {
        set(&self.gauges.connections, &ConnectionLabels { listener, state }, open);
    }

    /// Sets the number of waiting requests of a client.
    pub fn set_waiting(&self, client: &str, requests: u64) {
        set(&self.gauges.waiting, &ClientLabels { client: client.into() }, requests);
    }

    /// Sets the number of writes in a state (`queued`, `sending`, …).
    pub fn set_writes(&self, state: &'static str, writes: u64) {
        set(&self.gauges.writes, &StateLabels { state }, writes);
    }

    /// Sets the wait of the oldest unfinished write of the queue.
    pub fn set_oldest_write(&self, waited: Duration) {
        self.gauges.writes_oldest.set(waited.as_secs_f64());
    }

    /// Sets the size of the cache.
    pub fn set_cache(&self, entries: u64, bytes: u64) {
        self.gauges.cache_entries.set(entries);
        self.gauges.cache_bytes.set(bytes);
    }

    /// Sets the number and the size of the temporary files of answers.
    pub fn set_spools(&self, files: u64, bytes: u64) {
        self.gauges.spool_files.set(files);
        self.gauges.spool_bytes.set(bytes);
    }

    /// Sets the time of the latest snapshot of the cache, in seconds since the epoch.
    pub fn set_snapshot_time(&self, seconds: u64) {
        self.gauges.snapshot_time.set(seconds);
    }

    /// Sets the state of an upstream address.
    pub fn set_upstream_down(&self, upstream: &str, is_down: bool) {
        let labels = AddressLabels { upstream: upstream.into() };
        set(&self.gauges.upstream_down, &labels, u64::from(is_down));
    }

    /// Sets the health of a token: its position in the config's list of tokens, or its origin
    /// (`installation 7`).
    pub fn set_token_healthy(&self, account: &str, token: &str, healthy: bool) {
        let labels = TokenLabels { account: account.into(), token: token.into() };
        set(&self.gauges.token_healthy, &labels, u64::from(healthy));
    }

    /// Sets the days until a certificate ends: `listener` is the key of its listener.
    pub fn set_certificate(&self, listener: &'static str, certificate: &Path, days_left: f64) {
        let certificate = certificate.to_string_lossy().as_ref().into();
        let labels = CertificateLabels { listener, certificate };
        if let Some(gauge) = self.gauges.certificate_days_left.fitting(&labels) {
            gauge.set(days_left);
        }
    }

    /// Sets the seconds until the end of a client's key, by its position among the client's.
    pub fn set_client_key_expiry(&self, client: &str, key: usize, seconds: i64) {
        let key = u32::try_from(key).unwrap_or(u32::MAX);
        let labels = ClientKeyLabels { client: client.into(), key };
        if let Some(gauge) = self.gauges.client_key_expiry.fitting(&labels) {
            gauge.set(seconds);
        }
    }

    /// Returns all metrics for one scrape or export: clears the gauges, lets `draw` set them with
    /// the `set_` methods, and reads. Scrapes are serialised, so that none sees another's
    /// unfinished gauges; `draw` must not scrape.
    pub fn read(&self, draw: impl FnOnce(&Self)) -> Snapshot {
        let _alone = self.scraping.lock();
        self.gauges.clear();
        self.counts.replicas.clear();
        self.counts.spending.own_budgets.clear();
        draw(self);
        self.snapshot()
    }

    /// Does the same, and returns the text of one scrape in `OpenMetrics`.
    pub fn scrape(&self, draw: impl FnOnce(&Self)) -> String {
        self.read(draw).text(TextFormat::OpenMetrics)
    }

    /// Reads all metrics, with the gauges as the last scrape has set them.
    pub fn snapshot(&self) -> Snapshot {
        self.registry.snapshot()
    }

    /// Formats them as `OpenMetrics` text.
    pub fn encode(&self) -> String {
        self.snapshot().text(TextFormat::OpenMetrics)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Counts {
    fn registered(registry: &mut Registry) -> Self {
        Self {
            cache_evictions: single(registry, Metric::CacheEvictionsTotal),
            spool_evictions: single(registry, Metric::SpoolEvictionsTotal),
            background_revalidations: single(registry, Metric::BackgroundRevalidationsTotal),
            requests: counts(registry, Metric::RequestsTotal),
            request_duration: durations::of_requests(registry),
            upstream_requests: counts(registry, Metric::UpstreamRequestsTotal),
            upstream_duration: durations::of_upstream(registry),
            upstream_limited: counts(registry, Metric::UpstreamLimitedTotal),
            spending: Spending::registered(registry),
            refused: counts(registry, Metric::RefusedTotal),
            connections_accepted: counts(registry, Metric::ConnectionsAcceptedTotal),
            connections_ended: counts(registry, Metric::ConnectionsEndedTotal),
            accept_pauses: counts(registry, Metric::AcceptPausesTotal),
            wait: durations(registry, Metric::WaitSeconds),
            write_attempts: Series::new(registry, Metric::WriteAttempts, || {
                Histogram::new(&ATTEMPT_LAYOUT)
            }),
            write_queue: Series::new(registry, Metric::WriteQueueSeconds, || {
                Histogram::new(&QUEUE_LAYOUT)
            }),
            predicted_etags: counts(registry, Metric::PredictedEtagsTotal),
            webhook_deliveries: counts(registry, Metric::WebhookDeliveriesTotal),
            invariant_broken: counts(registry, Metric::InvariantBrokenTotal),
            issuer_tokens: counts(registry, Metric::IssuerTokensTotal),
            replicas: ReplicaFigures::registered(registry),
            process: ProcessFigures::registered(registry),
        }
    }
}

impl Gauges {
    fn registered(registry: &mut Registry) -> Self {
        Self {
            connections: Series::new(registry, Metric::Connections, Gauge::default),
            writes_oldest: single(registry, Metric::WritesOldestSeconds),
            cache_entries: single(registry, Metric::CacheEntries),
            cache_bytes: single(registry, Metric::CacheBytes),
            spool_files: single(registry, Metric::SpoolFiles),
            spool_bytes: single(registry, Metric::SpoolBytes),
            snapshot_time: single(registry, Metric::CacheSnapshotTimestampSeconds),
            budget_limit: Series::new(registry, Metric::BudgetLimit, Gauge::default),
            budget_remaining: Series::new(registry, Metric::BudgetRemaining, Gauge::default),
            budget_reserved: Series::new(registry, Metric::BudgetReserved, Gauge::default),
            budget_reset: Series::new(
                registry,
                Metric::BudgetResetTimestampSeconds,
                Gauge::default,
            ),
            secondary_in_use: Series::new(registry, Metric::SecondaryInUse, Gauge::default),
            waiting: Series::new(registry, Metric::Waiting, Gauge::default),
            writes: Series::new(registry, Metric::Writes, Gauge::default),
            upstream_down: Series::new(registry, Metric::UpstreamDown, Gauge::default),
            token_healthy: Series::new(registry, Metric::TokenHealthy, Gauge::default),
            certificate_days_left: Series::new(
                registry,
                Metric::CertificateDaysLeft,
                Gauge::default,
            ),
            issuer_keys: Series::new(registry, Metric::IssuerKeysTimestampSeconds, Gauge::default),
            client_key_expiry: Series::new(
                registry,
                Metric::ClientKeyExpirySeconds,
                Gauge::default,
            ),
        }
    }

    fn clear(&self) {
        self.connections.clear();
        self.budget_limit.clear();
        self.budget_remaining.clear();
        self.budget_reserved.clear();
        self.budget_reset.clear();
        self.secondary_in_use.clear();
        self.waiting.clear();
        self.writes.clear();
        self.upstream_down.clear();
        self.token_healthy.clear();
        self.certificate_days_left.clear();
        self.client_key_expiry.clear();
        self.issuer_keys.clear();
    }
}

/// Sets a gauge; one without room in its family is omitted.
fn set<S: LabelSet>(family: &Level<S>, labels: &S, value: u64) {
    if let Some(gauge) = family.fitting(labels) {
        gauge.set(value);
    }
}

/// Creates a metric without labels in `registry`.
fn single<M: Measured + Default>(registry: &mut Registry, metric: Metric) -> M {
    let single = M::default();
    registry.single(metric, single.clone());
    single
}

fn counts<S: LabelSet>(registry: &mut Registry, metric: Metric) -> Count<S> {
    Series::new(registry, metric, Counter::default)
}

fn durations<S: LabelSet>(registry: &mut Registry, metric: Metric) -> Durations<S> {
    Series::new(registry, metric, || Histogram::new(&DURATIONS))
}

#[cfg(test)]
pub(super) mod tests;
