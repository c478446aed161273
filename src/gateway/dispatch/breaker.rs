//! The circuit breakers of the upstream's addresses: the shell of [`crate::decision::breaker`].
//!
//! Attempts report what they hear, and learn when a breaker opens. Left out: the probes
//! (`background/upstream_probe.rs`), and stored answers in place of others (`cache/read.rs`).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::config::{Upstream, UpstreamUrl};
use crate::decision::breaker::{Breaker, Heard, Next, Outage, State, Target};
use crate::gateway::address::Service;
use crate::gateway::upstream::fetch::FetchError;

/// A breaker for each address that differs in scheme, host or port.
pub struct CircuitBreakers {
    rest: Arc<CircuitBreaker>,
    graphql: Arc<CircuitBreaker>,
    uploads: Arc<CircuitBreaker>,
}

pub struct CircuitBreaker {
    /// The service by which it is probed.
    pub service: Service,
    /// The address, for logs and metrics.
    pub name: String,
    /// The clock of timeouts.
    clock: Clock,
    inner: Mutex<Inner>,
    outage: watch::Sender<Option<Outage>>,
    /// Notified when the prober has to look.
    stirred: Notify,
}

#[derive(Default)]
struct Inner {
    breaker: Breaker,
    /// True while the prober sleeps until a notification.
    is_idle: bool,
}

impl CircuitBreakers {
    pub fn new(config: &Upstream, clock: &Clock) -> Self {
        let mut known: Vec<Arc<CircuitBreaker>> = Vec::new();
        let mut breaker = |service, url: &UpstreamUrl| {
            let scheme = if url.is_tls() { "https" } else { "http" };
            let name = format!("{scheme}://{}", url.authority());
            if let Some(same) = known.iter().find(|breaker| breaker.name == name) {
                return Arc::clone(same);
            }
            let breaker = Arc::new(CircuitBreaker {
                service,
                name,
                clock: clock.clone(),
                inner: Mutex::default(),
                outage: watch::Sender::new(None),
                stirred: Notify::new(),
            });
            known.push(Arc::clone(&breaker));
            breaker
        };
        Self {
            rest: breaker(Service::Rest, &config.url),
            graphql: breaker(Service::Graphql, &config.graphql_url),
            uploads: breaker(Service::Uploads, &config.uploads_url),
        }
    }

    pub fn of(&self, service: Service) -> &Arc<CircuitBreaker> {
        match service {
            Service::Graphql => &self.graphql,
            Service::Uploads => &self.uploads,
            Service::Rest | Service::Weir => &self.rest,
        }
    }

    /// The name and the state of each.
    pub fn states(&self) -> impl Iterator<Item = (&str, State)> {
        self.all().map(|breaker| (&*breaker.name, breaker.state()))
    }

    /// Each of them once.
    pub fn all(&self) -> impl Iterator<Item = &Arc<CircuitBreaker>> {
        let of_service = [
            (Service::Rest, &self.rest),
            (Service::Graphql, &self.graphql),
            (Service::Uploads, &self.uploads),
        ];
        of_service.into_iter().filter(|(service, it)| it.service == *service).map(|(_, it)| it)
    }
}

impl CircuitBreaker {
    pub fn state(&self) -> State {
        self.inner.lock().breaker.state()
    }

    /// The outage while it is open.
    pub fn outage(&self) -> Option<Outage> {
        *self.outage.borrow()
    }

    /// Waits until it is open.
    pub async fn opened(&self) -> Outage {
        // The sender lives as long as `self`.
        let outage = self.outage.subscribe().wait_for(Option::is_some).await.map(|open| *open);
        outage.ok().flatten().unwrap_or(Outage::Silent)
    }

    pub async fn closed(&self) {
        let _ = self.outage.subscribe().wait_for(Option::is_none).await;
    }

    /// An attempt begins.
    pub fn begin(&self) -> Listening<'_> {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        if inner.breaker.begun(now) && inner.is_idle {
            self.stirred.notify_one();
        }
        Listening(Some(self))
    }

    /// The prober's next step; `Idle` and `At` mean to sleep until [`CircuitBreaker::stirred`].
    pub fn next(&self) -> Next {
        self.change(|inner| {
            let next = inner.breaker.next(self.clock.now());
            inner.is_idle = next == Next::Idle;
            next
        })
    }

    pub async fn stirred(&self) {
        self.stirred.notified().await;
    }

    pub fn probed(&self, target: Target, heard: Heard, took: Duration) {
        self.change(|inner| inner.breaker.probed(self.clock.now(), target, heard, took));
    }

    /// See [`Breaker::is_probe_late`].
    pub fn is_probe_late(&self) -> bool {
        self.inner.lock().breaker.is_probe_late(self.clock.now())
    }

    /// Changes the state, and logs and announces an outage and its end.
    fn change<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.inner.lock();
        let before = inner.breaker.state();
        let changed = change(&mut inner);
        let outage = match inner.breaker.state() {
            State::Open { outage, .. } => Some(outage),
            State::Closed | State::Suspected => None,
        };
        // Under the lock, so that changes are announced and logged in their order.
        self.outage.send_if_modified(|announced| std::mem::replace(announced, outage) != outage);
        match (before, outage) {
            (State::Closed | State::Suspected, Some(outage)) => {
                let upstream = &*self.name;
                let problem = match outage {
                    Outage::Unreachable => "no connection",
                    Outage::Silent => "no answer",
                };
                tracing::warn!(upstream, problem, "the upstream is down: only probes are sent");
            }
            (State::Open { since, .. }, None) => {
                let down_ms = self.clock.now().since(since).as_millis();
                let down_ms = u64::try_from(down_ms).unwrap_or(u64::MAX);
                let upstream = &*self.name;
                if inner.breaker.has_lapsed() {
                    tracing::warn!(
                        upstream,
                        down_ms,
                        "the API still hangs: requests are tried again"
                    );
                } else {
                    tracing::warn!(upstream, down_ms, "the upstream answers again");
                }
            }
            _ => {}
        }
        changed
    }
}

/// Guard: an attempt that waits for its answer. Dropped, it was given up.
pub struct Listening<'b>(Option<&'b CircuitBreaker>);

impl Listening<'_> {
    pub fn ended(mut self, heard: Heard) {
        self.end(heard);
    }

    fn end(&mut self, heard: Heard) {
        let Some(breaker) = self.0.take() else { return };
        let now = breaker.clock.now();
        if breaker.change(|inner| inner.breaker.ended(now, heard)) {
            breaker.stirred.notify_one();
        }
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.end(Heard::Neutral);
    }
}

/// The evidence about the upstream in the end of an attempt; `Ok(true)`: its whole body came.
pub(super) fn heard(ended: Result<bool, &FetchError>) -> Heard {
    match ended {
        Ok(true) | Err(FetchError::Undecodable(_)) => Heard::Answer,
        Err(FetchError::Connect(_)) => Heard::Nothing(Outage::Unreachable),
        Err(FetchError::Lost(_) | FetchError::Timeout) => Heard::Nothing(Outage::Silent),
        // The head of a large body promises more than it proves.
        Ok(false)
        | Err(
            FetchError::Stale(_)
            | FetchError::Down
            | FetchError::Cancelled
            | FetchError::TooLate
            | FetchError::Unsendable(_),
        ) => Heard::Neutral,
    }
}
