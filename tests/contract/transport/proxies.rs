//! The addresses of clients behind trusted proxies: the PROXY protocol, and forwarded addresses
//! (SPECIFICATION, "Connections").

use std::net::Ipv4Addr;

use serde_json::Value;

use super::drain::{get, is_whole};
use crate::support::raw::Connection;
use crate::support::{Setup, World, captured_log, eventually};

const PATH: &str = "/repos/acme/widgets";
/// Only this address is trusted, so that a test can be a stranger too.
const TRUSTED: &str = "trusted_proxies = [\"127.0.8.1\"]\n";
const BY_PROXY_PROTOCOL: &str = "trusted_proxies = [\"127.0.8.1/32\"]\nproxy_protocol = true\n";
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 8, 1);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 8, 2);

async fn start(listen: &str) -> World {
    captured_log::begin();
    Setup::new().listen(listen).start().await
}

/// The client's address in the log line of the request with this id.
async fn logged(id: &str) -> String {
    let line = || {
        let log = captured_log::all();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.into_iter().find(|line| line["request_id"] == id && line["message"] == "request")
    };
    eventually(|| line().is_some()).await;
    line().unwrap()["client_address"].as_str().unwrap_or("none").to_owned()
}

fn with(id: &str, header: &str) -> String {
    get(PATH, id).replace("\r\n\r\n", &format!("\r\n{header}\r\n\r\n"))
}

/// The client of a request with this header line, as the log names it.
async fn client_of(world: &World, source: Ipv4Addr, id: &str, header: &str) -> String {
    let mut connection = Connection::open_from(source, world.address).await;
    connection.send(with(id, header).as_bytes()).await;
    assert!(is_whole(&connection.read_answer().await, 200));
    logged(id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_protocol_names_the_client() {
    let world = start(BY_PROXY_PROTOCOL).await;
    for (id, header, client) in [
        ("proxied-1", "PROXY TCP4 192.0.2.7 127.0.0.1 4660 80\r\n", "192.0.2.7"),
        ("proxied-2", "PROXY UNKNOWN\r\n", "127.0.8.1"),
    ] {
        let mut connection = Connection::open_from(PROXY, world.address).await;
        connection.send((header.to_owned() + &get(PATH, id)).as_bytes()).await;
        assert!(is_whole(&connection.read_answer().await, 200));
        assert_eq!(logged(id).await, client);
    }
    // Every request of the connection has that address, and no header changes it.
    let mut connection = Connection::open_from(PROXY, world.address).await;
    connection.send(b"PROXY TCP6 2001:db8::7 ::1 4660 80\r\n").await;
    for id in ["proxied-3", "proxied-4"] {
        connection.send(with(id, "X-Forwarded-For: 192.0.2.8").as_bytes()).await;
        assert!(is_whole(&connection.read_answer().await, 200));
        assert_eq!(logged(id).await, "2001:db8::7");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_proxy_without_a_header_is_closed() {
    let world = start(BY_PROXY_PROTOCOL).await;
    let mut connection = Connection::open_from(PROXY, world.address).await;
    connection.send(get(PATH, "unnamed").as_bytes()).await;
    assert_eq!(connection.read_to_close().await, "");
    let counted = "weir_connections_ended_total{reason=\"proxy_header\"} 1";
    assert!(world.gateway.env.metrics.encode().contains(counted));
    assert!(captured_log::all().contains("has no header of the PROXY protocol"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_header_has_the_deadline_of_a_head() {
    let world = start(&(BY_PROXY_PROTOCOL.to_owned() + "header_timeout = \"50ms\"")).await;
    let mut connection = Connection::open_from(PROXY, world.address).await;
    connection.send(b"PROXY TCP4 192").await;
    assert_eq!(connection.read_to_close().await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_served_without_a_proxy_header_and_not_with_one() {
    let world = start(BY_PROXY_PROTOCOL).await;
    assert_eq!(client_of(&world, STRANGER, "stranger-1", "X-Other: 1").await, "127.0.8.2");
    for header in [&b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n"] {
        let mut connection = Connection::open_from(STRANGER, world.address).await;
        connection.send(header).await;
        connection.send(get(PATH, "stranger-2").as_bytes()).await;
        let answer = connection.read_to_close().await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_behind_a_proxy_count_by_their_own_addresses() {
    let world = start(&(BY_PROXY_PROTOCOL.to_owned() + "connections_max_per_address = 1")).await;
    let open = async |client: &str| {
        let mut connection = Connection::open_from(PROXY, world.address).await;
        connection.send(format!("PROXY TCP4 {client} 127.0.0.1 1 2\r\n").as_bytes()).await;
        // An answer, or nothing.
        connection.send_unless_closed(get(PATH, client).as_bytes()).await;
        let is_served = is_whole(&connection.read_answer().await, 200);
        (connection, is_served)
    };
    let (_first, is_served) = open("192.0.2.1").await;
    assert!(is_served);
    assert!(!open("192.0.2.1").await.1);
    assert!(open("192.0.2.2").await.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_the_client_that_a_trusted_proxy_forwards() {
    let world = start(TRUSTED).await;
    for (id, header, client) in [
        ("forwarded-1", "X-Forwarded-For: 198.51.100.1, 192.0.2.7, 127.0.8.1", "192.0.2.7"),
        ("forwarded-2", "Forwarded: for=\"[2001:db8::7]:4711\";proto=https", "2001:db8::7"),
        ("forwarded-3", "X-Other: 1", "127.0.8.1"),
    ] {
        assert_eq!(client_of(&world, PROXY, id, header).await, client);
    }
    let upstream = format!("{:?}", world.upstream_requests()).to_lowercase();
    assert!(!upstream.contains("192.0.2.7") && !upstream.contains("2001:db8::7"), "{upstream}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_forwarded_address_is_ignored() {
    let world = start(TRUSTED).await;
    for (id, header) in
        [("spoofed-1", "X-Forwarded-For: 192.0.2.7"), ("spoofed-2", "Forwarded: for=192.0.2.7")]
    {
        assert_eq!(client_of(&world, STRANGER, id, header).await, "127.0.8.2");
    }
    let world = start("").await;
    let untrusted = "X-Forwarded-For: 192.0.2.7";
    assert_eq!(client_of(&world, PROXY, "spoofed-3", untrusted).await, "127.0.8.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_not_bounded_by_the_connections_of_an_address() {
    let world = start(&(TRUSTED.to_owned() + "connections_max_per_address = 1")).await;
    let mut all = Vec::new();
    for id in ["shared-1", "shared-2", "shared-3"] {
        let mut connection = Connection::open_from(PROXY, world.address).await;
        connection.send(get(PATH, id).as_bytes()).await;
        assert!(is_whole(&connection.read_answer().await, 200));
        all.push(connection);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_streams_have_the_address_of_the_proxy_header() {
    use super::trailers::{frame, head};
    let world = start(BY_PROXY_PROTOCOL).await;
    let mut connection = Connection::open_from(PROXY, world.address).await;
    let fields = [head("GET", PATH), super::trailers::field("x-request-id", "stream-1")].concat();
    let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
    let begin = [preface, &frame(0, 4, 0, b""), &frame(1, 1, 5, &fields)].concat();
    let proxied = &b"PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n"[..];
    connection.send(&[proxied, &begin].concat()).await;
    assert_eq!(logged("stream-1").await, "192.0.2.9");
}
