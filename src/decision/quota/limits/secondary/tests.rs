//! The secondary limits one by one, and the sliding windows against arrivals at any moment between
//! sending and answer.

use http::Method;
use proptest::prelude::*;

use super::*;
use crate::api::{Dialect, Table};
use crate::decision::types::Until;

const NOW: Timestamp = Timestamp::from_secs(1_000);
const SECOND: Duration = Duration::from_secs(1);

fn endpoint(path: &str) -> EndpointId {
    Table::embedded(Dialect::Service).classify(&Method::GET, path).endpoint.id
}

fn read() -> Weight {
    Weight {
        client: ClientId(0),
        endpoint: endpoint("/repos/a/b"),
        points: 1,
        graphql: false,
        content: false,
        token_request: false,
        write: WriteSpacing::None,
        cpu_millis: 0,
    }
}

fn write(write: WriteSpacing) -> Weight {
    Weight { points: 5, write, ..read() }
}

fn secondary(limits: SecondaryLimits) -> Secondary {
    Secondary::new(limits, Spacing { any: SECOND, notifying: SECOND * 3 }, false)
}

fn limits() -> SecondaryLimits {
    SecondaryLimits::default()
}

#[test]
fn a_slot_is_held_until_the_answer() {
    let mut windows = secondary(SecondaryLimits { concurrency: 1, ..limits() });
    windows.enter(NOW, read());
    assert_eq!(windows.block(NOW, read()), Some(Block::event(LimitKind::Concurrency)));
    windows.leave(NOW, read(), Sent::For(0));
    assert_eq!(windows.block(NOW, read()), None);
}

#[test]
fn a_request_given_up_keeps_its_slot_for_a_grace() {
    let mut windows = secondary(SecondaryLimits { concurrency: 2, ..limits() });
    let (given_up, end) = (Sent::CutOff(0), NOW + CUT_OFF_GRACE);
    windows.enter(NOW, read());
    windows.enter(NOW, read());
    windows.leave(NOW, read(), given_up);
    let by_event = Block { wake: Some(end), ..Block::event(LimitKind::Concurrency) };
    assert_eq!(windows.block(NOW, read()), Some(by_event), "an answer may come before");
    windows.leave(NOW, read(), given_up);
    let by_time = Block::at(LimitKind::Concurrency, end);
    assert_eq!(windows.block(end - TICK, read()), Some(by_time));
    assert_eq!((windows.slots.in_use(end - TICK), windows.slots.in_use(end)), (2, 0));
    windows.enter(end, read());
    assert!(windows.is_within_concurrency() && windows.slots.add_up());
}

#[test]
fn graphql_and_rest_share_the_slots_but_not_the_points() {
    let graphql = Weight { graphql: true, ..read() };
    let mut windows = secondary(SecondaryLimits {
        concurrency: 2,
        rest_points_per_minute: 1,
        graphql_points_per_minute: 1,
        ..limits()
    });
    windows.enter(NOW, read());
    assert_eq!(windows.block(NOW, graphql), None);
    windows.enter(NOW, graphql);
    assert_eq!(windows.block(NOW, graphql).unwrap().limit, LimitKind::Concurrency);
}

#[test]
fn points_count_in_flight_and_for_a_minute_after_the_answer() {
    let mut windows = secondary(SecondaryLimits { rest_points_per_minute: 2, ..limits() });
    windows.enter(NOW, read());
    windows.enter(NOW, read());
    assert_eq!(windows.block(NOW, read()), Some(Block::event(LimitKind::Points)));
    let answer = NOW + SECOND * 5;
    windows.leave(answer, read(), Sent::For(0));
    let free = answer + MINUTE + TICK;
    assert_eq!(windows.block(answer, read()), Some(Block::at(LimitKind::Points, free)));
    assert!(
        windows.block(answer + MINUTE, read()).is_some(),
        "the minute's last moment still counts"
    );
    assert_eq!(windows.block(free, read()), None);
}

#[test]
fn every_endpoint_has_points_of_its_own() {
    let mut windows = secondary(SecondaryLimits { rest_points_per_minute: 1, ..limits() });
    windows.enter(NOW, read());
    assert!(windows.block(NOW, read()).is_some());
    assert_eq!(
        windows.block(NOW, Weight { endpoint: endpoint("/repos/a/b/issues"), ..read() }),
        None
    );
}

