//! The dispatcher: tokens, budgets and connections under one config.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::{Endpoint, EndpointId, ResourceName, Table};
use crate::clock::Timestamp;
use crate::decision;
use crate::decision::breaker::State;
use crate::decision::fleet::Report;
use crate::decision::{
    AccountId, ClientId, LimitKind, Recovered, SavedLedger, SpendingMark, Spent,
};
use crate::gateway::counted::Counted;
use crate::gateway::dispatch::admission::Admissions;
use crate::gateway::dispatch::breaker::CircuitBreakers;
use crate::gateway::dispatch::candidates::AccountLists;
use crate::gateway::dispatch::findings::Findings;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::dispatch::questions::{Asking, Looks};
use crate::gateway::environment::Environment;
use crate::gateway::error::GatewayError;
use crate::gateway::upstream::fetch::Upstream;
use crate::tokens::{Health, HealthState, Source, Tokens};

/// The least `Retry-After` of a full queue. Chosen here: the pace of writes a second apart.
const QUEUE_FULL_PAUSE_MIN: Duration = Duration::from_secs(1);

/// Sends requests upstream: chooses an account, waits for admission, sends, settles, retries.
pub struct Dispatcher {
    pub(super) env: Arc<Environment>,
    pub(super) table: &'static Table,
    pub(super) tokens: Arc<Tokens>,
    pub(super) admissions: Arc<Admissions>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) breakers: Arc<CircuitBreakers>,
    pub(super) permissions: Arc<Permissions>,
    pub(super) accounts: Arc<AccountLists>,
    /// Requests that wait for a turn or for admission, by client.
    pub(super) waiting: Vec<Arc<AtomicU64>>,
    /// Questions of accounts' states, with their last answers.
    pub(super) asking: Arc<Asking>,
    pub(super) looks: Looks,
    /// Writes on their way upstream.
    pub(super) writes_on_wire: Arc<AtomicU64>,
}

#[derive(Default)]
pub struct Permissions {
    pub(super) observed: Mutex<decision::permissions::Permissions>,
    /// Notified when a permission retry has ended.
    pub(super) probe_ended: Notify,
    /// News for the other replicas.
    pub(super) findings: Findings,
}

impl Dispatcher {
    /// Builds the dispatcher of one config. The budgets, observations and counts of `before`, the
    /// previous config's dispatcher, are kept.
    pub fn new(env: &Arc<Environment>, before: Option<&Self>) -> Arc<Self> {
        let config = &env.config;
        let tokens = before.map_or_else(
            || Tokens::new(config),
            |before| before.tokens.with_config(&before.env.config, config),
        );
        let waiting = |index: usize| {
            before.and_then(|before| before.waiting.get(index).map(Arc::clone)).unwrap_or_default()
        };
        Arc::new(Self {
            table: Table::embedded(config.upstream.dialect),
            tokens: Arc::new(tokens),
            admissions: before.map_or_else(
                || Admissions::new(config.ledger_settings(), env.clock.clone()),
                |before| Arc::clone(&before.admissions),
            ),
            upstream: Arc::new(Upstream::new(
                &config.upstream,
                env.mode,
                &env.clock,
                &env.timeouts,
                before.map(|before| &*before.upstream),
            )),
            // A reload cannot change the addresses.
            breakers: before.map_or_else(
                || Arc::new(CircuitBreakers::new(&config.upstream, &env.timeouts)),
                |before| Arc::clone(&before.breakers),
            ),
            permissions: before.map_or_else(Arc::default, |before| Arc::clone(&before.permissions)),
            accounts: Arc::new(AccountLists::new(config)),
            waiting: (0..config.clients.len()).map(waiting).collect(),
            asking: before.map_or_else(Arc::default, |before| Arc::clone(&before.asking)),
            looks: before.map_or_else(Looks::default, |before| before.looks.next()),
            writes_on_wire: before
                .map_or_else(Arc::default, |before| Arc::clone(&before.writes_on_wire)),
            env: Arc::clone(env),
        })
    }

    /// Applies the config's settings to all later admissions.
    pub fn reconfigure(&self) {
        self.admissions.reconfigure(self.env.config.ledger_settings());
    }

    pub fn env(&self) -> &Arc<Environment> {
        &self.env
    }

