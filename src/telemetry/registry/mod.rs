//! The families of metrics, and what they say at one moment. The text of `/metrics` and the export
//! by OTLP are made from the same [`Snapshot`].
//!
//! A family counts by itself; the registry only reads it. A reading copies the handles of a family
//! under its lock and reads the values afterwards, so that no request waits for it. Left out: the
//! bound on label sets (`series`).

mod histogram;
mod text;
mod values;

use std::fmt;
use std::sync::Arc;

pub(super) use histogram::{Buckets, Exemplar, Exponential, Histogram, Layout, SCALE};
pub use text::TextFormat;
pub(super) use values::{Counter, Gauge};

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sum that only grows.
    Counter,
    /// A present value.
    Gauge,
    /// Observations by size.
    Histogram,
    /// Facts in labels; the value is always 1.
    Info,
}

/// The name and the meaning of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Description {
    /// Full name, with its suffix.
    pub name: &'static str,
    /// Without a full stop.
    pub help: &'static str,
    /// True for a name of OpenTelemetry, which is in the export by OTLP alone.
    pub is_semantic: bool,
}

/// The name of a metric.
pub(super) trait Named: Copy {
    /// Returns the name and the meaning.
    fn description(self) -> Description;
}

/// The text of a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LabelText {
    /// A word of a closed set.
    Word(&'static str),
    /// A name.
    Name(Arc<str>),
    /// A number, such as a status.
    Number(u32),
}

/// The labels of a point.
pub(super) type Labels = Vec<(&'static str, LabelText)>;

/// A value at one moment.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A whole number.
    Whole(u64),
    /// A whole number with a sign.
    Signed(i64),
    /// Any number.
    Float(f64),
    /// Observations.
    Buckets(Buckets),
}

/// One label set with its value.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Empty without labels.
    pub labels: Labels,
    /// Its value.
    pub value: Value,
}

/// A metric with its values.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Its name and meaning.
    pub described: Description,
    /// Its kind.
    pub kind: Kind,
    /// One point for each label set.
    pub points: Vec<Point>,
}

/// A metric that says its value.
pub(super) trait Measured: Clone + Send + Sync + 'static {
    /// Its kind.
    const KIND: Kind;

    /// Returns the present value.
    fn value(&self) -> Value;
}

/// All metrics at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) samples: Vec<Sample>,
}

type Read = Box<dyn Fn() -> Vec<Sample> + Send + Sync>;

/// All families.
#[derive(Default)]
pub(super) struct Registry {
    reads: Vec<Read>,
}

impl Registry {
    /// Adds a metric without labels.
    pub fn single(&mut self, metric: impl Named, value: impl Measured) {
        self.family(metric, &value.clone(), move || {
            vec![Point { labels: Labels::new(), value: value.value() }]
        });
    }

    /// Adds a family of metrics of the kind of `M`, by a function that reads it.
    pub fn family<M: Measured>(
        &mut self,
        metric: impl Named,
        _: &M,
        points: impl Fn() -> Vec<Point> + Send + Sync + 'static,
    ) {
        self.of_kind(metric, M::KIND, points);
    }

    /// Adds a family by a function that reads it.
    pub fn of_kind(
        &mut self,
        metric: impl Named,
        kind: Kind,
        points: impl Fn() -> Vec<Point> + Send + Sync + 'static,
    ) {
        let described = metric.description();
        self.several(move || vec![Sample { described, kind, points: points() }]);
    }

    /// Adds several families by a function that reads them at once.
    pub fn several(&mut self, read: impl Fn() -> Vec<Sample> + Send + Sync + 'static) {
        self.reads.push(Box::new(read));
    }

    /// Reads all families. One without a label set is left out.
    pub fn snapshot(&self) -> Snapshot {
        let samples = self.reads.iter().flat_map(|read| read());
        Snapshot { samples: samples.filter(|sample| !sample.points.is_empty()).collect() }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("families", &self.reads.len()).finish()
    }
}

impl fmt::Display for LabelText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Snapshot {
    /// Formats the text of `/metrics`.
    pub fn text(&self, format: TextFormat) -> String {
        text::encode(&self.samples, format)
    }
}
