//! Figures of the process, under the names that Prometheus' client libraries use, of its build, and
//! of its config (SPECIFICATION, "Metrics"). Those of the system are read for each scrape. One that
//! the system does not say is absent.

use std::fs;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::{Count, Metrics, counts, single};
use crate::clock::{Clock, Timestamp};
use crate::telemetry::labels::ResultLabels;
use crate::telemetry::names::{Metric, ProcessMetric, SemanticMetric};
use crate::telemetry::otlp::{Signal, counts as otlp};
use crate::telemetry::registry::{Gauge, Kind, LabelText, Named, Point, Registry, Sample, Value};
use crate::telemetry::writer::lines_dropped;

/// The commit of the sources; absent in a build for development, and in one without a repository.
pub const BUILD_COMMIT: Option<&str> = option_env!("WEIR_BUILD_COMMIT");

/// See the module.
pub(super) struct ProcessFigures {
    reloads: Count<ResultLabels>,
    is_latest_applied: Gauge,
    config_time: Gauge,
}

impl ProcessFigures {
    /// Takes this moment for the start of the process, and for the time of its config.
    pub fn registered(registry: &mut Registry) -> Self {
        let now = Clock::system().now();
        registry.of_kind(Metric::BuildInfo, Kind::Info, || {
            let labels = [("version", env!("CARGO_PKG_VERSION")), ("commit", commit())];
            let labels = labels.map(|(name, value)| (name, LabelText::Word(value))).to_vec();
            vec![Point { labels, value: Value::Whole(1) }]
        });
        let figures = Self {
            reloads: counts(registry, Metric::ConfigReloadsTotal),
            is_latest_applied: single(registry, Metric::ConfigReloadSuccessful),
            config_time: single(registry, Metric::ConfigTimestampSeconds),
        };
        figures.is_latest_applied.set(1);
        figures.config_time.set(now.as_secs());
        registry.several(move || of_system(now));
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

/// The figures that the system has, and those of the whole process.
fn of_system(started_at: Timestamp) -> Vec<Sample> {
    let started_at = started_at.as_millis();
    #[expect(clippy::cast_precision_loss, reason = "exact for thousands of years")]
    let started_at = Value::Float(started_at as f64 / 1e3);
    let cpu = Value::Float(cpu_seconds());
    let (size, resident) = memory_bytes().unzip();
    let (size, resident) = (size.map(Value::Whole), resident.map(Value::Whole));
    let open = open_descriptors().map(Value::Whole);
    let most = getrlimit(Resource::Nofile).current.map(Value::Whole);
    let (counter, gauge) = (Kind::Counter, Kind::Gauge);
    let dropped = Value::Whole(lines_dropped());
    vec![
        sample(Metric::LogLinesDroppedTotal, counter, Some(dropped)),
        otlp_dropped(),
        otlp_exports(),
        sample(ProcessMetric::StartTimeSeconds, gauge, Some(started_at)),
        sample(ProcessMetric::CpuSecondsTotal, counter, Some(cpu.clone())),
        sample(ProcessMetric::VirtualMemoryBytes, gauge, size.clone()),
        sample(ProcessMetric::ResidentMemoryBytes, gauge, resident.clone()),
        sample(ProcessMetric::OpenFds, gauge, open.clone()),
        sample(ProcessMetric::MaxFds, gauge, most),
        sample(SemanticMetric::ProcessCpuTime, counter, Some(cpu)),
        sample(SemanticMetric::ProcessMemoryVirtual, gauge, size),
        sample(SemanticMetric::ProcessMemoryUsage, gauge, resident),
        sample(SemanticMetric::ProcessFileDescriptors, gauge, open),
    ]
}

/// Metrics have no queue, so that none is dropped.
fn otlp_dropped() -> Sample {
    let point = |signal: Signal| Point {
        labels: vec![("signal", LabelText::Word(signal.name()))],
        value: Value::Whole(otlp::dropped(signal)),
    };
    let points = [Signal::Traces, Signal::Logs].map(point).to_vec();
    Sample { described: Metric::OtlpDroppedTotal.description(), kind: Kind::Counter, points }
}

fn otlp_exports() -> Sample {
    let point = |signal: Signal, (result, count): (&'static str, u64)| {
        let labels = [("signal", signal.name()), ("result", result)];
        let labels = labels.map(|(name, word)| (name, LabelText::Word(word))).to_vec();
        Point { labels, value: Value::Whole(count) }
    };
    let points = Signal::ALL
        .into_iter()
        .flat_map(|signal| otlp::exports(signal).map(|result| point(signal, result)));
    let described = Metric::OtlpExportsTotal.description();
    Sample { described, kind: Kind::Counter, points: points.collect() }
}

/// A metric without labels; a figure that the system does not say has no point.
fn sample(metric: impl Named, kind: Kind, value: Option<Value>) -> Sample {
    let points = value.into_iter().map(|value| Point { labels: Vec::new(), value }).collect();
    Sample { described: metric.description(), kind, points }
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
