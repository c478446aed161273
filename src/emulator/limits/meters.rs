//! The other secondary limits: CPU time, token requests, and the content limits of single endpoints
//! (SPECIFICATION, "Secondary rate limits").
//!
//! The windows are the same: from a request's arrival until a whole window after its completion.
//! CPU time is known only after execution, so the request that passes the limit is served and the
//! next one refused.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::secondary::{Content, Exceeded, LimitDenial, Style, TokenRequest, Weight, refuse};
use super::settings::Limits;
use crate::clock::Timestamp;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The content windows: length, limit.
const CONTENT: [(&str, &str); 2] =
    [("window.minute", "content.minute"), ("window.hour", "content.hour")];

#[derive(Debug, Default)]
struct Meter {
    in_flight: u64,
    completed: VecDeque<(Timestamp, u64)>,
    sum: u64,
}

impl Meter {
    fn reading(&self, now: Timestamp, window: Duration) -> u64 {
        let over: u64 = self
            .completed
            .iter()
            .take_while(|(at, _)| *at + window <= now)
            .map(|(_, amount)| *amount)
            .sum();
        self.in_flight.saturating_add(self.sum.saturating_sub(over))
    }

    /// A whole window from now when the amount in flight alone is too much.
    fn falls_below(&self, max: u64, now: Timestamp, window: Duration) -> Timestamp {
        let mut reading = self.reading(now, window);
        for (at, amount) in self.completed.iter().filter(|(at, _)| *at + window > now) {
            reading = reading.saturating_sub(*amount);
            if reading < max {
                return *at + window;
            }
        }
        now + window
    }

    fn begin(&mut self, amount: u64) {
        self.in_flight = self.in_flight.saturating_add(amount);
    }

    fn complete(&mut self, now: Timestamp, amount: u64, window: Duration) {
        self.in_flight = self.in_flight.saturating_sub(amount);
        while let Some((_, gone)) = self.completed.pop_front_if(|(at, _)| *at + window <= now) {
            self.sum = self.sum.saturating_sub(gone);
        }
        if amount == 0 {
            return;
        }
        self.sum = self.sum.saturating_add(amount);
        match self.completed.back_mut() {
            Some((at, latest)) if *at == now => *latest = latest.saturating_add(amount),
            _ => self.completed.push_back((now, amount)),
        }
    }

    fn is_idle(&self, now: Timestamp, keep: Duration) -> bool {
        self.in_flight == 0 && self.completed.back().is_none_or(|(at, _)| *at + keep <= now)
    }

    fn check(
        &self,
        now: Timestamp,
        window: Duration,
        max: u64,
        exceeded: Exceeded,
    ) -> Result<(), LimitDenial> {
        if self.reading(now, window) < max {
            Ok(())
        } else {
            refuse(exceeded, self.falls_below(max, now, window))
        }
    }
}

#[derive(Debug, Default)]
pub struct Meters {
    /// Microseconds: REST and GraphQL together; GraphQL alone; together in the burst window.
    cpu: Meter,
    graphql_cpu: Meter,
    burst: Meter,
    token_requests: Meter,
    /// By endpoint; for each of [`CONTENT`].
    content: BTreeMap<String, [Meter; 2]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    pub cpu_millis: u64,
    pub graphql_cpu_millis: u64,
    pub token_requests: u64,
}

