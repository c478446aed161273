//! The other secondary limits: CPU time, token requests, and the content limits of single endpoints
//! (SPECIFICATION, "Secondary rate limits").
//!
//! CPU time is known only after execution, so the request that passes the limit is served and the
//! next one refused.

use std::collections::BTreeMap;
use std::time::Duration;

use super::secondary::{CONTENT, Content, Exceeded, LimitDenial, Style, TokenRequest, Weight};
use super::settings::Limits;
use super::sliding_window::SlidingWindow;
use crate::clock::Timestamp;

const MICROS_PER_SECOND: u64 = 1_000_000;

#[derive(Debug, Default)]
pub struct Meters {
    /// Microseconds: REST and GraphQL together; GraphQL alone; together in the burst window.
    cpu: SlidingWindow,
    graphql_cpu: SlidingWindow,
    burst: SlidingWindow,
    token_requests: SlidingWindow,
    /// By endpoint.
    content: BTreeMap<String, SlidingWindow>,
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
        let (minute, hour) = (limits.duration("window.minute"), limits.duration("window.hour"));
        let micros = |name: &str| limits.get(name).saturating_mul(MICROS_PER_SECOND);
        self.cpu.check(now, minute, 1, micros("cpu"), Exceeded::Cpu)?;
        if weight.style == Style::Graphql {
            self.graphql_cpu.check(now, minute, 1, micros("cpu.graphql"), Exceeded::Cpu)?;
        }
        let burst = limits.duration("window.burst");
        self.burst.check(now, burst, 1, micros("cpu.burst"), Exceeded::Cpu)?;
        if weight.tokens == TokenRequest::Counted {
            let max = limits.get("oauth-tokens.hour");
            self.token_requests.check(now, hour, 1, max, Exceeded::OauthTokens)?;
        }
        if weight.content == Content::Generating {
            let unused = SlidingWindow::default();
            let content = self.content.get(&weight.endpoint).unwrap_or(&unused);
            for (window, name) in CONTENT {
                if let Some(max) = limits.of_endpoint(name, &weight.endpoint) {
                    content.check(now, limits.duration(window), 1, max, Exceeded::Content)?;
                }
            }
        }
        Ok(())
    }

    /// The windows that a request counts in, each with its amount and its longest length.
    fn charged(
        &mut self,
        weight: &Weight,
    ) -> impl Iterator<Item = (&mut SlidingWindow, u64, &'static str)> {
        let micros = weight.cpu_micros;
        let graphql = (weight.style == Style::Graphql).then_some(&mut self.graphql_cpu);
        let tokens = (weight.tokens == TokenRequest::Counted).then_some(&mut self.token_requests);
        let content = (weight.content == Content::Generating)
            .then(|| self.content.entry(weight.endpoint.clone()).or_default());
        [(&mut self.cpu, micros, "window.minute"), (&mut self.burst, micros, "window.burst")]
            .into_iter()
            .chain(graphql.map(|window| (window, micros, "window.minute")))
            .chain(tokens.map(|window| (window, 1, "window.hour")))
            .chain(content.map(|window| (window, 1, "window.hour")))
    }

    pub fn begin(&mut self, weight: &Weight) {
        self.charged(weight).for_each(|(window, amount, _)| window.begin(amount));
    }

    pub fn finish(&mut self, now: Timestamp, weight: &Weight, limits: &Limits) {
        for (window, amount, length) in self.charged(weight) {
            window.complete(now, amount, limits.duration(length));
        }
    }

    pub fn is_idle(&self, now: Timestamp, keep: Duration) -> bool {
        [&self.cpu, &self.graphql_cpu, &self.burst, &self.token_requests]
            .into_iter()
            .chain(self.content.values())
            .all(|window| window.is_idle(now, keep))
    }

    pub fn readings(&self, now: Timestamp, limits: &Limits) -> Readings {
        let minute = limits.duration("window.minute");
        Readings {
            cpu_millis: self.cpu.count(now, minute) / 1_000,
            graphql_cpu_millis: self.graphql_cpu.count(now, minute) / 1_000,
            token_requests: self.token_requests.count(now, limits.duration("window.hour")),
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
    fn cpu_time_is_limited_to_90_seconds_a_minute() {
        let (mut meters, limits) = (Meters::default(), limits());
        for second in 0..90 {
            let now = START + Duration::from_millis(second * 100);
            serve(&mut meters, now, &weight(Style::Rest, 1), &limits).expect("within the limit");
        }
        let now = START + Duration::from_secs(10);
        let denial = serve(&mut meters, now, &weight(Style::Rest, 1), &limits).unwrap_err();
        assert_eq!(denial, LimitDenial { exceeded: Exceeded::Cpu, until: START + MINUTE });
        serve(&mut meters, denial.until, &weight(Style::Rest, 1), &limits)
            .expect("the first second has left the window");
        assert!(serve(&mut meters, denial.until, &weight(Style::Rest, 1), &limits).is_err());
    }

    #[test]
    fn graphql_is_limited_to_60_seconds_of_cpu_time_a_minute() {
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
    fn a_burst_of_cpu_time_is_limited() {
        let (mut meters, limits) = (Meters::default(), Limits::default());
        serve(&mut meters, START, &weight(Style::Rest, 30), &limits)
            .expect("nothing was spent before");
        let denial = serve(&mut meters, START, &weight(Style::Rest, 1), &limits).unwrap_err();
        assert_eq!(denial.until, START + Duration::from_secs(10));
        serve(&mut meters, denial.until, &weight(Style::Rest, 1), &limits)
            .expect("the short window is over");
    }

    #[test]
    fn cpu_time_of_a_request_in_flight_counts() {
        let (mut meters, limits) = (Meters::default(), limits());
        let long = weight(Style::Rest, 90);
        meters.begin(&long);
        assert!(meters.check(START + Duration::from_hours(1), &long, &limits).is_err());
        meters.finish(START, &long, &limits);
        assert!(meters.check(START + MINUTE, &long, &limits).is_ok());
        assert!(meters.is_idle(START + MINUTE, MINUTE));
    }

    #[test]
    fn oauth_token_requests_are_limited_to_2000_an_hour() {
        let (mut meters, limits) = (Meters::default(), Limits::default());
        let mint = Weight { tokens: TokenRequest::Counted, ..weight(Style::Rest, 0) };
        for _ in 0..2_000 {
            serve(&mut meters, START, &mint, &limits).expect("within the limit");
        }
        let denial = serve(&mut meters, START, &mint, &limits).unwrap_err();
        assert_eq!(
            denial,
            LimitDenial { exceeded: Exceeded::OauthTokens, until: START + Duration::from_hours(1) }
        );
        serve(&mut meters, START, &weight(Style::Rest, 0), &limits)
            .expect("other requests are not about tokens");
    }

    #[test]
    fn an_endpoint_can_have_a_lower_content_limit() {
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
