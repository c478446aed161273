//! One installation's token: its lifetime, its next mint, and the requests that wait for it.
//!
//! Pure but for the locks: time, randomness and the upstream's answers are arguments; the gateway
//! sends. The rules:
//!
//! - A token that was used since its mint is renewed with at least five minutes left, and serves
//!   until its end even if the renewal fails. An idle token is left to expire: thousands of idle
//!   installations would otherwise each cost a request of the app's budget per hour. The next
//!   request then waits for one mint.
//! - A rejected token is minted again once; the second rejection in a row benches the installation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::bench::{BenchState, PAUSE_MAX, PAUSE_MIN, Permit, SharedBench, longer, take};
use super::health::HealthState;
use super::{Rejection, SlotId, TokenId};
use crate::clock::Timestamp;
use crate::decision::AccountId;

/// Time left when a renewal is due: at least 5 min (SPECIFICATION, "Apps"), plus time for queueing
/// and failures.
const RENEW_LEFT: Duration = Duration::from_mins(10);
/// A random part of this is added, so that installations minted together are not renewed together.
/// Our choice.
const RENEW_SPREAD: Duration = Duration::from_mins(2);
/// A token that ends sooner is not sent. Our choice: the request may take a while to arrive.
pub(super) const END_MARGIN: Duration = Duration::from_secs(5);
/// Bounds of the wait after a failed mint. Our choice: half a dozen attempts fit between the
/// renewal and the token's end.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Installation {
    /// Id at the upstream.
    pub id: u64,
    pub slot: SlotId,
    /// The account whose budget its tokens spend.
    pub account: AccountId,
    /// Id of the app that mints for it.
    pub app: u64,
    pub bench: SharedBench,
    state: Mutex<MintState>,
    signals: Arc<Signals>,
}

/// Notifications to the minting task and to waiting requests.
#[derive(Debug, Default)]
pub struct Signals {
    /// A mint may be due earlier than announced.
    pub due: Arc<Notify>,
    /// A mint has ended.
    pub ended: Notify,
    pub under_way: AtomicUsize,
}

/// Urgency of a mint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// A token exists, or no request needs one.
    #[default]
    Nothing,
    /// A token should exist before the next request.
    Background,
    /// A request waits for it.
    Waiting,
}

#[derive(Debug, Default)]
struct MintState {
    current: Option<Minted>,
    want: Want,
    minting: bool,
    failures: u32,
    /// Pause after the upstream's last refusal to mint.
    pause: Option<Duration>,
    not_before: Timestamp,
    replaced_at: Option<Timestamp>,
    /// Reason of the last failed mint.
    problem: Option<String>,
}

#[derive(Debug)]
struct Minted {
    token: TokenId,
    authorization: HeaderValue,
    /// By our clock.
    expires: Timestamp,
    renew_at: Timestamp,
    used: bool,
}

/// Reason why a mint returned no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MintFailure {
    /// A transient failure: the next attempt may succeed.
    Passing(String),
    /// The upstream does not mint for this installation: it was removed or suspended.
    Refused(String),
    /// Retry from this time on: the app's budget or limits, or its rejected key.
    Later(Timestamp, String),
}

impl Installation {
    /// Creates an installation that wants a token in the background, so that the first request does
    /// not wait.
    pub fn new(id: u64, slot: SlotId, account: AccountId, app: u64, signals: Arc<Signals>) -> Self {
        let state = MintState { want: Want::Background, ..MintState::default() };
        Self { id, slot, account, app, bench: Arc::default(), state: Mutex::new(state), signals }
    }

    pub fn is_usable(&self, now: Timestamp) -> bool {
        let is_open = self.bench.lock().bench_state(now).is_open();
        is_open && self.state.lock().usable(now).is_some()
    }

    /// Returns the end of its token's use; `None` without a token.
    pub fn usable_until(&self) -> Option<Timestamp> {
        self.state.lock().current.as_ref().map(|current| current.expires - END_MARGIN)
    }