impl Meters {
    pub fn check(
        &self,
        now: Timestamp,
        weight: &Weight,
        limits: &Limits,
    ) -> Result<(), LimitDenial> {
        let minute = limits.duration("window.minute");
        let micros = |name: &str| limits.get(name).saturating_mul(MICROS_PER_SECOND);
        self.cpu.check(now, minute, micros("cpu"), Exceeded::Cpu)?;
        if weight.style == Style::Graphql {
            self.graphql_cpu.check(now, minute, micros("cpu.graphql"), Exceeded::Cpu)?;
        }
        self.burst.check(
            now,
            limits.duration("window.burst"),
            micros("cpu.burst"),
            Exceeded::Cpu,
        )?;
        if weight.tokens == TokenRequest::Counted {
            let hour = limits.duration("window.hour");
            self.token_requests.check(
                now,
                hour,
                limits.get("oauth-tokens.hour"),
                Exceeded::OauthTokens,
            )?;
        }
        if weight.content == Content::Generating {
            let none = <[Meter; 2]>::default();
            let meters = self.content.get(&weight.endpoint).unwrap_or(&none);
            for ((window, name), meter) in CONTENT.iter().zip(meters) {
                if let Some(max) = limits.of_endpoint(name, &weight.endpoint) {
                    meter.check(now, limits.duration(window), max, Exceeded::Content)?;
                }
            }
        }
        Ok(())
    }

    pub fn begin(&mut self, weight: &Weight) {
        self.cpu.begin(weight.cpu_micros);
        self.burst.begin(weight.cpu_micros);
        if weight.style == Style::Graphql {
            self.graphql_cpu.begin(weight.cpu_micros);
        }
        if weight.tokens == TokenRequest::Counted {
            self.token_requests.begin(1);
        }
        if weight.content == Content::Generating {
            self.content
                .entry(weight.endpoint.clone())
                .or_default()
                .iter_mut()
                .for_each(|meter| meter.begin(1));
        }
    }

    pub fn finish(&mut self, now: Timestamp, weight: &Weight, limits: &Limits) {
        let minute = limits.duration("window.minute");
        self.cpu.complete(now, weight.cpu_micros, minute);
        self.burst.complete(now, weight.cpu_micros, limits.duration("window.burst"));
        if weight.style == Style::Graphql {
            self.graphql_cpu.complete(now, weight.cpu_micros, minute);
        }
        if weight.tokens == TokenRequest::Counted {
            self.token_requests.complete(now, 1, limits.duration("window.hour"));
        }
        if weight.content == Content::Generating
            && let Some(meters) = self.content.get_mut(&weight.endpoint)
        {
            for ((window, _), meter) in CONTENT.iter().zip(meters) {
                meter.complete(now, 1, limits.duration(window));
            }
        }
    }

    pub fn is_idle(&self, now: Timestamp, keep: Duration) -> bool {
        let content = self.content.values().flatten();
        [&self.cpu, &self.graphql_cpu, &self.burst, &self.token_requests]
            .into_iter()
            .chain(content)
            .all(|meter| meter.is_idle(now, keep))
    }

