//! The secondary limits: concurrency, points and content (SPECIFICATION, "Secondary rate limits"),
//! and the treatment of clients that do not stop.
//!
//! The upstream does not document how it measures a minute. [`SlidingWindow`] is the strictest
//! reading: a client that passes here passes any fixed or sliding window. Refused requests do not
//! count; otherwise a retrying client could never recover. A delivered denial closes the account
//! for every route until the time it names, and counts the requests sent meanwhile. [`Meters`]
//! holds CPU time, OAuth token requests and the limits of single endpoints.

use std::collections::BTreeMap;
use std::time::Duration;

use super::RequestId;
use super::meters::{Meters, Readings};
use super::settings::Limits;
use super::sliding_window::SlidingWindow;
use super::sweeper::Sweeper;
use crate::clock::Timestamp;
use crate::emulator::accounts::AccountId;

/// From this many accounts on, idle ones are swept periodically.
const SWEPT_FROM: usize = 10_000;
/// The content windows: length, limit.
pub(super) const CONTENT: [(&str, &str); 2] =
    [("window.minute", "content.minute"), ("window.hour", "content.hour")];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The endpoint, as method and route template.
    pub endpoint: String,
    pub points: u32,
    pub style: Style,
    pub content: Content,
    pub tokens: TokenRequest,
    /// Known only after execution.
    pub cpu_micros: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Rest,
    Graphql,
    /// Git LFS, which neither of the two point limits counts.
    Transfer,
}

/// Marks the token requests of apps and OAuth apps (SPECIFICATION, "Secondary rate limits").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRequest {
    No,
    Counted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    None,
    Generating,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub enum Exceeded {
    Concurrency,
    Points,
    Content,
    /// CPU time, in a minute or in the burst window.
    Cpu,
    OauthTokens,
    /// Sent before the wait of an earlier denial was over.
    Waiting,
}

/// A denial, and the time before which a retry is refused too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitDenial {
    pub exceeded: Exceeded,
    pub until: Timestamp,
}

#[derive(Debug, Default)]
struct Ledger {
    in_flight: u32,
    /// Points by endpoint.
    rest: BTreeMap<String, SlidingWindow>,
    /// Points.
    graphql: SlidingWindow,
    content: SlidingWindow,
    meters: Meters,
    /// No request is served before this time.
    closed_until: Option<Timestamp>,
    sent_while_limited: u64,
    banned: bool,
}

#[derive(Debug, Default)]
pub struct Secondary {
    ledgers: BTreeMap<AccountId, Ledger>,
    sweeper: Sweeper<SWEPT_FROM>,
    open: BTreeMap<RequestId, Open>,
}

#[derive(Debug)]
struct Open {
    account: AccountId,
    effect: Effect,
}

#[derive(Debug)]
enum Effect {
    Served(Weight),
    /// The denial applies from its delivery; requests sent before do not count against it.
    Closes(Timestamp),
}

impl Secondary {
    pub fn check(
        &self,
        now: Timestamp,
        account: AccountId,
        weight: &Weight,
        limits: &Limits,
    ) -> Result<(), LimitDenial> {
        let fresh = Ledger::default();
        let ledger = self.ledgers.get(&account).unwrap_or(&fresh);
        if let Some(until) = ledger.closed_until.filter(|until| *until > now) {
            return refuse(Exceeded::Waiting, until);
        }
        if weight.style == Style::Transfer {
            return Ok(());
        }
        if u64::from(ledger.in_flight) >= limits.get("concurrency") {
            return refuse(Exceeded::Concurrency, now + limits.duration("penalty"));
        }
        let unused = SlidingWindow::default();
        let (points, max) = match weight.style {
            Style::Graphql => (&ledger.graphql, limits.get("points.graphql")),
            Style::Rest | Style::Transfer => {
                (ledger.rest.get(&weight.endpoint).unwrap_or(&unused), limits.get("points.rest"))
            }
        };
        let minute = limits.duration("window.minute");
        points.check(now, minute, weight.points.into(), max, Exceeded::Points)?;
        if weight.content == Content::Generating {
            for (window, name) in CONTENT {
                let (window, max) = (limits.duration(window), limits.get(name));
                ledger.content.check(now, window, 1, max, Exceeded::Content)?;
            }
        }
        ledger.meters.check(now, weight, limits)
    }