    pub fn take(&self, now: Timestamp) -> Option<(TokenId, HeaderValue, Permit)> {
        let mut state = self.state.lock();
        state.usable(now)?;
        let permit = take(&self.bench, now)?;
        let current = state.current.as_mut()?;
        // The first use schedules the renewal.
        if !std::mem::replace(&mut current.used, true) {
            self.signals.due.notify_one();
        }
        Some((current.token, current.authorization.clone(), permit))
    }

    pub fn owns(&self, token: TokenId) -> bool {
        self.state.lock().current.as_ref().is_some_and(|current| current.token == token)
    }

    /// Requests a mint. Returns true if a token can arrive by `deadline`.
    pub fn want(&self, now: Timestamp, deadline: Timestamp, app: BenchState) -> bool {
        let comes = self.comes(now, deadline, app);
        if comes {
            self.state.lock().want = Want::Waiting;
            // Notified each time: the minting task may have checked while the app was being probed.
            self.signals.due.notify_one();
        }
        comes
    }

    /// Returns true if a token requested now can arrive by `deadline`.
    pub fn comes(&self, now: Timestamp, deadline: Timestamp, app: BenchState) -> bool {
        let bench = self.bench.lock().bench_state(now);
        let state = self.state.lock();
        state.minting && bench.is_open()
            || earliest(state.not_before, bench, app).is_some_and(|at| at.max(now) <= deadline)
    }

    /// Records that a request went without the token. Returns true if the next request may find
    /// one; requests a background mint unless one is wanted already.
    pub fn missed(&self, now: Timestamp) -> bool {
        let is_healthy = self.bench.lock().bench_state(now) == BenchState::Healthy;
        let mut state = self.state.lock();
        let comes = is_healthy && state.usable(now).is_none();
        if comes && !state.minting && state.want == Want::Nothing {
            state.want = Want::Background;
            self.signals.due.notify_one();
        }
        comes
    }

    /// Returns the earliest time of a new token; `None` when only an event decides.
    pub fn earliest(&self, now: Timestamp, app: BenchState) -> Option<Timestamp> {
        let bench = self.bench.lock().bench_state(now);
        earliest(self.state.lock().not_before, bench, app)
    }

    /// Returns the time and urgency of the next mint; `None` when none is due or one is under way.
    pub fn due(&self, now: Timestamp, app: BenchState) -> Option<(Timestamp, Want)> {
        let bench = self.bench.lock().bench_state(now);
        let state = self.state.lock();
        if state.minting {
            return None;
        }
        let at = match &state.current {
            _ if state.want > Want::Nothing => state.not_before,
            Some(current) if current.used && current.expires > now => {
                current.renew_at.max(state.not_before)
            }
            _ => return None,
        };
        earliest(at, bench, app).map(|at| (at, state.want))
    }

    /// Grants the right to mint, unless it is granted already.
    pub fn begin(self: &Arc<Self>) -> Option<Minting> {
        let mut state = self.state.lock();
        if state.minting {
            return None;
        }
        state.minting = true;
        self.signals.under_way.fetch_add(1, Ordering::Relaxed);
        Some(Minting { installation: Arc::clone(self) })
    }

    /// Records that the upstream rejected `token` at `now`. A second rejection soon after a
    /// replacement concerns the installation itself.
    pub fn refused(
        &self,
        token: TokenId,
        permit: &Permit,
        now: Timestamp,
        message: &str,
    ) -> Rejection {
        let mut state = self.state.lock();
        let Some(current) = state.current.as_ref().filter(|current| current.token == token) else {
            return Rejection::Old;
        };
        let ended = current.expires <= now + END_MARGIN;
        let replaced_before = state.replaced_at.is_some_and(|at| now.since(at) < PAUSE_MIN);
        state.current = None;
        if !ended && (replaced_before || matches!(permit, Permit::Probe(_))) {
            self.bench.lock().refused(now, permit, message);
            return Rejection::Benched;
        }
        // The rejection of an expired token is no evidence about the next one.
        if !ended {
            state.replaced_at = Some(now);
        }
        state.want = state.want.max(Want::Background);
        self.signals.due.notify_one();
        Rejection::Replaced
    }

