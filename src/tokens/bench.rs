//! A credential that the upstream has refused: kept out of use for a while, then probe_ended by exactly
//! one request, longer each time it is refused again.
//!
//! Pure: time is an argument. Which answers count as a refusal is decided by the caller.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Timestamp;

/// How long a credential is kept out of use at first. Ours: a revoked token must not be probe_ended for
/// every request, a mended one should come back.
pub const PAUSE_MIN: Duration = Duration::from_secs(300);
/// The longest pause. Ours: one failed request an hour is nothing to the upstream, and an hour is
/// soon enough for what nobody is watching.
pub const PAUSE_MAX: Duration = Duration::from_secs(3_600);

/// Whether a credential may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchState {
    /// By everybody.
    Healthy,
    /// Not before this time.
    Benched(Timestamp),
    /// The pause is over: by one request.
    Due(Timestamp),
    /// One request is trying it.
    Probed(Timestamp),
}

/// What is known of one credential.
#[derive(Debug, Default)]
pub struct Bench {
    benched: Option<Benched>,
    probes: u64,
    /// Told when a trial has ended, however it has.
    probe_ended: Option<Arc<Notify>>,
}

#[derive(Debug)]
struct Benched {
    until: Timestamp,
    pause: Duration,
    /// The number of the probe that is under way.
    probe: Option<u64>,
    said: String,
}

/// A bench that requests share with the account that it is about.
pub type SharedBench = Arc<Mutex<Bench>>;

/// The one request that tries a benched credential. Dropped without a verdict it leaves the trial
/// to the next.
#[derive(Debug)]
pub struct Probe {
    bench: SharedBench,
    number: u64,
}

/// Permit to use a credential.
#[derive(Debug)]
pub enum Permit {
    /// Nothing is known against it.
    Plain,
    /// As its probe.
    Probe(Probe),
}

/// The pause after one that was too short; the first one when there was none.
pub fn longer(pause: Option<Duration>) -> Duration {
    pause.map_or(PAUSE_MIN, |pause| (pause * 2).min(PAUSE_MAX))
}

impl Bench {
    /// Nothing is known against it; `probe_ended` is told of the end of each trial.
    pub fn notifying(probe_ended: Arc<Notify>) -> SharedBench {
        Arc::new(Mutex::new(Self { probe_ended: Some(probe_ended), ..Self::default() }))
    }

    /// Whether it may be used now.
    pub fn bench_state(&self, now: Timestamp) -> BenchState {
        match &self.benched {
            None => BenchState::Healthy,
            Some(benched) if benched.probe.is_some() => BenchState::Probed(benched.until),
            Some(benched) if benched.until <= now => BenchState::Due(benched.until),
            Some(benched) => BenchState::Benched(benched.until),
        }
    }

    /// Whether one more request may use it now.
    pub fn is_open(&self, now: Timestamp) -> bool {
        matches!(self.bench_state(now), BenchState::Healthy | BenchState::Due(_))
    }

    /// What the upstream said when it refused it.
    pub fn said(&self) -> Option<&str> {
        self.benched.as_ref().map(|benched| benched.said.as_str())
    }

    /// The upstream has refused it. Who used it before the first refusal and hears of it later adds
    /// nothing.
    pub fn refused(&mut self, now: Timestamp, permit: &Permit, said: &str) {
        let pause = match (&self.benched, permit) {
            (None, _) => longer(None),
            (Some(benched), Permit::Probe(probe)) if benched.probe == Some(probe.number) => {
                longer(Some(benched.pause))
            }
            (Some(_), _) => return,
        };
        self.benched =
            Some(Benched { until: now + pause, pause, probe: None, said: said.to_owned() });
    }

    /// The upstream has accepted it. Only the probe's success heals: another answer may be older
    /// than the refusal.
    pub fn accepted(&mut self, permit: &Permit) {
        if let (Some(benched), Permit::Probe(probe)) = (&self.benched, permit)
            && benched.probe == Some(probe.number)
        {
            self.benched = None;
        }
    }
}

/// Permit to use the credential for one request; `None` while it is benched, or while another one is
/// trying it.
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
    fn a_refused_credential_rests_and_is_then_tried_by_exactly_one_request() {
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
    fn many_that_were_under_way_at_the_first_refusal_count_once() {
        let bench = SharedBench::default();
        for _ in 0..100 {
            refuse(&bench, START, &Permit::Plain);
        }
        assert_eq!(bench.lock().bench_state(START), BenchState::Benched(START + PAUSE_MIN));
    }

    #[test]
    fn a_probe_that_brings_no_verdict_leaves_the_trial_to_the_next() {
        let bench = SharedBench::default();
        refuse(&bench, START, &Permit::Plain);
        let due = START + PAUSE_MIN;
        drop(take(&bench, due).expect("due"));
        assert!(take(&bench, due).is_some());
    }

    #[test]
    fn an_old_success_does_not_heal() {
        let bench = SharedBench::default();
        let early = take(&bench, START).expect("healthy");
        refuse(&bench, START, &Permit::Plain);
        bench.lock().accepted(&early);
        assert!(!bench.lock().is_open(START));
    }
}