    pub fn readings(&self, now: Timestamp, limits: &Limits) -> Readings {
        let minute = limits.duration("window.minute");
        Readings {
            cpu_millis: self.cpu.reading(now, minute) / 1_000,
            graphql_cpu_millis: self.graphql_cpu.reading(now, minute) / 1_000,
            token_requests: self.token_requests.reading(now, limits.duration("window.hour")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000_000);
    const MINUTE: Duration = Duration::from_mins(1);

    fn weight(style: Style, cpu_seconds: u64) -> Weight {
        Weight {
            endpoint: "GET /user".to_owned(),
            points: 1,
            style,
            content: Content::None,
            tokens: TokenRequest::No,
            cpu_micros: cpu_seconds * MICROS_PER_SECOND,
        }
    }

    /// Limits without the burst, which these tests would hit first.
    fn limits() -> Limits {
        let mut limits = Limits::default();
        limits.set("cpu.burst", 1_000).expect("known");
        limits
    }

    fn serve(
        meters: &mut Meters,
        now: Timestamp,
        weight: &Weight,
        limits: &Limits,
    ) -> Result<(), LimitDenial> {
        meters.check(now, weight, limits)?;
        meters.begin(weight);
        meters.finish(now, weight, limits);
        Ok(())
    }

    #[test]
    fn at_most_90_seconds_of_cpu_time_fit_into_60_seconds() {
        let (mut meters, limits) = (Meters::default(), limits());
        for second in 0..90 {
            let now = START + Duration::from_millis(second * 100);
            serve(&mut meters, now, &weight(Style::Rest, 1), &limits).expect("within the limit");
        }
        let now = START + Duration::from_secs(10);
        let refusal = serve(&mut meters, now, &weight(Style::Rest, 1), &limits).unwrap_err();
        assert_eq!(refusal, LimitDenial { exceeded: Exceeded::Cpu, until: START + MINUTE });
        serve(&mut meters, refusal.until, &weight(Style::Rest, 1), &limits)
            .expect("the first second has left the window");
        assert!(serve(&mut meters, refusal.until, &weight(Style::Rest, 1), &limits).is_err());
    }

    #[test]
    fn of_these_at_most_60_seconds_are_graphql() {
        let (mut meters, limits) = (Meters::default(), limits());
        for _ in 0..6 {
            serve(&mut meters, START, &weight(Style::Graphql, 10), &limits)
                .expect("within the limit");
        }
        assert_eq!(
            serve(&mut meters, START, &weight(Style::Graphql, 1), &limits).unwrap_err().exceeded,
            Exceeded::Cpu
        );
        serve(&mut meters, START, &weight(Style::Rest, 30), &limits)
            .expect("30 seconds are left for REST");
        assert!(serve(&mut meters, START, &weight(Style::Rest, 1), &limits).is_err());
    }

    #[test]
    fn much_compute_in_a_short_time_is_limited() {
        let (mut meters, limits) = (Meters::default(), Limits::default());
        serve(&mut meters, START, &weight(Style::Rest, 30), &limits)
            .expect("nothing was spent before");
        let refusal = serve(&mut meters, START, &weight(Style::Rest, 1), &limits).unwrap_err();
        assert_eq!(refusal.until, START + Duration::from_secs(10));
        serve(&mut meters, refusal.until, &weight(Style::Rest, 1), &limits)
            .expect("the short window is over");
    }

    #[test]
    fn cpu_time_of_a_request_in_flight_counts_already() {
        let (mut meters, limits) = (Meters::default(), limits());
        let long = weight(Style::Rest, 90);
        meters.begin(&long);
        assert!(meters.check(START + Duration::from_hours(1), &long, &limits).is_err());
        meters.finish(START, &long, &limits);
        assert!(meters.check(START + MINUTE, &long, &limits).is_ok());
        assert!(meters.is_idle(START + MINUTE, MINUTE));
    }

    #[test]
    fn apps_may_ask_for_2000_oauth_access_tokens_an_hour() {
        let (mut meters, limits) = (Meters::default(), Limits::default());
        let mint = Weight { tokens: TokenRequest::Counted, ..weight(Style::Rest, 0) };
        for _ in 0..2_000 {
            serve(&mut meters, START, &mint, &limits).expect("within the limit");
        }
        let refusal = serve(&mut meters, START, &mint, &limits).unwrap_err();
        assert_eq!(
            refusal,
            LimitDenial { exceeded: Exceeded::OauthTokens, until: START + Duration::from_hours(1) }
        );
        serve(&mut meters, START, &weight(Style::Rest, 0), &limits)
            .expect("other requests are not about tokens");
    }

    #[test]
    fn some_endpoints_have_lower_content_limits() {
        let (mut meters, mut limits) = (Meters::default(), Limits::default());
        limits.set("content.hour@GET /user", 2).expect("an endpoint may have its own");
        let content = Weight { content: Content::Generating, ..weight(Style::Rest, 0) };
        for _ in 0..2 {
            serve(&mut meters, START, &content, &limits).expect("within the limit");
        }
        assert_eq!(
            serve(&mut meters, START, &content, &limits).unwrap_err().until,
            START + Duration::from_hours(1)
        );
        let other = Weight { endpoint: "POST /other".to_owned(), ..content };
        serve(&mut meters, START, &other, &limits).expect("it has no limit of its own");
    }
}
