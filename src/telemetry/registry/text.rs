//! The text of `/metrics`: `OpenMetrics`, or the older text format of Prometheus.

use std::fmt::Write as _;

use super::{Buckets, Exemplar, Kind, LabelText, Labels, Sample, Value};

/// A format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// `OpenMetrics` 1.0, with exemplars.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which has none.
    Plain,
}

impl TextFormat {
    /// Returns the media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Chooses by the header `Accept`: plain text where it is wanted more than `OpenMetrics`,
    /// which is the default.
    pub fn accepted(accept: Option<&str>) -> Self {
        let Some(accept) = accept else { return Self::OpenMetrics };
        let weight = |name: &str, group: &str| {
            let ranges = accept.split(',').map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let media = parts.next().unwrap_or_default();
                let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
                (media, quality.unwrap_or(1.0))
            });
            let specific = |media: &str| {
                [name, group, "*/*"].iter().position(|known| media.eq_ignore_ascii_case(known))
            };
            let found = ranges.filter_map(|(media, quality)| Some((specific(media)?, quality)));
            found.min_by_key(|(place, _)| *place).map_or(0.0, |(_, quality)| quality)
        };
        let plain = weight("text/plain", "text/*");
        if plain > weight("application/openmetrics-text", "application/*") {
            Self::Plain
        } else {
            Self::OpenMetrics
        }
    }
}

pub(super) fn encode(samples: &[Sample], format: TextFormat) -> String {
    let mut text = String::new();
    for sample in samples.iter().filter(|sample| !sample.described.is_semantic) {
        head(&mut text, sample, format);
        for point in &sample.points {
            let name = sample.described.name;
            match &point.value {
                Value::Buckets(buckets) => {
                    let histogram = HistogramText { name, labels: &point.labels, buckets, format };
                    histogram.write(&mut text);
                }
                Value::Whole(number) => line(&mut text, name, "", &point.labels, None, number),
                Value::Signed(number) => line(&mut text, name, "", &point.labels, None, number),
                Value::Float(number) => {
                    line(&mut text, name, "", &point.labels, None, &Shown(*number));
                }
            }
        }
    }
    if format == TextFormat::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn head(text: &mut String, sample: &Sample, format: TextFormat) {
    let name = sample.described.name;
    let (name, kind) = match (sample.kind, format) {
        (Kind::Counter, TextFormat::OpenMetrics) => (base(name, "_total"), "counter"),
        (Kind::Counter, TextFormat::Plain) => (name, "counter"),
        (Kind::Gauge, _) | (Kind::Info, TextFormat::Plain) => (name, "gauge"),
        (Kind::Histogram, _) => (name, "histogram"),
        (Kind::Info, TextFormat::OpenMetrics) => (base(name, "_info"), "info"),
    };
    // Writing to a string cannot fail, here and below.
    let _ = write!(text, "# HELP {name} {}.\n# TYPE {name} {kind}\n", sample.described.help);
}

fn base<'n>(name: &'n str, suffix: &str) -> &'n str {
    name.strip_suffix(suffix).unwrap_or(name)
}

/// One label set of a histogram.
struct HistogramText<'a> {
    name: &'a str,
    labels: &'a Labels,
    buckets: &'a Buckets,
    format: TextFormat,
}

impl HistogramText<'_> {
    fn write(&self, text: &mut String) {
        let Self { name, labels, buckets, .. } = *self;
        let mut sum = 0;
        for (place, (bound, count)) in buckets.explicit().into_iter().enumerate() {
            sum += count;
            let bound = Shown(bound).to_string();
            line(text, name, "_bucket", labels, Some(&bound), &sum);
            let exemplar = buckets.exemplars.get(place).and_then(Option::as_ref);
            if let Some(one) = exemplar.filter(|_| self.format == TextFormat::OpenMetrics) {
                text.pop();
                push_exemplar(text, one);
            }
        }
        line(text, name, "_sum", labels, None, &Shown(buckets.sum));
        line(text, name, "_count", labels, None, &sum);
    }
}

fn push_exemplar(text: &mut String, exemplar: &Exemplar) {
    let Exemplar { ids, value, micros } = exemplar;
    let (trace_id, seconds, micros) = (ids.trace_id(), micros / 1_000_000, micros % 1_000_000);
    let _ =
        writeln!(text, " # {{trace_id=\"{trace_id}\"}} {} {seconds}.{micros:06}", Shown(*value));
}