    pub fn begin(&mut self, id: RequestId, account: AccountId, weight: Weight) {
        if weight.style == Style::Transfer {
            return;
        }
        let ledger = self.ledgers.entry(account).or_default();
        ledger.in_flight += 1;
        ledger.points_mut(&weight).begin(weight.points.into());
        ledger.meters.begin(&weight);
        if weight.content == Content::Generating {
            ledger.content.begin(1);
        }
        self.open.insert(id, Open { account, effect: Effect::Served(weight) });
    }

    /// Records a refused request; once the caller knows, it must wait until `until`.
    pub fn begin_denied(&mut self, id: RequestId, account: AccountId, until: Timestamp) {
        self.open.insert(id, Open { account, effect: Effect::Closes(until) });
    }

    /// Marks the denial of `id` as undelivered, so that the caller does not have to obey it.
    pub fn withhold_denial(&mut self, id: RequestId) {
        if self.open.get(&id).is_some_and(|open| matches!(open.effect, Effect::Closes(_))) {
            self.open.remove(&id);
        }
    }

    pub fn finish(&mut self, now: Timestamp, id: RequestId, limits: &Limits) {
        let Some(Open { account, effect }) = self.open.remove(&id) else { return };
        let hour = limits.duration("window.hour");
        self.sweeper.sweep(&mut self.ledgers, |ledger| ledger.is_idle(now, hour));
        let ledger = self.ledgers.entry(account).or_default();
        match effect {
            Effect::Closes(until) => ledger.closed_until = ledger.closed_until.max(Some(until)),
            Effect::Served(weight) => {
                ledger.in_flight = ledger.in_flight.saturating_sub(1);
                ledger.meters.finish(now, &weight, limits);
                let minute = limits.duration("window.minute");
                ledger.points_mut(&weight).complete(now, weight.points.into(), minute);
                if weight.content == Content::Generating {
                    ledger.content.complete(now, 1, hour);
                }
            }
        }
    }

    /// The content limits include the website (SPECIFICATION, "Secondary rate limits").
    pub fn note_web_action(&mut self, now: Timestamp, account: AccountId, limits: &Limits) {
        let content = &mut self.ledgers.entry(account).or_default().content;
        content.begin(1);
        content.complete(now, 1, limits.duration("window.hour"));
    }

    /// Counts a request sent during a known wait; enough of them ban the account.
    pub fn note_sent_while_limited(&mut self, account: AccountId, limits: &Limits) {
        let ledger = self.ledgers.entry(account).or_default();
        ledger.sent_while_limited += 1;
        ledger.banned |= ledger.sent_while_limited >= limits.get("ban.after").max(1);
    }

    pub fn is_banned(&self, account: AccountId) -> bool {
        self.ledgers.get(&account).is_some_and(|ledger| ledger.banned)
    }

    pub fn concurrency(&self, account: AccountId) -> u32 {
        self.ledgers.get(&account).map_or(0, |ledger| ledger.in_flight)
    }

    pub fn usage(&self, now: Timestamp, limits: &Limits) -> Vec<AccountUsage> {
        let (minute, hour) = (limits.duration("window.minute"), limits.duration("window.hour"));
        let of = |(account, ledger): (&AccountId, &Ledger)| AccountUsage {
            account: *account,
            in_flight: ledger.in_flight,
            points: ledger
                .rest
                .iter()
                .map(|(endpoint, counter)| (endpoint.clone(), counter.count(now, minute)))
                .filter(|(_, points)| *points > 0)
                .collect(),
            graphql_points: ledger.graphql.count(now, minute),
            content_minute: ledger.content.count(now, minute),
            content_hour: ledger.content.count(now, hour),
            meters: ledger.meters.readings(now, limits),
            closed_until: ledger.closed_until.filter(|until| *until > now),
            sent_while_limited: ledger.sent_while_limited,
            banned: ledger.banned,
        };
        self.ledgers.iter().map(of).collect()
    }
}