    pub fn health(&self, now: Timestamp, app: BenchState) -> (HealthState, Option<String>) {
        let (bench, message) = self.bench.lock().health(now);
        if bench != HealthState::Healthy {
            return (bench, message);
        }
        let state = self.state.lock();
        if state.usable(now).is_some() {
            return (HealthState::Healthy, state.problem.clone());
        }
        if let Some(until) = app.pause_end() {
            return (HealthState::Benched { until }, Some("its app is not accepted".into()));
        }
        match state.pause {
            Some(_) => (HealthState::Benched { until: state.not_before }, state.problem.clone()),
            None if state.want > Want::Nothing || state.minting || state.failures > 0 => {
                (HealthState::Minting, state.problem.clone())
            }
            None => (HealthState::Expired, None),
        }
    }
}

/// Returns when a mint due at `at` is possible under both benches; `None` when only an event
/// decides.
fn earliest(at: Timestamp, bench: BenchState, app: BenchState) -> Option<Timestamp> {
    [bench, app].into_iter().try_fold(at, |at, bench_state| match bench_state {
        BenchState::Healthy | BenchState::Due(_) => Some(at),
        BenchState::Benched(until) => Some(at.max(until)),
        BenchState::Probed(_) => None,
    })
}

impl MintState {
    fn usable(&self, now: Timestamp) -> Option<&Minted> {
        self.current.as_ref().filter(|current| current.expires > now + END_MARGIN)
    }
}

/// The right to mint one token for one installation, returned on drop.
#[derive(Debug)]
pub struct Minting {
    installation: Arc<Installation>,
}

impl Minting {
    /// Returns the installation to mint for.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Stores the minted token, which ends at `expires` by our clock. `chance` is a random number
    /// from 0 to 1.
    pub fn succeeded(
        self,
        token: TokenId,
        authorization: HeaderValue,
        expires: Timestamp,
        now: Timestamp,
        chance: f64,
    ) {
        let mut state = self.installation.state.lock();
        // Without the cap a short-lived token would be due for renewal at once, again and again.
        let left =
            (RENEW_LEFT + RENEW_SPREAD.mul_f64(chance.clamp(0.0, 1.0))).min(expires.since(now) / 2);
        let renew_at = expires - left;
        state.current = Some(Minted { token, authorization, expires, renew_at, used: false });
        (state.want, state.failures, state.pause, state.problem) = (Want::Nothing, 0, None, None);
        state.not_before = Timestamp::EPOCH;
    }

    /// Records a failed mint. `chance` is a random number from 0 to 1.
    pub fn failed(self, now: Timestamp, failure: MintFailure, chance: f64) {
        let mut state = self.installation.state.lock();
        let (not_before, problem) = match failure {
            MintFailure::Passing(problem) => {
                state.pause = None;
                (now + backoff(state.failures, chance), problem)
            }
            MintFailure::Refused(problem) => {
                let pause = longer(state.pause);
                state.pause = Some(pause);
                (now + pause, problem)
            }
            // The quota ledger's "never" is bounded, because its knowledge may improve.
            MintFailure::Later(at, problem) => {
                (at.clamp(now + backoff(0, chance), now + PAUSE_MAX), problem)
            }
        };
        state.failures = state.failures.saturating_add(1);
        state.not_before = not_before;
        state.problem = Some(problem);
    }
}

impl Drop for Minting {
    fn drop(&mut self) {
        self.installation.state.lock().minting = false;
        let signals = &self.installation.signals;
        signals.under_way.fetch_sub(1, Ordering::Relaxed);
        signals.due.notify_one();
        signals.ended.notify_waiters();
    }
}

/// Returns the wait after `failures` earlier failures: doubled each time, bounded, with a jitter of
/// half of it.
fn backoff(failures: u32, chance: f64) -> Duration {
    let full = RETRY_MIN.saturating_mul(2_u32.saturating_pow(failures.min(16))).min(RETRY_MAX);
    full.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
