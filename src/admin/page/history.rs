//! The budgets of the last hour, for the curves of the page and for forecasts.
//!
//! A sample every half minute of each window that the upstream has reported. In memory at most
//! [`SERIES_MAX`] windows at 240 bytes, some 3 MiB. A window that was full for the whole hour has
//! no place, so that idle accounts cost nothing.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;

use crate::admin::budgets::accounts_of;
use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::{AccountId, AccountSnapshot, WindowSnapshot};
use crate::gateway::Current;

/// Distance of samples. Our choice: an hour is then some pixels each.
const EVERY: Duration = Duration::from_secs(30);
/// Samples of an hour.
const SAMPLES: usize = 120;
/// Most windows with a curve; others wait for a place.
const SERIES_MAX: usize = 10_000;
/// A window that is full; smaller numbers are its parts.
const FULL: u16 = 10_000;
/// No sample: the window was unknown, or the gateway did not run.
const NONE: u16 = u16::MAX;
/// Samples that a forecast looks back at most and at least: five minutes, and one.
const LOOK_BACK: usize = 10;
const LOOK_BACK_MIN: usize = 2;

/// The samples of all windows.
#[derive(Default)]
pub struct History(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    series: HashMap<(AccountId, ResourceName), Series>,
    /// Place of the next sample in every series.
    next: usize,
}

/// A ring of samples.
type Series = Box<[u16; SAMPLES]>;

/// The curve of a window: parts from 0 to 1, the oldest first; `None` without a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve(pub Vec<Option<f64>>);

/// Takes samples for as long as the gateway lives.
pub async fn keep_sampling(current: Weak<Current>, history: Weak<History>) {
    loop {
        let Some(gateway) = current.upgrade().map(|current| current.gateway()) else { return };
        let Some(kept) = history.upgrade() else { return };
        // A snapshot of thousands of accounts takes milliseconds.
        let sampled = {
            let gateway = gateway.clone();
            tokio::task::spawn_blocking(move || kept.sample(&accounts_of(&gateway).1)).await
        };
        let clock = gateway.env.clock.clone();
        drop(gateway);
        if sampled.is_err() {
            return;
        }
        clock.reach(clock.now() + EVERY).await;
    }
}

impl History {
    /// Adds one sample of each known window.
    pub fn sample(&self, accounts: &[AccountSnapshot]) {
        let Samples { series, next } = &mut *self.0.lock();
        for ring in series.values_mut() {
            ring[*next] = NONE;
        }
        for account in accounts {
            for window in account.windows.iter().filter(|window| window.known) {
                let part = part_of(window);
                let key = (account.account, window.resource.clone());
                if let Some(ring) = series.get_mut(&key) {
                    ring[*next] = part;
                } else if part < FULL && series.len() < SERIES_MAX {
                    let mut ring = Box::new([NONE; SAMPLES]);
                    ring[*next] = part;
                    series.insert(key, ring);
                }
            }
        }
        series.retain(|_, ring| ring.iter().any(|part| *part < FULL));
        *next = (*next + 1) % SAMPLES;
    }

    /// Returns the curve of a window; empty without samples.
    pub fn curve(&self, account: AccountId, resource: &ResourceName) -> Curve {
        let Samples { series, next } = &*self.0.lock();
        let Some(ring) = series.get(&(account, resource.clone())) else { return Curve::default() };
        let (newer, older) = ring.split_at(*next);
        let parts = older.iter().chain(newer);
        let of_full = |part: u16| f64::from(part) / f64::from(FULL);
        Curve(parts.map(|part| (*part != NONE).then(|| of_full(*part))).collect())
    }
}

fn part_of(window: &WindowSnapshot) -> u16 {
    let limit = u64::from(window.limit.max(1));
    let parts = u64::from(window.remaining) * u64::from(FULL) / limit;
    u16::try_from(parts.min(u64::from(FULL))).unwrap_or(FULL)
}

impl Curve {
    /// The time until a budget is empty at the pace of the last minutes; `None` if it is not being
    /// spent. A reset in that time shortens the look back.
    pub fn empty_in(&self) -> Option<Duration> {
        let recent: Vec<f64> =
            self.0.iter().rev().map_while(|part| *part).take(LOOK_BACK).collect();
        let falling = recent.windows(2).take_while(|pair| pair[1] >= pair[0]).count();
        if falling < LOOK_BACK_MIN {
            return None;
        }
        let (now, before) = (*recent.first()?, *recent.get(falling)?);
        let spent = before - now;
        let steps = u32::try_from(falling).unwrap_or(u32::MAX);
        (spent > 0.0).then(|| (EVERY * steps).mul_f64((now / spent).min(1e4)))
    }
}

/// Times of the window for the page.
pub fn is_empty_before_reset(curve: &Curve, reset: Timestamp, now: Timestamp) -> Option<Duration> {
    curve.empty_in().filter(|left| now + *left < reset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: ResourceName = ResourceName::core();

    fn account(number: u32, remaining: u32, known: bool) -> AccountSnapshot {
        let window = WindowSnapshot {
            resource: CORE,
            limit: 5_000,
            remaining,
            reserved: 0,
            used: 5_000 - remaining,
            reset: Timestamp::from_secs(1_800_000_000),
            known,
            gone_at: None,
        };
        AccountSnapshot {
            account: AccountId(number),
            name: "a".into(),
            cooldown_until: None,
            windows: vec![window],
            secondary: Vec::new(),
            parts: std::collections::BTreeMap::default(),
        }
    }

    #[test]
    fn a_curve_has_the_last_hour_in_its_order() {
        let history = History::default();
        for remaining in (0..150).map(|sample| 5_000 - 10 * sample) {
            history.sample(&[account(0, remaining, true)]);
        }
        let Curve(parts) = history.curve(AccountId(0), &CORE);
        assert_eq!(parts.len(), SAMPLES);
        assert_eq!((parts[0], parts[SAMPLES - 1]), (Some(0.94), Some(0.702)));
    }

    #[test]
    fn an_idle_window_takes_no_memory() {
        let history = History::default();
        history.sample(&[account(0, 5_000, true), account(1, 4_000, false)]);
        assert!(history.0.lock().series.is_empty());
        history.sample(&[account(0, 4_999, true)]);
        assert_eq!(history.0.lock().series.len(), 1);
        for _ in 0..SAMPLES {
            history.sample(&[account(0, 5_000, true)]);
        }
        assert!(history.0.lock().series.is_empty());
    }

    #[test]
    fn windows_beyond_the_bound_have_no_curve() {
        let history = History::default();
        let accounts: Vec<_> = (0..12_000).map(|number| account(number, 1_000, true)).collect();
        history.sample(&accounts);
        assert_eq!(history.0.lock().series.len(), SERIES_MAX);
        assert_eq!(history.curve(AccountId(11_999), &CORE), Curve::default());
    }

    #[test]
    fn a_forecast_follows_the_last_minutes_since_the_reset() {
        let curve = |parts: &[f64]| Curve(parts.iter().copied().map(Some).collect());
        assert_eq!(curve(&[0.5, 0.4, 0.3]).empty_in(), Some(Duration::from_secs(90)));
        let after_reset = curve(&[0.2, 0.1, 1.0, 0.95, 0.9]).empty_in().unwrap();
        assert!((after_reset.as_secs_f64() - 540.0).abs() < 1.0, "{after_reset:?}");
        for idle in [&[][..], &[0.5], &[0.5, 0.4], &[0.5, 0.5, 0.5], &[0.1, 1.0]] {
            assert_eq!(curve(idle).empty_in(), None, "{idle:?}");
        }
    }
}