impl Ledger {
    fn points_mut(&mut self, weight: &Weight) -> &mut SlidingWindow {
        match weight.style {
            Style::Graphql => &mut self.graphql,
            Style::Rest | Style::Transfer => self.rest.entry(weight.endpoint.clone()).or_default(),
        }
    }

    fn is_idle(&self, now: Timestamp, keep: Duration) -> bool {
        self.in_flight == 0
            && !self.banned
            && self.sent_while_limited == 0
            && self.closed_until.is_none_or(|until| until <= now)
            && self.meters.is_idle(now, keep)
            && [&self.graphql, &self.content]
                .into_iter()
                .chain(self.rest.values())
                .all(|window| window.is_idle(now, keep))
    }
}

#[derive(Clone, Debug)]
pub struct AccountUsage {
    pub account: AccountId,
    pub in_flight: u32,
    /// Points of the last minute by endpoint.
    pub points: BTreeMap<String, u64>,
    pub graphql_points: u64,
    pub content_minute: u64,
    pub content_hour: u64,
    pub meters: Readings,
    pub closed_until: Option<Timestamp>,
    pub sent_while_limited: u64,
    pub banned: bool,
}

fn refuse(exceeded: Exceeded, until: Timestamp) -> Result<(), LimitDenial> {
    Err(LimitDenial { exceeded, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: AccountId = AccountId::User(1);
    const START: Timestamp = Timestamp::from_secs(1_000_000);

    fn read() -> Weight {
        Weight {
            endpoint: "GET /user".to_owned(),
            points: 1,
            style: Style::Rest,
            content: Content::None,
            tokens: TokenRequest::No,
            cpu_micros: 0,
        }
    }

    fn create() -> Weight {
        Weight {
            endpoint: "POST /issues".to_owned(),
            points: 5,
            content: Content::Generating,
            ..read()
        }
    }

    struct Harness {
        secondary: Secondary,
        limits: Limits,
        next: u64,
    }

    impl Harness {
        fn new() -> Self {
            Self { secondary: Secondary::default(), limits: Limits::default(), next: 0 }
        }

        fn arrive(&mut self, now: Timestamp, weight: Weight) -> Result<RequestId, LimitDenial> {
            self.secondary.check(now, ACCOUNT, &weight, &self.limits)?;
            self.next += 1;
            let id = RequestId(self.next);
            self.secondary.begin(id, ACCOUNT, weight);
            Ok(id)
        }

        fn serve(&mut self, now: Timestamp, weight: Weight) -> Result<(), LimitDenial> {
            let id = self.arrive(now, weight)?;
            self.secondary.finish(now, id, &self.limits);
            Ok(())
        }
    }

    #[test]
    fn concurrency_is_limited_to_100_requests() {
        let mut harness = Harness::new();
        let ids: Vec<_> =
            (0..100).map(|_| harness.arrive(START, read()).expect("within the limit")).collect();
        assert_eq!(harness.arrive(START, read()).unwrap_err().exceeded, Exceeded::Concurrency);
        harness.secondary.finish(START, ids[0], &harness.limits);
        assert!(harness.arrive(START, read()).is_ok());
    }

    #[test]
    fn rest_and_graphql_share_the_concurrency_limit() {
        let mut harness = Harness::new();
        let graphql = Weight { style: Style::Graphql, ..read() };
        for turn in 0..100 {
            harness
                .arrive(START, if turn % 2 == 0 { read() } else { graphql.clone() })
                .expect("within the limit");
        }
        assert_eq!(harness.arrive(START, graphql).unwrap_err().exceeded, Exceeded::Concurrency);
    }

    #[test]
    fn an_endpoint_is_limited_to_900_points_a_minute() {
        let mut harness = Harness::new();
        for _ in 0..180 {
            harness
                .serve(START, Weight { content: Content::None, ..create() })
                .expect("180 writes are 900 points");
        }
        let denial =
            harness.serve(START, Weight { content: Content::None, ..create() }).unwrap_err();
        assert_eq!(
            denial,
            LimitDenial { exceeded: Exceeded::Points, until: START + Duration::from_mins(1) }
        );
        assert!(harness.serve(START, read()).is_ok(), "another endpoint has points of its own");
        assert!(harness.serve(denial.until, create()).is_ok());
    }

    #[test]
    fn a_request_counts_until_a_minute_after_its_completion() {
        let mut harness = Harness::new();
        harness.limits.set("points.rest", 1).expect("known");
        let id = harness.arrive(START, read()).expect("the first");
        let completed = START + Duration::from_secs(30);
        harness.secondary.finish(completed, id, &harness.limits);
        assert!(harness.serve(START + Duration::from_secs(70), read()).is_err());
        assert!(harness.serve(completed + Duration::from_mins(1), read()).is_ok());
    }

    #[test]
    fn points_of_a_request_in_flight_count() {
        let mut harness = Harness::new();
        harness.limits.set("points.rest", 1).expect("known");
        harness.arrive(START, read()).expect("the first");
        assert_eq!(
            harness.arrive(START + Duration::from_hours(1), read()).unwrap_err().exceeded,
            Exceeded::Points
        );
    }

    #[test]
    fn graphql_is_limited_to_2000_points_a_minute() {
        let mut harness = Harness::new();
        let mutation = Weight { style: Style::Graphql, points: 5, ..read() };
        for _ in 0..400 {
            harness.serve(START, mutation.clone()).expect("400 mutations are 2,000 points");
        }
        assert_eq!(
            harness.serve(START, Weight { points: 1, ..mutation }).unwrap_err().exceeded,
            Exceeded::Points
        );
    }

    #[test]
    fn content_is_limited_to_80_a_minute_and_500_an_hour() {
        let mut harness = Harness::new();
        let mut now = START;
        for turn in 0..500 {
            if turn > 0 && turn % 80 == 0 {
                assert_eq!(harness.serve(now, create()).unwrap_err().exceeded, Exceeded::Content);
                now = now + Duration::from_mins(1);
            }
            harness.serve(now, create()).expect("within both limits");
        }
        now = now + Duration::from_mins(1);
        let denial = harness.serve(now, create()).unwrap_err();
        assert_eq!(
            denial,
            LimitDenial { exceeded: Exceeded::Content, until: START + Duration::from_hours(1) }
        );
    }

    #[test]
    fn a_delivered_denial_blocks_requests_until_its_wait_is_over() {
        let mut harness = Harness::new();
        harness.secondary.begin_denied(RequestId(77), ACCOUNT, START + Duration::from_mins(1));
        assert!(harness.serve(START, read()).is_ok(), "the caller does not know yet");
        harness.secondary.finish(START, RequestId(77), &harness.limits);
        assert_eq!(harness.serve(START, read()).unwrap_err().exceeded, Exceeded::Waiting);
        assert!(harness.serve(START + Duration::from_mins(1), read()).is_ok());
    }

    #[test]
    fn continued_requests_while_limited_lead_to_a_ban() {
        let mut harness = Harness::new();
        harness.limits.set("ban.after", 3).expect("known");
        for sent in 1..=3 {
            assert!(!harness.secondary.is_banned(ACCOUNT), "after {sent} requests");
            harness.secondary.note_sent_while_limited(ACCOUNT, &harness.limits);
        }
        assert!(harness.secondary.is_banned(ACCOUNT));
    }
}
