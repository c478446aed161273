//! `[limits]`: the upstream's secondary limits, per account. The defaults are the documented ones
//! (SPECIFICATION, "Secondary rate limits"); a self-hosted upstream may allow more.

use std::num::NonZeroU32;

use crate::config::input::reader::{Choice, Reader};
use crate::config::input::scalars::Ratio;
use crate::config::printer::{Printer, float, text};
pub use crate::decision::{Pace, SecondaryLimits};

/// Fraction of a budget that batch clients leave to others (SPECIFICATION, "Configuration").
const BATCH_FLOOR: f64 = 0.2;
/// Its default follows from the minute's.
const TEN_SECONDS: &str = "cpu_seconds_per_ten_seconds";

/// The section `[limits]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Secondary limits of each account, all above zero.
    pub secondary: SecondaryLimits,
    /// Spread of a budget over its window.
    pub pace: Pace,
    /// Fraction of a budget, 0 to 1, below which requests of priority `batch` stop.
    pub batch_floor: f64,
}

impl Choice for Pace {
    const ALL: &'static [(&'static str, Self)] = &[("burst", Self::Burst), ("even", Self::Even)];
}

impl Limits {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let mut secondary = SecondaryLimits::default();
        for (key, limit) in by_key(&mut secondary) {
            *limit = reader.optional::<NonZeroU32>(key).map_or(*limit, NonZeroU32::get);
        }
        let ten_seconds = reader.optional::<NonZeroU32>(TEN_SECONDS).map(NonZeroU32::get);
        if ten_seconds.is_some_and(|seconds| seconds > secondary.cpu_seconds_per_minute) {
            let problem = "more than limits.cpu_seconds_per_minute";
            let accepted = format!("1 to {}", secondary.cpu_seconds_per_minute);
            reader.refuse::<()>(TEN_SECONDS, problem, accepted);
        }
        secondary.cpu_seconds_per_ten_seconds = ten_seconds;
        Self {
            secondary,
            pace: reader.or("pace", Pace::Burst),
            batch_floor: reader.or("batch_floor", Ratio(BATCH_FLOOR)).0,
        }
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("limits");
        let mut secondary = self.secondary;
        for (key, limit) in by_key(&mut secondary) {
            printer.set(key, limit);
        }
        printer.set(TEN_SECONDS, secondary.cpu_burst_seconds());
        printer.set("pace", text(self.pace.name()));
        printer.set("batch_floor", float(self.batch_floor));
    }
}

fn by_key(limits: &mut SecondaryLimits) -> [(&'static str, &mut u32); 8] {
    [
        ("concurrency", &mut limits.concurrency),
        ("rest_points_per_minute", &mut limits.rest_points_per_minute),
        ("graphql_points_per_minute", &mut limits.graphql_points_per_minute),
        ("cpu_seconds_per_minute", &mut limits.cpu_seconds_per_minute),
        ("graphql_cpu_seconds_per_minute", &mut limits.graphql_cpu_seconds_per_minute),
        ("content_per_minute", &mut limits.content_per_minute),
        ("content_per_hour", &mut limits.content_per_hour),
        ("oauth_tokens_per_hour", &mut limits.oauth_tokens_per_hour),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{fixture, parse};

    fn text(limits: &str) -> String {
        fixture::text(&format!("[upstream]\nurl = \"https://api.test\"\n[limits]\n{limits}"))
    }

    #[test]
    fn the_cpu_time_of_ten_seconds_is_half_of_the_minutes() {
        for (keys, seconds) in [
            ("", 45),
            ("cpu_seconds_per_minute = 91", 46),
            ("cpu_seconds_per_minute = 1", 1),
            ("cpu_seconds_per_ten_seconds = 90", 90),
        ] {
            let config = fixture::parsed(&text(keys));
            assert_eq!(config.limits.secondary.cpu_burst_seconds(), seconds, "{keys}");
            let printed = format!("cpu_seconds_per_ten_seconds = {seconds}\n");
            assert!(config.redacted_toml().contains(&printed), "{keys}");
        }
    }

    #[test]
    fn ten_seconds_may_not_have_more_cpu_time_than_the_minute() {
        let text = text("cpu_seconds_per_ten_seconds = 91");
        let faults = parse(&text, "test", &|_| None, Path::new(".")).unwrap_err().to_string();
        let expected = "limits.cpu_seconds_per_ten_seconds: more than \
            limits.cpu_seconds_per_minute (accepted: 1 to 90)";
        assert!(faults.contains(expected), "{faults}");
    }
}
