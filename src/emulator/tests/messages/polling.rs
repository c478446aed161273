//! Tests poll intervals and conditional requests of all polling endpoints.

use serde_json::{Value, json};

use crate::emulator::tests::*;

fn interval(upstream: &mut Upstream, token: &str, path: &str) -> u64 {
    upstream.get(token, path).assert_status(200).header("x-poll-interval").parse().expect("seconds")
}

fn mentioned(upstream: &mut Upstream) -> String {
    let mention = json!({ "type": "mention", "repository": "acme/widgets", "actor": "ben", "number": 70, "user": "ada" });
    upstream.post(NOBODY, "/_emulator/events", &mention).assert_status(201);
    upstream.pass(5);
    format!(
        "/notifications/threads/{}",
        upstream.get(ADA, "/notifications").items()[0]["id"].as_str().expect("an id")
    )
}

#[test]
fn every_polling_endpoint_states_how_often_it_may_be_polled() {
    let mut upstream = Upstream::new();
    let thread = mentioned(&mut upstream);
    let subscription = format!("{thread}/subscription");
    for path in [
        "/notifications?all=true",
        "/repos/acme/widgets/notifications",
        &thread,
        &subscription,
        "/events",
        "/users/ada/events",
    ] {
        assert_eq!(interval(&mut upstream, ADA, path), 60, "{path}");
    }
}

#[test]
fn a_304_of_a_notification_poll_states_the_poll_interval() {
    let mut upstream = Upstream::new();
    let thread = mentioned(&mut upstream);
    for path in [
        "/notifications",
        "/repos/acme/widgets/notifications",
        &thread,
        &format!("{thread}/subscription"),
    ] {
        let date = upstream.get(ADA, path).assert_status(200).header("last-modified").to_owned();
        assert!(!date.is_empty(), "{path}");
        let unchanged =
            upstream.get_with(ADA, path, &[("if-modified-since", &date)]).assert_status(304);
        assert_eq!((unchanged.header("x-poll-interval"), unchanged.bytes.len()), ("60", 0));
    }
}

#[test]
fn fast_polls_raise_the_poll_interval_and_a_wait_lowers_it() {
    let mut upstream = Upstream::new();
    let mut intervals: Vec<u64> =
        (0..25).map(|_| interval(&mut upstream, ADA, "/notifications")).collect();
    intervals.dedup();
    assert_eq!(intervals, [60, 120, 240]);
    assert_eq!(interval(&mut upstream, BEN, "/notifications"), 60, "others are not concerned");
    upstream.pass(239);
    assert_eq!(interval(&mut upstream, ADA, "/notifications"), 240, "one second too early");
    upstream.pass(240);
    assert_eq!(interval(&mut upstream, ADA, "/notifications"), 60);
}

#[test]
fn the_poll_interval_stays_the_same_for_an_obedient_caller() {
    let mut upstream = Upstream::new();
    for _ in 0..30 {
        assert_eq!(interval(&mut upstream, ADA, "/notifications"), 60);
        upstream.pass(60);
    }
}

#[test]
fn limits_configure_the_poll_interval() {
    let mut upstream = Upstream::new();
    upstream.set_limit("poll.load", 5);
    assert_eq!(interval(&mut upstream, ADA, "/notifications"), 300, "load that others make");
    upstream.set_limit("poll.interval-max", 120);
    assert_eq!(interval(&mut upstream, BEN, "/events"), 120);
    upstream.set_limit("poll.interval", 10);
    upstream.set_limit("poll.load", 1);
    upstream.set_limit("poll.patience", 1);
    let intervals: Vec<u64> = (0..6).map(|_| interval(&mut upstream, NOBODY, "/events")).collect();
    assert_eq!(intervals, [10, 20, 40, 80, 120, 120]);
}

#[test]
fn a_refused_poll_does_not_raise_the_poll_interval() {
    let mut upstream = Upstream::new();
    upstream.set_limit("poll.patience", 1);
    for _ in 0..5 {
        assert_eq!(
            upstream.get(ADA_FINE, "/notifications").assert_status(403).header("x-poll-interval"),
            ""
        );
        upstream.get(ADA, "/notifications?all=perhaps").assert_status(422);
    }
    assert_eq!(interval(&mut upstream, ADA, "/notifications"), 60);
    assert_eq!(interval(&mut upstream, ADA, "/notifications"), 120);
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    assert_eq!(interval(&mut upstream, ADA, "/notifications"), 60);
}

#[test]
fn the_poll_interval_of_a_stored_list_rises_too() {
    let mut upstream = Upstream::new();
    let mut intervals: Vec<u64> =
        (0..25).map(|_| interval(&mut upstream, ADA, "/repos/acme/widgets/events")).collect();
    intervals.dedup();
    assert_eq!(intervals, [60, 120, 240]);
}
