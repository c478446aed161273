//! A benched credential: out of use for a pause, then probed by one request. Each further
//! rejection doubles the pause.
//!
//! Pure: time is an argument. The caller decides which answers are rejections.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::health::HealthState;
use crate::clock::Timestamp;

/// The first pause. Our choice: a revoked token is not tried for every request, a restored one
/// comes back soon.
pub const PAUSE_MIN: Duration = Duration::from_secs(300);
/// The longest pause. Our choice: one failed request an hour is nothing to the upstream, and soon
/// enough for an unattended credential.
pub const PAUSE_MAX: Duration = Duration::from_secs(3_600);

/// Availability of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchState {
    /// Any request may use it.
    Healthy,
    /// No request may use it before this time.
    Benched(Timestamp),
    /// The pause ended at this time: one request may probe it.
    Due(Timestamp),
    /// One request is probing it.
    Probed(Timestamp),
}

impl BenchState {
    /// Returns true if one more request may use the credential.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Healthy | Self::Due(_))
    }

    /// Returns the end of the pause; `None` without one.
    pub const fn pause_end(self) -> Option<Timestamp> {
        match self {
            Self::Healthy => None,
            Self::Benched(until) | Self::Due(until) | Self::Probed(until) => Some(until),
        }
    }
}

#[derive(Debug, Default)]
pub struct Bench {
    benched: Option<Benched>,
    probes: u64,
    /// Notified when a probe ends, cancellation included.
    probe_ended: Option<Arc<Notify>>,
}

#[derive(Debug)]
struct Benched {
    until: Timestamp,
    /// The first rejection since the last success.
    since: Timestamp,
    pause: Duration,
    probe: Option<u64>,
    message: String,
}

pub type SharedBench = Arc<Mutex<Bench>>;

/// The request that probes a benched credential. Dropped without a result, it leaves the probe to
/// the next request.
#[derive(Debug)]
pub struct Probe {
    bench: SharedBench,
    number: u64,
}

/// Permission to use a credential.
#[derive(Debug)]
pub enum Permit {
    /// For a credential without rejections.
    Plain,
    Probe(Probe),
}

/// Returns the pause after `pause`; the first pause for `None`.
pub fn longer(pause: Option<Duration>) -> Duration {
    pause.map_or(PAUSE_MIN, |pause| (pause * 2).min(PAUSE_MAX))
}

impl Bench {
    pub fn notifying(probe_ended: Arc<Notify>) -> SharedBench {
        Arc::new(Mutex::new(Self { probe_ended: Some(probe_ended), ..Self::default() }))
    }

    pub fn bench_state(&self, now: Timestamp) -> BenchState {
        match &self.benched {
            None => BenchState::Healthy,
            Some(benched) if benched.probe.is_some() => BenchState::Probed(benched.until),
            Some(benched) if benched.until <= now => BenchState::Due(benched.until),
            Some(benched) => BenchState::Benched(benched.until),
        }
    }

    /// The upstream's words at the rejection.
    pub fn message(&self) -> Option<&str> {
        self.benched.as_ref().map(|benched| benched.message.as_str())
    }

    /// Time of the first rejection since the last success; `None` for a credential that works.
    pub fn since(&self) -> Option<Timestamp> {
        self.benched.as_ref().map(|benched| benched.since)
    }

    pub fn health(&self, now: Timestamp) -> (HealthState, Option<String>) {
        let pause_end = self.bench_state(now).pause_end();
        let state = pause_end.map_or(HealthState::Healthy, |until| HealthState::Benched { until });
        (state, self.message().map(str::to_owned))
    }

    /// Records a rejection. Requests that were under way at the first rejection add nothing.
    pub fn refused(&mut self, now: Timestamp, permit: &Permit, message: &str) {
        let pause = match (&self.benched, permit) {
            (None, _) => longer(None),
            (Some(benched), Permit::Probe(probe)) if benched.probe == Some(probe.number) => {
                longer(Some(benched.pause))
            }
            (Some(_), _) => return,
        };
        let since = self.since().unwrap_or(now);
        let (until, message) = (now + pause, message.to_owned());
        self.benched = Some(Benched { until, since, pause, probe: None, message });
    }