#[test]
fn an_unsent_request_frees_all_limits_at_once() {
    let weight = Weight { content: true, ..write(WriteSpacing::Notifies) };
    let mut windows = secondary(SecondaryLimits {
        rest_points_per_minute: 5,
        content_per_minute: 1,
        content_per_hour: 1,
        ..limits()
    });
    windows.enter(NOW, weight);
    windows.leave(NOW, weight, Sent::No);
    assert_eq!(windows.block(NOW, weight), None);
}

#[test]
fn content_is_counted_by_minute_and_by_hour() {
    let content = Weight { content: true, ..read() };
    let mut windows =
        secondary(SecondaryLimits { content_per_minute: 1, content_per_hour: 2, ..limits() });
    let mut now = NOW;
    for _ in 0..2 {
        windows.enter(now, content);
        windows.leave(now, content, Sent::For(0));
        assert_eq!(windows.block(now, read()), None, "other requests are not concerned");
        now = now + MINUTE + TICK;
    }
    assert_eq!(
        windows.block(now, content),
        Some(Block::at(LimitKind::ContentPerHour, NOW + HOUR + TICK))
    );
}

#[test]
fn a_write_keeps_its_distance_from_the_one_before() {
    let mut windows = secondary(limits());
    windows.enter(NOW, write(WriteSpacing::Plain));
    let block = windows.block(NOW + SECOND * 9, write(WriteSpacing::Plain)).unwrap();
    assert_eq!((block.limit, block.until), (LimitKind::Spacing, Until::Event));
    windows.leave(NOW + SECOND / 2, write(WriteSpacing::Plain), Sent::For(0));
    assert_eq!(
        windows.block(NOW + SECOND / 2, write(WriteSpacing::Plain)),
        Some(Block::at(LimitKind::Spacing, NOW + SECOND))
    );
    assert_eq!(windows.block(NOW + SECOND, write(WriteSpacing::Plain)), None);
    assert_eq!(windows.block(NOW, read()), None, "reads are never spaced");
}

#[test]
fn notifying_writes_keep_a_wider_distance() {
    let mut windows = secondary(limits());
    windows.enter(NOW, write(WriteSpacing::Notifies));
    windows.leave(NOW, write(WriteSpacing::Notifies), Sent::For(0));
    assert_eq!(windows.block(NOW + SECOND, write(WriteSpacing::Plain)), None);
    assert_eq!(
        windows.block(NOW + SECOND, write(WriteSpacing::Notifies)),
        Some(Block::at(LimitKind::Spacing, NOW + SECOND * 3))
    );
}

#[test]
fn unspaced_writes_run_side_by_side() {
    let mut windows = Secondary::new(limits(), Spacing::default(), false);
    for kind in [WriteSpacing::Plain, WriteSpacing::Notifies] {
        for _ in 0..2 {
            assert!(!windows.would_overlap(write(kind)));
            windows.enter(NOW, write(kind));
        }
        assert_eq!(windows.block(NOW, write(kind)), None);
    }
}

#[test]
fn only_notifying_writes_keep_their_distance_from_each_other() {
    let spacing = Spacing { any: Duration::ZERO, notifying: SECOND * 3 };
    let mut windows = Secondary::new(limits(), spacing, false);
    let (plain, notifying) = (write(WriteSpacing::Plain), write(WriteSpacing::Notifies));
    windows.enter(NOW, notifying);
    windows.enter(NOW, plain);
    assert_eq!(windows.block(NOW, plain), None);
    let in_flight = windows.block(NOW + SECOND * 9, notifying);
    assert_eq!(in_flight, Some(Block::event(LimitKind::Spacing)));
    windows.leave(NOW + SECOND, notifying, Sent::For(0));
    let too_early = windows.block(NOW + SECOND, notifying);
    assert_eq!(too_early, Some(Block::at(LimitKind::Spacing, NOW + SECOND * 3)));
}

