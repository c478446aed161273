//! The state of the collectors, in the log: the first failure and the end of a failure are one line
//! each, however many exports fail between them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tracing::{info, warn};

use super::transport::ExportError;
use super::{Signal, counts};
use crate::clock::{Clock, Timestamp};
use crate::telemetry::outcome::LogText;

/// See the module. Only the exporting thread uses it.
#[derive(Default)]
pub(super) struct Health(RefCell<States>);

#[derive(Default)]
struct States {
    /// Collectors that do not answer, by address.
    away: BTreeMap<String, Away>,
    /// Signals that a collector does not take.
    refused: BTreeSet<Signal>,
}

struct Away {
    signals: BTreeSet<Signal>,
    since: Timestamp,
    /// Records dropped before it.
    dropped: u64,
}

impl Health {
    /// Notes a failed export.
    pub fn failed(&self, signal: Signal, collector: &str, error: &ExportError) {
        let mut states = self.0.borrow_mut();
        let text = LogText::error(&error.to_string());
        match error {
            ExportError::Away(_) => {
                let away = states.away.entry(collector.to_owned()).or_insert_with(|| Away {
                    signals: BTreeSet::new(),
                    since: Clock::system().now(),
                    dropped: dropped(),
                });
                let is_first = away.signals.is_empty();
                away.signals.insert(signal);
                drop(states);
                if is_first {
                    let (signal, error) = (signal.name(), text.as_str());
                    warn!(collector, signal, error, "the collector is away, the export goes on");
                }
            }
            ExportError::Refused(_) => {
                let is_first = states.refused.insert(signal);
                drop(states);
                self.reached(signal, collector);
                if is_first {
                    let (signal, error) = (signal.name(), text.as_str());
                    warn!(collector, signal, error, "the collector refuses an export");
                }
            }
        }
    }

    /// Notes an export that the collector took.
    pub fn succeeded(&self, signal: Signal, collector: &str) {
        self.reached(signal, collector);
        if self.0.borrow_mut().refused.remove(&signal) {
            info!(collector, signal = signal.name(), "the collector takes the export again");
        }
    }

    fn reached(&self, signal: Signal, collector: &str) {
        let mut states = self.0.borrow_mut();
        let Some(away) = states.away.get_mut(collector) else { return };
        away.signals.remove(&signal);
        if !away.signals.is_empty() {
            return;
        }
        let Some(Away { since, dropped: before, .. }) = states.away.remove(collector) else {
            return;
        };
        drop(states);
        let away_ms = u64::try_from(Clock::system().now().since(since).as_millis());
        let (away_ms, dropped) = (away_ms.unwrap_or(u64::MAX), dropped() - before);
        info!(collector, away_ms, dropped, "the collector is back");
    }
}

/// Records of all signals that were dropped.
fn dropped() -> u64 {
    Signal::ALL.into_iter().map(counts::dropped).sum()
}