    /// Records success. Only the probe's success counts: another answer may be older than the
    /// rejection.
    pub fn accepted(&mut self, permit: &Permit) {
        if let (Some(benched), Permit::Probe(probe)) = (&self.benched, permit)
            && benched.probe == Some(probe.number)
        {
            self.benched = None;
        }
    }
}

/// Permits one request to use the credential; `None` while it is benched or probed.
pub fn take(bench: &SharedBench, now: Timestamp) -> Option<Permit> {
    let mut state = bench.lock();
    match state.bench_state(now) {
        BenchState::Healthy => Some(Permit::Plain),
        BenchState::Due(_) => {
            state.probes += 1;
            let number = state.probes;
            if let Some(benched) = &mut state.benched {
                benched.probe = Some(number);
            }
            Some(Permit::Probe(Probe { bench: Arc::clone(bench), number }))
        }
        BenchState::Benched(_) | BenchState::Probed(_) => None,
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let mut bench = self.bench.lock();
        if let Some(benched) = &mut bench.benched
            && benched.probe == Some(self.number)
        {
            benched.probe = None;
        }
        if let Some(probe_ended) = &bench.probe_ended {
            probe_ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn refuse(bench: &SharedBench, now: Timestamp, permit: &Permit) {
        bench.lock().refused(now, permit, "401");
    }

    #[test]
    fn a_rejection_lasts_from_the_first_to_the_next_success() {
        let bench = SharedBench::default();
        let later = START + PAUSE_MIN;
        refuse(&bench, START, &Permit::Plain);
        let probe = take(&bench, later).expect("its pause is over");
        refuse(&bench, later, &probe);
        assert_eq!(bench.lock().since(), Some(START));
        let probe = take(&bench, later + PAUSE_MAX).expect("its pause is over");
        bench.lock().accepted(&probe);
        assert_eq!(bench.lock().since(), None);
    }

    #[test]
    fn a_benched_credential_is_probed_by_one_request() {
        let bench = SharedBench::default();
        refuse(&bench, START, &Permit::Plain);
        assert!(take(&bench, START + PAUSE_MIN - Duration::from_millis(1)).is_none());
        let due = START + PAUSE_MIN;
        let probe = take(&bench, due).expect("its pause is over");
        assert!(
            take(&bench, due).is_none() && take(&bench, due + PAUSE_MAX).is_none(),
            "the others keep away until its answer"
        );
        bench.lock().accepted(&probe);
        assert_eq!(bench.lock().bench_state(due), BenchState::Healthy);
    }

    #[test]
    fn each_further_refusal_doubles_the_pause_up_to_an_hour() {
        let bench = SharedBench::default();
        refuse(&bench, START, &Permit::Plain);
        let mut now = START;
        for minutes in [5, 10, 20, 40, 60, 60] {
            let pause = Duration::from_mins(minutes);
            assert_eq!(bench.lock().bench_state(now), BenchState::Benched(now + pause));
            now = now + pause;
            let probe = take(&bench, now).expect("due");
            refuse(&bench, now, &probe);
        }
    }

    #[test]
    fn concurrent_refusals_count_once() {
        let bench = SharedBench::default();
        for _ in 0..100 {
            refuse(&bench, START, &Permit::Plain);
        }
        assert_eq!(bench.lock().bench_state(START), BenchState::Benched(START + PAUSE_MIN));
    }

    #[test]
    fn a_dropped_probe_leaves_the_probe_to_the_next_request() {
        let bench = SharedBench::default();
        refuse(&bench, START, &Permit::Plain);
        let due = START + PAUSE_MIN;
        drop(take(&bench, due).expect("due"));
        assert!(take(&bench, due).is_some());
    }

    #[test]
    fn an_earlier_success_does_not_end_the_pause() {
        let bench = SharedBench::default();
        let early = take(&bench, START).expect("healthy");
        refuse(&bench, START, &Permit::Plain);
        bench.lock().accepted(&early);
        assert!(!bench.lock().bench_state(START).is_open());
    }
}
