//! Reports to the records that all replicas share, and what they answer.
//!
//! Each account in use is reported on every quarter of a second, and sooner while requests wait for
//! more than the parts of this replica, or the upstream has refused one. `decision/fleet` decides
//! all of it; a request waits for an answer in its queue, never here.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::api::ResourceName;
use crate::clock::{Timestamp, timer_now};
use crate::config;
use crate::decision::AccountId;
use crate::decision::fleet::{Answer, HELD_FOR, Report};
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::state::{Away, Closed, Content, Reach, Replica};

/// The distance of the reports on an account in use.
const REPORTED_EVERY: Duration = Duration::from_millis(250);
/// The least distance of two reports on one account. Ours: what a refusal closes elsewhere within
/// 20 ms, with the way to Redis and back.
const SHORT_EVERY: Duration = Duration::from_millis(10);
/// A later end of a wait than the known one by this much is news for the others.
const LATER_BY: Duration = Duration::from_millis(500);

/// The report on an account, with its answer.
struct Synced {
    account: AccountId,
    sent_at: Timestamp,
    took: Duration,
    answer: Result<(Option<Answer>, u32), Away>,
}

/// The reports on one account so far.
#[derive(Default)]
struct Reports {
    last: Option<Instant>,
    is_under_way: bool,
    /// The end of its parts, unless a report is answered before; `None`: they have ended.
    held_until: Option<Timestamp>,
    /// The end of the wait after a refusal that the others know of.
    closed_until: Timestamp,
}

struct Syncing<C> {
    replica: Arc<Replica>,
    current: C,
    reports: HashMap<AccountId, Reports>,
    /// Accounts to be reported on as soon as their distance allows.
    wanted: BTreeSet<AccountId>,
    under_way: FuturesUnordered<BoxFuture<'static, Synced>>,
}

/// Reports while the gateway lives, which `current` returns until then.
///
/// `limited` yields the accounts that the upstream has closed, as another replica has said.
pub async fn keep_syncing<C>(replica: Arc<Replica>, current: C, mut limited: mpsc::Receiver<Closed>)
where
    C: Fn() -> Option<Arc<Dispatcher>> + Send,
{
    let mut syncing = Syncing {
        replica,
        current,
        reports: HashMap::new(),
        wanted: BTreeSet::new(),
        under_way: FuturesUnordered::new(),
    };
    let mut next = timer_now();
    loop {
        let Some(dispatcher) = (syncing.current)() else { return };
        let admissions = Arc::clone(dispatcher.admissions());
        if timer_now() >= next {
            next = timer_now() + REPORTED_EVERY;
            syncing.wanted.extend(admissions.to_report());
            syncing.note_health(&dispatcher);
        }
        syncing.wanted.extend(admissions.take_short());
        let wake = syncing.begin_wanted(&dispatcher).map_or(next, |at| at.min(next));
        drop(dispatcher);
        tokio::select! {
            () = sleep_until(wake) => {}
            () = admissions.has_short() => {}
            Some(synced) = syncing.under_way.next() => syncing.take(synced),
            Some(closed) = limited.recv() => syncing.hear(&closed),
        }
    }
}

/// Ends the parts of a replica that stops, so that the others need not wait for it.
pub async fn leave(replica: &Replica, dispatcher: &Dispatcher) {
    let left = dispatcher.admissions().give_back().into_iter().filter_map(|account| {
        let name = Arc::clone(dispatcher.env().shared_name(account));
        let (_, report) = dispatcher.report(account)?;
        Some(async move {
            if replica.home().sync(&name, replica.id(), &report).await.is_ok() {
                // Otherwise they end by themselves.
                let _ = replica.home().leave(&name, replica.id()).await;
            }
        })
    });
    join_all(left).await;
    replica.leave();
    let _ = replica.tell(Content::Gone).await;
}

