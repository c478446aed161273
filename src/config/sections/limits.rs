//! `[limits]`: the upstream's secondary limits, per account. The defaults are the documented ones
//! (SPECIFICATION, "Secondary rate limits"); a self-hosted upstream may allow more.

use std::num::NonZeroU32;

use crate::config::input::reader::{Choice, Reader};
use crate::config::input::scalars::Ratio;
use crate::config::printer::{Printer, float, text};
pub use crate::decision::{Pace, SecondaryLimits};

/// Concurrent requests.
const CONCURRENCY: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// Points per minute and REST endpoint.
const REST_POINTS: NonZeroU32 = NonZeroU32::new(900).unwrap();
/// Points per minute of the GraphQL endpoint.
const GRAPHQL_POINTS: NonZeroU32 = NonZeroU32::new(2_000).unwrap();
/// Seconds of CPU time per minute.
const CPU_SECONDS: NonZeroU32 = NonZeroU32::new(90).unwrap();
/// Seconds of CPU time per minute for GraphQL.
const GRAPHQL_CPU_SECONDS: NonZeroU32 = NonZeroU32::new(60).unwrap();
/// Content-generating requests per minute.
const CONTENT_PER_MINUTE: NonZeroU32 = NonZeroU32::new(80).unwrap();
/// Content-generating requests per hour.
const CONTENT_PER_HOUR: NonZeroU32 = NonZeroU32::new(500).unwrap();
/// OAuth access token requests per hour.
const OAUTH_TOKENS_PER_HOUR: NonZeroU32 = NonZeroU32::new(2_000).unwrap();
/// Fraction of a budget that batch clients leave to others (SPECIFICATION, "Configuration").
const BATCH_FLOOR: f64 = 0.2;

/// The section `[limits]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Concurrent requests, REST and GraphQL together.
    pub concurrency: NonZeroU32,
    /// REST points per account, endpoint and minute.
    pub rest_points_per_minute: NonZeroU32,
    /// GraphQL points per account and minute.
    pub graphql_points_per_minute: NonZeroU32,
    /// Seconds of upstream CPU time per account and minute, REST and GraphQL together.
    pub cpu_seconds_per_minute: NonZeroU32,
    /// Seconds of upstream CPU time per account and minute for GraphQL.
    pub graphql_cpu_seconds_per_minute: NonZeroU32,
    /// Content-generating requests per account and minute.
    pub content_per_minute: NonZeroU32,
    /// Content-generating requests per account and hour.
    pub content_per_hour: NonZeroU32,
    /// OAuth token requests per hour.
    pub oauth_tokens_per_hour: NonZeroU32,
    /// Spread of a budget over its window.
    pub pace: Pace,
    /// Fraction of a budget, 0 to 1, below which requests of priority `batch` stop.
    pub batch_floor: f64,
}

impl Choice for Pace {
    const ALL: &'static [(&'static str, Self)] = &[("burst", Self::Burst), ("even", Self::Even)];
}

impl Limits {
    /// Returns the limits that the quota ledger enforces for each account.
    pub fn secondary(&self) -> SecondaryLimits {
        SecondaryLimits {
            concurrency: self.concurrency.get(),
            rest_points_per_minute: self.rest_points_per_minute.get(),
            graphql_points_per_minute: self.graphql_points_per_minute.get(),
            cpu_seconds_per_minute: self.cpu_seconds_per_minute.get(),
            graphql_cpu_seconds_per_minute: self.graphql_cpu_seconds_per_minute.get(),
            content_per_minute: self.content_per_minute.get(),
            content_per_hour: self.content_per_hour.get(),
            oauth_tokens_per_hour: self.oauth_tokens_per_hour.get(),
        }
    }

    pub(in crate::config) fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            concurrency: reader.or("concurrency", CONCURRENCY),
            rest_points_per_minute: reader.or("rest_points_per_minute", REST_POINTS),
            graphql_points_per_minute: reader.or("graphql_points_per_minute", GRAPHQL_POINTS),
            cpu_seconds_per_minute: reader.or("cpu_seconds_per_minute", CPU_SECONDS),
            graphql_cpu_seconds_per_minute: reader
                .or("graphql_cpu_seconds_per_minute", GRAPHQL_CPU_SECONDS),
            content_per_minute: reader.or("content_per_minute", CONTENT_PER_MINUTE),
            content_per_hour: reader.or("content_per_hour", CONTENT_PER_HOUR),
            oauth_tokens_per_hour: reader.or("oauth_tokens_per_hour", OAUTH_TOKENS_PER_HOUR),
            pace: reader.or("pace", Pace::Burst),
            batch_floor: reader.or("batch_floor", Ratio(BATCH_FLOOR)).0,
        }
    }

    pub(in crate::config) fn print(&self, printer: &mut Printer) {
        printer.section("limits");
        printer.set("concurrency", self.concurrency);
        printer.set("rest_points_per_minute", self.rest_points_per_minute);
        printer.set("graphql_points_per_minute", self.graphql_points_per_minute);
        printer.set("cpu_seconds_per_minute", self.cpu_seconds_per_minute);
        printer.set("graphql_cpu_seconds_per_minute", self.graphql_cpu_seconds_per_minute);
        printer.set("content_per_minute", self.content_per_minute);
        printer.set("content_per_hour", self.content_per_hour);
        printer.set("oauth_tokens_per_hour", self.oauth_tokens_per_hour);
        printer.set("pace", text(self.pace.name()));
        printer.set("batch_floor", float(self.batch_floor));
    }
}