#[test]
fn a_new_distance_holds_for_writes_that_began_without() {
    let mut windows = Secondary::new(limits(), Spacing::default(), false);
    let plain = write(WriteSpacing::Plain);
    windows.enter(NOW, plain);
    windows.enter(NOW, plain);
    windows.reconfigure(limits(), Spacing { any: SECOND, notifying: SECOND }, false);
    windows.leave(NOW, plain, Sent::No);
    assert_eq!(windows.block(NOW + SECOND, plain), Some(Block::event(LimitKind::Spacing)));
    windows.leave(NOW, plain, Sent::For(0));
    assert_eq!(windows.block(NOW, plain), Some(Block::at(LimitKind::Spacing, NOW + SECOND)));
    assert_eq!(windows.block(NOW + SECOND, plain), None);
}

#[test]
fn a_request_above_the_limit_takes_the_whole_limit() {
    let mut windows = secondary(SecondaryLimits { rest_points_per_minute: 2, ..limits() });
    assert_eq!(windows.block(NOW, write(WriteSpacing::Plain)), None);
    windows.enter(NOW, write(WriteSpacing::Plain));
    assert!(windows.block(NOW, read()).is_some());
    assert!(windows.is_within(read()));
}

#[test]
fn a_limit_of_zero_counts_as_one() {
    let mut windows =
        secondary(SecondaryLimits { concurrency: 0, rest_points_per_minute: 0, ..limits() });
    assert_eq!(windows.block(NOW, read()), None);
}

#[test]
fn tallies_of_idle_endpoints_are_dropped() {
    let mut windows = secondary(limits());
    let mut now = NOW;
    for entry in Table::embedded(Dialect::Service).endpoints() {
        let weight = Weight { endpoint: entry.id, ..read() };
        windows.enter(now, weight);
        windows.leave(now, weight, Sent::For(0));
        now = now + SECOND * 2;
    }
    let still_counting = 60 / 2 + 1;
    assert!(windows.rest_points.len() <= still_counting * 2, "{}", windows.rest_points.len());
}

fn computing(cpu_millis: u32) -> Weight {
    Weight { cpu_millis, ..read() }
}

#[test]
fn cpu_time_is_reserved_as_expected_and_settled_as_used() {
    let mut windows = secondary(SecondaryLimits {
        cpu_seconds_per_minute: 4,
        cpu_seconds_per_ten_seconds: Some(1),
        concurrency: 1_000,
        ..limits()
    });
    windows.enter(NOW, computing(600));
    assert_eq!(
        windows.block(NOW, computing(600)),
        Some(Block::event(LimitKind::Cpu)),
        "a second in ten at most"
    );
    windows.leave(NOW, computing(600), Sent::For(200));
    assert_eq!(windows.block(NOW, computing(800)), None);
    let mut now = NOW;
    for _ in 0..5 {
        now = now + SECOND * 11;
        windows.enter(now, computing(1_000));
        windows.leave(now, computing(1_000), Sent::For(900));
    }
    let block = windows.block(NOW + SECOND * 56, computing(100)).unwrap();
    assert_eq!(block.limit, LimitKind::Cpu);
    assert!(
        windows.block(NOW + MINUTE + CPU_GRAIN * 2, computing(100)).is_some()
            && windows.block(NOW + SECOND * 72, computing(100)).is_none()
    );
}

#[test]
fn half_of_the_minutes_cpu_time_may_pass_in_ten_seconds() {
    for (setting, seconds) in [(None, 45), (Some(20), 20), (Some(90), 90)] {
        let limits = SecondaryLimits { cpu_seconds_per_ten_seconds: setting, ..limits() };
        let mut windows = secondary(limits);
        for _ in 0..seconds - 1 {
            windows.enter(NOW, computing(1_000));
        }
        assert_eq!(windows.block(NOW, computing(1_000)), None, "{setting:?}");
        let block = windows.block(NOW, computing(1_001));
        assert_eq!(block, Some(Block::event(LimitKind::Cpu)), "{setting:?}");
    }
}

#[test]
fn graphql_takes_only_its_part_of_the_cpu_time() {
    let graphql = |cpu_millis| Weight { graphql: true, ..computing(cpu_millis) };
    let limits = SecondaryLimits {
        cpu_seconds_per_minute: 90,
        graphql_cpu_seconds_per_minute: 1,
        ..limits()
    };
    let mut windows = secondary(limits);
    windows.enter(NOW, graphql(900));
    assert_eq!(windows.block(NOW, graphql(200)).unwrap().limit, LimitKind::GraphqlCpu);
    assert_eq!(windows.block(NOW, computing(200)), None);
}