impl<C: Fn() -> Option<Arc<Dispatcher>>> Syncing<C> {
    /// Begins the wanted reports whose distance allows it. Returns the time of the next one.
    fn begin_wanted(&mut self, dispatcher: &Dispatcher) -> Option<Instant> {
        let now = timer_now();
        let mut next = None::<Instant>;
        let mut due = Vec::new();
        for account in &self.wanted {
            let reports = self.reports.entry(*account).or_default();
            let at = reports.last.map_or(now, |last| last + SHORT_EVERY);
            if reports.is_under_way {
                // Its end comes here again.
            } else if at <= now {
                due.push(*account);
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        for account in due {
            self.wanted.remove(&account);
            self.begin(dispatcher, account);
        }
        next
    }

    fn begin(&mut self, dispatcher: &Dispatcher, account: AccountId) {
        let name = Arc::clone(dispatcher.env().shared_name(account));
        let Some((sent_at, report)) = dispatcher.report(account) else { return };
        let reports = self.reports.entry(account).or_default();
        (reports.last, reports.is_under_way) = (Some(timer_now()), true);
        let closed_until = sent_at + closed_for(&report);
        let is_refused = closed_until > reports.closed_until + LATER_BY && closed_until > sent_at;
        let replica = Arc::clone(&self.replica);
        self.under_way.push(Box::pin(async move {
            let begun = timer_now();
            let says = async {
                if is_refused {
                    // A lost message costs the others no more than the time to their next report.
                    let _ = replica.tell(Content::Limited(closed_of(&name, &report))).await;
                }
            };
            let syncs = async {
                let answer = replica.home().sync(&name, replica.id(), &report).await;
                (timer_now() - begun, answer)
            };
            let ((), (took, answer)) = tokio::join!(says, syncs);
            Synced { account, sent_at, took, answer }
        }));
    }

    fn take(&mut self, synced: Synced) {
        let Synced { account, sent_at, took, answer } = synced;
        let Some(dispatcher) = (self.current)() else { return };
        let reports = self.reports.entry(account).or_default();
        reports.is_under_way = false;
        let (result, conflicts) = match &answer {
            Ok((Some(_), conflicts)) => ("answered", *conflicts),
            Ok((None, conflicts)) => ("late", *conflicts),
            Err(Away(_)) => ("away", 0),
        };
        dispatcher.env().metrics.synced(result, conflicts, took);
        let answer = match answer {
            Ok((Some(answer), _)) => {
                let budgets = answer.budgets.iter().map(|budget| budget.part);
                let mut parts = answer.capacities.iter().copied().chain(budgets);
                // An account of which it holds nothing is not reported on again.
                let holds = parts.any(|part| part.held > 0);
                reports.held_until = holds.then_some(sent_at + HELD_FOR);
                let budgets = answer.budgets.iter().map(|budget| budget.closed_for);
                let closed_for = budgets.fold(answer.cooldown, Duration::max);
                if !closed_for.is_zero() {
                    reports.closed_until = reports.closed_until.max(sent_at + closed_for);
                }
                Some(answer)
            }
            Ok((None, _)) | Err(Away(_)) => None,
        };
        dispatcher.admissions().reported(sent_at, account, answer.as_ref());
    }

    fn hear(&mut self, closed: &Closed) {
        let Some(dispatcher) = (self.current)() else { return };
        let config = &dispatcher.env().config;
        let named = |account: &config::Account| *account.name == *closed.account;
        if let Some(index) = config.accounts.iter().position(named) {
            let account = config.account_id(index);
            let resources = closed.resources_for.iter();
            let resources: Vec<_> = resources
                .filter_map(|(name, wait)| Some((ResourceName::parse(name)?, *wait)))
                .collect();
            dispatcher.admissions().closed_elsewhere(account, closed.whole_for, &resources);
            self.wanted.insert(account);
        }
    }

    /// Logs when the records go out of reach, and when they are back.
    fn note_health(&mut self, dispatcher: &Dispatcher) {
        let (now, metrics) = (dispatcher.env().clock.now(), &dispatcher.env().metrics);
        if let Some(before) = self.replica.look(now) {
            match self.replica.reach() {
                Reach::In if before == Reach::In => {}
                Reach::In => tracing::info!("Redis is in reach: the replicas share their limits"),
                Reach::Never(reason) | Reach::Out(_, reason) => tracing::warn!(
                    reason,
                    "Redis is out of reach: this replica goes on with its parts of the limits"
                ),
            }
        }
        let mut lost = 0;
        for reports in self.reports.values_mut() {
            if reports.held_until.is_some_and(|until| until <= now) {
                reports.held_until = None;
                lost += 1;
            }
        }
        metrics.leases_lost(lost);
        if lost > 0 {
            let reason = match self.replica.reach() {
                Reach::In => "no report on them was answered in time".to_owned(),
                Reach::Never(reason) | Reach::Out(_, reason) => reason,
            };
            tracing::warn!(
                accounts = lost,
                reason,
                "parts of limits have ended: only floors are left of them"
            );
        }
    }
}

/// The part of a report that the others are to hear of at once.
fn closed_of(account: &str, report: &Report) -> Closed {
    let closed = report.budgets.iter().filter(|budget| !budget.closed_for.is_zero());
    let resources_for = closed.map(|budget| (budget.resource.clone(), budget.closed_for)).collect();
    Closed { account: account.to_owned(), whole_for: report.cooldown, resources_for }
}

/// The longest wait after a refusal that a report has.
fn closed_for(report: &Report) -> Duration {
    report.budgets.iter().map(|budget| budget.closed_for).fold(report.cooldown, Duration::max)
}