fn line(
    text: &mut String,
    name: &str,
    suffix: &str,
    labels: &Labels,
    bound: Option<&str>,
    value: &impl std::fmt::Display,
) {
    text.push_str(name);
    text.push_str(suffix);
    let mut open = '{';
    if let Some(bound) = bound {
        let _ = write!(text, "{{le=\"{bound}\"");
        open = ',';
    }
    for (name, label) in labels {
        text.push(open);
        text.push_str(name);
        text.push_str("=\"");
        push_label(text, label);
        text.push('"');
        open = ',';
    }
    if open == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

fn push_label(text: &mut String, label: &LabelText) {
    let (LabelText::Word(_) | LabelText::Name(_)) = label else {
        let _ = write!(text, "{label}");
        return;
    };
    let value = match label {
        LabelText::Word(word) => word,
        LabelText::Name(name) => &**name,
        LabelText::Number(_) => "",
    };
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

/// A number with a fraction, as both formats write it.
struct Shown(f64);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == f64::INFINITY { f.write_str("+Inf") } else { write!(f, "{:?}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::super::{Counter, Description, Histogram, Layout, Named, Registry};
    use super::*;
    use crate::telemetry::trace_ids::TraceIds;

    static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout::new(&[0.5, 2.0]));

    #[derive(Clone, Copy)]
    struct Called(&'static str);

    impl Named for Called {
        fn description(self) -> Description {
            Description { name: self.0, help: "Help", is_semantic: false }
        }
    }

    fn text(format: TextFormat) -> String {
        let mut registry = Registry::default();
        let counter = Counter::default();
        counter.inc_by(3);
        registry.single(Called("weir_a_total"), counter);
        let histogram = Histogram::new(&LAYOUT);
        let ids = TraceIds { trace: [0xaf; 16], span: None, is_sampled: true };
        histogram.observe_traced(1.5, Some(&ids));
        registry.single(Called("weir_b_seconds"), histogram);
        registry.snapshot().text(format)
    }

    #[test]
    fn openmetrics_has_exemplars_and_an_end() {
        let text = text(TextFormat::OpenMetrics);
        assert!(text.starts_with(
            "# HELP weir_a Help.\n# TYPE weir_a counter\nweir_a_total 3\n# HELP weir_b_seconds Help.\n# TYPE weir_b_seconds histogram\nweir_b_seconds_bucket{le=\"0.5\"} 0\nweir_b_seconds_bucket{le=\"2.0\"} 1 # {trace_id=\"afafafafafafafafafafafafafafafaf\"} 1.5 "
        ), "{text}");
        assert!(text.ends_with("weir_b_seconds_bucket{le=\"+Inf\"} 1\nweir_b_seconds_sum 1.5\nweir_b_seconds_count 1\n# EOF\n"), "{text}");
    }

    #[test]
    fn plain_text_has_full_names_and_no_exemplars() {
        assert_eq!(
            text(TextFormat::Plain),
            "# HELP weir_a_total Help.\n# TYPE weir_a_total counter\nweir_a_total 3\n# HELP weir_b_seconds Help.\n# TYPE weir_b_seconds histogram\nweir_b_seconds_bucket{le=\"0.5\"} 0\nweir_b_seconds_bucket{le=\"2.0\"} 1\nweir_b_seconds_bucket{le=\"+Inf\"} 1\nweir_b_seconds_sum 1.5\nweir_b_seconds_count 1\n"
        );
    }

    #[test]
    fn the_format_follows_the_header_accept() {
        use TextFormat::{OpenMetrics, Plain};
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (None, OpenMetrics),
            (Some(prometheus), OpenMetrics),
            (Some("*/*"), OpenMetrics),
            (Some("text/plain"), Plain),
            (Some("text/plain;version=0.0.4;q=0.6, application/openmetrics-text;q=0.5"), Plain),
            (Some("text/html, application/xhtml+xml, */*;q=0.8"), OpenMetrics),
            (Some("text/*"), Plain),
        ] {
            assert_eq!(TextFormat::accepted(accept), format, "{accept:?}");
        }
    }
}