#[test]
fn a_delayed_answer_counts_as_at_most_twice_the_estimate() {
    let mut windows = secondary(SecondaryLimits { cpu_seconds_per_minute: 90, ..limits() });
    for _ in 0..100 {
        windows.enter(NOW, computing(100));
    }
    for _ in 0..100 {
        windows.leave(NOW + SECOND * 9, computing(100), Sent::For(9_000));
    }
    assert_eq!(windows.cpu.tally.in_use(NOW + SECOND * 9), 20_000);
    assert_eq!(windows.block(NOW + SECOND * 9, computing(100)), None);
}

#[test]
fn an_unknown_endpoint_admits_the_full_concurrency() {
    let [rest, graphql] = Secondary::elapsed_unknown(limits());
    let mut windows = secondary(limits());
    for number in 0..100 {
        let weight = Weight {
            graphql: number % 2 == 0,
            ..computing(if number % 2 == 0 { graphql } else { rest })
        };
        assert_eq!(windows.block(NOW, weight), None, "{number}");
        windows.enter(NOW, weight);
    }
}

#[test]
fn token_requests_are_counted_by_the_hour() {
    let request = Weight { token_request: true, ..read() };
    let mut windows = secondary(SecondaryLimits { oauth_tokens_per_hour: 2, ..limits() });
    for _ in 0..2 {
        windows.enter(NOW, request);
        windows.leave(NOW, request, Sent::For(0));
    }
    assert_eq!(
        windows.block(NOW, request),
        Some(Block::at(LimitKind::OauthTokens, NOW + HOUR + TICK))
    );
    assert_eq!(windows.block(NOW, read()), None, "other requests are not concerned");
}

proptest! {
    /// Each request: pause before it is tried, time to the arrival, time from there to the answer,
    /// and points.
    #[test]
    fn no_minute_exceeds_the_points_at_any_arrival_times(
        requests in prop::collection::vec((0u64..4_000, 0u64..9_000, 0u64..9_000, 1u32..6), 1..400),
        max in 5u32..40,
    ) {
        let mut window = SlidingWindow::new(MINUTE, max);
        let mut now = NOW;
        let mut in_flight: Vec<(Timestamp, u32)> = Vec::new();
        let mut arrivals: Vec<(Timestamp, u32)> = Vec::new();
        for (pause, to_arrival, to_answer, points) in requests {
            now = now + Duration::from_millis(pause);
            in_flight.sort_unstable();
            while in_flight.first().is_some_and(|(answer, _)| *answer <= now) {
                let (answer, points) = in_flight.remove(0);
                window.leave(answer, points, points);
            }
            if window.block(now, points, LimitKind::Points).is_some() {
                continue;
            }
            window.enter(points);
            let arrival = now + Duration::from_millis(to_arrival);
            arrivals.push((arrival, points));
            in_flight.push((arrival + Duration::from_millis(to_answer), points));
            prop_assert!(window.is_within());
        }
        for (end, _) in &arrivals {
            let minute = arrivals.iter().filter(|(at, _)| *at <= *end && *at + MINUTE >= *end).map(|(_, points)| points).sum::<u32>();
            prop_assert!(minute <= max, "{} points in the minute before {:?}", minute, end);
        }
        prop_assert!(window.entries_held() <= usize::try_from(max).unwrap());
    }

    /// The time of a denial is exact: denied a moment before it, admitted at it.
    #[test]
    fn a_block_ends_at_the_first_moment_with_room(answers in prop::collection::vec((0u64..20_000, 1u32..6), 1..40), wanted in 1u32..6) {
        let mut window = SlidingWindow::new(MINUTE, 30);
        let mut now = NOW;
        for (pause, points) in answers {
            now = now + Duration::from_millis(pause);
            if window.block(now, points, LimitKind::Points).is_none() {
                window.enter(points);
                window.leave(now, points, points);
            }
        }
        if let Some(Block { until: Until::Time(time), .. }) = window.block(now, wanted, LimitKind::Points) {
            prop_assert!(window.block(time - TICK, wanted, LimitKind::Points).is_some());
            prop_assert!(window.block(time, wanted, LimitKind::Points).is_none());
        }
    }
}