    pub fn table(&self) -> &'static Table {
        self.table
    }

    pub fn tokens(&self) -> &Arc<Tokens> {
        &self.tokens
    }

    pub fn admissions(&self) -> &Arc<Admissions> {
        &self.admissions
    }

    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    pub fn breakers(&self) -> &Arc<CircuitBreakers> {
        &self.breakers
    }

    /// True if the circuit breaker of an address is open.
    pub fn is_upstream_down(&self) -> bool {
        self.breakers.all().any(|breaker| breaker.outage().is_some())
    }

    /// True if no circuit breaker suspects an outage.
    pub fn is_upstream_trusted(&self) -> bool {
        self.breakers.all().all(|breaker| breaker.state() == State::Closed)
    }

    pub fn accounts(&self) -> &Arc<AccountLists> {
        &self.accounts
    }

    pub fn waiting(&self) -> &[Arc<AtomicU64>] {
        &self.waiting
    }

    pub fn writes_on_wire(&self) -> u64 {
        self.writes_on_wire.load(Ordering::Relaxed)
    }

    /// True if some token is usable. An app's own credential serves few routes, so it counts only
    /// where no other account is configured.
    pub fn has_usable_token(&self) -> bool {
        let now = self.env.clock.now();
        may_serve(self.tokens.health(now).iter(), now)
    }

    /// The parts of the config that are out of service because no token of theirs works.
    pub fn lacking_token(&self) -> WithoutToken {
        let (pools, are_all) = self.pools_without_token();
        let writers = if self.was_ready() { Vec::new() } else { self.dead_writers() };
        WithoutToken { pools, are_all, writers }
    }

    /// The accounts by which clients write and whose tokens are all rejected.
    fn dead_writers(&self) -> Vec<usize> {
        let health = self.tokens.health(self.env.clock.now());
        let clients = self.env.config.clients.iter();
        let mut writers: Vec<usize> = clients.filter_map(|client| client.writes).collect();
        writers.sort_unstable();
        writers.dedup();
        writers.retain(|account| {
            let id = self.env.config.account_id(*account);
            let mut own = health.iter().filter(|token| token.account == id).peekable();
            own.peek().is_some()
                && own.all(|token| matches!(token.state, HealthState::Benched { .. }))
        });
        writers
    }

    /// The pools without a token that works, and true if all pools are.
    fn pools_without_token(&self) -> (Vec<usize>, bool) {
        let now = self.env.clock.now();
        let mut by_account: HashMap<AccountId, Vec<Health>> = HashMap::new();
        for token in self.tokens.health(now) {
            by_account.entry(token.account).or_default().push(token);
        }
        let pools = self.env.config.pools.iter().enumerate().filter(|(_, pool)| !pool.retired);
        let is_without = |accounts: &[usize]| {
            let ids = accounts.iter().map(|account| self.env.config.account_id(*account));
            !may_serve(ids.filter_map(|id| by_account.get(&id)).flatten(), now)
        };
        let all = pools.clone().count();
        let without: Vec<usize> =
            pools.filter(|(_, pool)| is_without(&pool.accounts)).map(|(index, _)| index).collect();
        let are_all = without.len() == all;
        (without, are_all)
    }

    /// The state of the quota ledger for a file.
    pub fn saved_ledger(&self) -> SavedLedger {
        self.admissions.saved(&|endpoint| name_of(self.table.endpoint(endpoint)))
    }

    /// A report on an account to other replicas, with its time.
    pub fn report(&self, account: AccountId) -> Option<(Timestamp, Report)> {
        self.admissions.report(account, &|endpoint| name_of(self.table.endpoint(endpoint)))
    }

    /// Takes over the state of an earlier process.
    pub fn restore_ledger(&self, saved: &SavedLedger, recovered: Recovered) {
        let ids = self.endpoint_ids();
        self.admissions.restore(saved, recovered, &|name| ids.get(name).copied());
    }

    /// A mark for a successor that has the state of this moment.
    pub fn spending_mark(&self) -> SpendingMark {
        self.admissions.spending_mark()
    }

    /// The spending since the last message, for a successor.
    pub fn spent_since(&self, mark: &mut SpendingMark) -> Spent {
        self.admissions.spent_since(mark, &|endpoint| name_of(self.table.endpoint(endpoint)))
    }

    /// Adds what a predecessor has spent.
    pub fn add_spent(&self, spent: &Spent) {
        let ids = self.endpoint_ids();
        self.admissions.add_spent(spent, &|name| ids.get(name).copied());
    }

    /// The endpoints by their names.
    fn endpoint_ids(&self) -> HashMap<String, EndpointId> {
        let endpoints = self.table.endpoints().iter();
        endpoints.map(|endpoint| (name_of(endpoint), endpoint.id)).collect()
    }

    /// The error of a full queue, in number or in bytes.
    pub fn queue_full(
        &self,
        client: ClientId,
        view: &Arc<[AccountId]>,
        resource: ResourceName,
    ) -> GatewayError {
        let view = self.admissions.view(Some(client), view, &resource).0;
        let until = self.env.clock.now() + self.env.config.writes.spacing.max(QUEUE_FULL_PAUSE_MIN);
        GatewayError::Limited { limit: LimitKind::QueueFull, until, resource, view }
    }

    /// Counts a request of this client as waiting until the guard is dropped.
    pub fn waits<'w>(&'w self, client: u32, progress: &'w RequestProgress) -> Waiting<'w> {
        Waiting {
            dispatcher: self,
            progress,
            one_more: self.waiting.get(client as usize).map(Counted::new),
        }
    }
}

/// The name of an endpoint, the same in all releases.
fn name_of(endpoint: &Endpoint) -> String {
    format!("{} {}", endpoint.method, endpoint.template)
}

/// The parts of a config without a token that works, as indexes.
pub struct WithoutToken {
    /// Pools.
    pub pools: Vec<usize>,
    /// True if no pool has one.
    pub are_all: bool,
    /// Accounts by which clients write, until everything was ready once.
    pub writers: Vec<usize>,
}

impl WithoutToken {
    /// True if nothing lacks one.
    pub fn is_empty(&self) -> bool {
        !self.are_all && self.pools.is_empty() && self.writers.is_empty()
    }
}

/// True if one of these tokens may serve; an app's own credential only beside no other kind.
fn may_serve<'t>(tokens: impl Iterator<Item = &'t Health> + Clone, now: Timestamp) -> bool {
    let is_app = |token: &Health| matches!(token.token, Source::App(_));
    let only_apps = tokens.clone().all(is_app);
    let mut tokens = tokens;
    tokens.any(|token| token.may_serve(now) && (only_apps || !is_app(token)))
}

/// Guard: counts a waiting request, and records the duration of its wait on drop, cancellation
/// included.
pub struct Waiting<'w> {
    dispatcher: &'w Dispatcher,
    progress: &'w RequestProgress,
    #[expect(dead_code, reason = "counts as long as it lives")]
    one_more: Option<Counted>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some((by, waited)) = self.progress.released(self.dispatcher.env.clock.moment()) {
            self.dispatcher.env.metrics.wait(by.name(), waited);
        }
    }
}
