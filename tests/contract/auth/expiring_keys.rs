//! Several keys of a client, and the ends of keys (SPECIFICATION, "Keys").

use std::time::Duration;

use weir::clock::Timestamp;

use crate::admin::operator::Operator;
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World, captured_log, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
/// The second key of the client `ci`, without an end.
const SECOND: &str = "weir_second_key_of_the_client_ci";
const DAY: Duration = Duration::from_hours(24);

/// The client `ci` has two keys. The first ends with 24 January 2027 in UTC. The clock stands at 8
/// o'clock on the 15th.
async fn world(setup: Setup) -> World {
    let world = setup.manual_clock().start().await;
    let hash = |key: &str| weir::config::digest_hex(key.as_bytes());
    world.reload(|text| {
        let one = format!("key_sha256 = \"{}\"", hash(KEY));
        let first = format!("{{ sha256 = \"{}\", expires = \"2027-01-24\" }}", hash(KEY));
        let second = format!("{{ sha256 = \"{}\" }}", hash(SECOND));
        text.replace(&one, &format!("keys = [{first}, {second}]"))
    });
    assert_eq!(world.clock.now().rfc3339(), "2027-01-15T08:00:00Z");
    world
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

/// Moves the clocks to this second before the first key's end.
fn just_before_its_end(world: &World, seconds: u64) {
    let end = weir::config::parse_expiry("2027-01-24").unwrap();
    world.advance_both((end - Duration::from_secs(seconds)).since(world.clock.now()));
}

#[tokio::test]
async fn each_key_of_a_client_identifies_it() {
    let world = world(Setup::new()).await;
    for key in [KEY, SECOND] {
        let answer = world.get_with(REPOSITORY, &[("authorization", &bearer(key))]).await;
        answer.assert_status(200);
    }
    let metrics = world.gateway.env.metrics.encode();
    assert!(!metrics.contains("client=\"_none\""), "{metrics}");
}

#[tokio::test]
async fn an_expired_key_is_a_401_that_says_so() {
    let world = world(Setup::new()).await;
    just_before_its_end(&world, 1);
    world.get(REPOSITORY).await.assert_status(200);
    world.advance_both(Duration::from_secs(1));
    let sent = world.upstream_requests().len();
    for value in [bearer(KEY), format!("token {KEY}")] {
        let answer = world.get_with(REPOSITORY, &[("authorization", &value)]).await;
        answer.assert_status(401);
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("has expired at 2027-01-25T00:00:00Z"), "{message}");
        assert!(answer.header("www-authenticate").is_some());
    }
    let unknown = world.get_with(REPOSITORY, &[("authorization", "Bearer weir_unknown")]).await;
    unknown.assert_status(401);
    assert!(!unknown.json()["message"].as_str().unwrap().contains("expired"));
    assert_eq!(world.upstream_requests().len(), sent);
    world.get_with(REPOSITORY, &[("x-weir-key", SECOND)]).await.assert_status(200);
    let metrics = world.gateway.env.metrics.encode();
    assert!(metrics.contains("reason=\"expired_key\"} 2\n"), "{metrics}");
}

#[tokio::test]
async fn an_expired_key_is_refused_on_an_open_connection_too() {
    let world = world(Setup::new()).await;
    let mut connection = Connection::open(world.address).await;
    let request =
        format!("GET {REPOSITORY} HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {KEY}\r\n\r\n");
    just_before_its_end(&world, 1);
    for (advance, status) in [(0, "200"), (0, "200"), (1, "401"), (0, "401")] {
        world.advance_both(Duration::from_secs(advance));
        connection.send(request.as_bytes()).await;
        let answer = connection.read_answer().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[tokio::test]
async fn an_expired_key_is_still_a_misplaced_key_elsewhere() {
    let world = world(Setup::new()).await;
    just_before_its_end(&world, 0);
    let answer = world.get_with(&format!("{REPOSITORY}?k={KEY}"), &[("x-weir-key", SECOND)]).await;
    answer.assert_status(400);
    let sent = world.upstream_requests().len();
    // Beside another key it is dropped, and not refused.
    let headers = [("authorization", bearer(KEY)), ("x-weir-key", SECOND.to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    world.get_with(REPOSITORY, &headers).await.assert_status(200);
    let requests = world.upstream_requests();
    assert!(requests[sent..].iter().all(|entry| entry.status == 200));
}

/// The number of lines of the log with this message about the first key.
fn lines(message: &str) -> usize {
    let log = captured_log::own();
    let of_key = log.lines().filter(|line| line.contains(message));
    of_key.filter(|line| line.contains("\"client\":\"ci\",\"key\":0,")).count()
}

#[tokio::test]
async fn a_key_is_warned_of_once_a_day_from_a_week_before_its_end() {
    captured_log::begin();
    let world = world(Setup::new()).await;
    // The warnings begin with 18 January, in the third night.
    for (hours, expected) in [(48, 0), (16, 1), (23, 1), (2, 2), (22, 2), (1, 3)] {
        for _ in 0..hours {
            world.clock.advance(Duration::from_hours(1));
            tokio::task::yield_now().await;
        }
        eventually(|| lines("a client's key expires soon") == expected).await;
    }
    world.clock.advance(7 * DAY);
    eventually(|| lines("a client's key has expired") == 1).await;
    assert!(!captured_log::own().contains(KEY));
}

#[tokio::test]
async fn a_metric_counts_down_to_the_end_of_a_key() {
    let world = world(Setup::new().listen("admin = \"127.0.0.1:0\"")).await;
    let operator = Operator::of(&world);
    let end = weir::config::parse_expiry("2027-01-24").unwrap();
    let seconds = |at: Timestamp| i64::try_from(at.as_secs()).unwrap();
    for advance in [Duration::ZERO, 10 * DAY] {
        world.clock.advance(advance);
        let body = operator.get("/metrics").await.body;
        let text = String::from_utf8(body.to_vec()).unwrap();
        let left = seconds(end) - seconds(world.clock.now());
        let line = format!("weir_client_key_expiry_seconds{{client=\"ci\",key=\"0\"}} {left}\n");
        assert!(text.contains(&line), "{line}{text}");
        assert!(!text.contains("key=\"1\""), "a key without an end: {text}");
    }
}
