//! The addresses of the upstream: attempts at several, and names that are asked about again
//! (SPECIFICATION, "Connections to the upstream").

use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::support::name_server::{Answer, ManyAddresses, NameServer};
use crate::support::{Setup, World, bounded, captured_log, eventually};

fn addresses(texts: &[&str], age: u32) -> Answer {
    Answer::Addresses(texts.iter().map(|text| text.parse().unwrap()).collect(), age)
}

fn setup(server: &NameServer, port: u16, keys: &str) -> Setup {
    let keys = format!("{}\n{keys}", server.keys());
    Setup::new().upstream(format!("http://api.upstream.test:{port}")).upstream_keys(&keys)
}

/// A world whose upstream has a name of this server.
async fn world(server: &NameServer, port: u16, keys: &str) -> World {
    setup(server, port, keys).manual_clock().start().await
}

/// The same for requests that fail: they are tried again after a pause of the machine's clock.
async fn failing_world(server: &NameServer, port: u16, keys: &str) -> World {
    setup(server, port, keys).start().await
}

/// The address of the upstream that answered.
async fn asked_at(world: &World) -> String {
    let answer = world.get("/repos/acme/widgets").await;
    answer.assert_status(200);
    answer.json()["at"].as_str().unwrap().to_owned()
}

/// The `error` in the log line of the last failed request.
fn logged_error() -> String {
    let log = captured_log::own();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = lines
        .filter(|line| line["message"] == "request")
        .filter_map(|line| Some(line.get("error")?.as_str()?.to_owned()));
    errors.next_back().unwrap_or_default()
}

/// A listener at this address that never takes a connection: its queue is full.
fn black_hole(address: &str, port: u16) -> (Socket, Vec<Socket>) {
    let at = format!("{address}:{port}").parse::<std::net::SocketAddr>().unwrap().into();
    let hole = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    hole.bind(&at).unwrap();
    hole.listen(0).unwrap();
    let mut queue = Vec::new();
    loop {
        let waiting = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        match waiting.connect_timeout(&at, Duration::from_millis(300)) {
            Ok(()) => queue.push(waiting),
            Err(_) => return (hole, queue),
        }
    }
}

#[tokio::test]
async fn a_dead_address_does_not_hold_up_the_next() {
    let upstream = ManyAddresses::start(&["127.0.0.2"], false).await;
    let _hole = black_hole("127.0.0.1", upstream.port);
    let server = NameServer::start(addresses(&["127.0.0.1", "127.0.0.2"], 60)).await;
    // Far longer than any test may last.
    let world = world(&server, upstream.port, "connect_timeout = \"1h\"").await;
    assert_eq!(asked_at(&world).await, "127.0.0.2");
}

#[tokio::test]
async fn both_families_are_tried() {
    for (at, others) in [("::1", ["127.0.0.1", "::1"]), ("127.0.0.1", ["::1", "127.0.0.1"])] {
        let upstream = ManyAddresses::start(&[at], false).await;
        let server = NameServer::start(addresses(&others, 60)).await;
        let world = world(&server, upstream.port, "").await;
        assert_eq!(asked_at(&world).await, at);
    }
}

#[tokio::test]
async fn ipv6_is_first_where_both_families_answer() {
    let upstream = ManyAddresses::start(&["127.0.0.1", "::1"], false).await;
    let server = NameServer::start(addresses(&["127.0.0.1", "::1"], 60)).await;
    let world = world(&server, upstream.port, "").await;
    assert_eq!(asked_at(&world).await, "::1");
}

#[tokio::test]
async fn a_failure_names_each_address_that_was_tried() {
    captured_log::begin();
    let upstream = ManyAddresses::start(&["127.0.0.1", "127.0.0.2"], false).await;
    upstream.close("127.0.0.1").await;
    upstream.close("127.0.0.2").await;
    let server = NameServer::start(addresses(&["127.0.0.1", "127.0.0.2"], 60)).await;
    let world = failing_world(&server, upstream.port, "").await;
    world.get("/repos/acme/widgets").await.assert_status(502);
    let (error, port) = (logged_error(), upstream.port);
    let refused = "Connection refused (os error 111)";
    let expected = format!("127.0.0.1:{port}: {refused}; 127.0.0.2:{port}: {refused}");
    assert!(error.ends_with(&expected), "{error}");
}

