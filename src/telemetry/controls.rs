//! Controls of the process's telemetry while it runs: the level of the log, and the part of the
//! requests that is traced.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use thiserror::Error;

use super::init::{LogLevel, UnknownLevel};
use super::sampler::RequestSampler;

/// Those of the process, whose subscriber is one as well.
static OF_PROCESS: OnceLock<Controls> = OnceLock::new();

/// See the module.
#[derive(Debug)]
pub struct Controls {
    level: LevelControl,
    sampler: Option<RequestSampler>,
    at_start: Values,
}

/// The values of both controls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    /// Least severe level of the gateway's own log lines.
    pub level: LogLevel,
    /// Part of the requests that is traced, 0 to 1; `None`: traces have no destination.
    pub ratio: Option<f64>,
}

/// A change that cannot be made.
#[derive(Debug, Error)]
pub enum Unchangeable {
    /// It is no level.
    #[error("log_level: {0}")]
    Level(#[from] UnknownLevel),
    /// It is no part.
    #[error("sample_ratio is {0}: accepted is a number from 0 to 1")]
    Ratio(f64),
    /// Traces have no destination.
    #[error("traces have no destination: set telemetry.otlp_endpoint, and start again")]
    NoTraces,
}

impl Controls {
    pub(super) fn new(level: LevelControl, sampler: Option<RequestSampler>) -> Self {
        let ratio = sampler.as_ref().map(|sampler| sampler.ratio().get());
        let at_start = Values { level: level.get(), ratio };
        Self { level, sampler, at_start }
    }

    /// Returns those of this process; `None` before telemetry has started.
    pub fn of_process() -> Option<&'static Self> {
        OF_PROCESS.get()
    }

    pub(super) fn become_those_of_process(self) {
        // Telemetry starts once in a process.
        let _ = OF_PROCESS.set(self);
    }

    /// Returns the choice of the requests that are traced, if traces have a destination.
    pub(super) fn sampler(&self) -> Option<&RequestSampler> {
        self.sampler.as_ref()
    }

    /// Returns the values at the start of the process.
    pub fn at_start(&self) -> Values {
        self.at_start
    }

    /// Returns the values in force.
    pub fn now(&self) -> Values {
        let ratio = self.sampler.as_ref().map(|sampler| sampler.ratio().get());
        Values { level: self.level.get(), ratio }
    }

    /// Changes what is given, or nothing.
    ///
    /// # Errors
    /// An unknown level, a part outside of 0 to 1, or traces without a destination.
    pub fn change(&self, level: Option<&str>, ratio: Option<f64>) -> Result<(), Unchangeable> {
        let level = level.map(LogLevel::parse).transpose()?;
        if let Some(ratio) = ratio {
            if !(0.0..=1.0).contains(&ratio) {
                return Err(Unchangeable::Ratio(ratio));
            }
            self.sampler.as_ref().ok_or(Unchangeable::NoTraces)?.ratio().set(ratio);
        }
        if let Some(level) = level {
            self.level.set(level);
        }
        Ok(())
    }
}

/// The level in force. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LevelControl(Arc<AtomicU8>);

impl LevelControl {
    pub(super) fn new(level: LogLevel) -> Self {
        Self(Arc::new(AtomicU8::new(level.number())))
    }

    pub(super) fn get(&self) -> LogLevel {
        LogLevel::of_number(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, level: LogLevel) {
        self.0.store(level.number(), Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }
}
