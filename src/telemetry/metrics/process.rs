//! Figures of the process, under the names that Prometheus' client libraries use, of its build, and
//! of its config (SPECIFICATION, "Metrics"). Those of the system are read for each scrape. One that
//! the system does not say is absent.

use std::fmt;
use std::fs;
use std::sync::atomic::AtomicU64;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::{Count, Metrics, counts, single};
use crate::clock::{Clock, Timestamp};
use crate::telemetry::labels::ResultLabels;
use crate::telemetry::names::{Metric, ProcessMetric};
use crate::telemetry::writer::lines_dropped;

/// The commit of the sources; absent in a build for development, and in one without a repository.
pub const BUILD_COMMIT: Option<&str> = option_env!("WEIR_BUILD_COMMIT");

/// See the module.
pub(super) struct ProcessFigures {
    reloads: Count<ResultLabels>,
    is_latest_applied: Gauge<u64, AtomicU64>,
    config_time: Gauge<u64, AtomicU64>,
}

/// The figures of the process that the system has, from this moment on.
#[derive(Debug)]
struct OfSystem {
    started_at: Timestamp,
}

impl ProcessFigures {
    /// Takes this moment for the start of the process, and for the time of its config.
    pub fn registered(registry: &mut Registry) -> Self {
        let now = Clock::system().now();
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("commit", commit())];
        let name = Metric::BuildInfo;
        registry.register(name.registered_name(), name.help(), Info::new(labels.to_vec()));
        let figures = Self {
            reloads: counts(registry, Metric::ConfigReloadsTotal),
            is_latest_applied: single(registry, Metric::ConfigReloadSuccessful),
            config_time: single(registry, Metric::ConfigTimestampSeconds),
        };
        figures.is_latest_applied.set(1);
        figures.config_time.set(now.as_secs());
        registry.register_collector(Box::new(OfSystem { started_at: now }));
        figures
    }
}

fn commit() -> &'static str {
    BUILD_COMMIT.unwrap_or_default()
}

impl Metrics {
    /// Counts a reload of the config at this time; a refused one leaves the old config in force.
    pub fn reloaded(&self, is_applied: bool, now: Timestamp) {
        let figures = &self.counts.process;
        let result = if is_applied { "applied" } else { "refused" };
        figures.reloads.of(&ResultLabels { result }).inc();
        figures.is_latest_applied.set(u64::from(is_applied));
        if is_applied {
            figures.config_time.set(now.as_secs());
        }
    }
}

impl Collector for OfSystem {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let encoder = &mut encoder;
        let dropped = Metric::LogLinesDroppedTotal;
        let lines = ConstCounter::new(lines_dropped());
        put(encoder, dropped.registered_name(), dropped.help(), &lines)?;
        let started_at = self.started_at.as_millis();
        #[expect(clippy::cast_precision_loss, reason = "exact for thousands of years")]
        let started_at = started_at as f64 / 1e3;
        gauge(encoder, ProcessMetric::StartTimeSeconds, Some(started_at))?;
        let cpu = ProcessMetric::CpuSecondsTotal;
        put(encoder, cpu.registered_name(), cpu.help(), &ConstCounter::new(cpu_seconds()))?;
        let (size, resident) = memory_bytes().unzip();
        gauge(encoder, ProcessMetric::VirtualMemoryBytes, size)?;
        gauge(encoder, ProcessMetric::ResidentMemoryBytes, resident)?;
        gauge(encoder, ProcessMetric::OpenFds, open_descriptors())?;
        gauge(encoder, ProcessMetric::MaxFds, getrlimit(Resource::Nofile).current)
    }
}

/// A value of a gauge. Whole numbers are shown as such.
trait Value: fmt::Debug + Copy {
    fn metric(self) -> impl EncodeMetric;
}

impl Value for u64 {
    fn metric(self) -> impl EncodeMetric {
        ConstGauge::new(self)
    }
}

impl Value for f64 {
    fn metric(self) -> impl EncodeMetric {
        ConstGauge::new(self)
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    metric: ProcessMetric,
    value: Option<impl Value>,
) -> Result<(), fmt::Error> {
    value.map_or(Ok(()), |value| {
        put(encoder, metric.registered_name(), metric.help(), &value.metric())
    })
}

fn put(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// CPU time of all threads.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "exact for millions of years")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

/// The virtual and the resident memory (proc(5), `statm`).
fn memory_bytes() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').map_while(|pages| pages.parse::<u64>().ok());
    let page = u64::try_from(page_size()).ok()?;
    Some((pages.next()?.saturating_mul(page), pages.next()?.saturating_mul(page)))
}

/// The number of open descriptors. Linux 6.2 and later count them; else each is looked at.
fn open_descriptors() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    let counted = fs::metadata(FOLDER).ok()?.len();
    if counted > 0 {
        return Some(counted);
    }
    u64::try_from(fs::read_dir(FOLDER).ok()?.count()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_process_are_those_of_the_system() {
        let before = open_descriptors().unwrap();
        let _file = fs::File::open("/proc/self/statm").unwrap();
        // Other tests open and close files, too.
        assert!(before > 0 && open_descriptors().is_some());
        let (size, resident) = memory_bytes().unwrap();
        assert!(size > resident && resident > 1024 * 1024, "{size} {resident}");
        let used = cpu_seconds();
        while cpu_seconds() <= used {}
    }

    #[test]
    fn a_refused_reload_keeps_the_time_of_the_config() {
        let metrics = Metrics::new();
        let lines = |metrics: &Metrics| {
            let text = metrics.encode();
            let shown = text.lines().filter(|line| line.starts_with("weir_config_"));
            shown.map(str::to_owned).collect::<Vec<_>>()
        };
        metrics.reloaded(true, Timestamp::from_secs(1_700_000_000));
        metrics.reloaded(false, Timestamp::from_secs(1_800_000_000));
        let expected = [
            "weir_config_reload_successful 0",
            "weir_config_reloads_total{result=\"applied\"} 1",
            "weir_config_reloads_total{result=\"refused\"} 1",
            "weir_config_timestamp_seconds 1700000000",
        ];
        let mut shown = lines(&metrics);
        shown.sort();
        assert_eq!(shown, expected);
    }
}