#[tokio::test]
async fn a_silent_upstream_is_given_up_after_the_connect_timeout() {
    captured_log::begin();
    let upstream = ManyAddresses::start(&["127.0.0.2"], false).await;
    upstream.close("127.0.0.2").await;
    let _hole = black_hole("127.0.0.1", upstream.port);
    let server = NameServer::start(addresses(&["127.0.0.1", "127.0.0.2"], 60)).await;
    let world = failing_world(&server, upstream.port, "connect_timeout = \"500ms\"").await;
    world.get("/repos/acme/widgets").await.assert_status(502);
    let error = logged_error();
    let late = format!("127.0.0.1:{}: timed out", upstream.port);
    assert!(error.contains(&late) && error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn a_name_is_asked_about_again_at_the_age_of_its_records() {
    let upstream = ManyAddresses::start(&["127.0.0.1", "127.0.0.2"], false).await;
    let server = NameServer::start(addresses(&["127.0.0.1"], 60)).await;
    let world = world(&server, upstream.port, "").await;
    assert_eq!(asked_at(&world).await, "127.0.0.1");
    server.change(addresses(&["127.0.0.2"], 60));
    world.clock.advance(Duration::from_secs(59));
    let asked = server.questions();
    assert_eq!((asked_at(&world).await.as_str(), server.questions()), ("127.0.0.1", asked));
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(asked_at(&world).await, "127.0.0.2");
}

#[tokio::test]
async fn a_name_is_asked_about_again_when_a_connection_fails() {
    let upstream = ManyAddresses::start(&["127.0.0.1", "127.0.0.2"], false).await;
    let server = NameServer::start(addresses(&["127.0.0.1"], 3600)).await;
    let world = world(&server, upstream.port, "").await;
    assert_eq!(asked_at(&world).await, "127.0.0.1");
    upstream.close("127.0.0.1").await;
    server.change(addresses(&["127.0.0.2"], 3600));
    world.clock.advance(Duration::from_secs(1));
    // The same request goes to the new address.
    assert_eq!(asked_at(&world).await, "127.0.0.2");
}

#[tokio::test]
async fn an_idle_connection_to_a_former_address_is_let_go() {
    let upstream = ManyAddresses::start(&["127.0.0.1", "127.0.0.2"], true).await;
    let server = NameServer::start(addresses(&["127.0.0.1"], 20)).await;
    let world = world(&server, upstream.port, "").await;
    assert_eq!(asked_at(&world).await, "127.0.0.1");
    server.change(addresses(&["127.0.0.2"], 20));
    let asked = server.questions();
    world.clock.advance(Duration::from_secs(20));
    // On the idle connection, whose end asks about the name.
    assert_eq!(asked_at(&world).await, "127.0.0.1");
    eventually(|| server.questions() >= asked + 2).await;
    // The answer is on its way.
    while asked_at(&world).await == "127.0.0.1" {}
}

#[tokio::test]
async fn a_name_that_is_gone_for_a_moment_is_asked_about_again() {
    let upstream = ManyAddresses::start(&["127.0.0.1", "127.0.0.2"], true).await;
    let server = NameServer::start(addresses(&["127.0.0.1"], 20)).await;
    let world = world(&server, upstream.port, "").await;
    assert_eq!(asked_at(&world).await, "127.0.0.1");
    server.change(Answer::NoSuchName);
    let asked = server.questions();
    world.clock.advance(Duration::from_secs(20));
    // The idle connection stays in use.
    assert_eq!(asked_at(&world).await, "127.0.0.1");
    eventually(|| server.questions() >= asked + 2).await;
    server.change(addresses(&["127.0.0.2"], 20));
    bounded(async {
        while asked_at(&world).await == "127.0.0.1" {
            world.clock.advance(Duration::from_secs(1));
        }
    })
    .await;
}

#[tokio::test]
async fn the_last_known_addresses_serve_while_no_name_server_answers() {
    captured_log::begin();
    let upstream = ManyAddresses::start(&["127.0.0.1"], false).await;
    let server = NameServer::start(addresses(&["127.0.0.1"], 60)).await;
    let world = world(&server, upstream.port, "").await;
    assert_eq!(asked_at(&world).await, "127.0.0.1");
    for failure in [Answer::Failure, Answer::Silence] {
        server.change(failure);
        world.clock.advance(Duration::from_secs(60));
        assert_eq!(asked_at(&world).await, "127.0.0.1");
    }
    let log = captured_log::own();
    assert!(
        log.contains("the name api.upstream.test cannot be resolved: the name server 127.0.0.1:")
            && log.contains("no answer in time; its last known addresses are used"),
        "{log}"
    );
}

#[tokio::test]
async fn a_reload_keeps_the_last_known_addresses() {
    let upstream = ManyAddresses::start(&["127.0.0.1"], false).await;
    let server = NameServer::start(addresses(&["127.0.0.1"], 60)).await;
    let world = world(&server, upstream.port, "response_timeout = \"31s\"").await;
    assert_eq!(asked_at(&world).await, "127.0.0.1");
    server.change(Answer::Failure);
    world.reload(|text| text.replace("31s", "32s"));
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(asked_at(&world).await, "127.0.0.1");
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_named_with_the_reason() {
    for (answer, keys, reason) in [
        (Answer::NoSuchName, "", "the name api.upstream.test does not exist in DNS"),
        (addresses(&[], 60), "", "the name api.upstream.test has no address"),
        (Answer::Failure, "", "the name api.upstream.test cannot be resolved: the name server 127"),
        (Answer::Silence, "connect_timeout = \"300ms\"", "was not resolved in time"),
    ] {
        captured_log::begin();
        let server = NameServer::start(answer).await;
        let world = failing_world(&server, 9, keys).await;
        world.get("/repos/acme/widgets").await.assert_status(502);
        let error = logged_error();
        assert!(error.contains(reason), "{error}");
    }
}
