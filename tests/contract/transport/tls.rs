//! TLS of the gateway itself: protocols, the choice of a certificate, resumption, and the renewal
//! of certificates without a restart (SPECIFICATION, "Connections").

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, HandshakeKind, StreamOwned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use weir::clock::machine_instant;
use weir::gateway::Drained;

use super::drain::{get as plain_get, is_whole};
use crate::support::raw::Connection;
use crate::support::tls_client::{READ_TIMEOUT, blocking, client, client_of, connect, get};
use crate::support::tls_upstream::certificate_file;
use crate::support::{Setup, World, bounded, captured_log, eventually};

fn https(pairs: &[&Path]) -> String {
    let pair = |path: &&Path| format!("{{ cert = '{0}', key = '{0}' }}", path.display());
    let pairs: Vec<_> = pairs.iter().map(pair).collect();
    format!("https = {{ address = \"127.0.0.1:0\", certificates = [{}] }}", pairs.join(", "))
}

async fn start(pairs: &[&Path]) -> (World, SocketAddr) {
    let world = Setup::new().listen(&https(pairs)).start().await;
    let address = world.https.expect("it listens");
    (world, address)
}

/// The first plain connection shows that the usual wait is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_may_begin_late_in_a_hand_over() {
    let (world, address) = start(&[&certificate_file("server.pem")]).await;
    let mut idle = Connection::open(world.address).await;
    idle.send(plain_get("/repos/acme/widgets", "idle").as_bytes()).await;
    assert!(is_whole(&idle.read_answer().await, 200));
    let tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    eventually(|| accepted(&world.gateway.env.metrics.scrape(|_| ())) == 1).await;
    let (_emulator, drain) = world.into_hand_over(READ_TIMEOUT);
    let draining = tokio::spawn(drain);
    assert_eq!(idle.read_to_close().await, "");
    blocking(move || {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(client(&[]), name).unwrap();
        let answer = get(&mut StreamOwned::new(tls, tcp), "/repos/acme/widgets");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    })
    .await;
    assert_eq!(bounded(draining).await.unwrap(), Drained::Completely);
}

fn handshakes_failed(world: &World) -> bool {
    let metrics = world.gateway.env.metrics.scrape(|_| ());
    metrics.contains("reason=\"tls_handshake\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_over_tls() {
    let (_world, address) = start(&[&certificate_file("server.pem")]).await;
    let answers = blocking(move || {
        let mut stream = connect(&client(&[]), address, "localhost").unwrap();
        assert_eq!(stream.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        ["/repos/acme/widgets", "/repos/acme/widgets", "/repos/acme/widgets/issues"]
            .map(|path| get(&mut stream, path))
    });
    for answer in answers.await {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("\"https://weir.internal:8443/repos/acme/widgets"), "{answer}");
        assert!(!answer.contains("http://weir.internal"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_header_of_a_proxy_goes_before_the_handshake() {
    captured_log::begin();
    let keys = "\ntrusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = true";
    let listen = https(&[&certificate_file("server.pem")]) + keys;
    let world = Setup::new().listen(&listen).start().await;
    let address = world.https.expect("it listens");
    blocking(move || {
        let mut tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        tcp.write_all(b"PROXY TCP4 192.0.2.77 127.0.0.1 1 2\r\n").unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(client(&[]), name).unwrap();
        let answer = get(&mut StreamOwned::new(tls, tcp), "/repos/acme/widgets");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    })
    .await;
    eventually(|| captured_log::all().contains("\"client_address\":\"192.0.2.77\"")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_preferred_by_alpn() {
    let (_world, address) = start(&[&certificate_file("server.pem")]).await;
    blocking(move || {
        for (offered, chosen) in
            [(&[&b"http/1.1"[..], b"h2"][..], &b"h2"[..]), (&[b"http/1.1"], b"http/1.1")]
        {
            let stream = connect(&client(offered), address, "localhost").unwrap();
            assert_eq!(stream.conn.alpn_protocol(), Some(chosen));
        }
        let mut stream = connect(&client(&[b"h2"]), address, "localhost").unwrap();
        // The preface, and empty settings.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).unwrap();
        assert_eq!(frame[3], 0x04, "the gateway's settings");
        assert!(connect(&client(&[b"spdy/3"]), address, "localhost").is_err());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_has_the_name_that_the_client_asks_for() {
    let files = ["server.pem", "other_name.pem"].map(certificate_file);
    let (_world, address) = start(&[&files[0], &files[1]]).await;
    blocking(move || {
        for name in ["localhost", "elsewhere.test", "127.0.0.1"] {
            let mut stream = connect(&client(&[]), address, name).unwrap();
            assert!(get(&mut stream, "/repos/acme/widgets").starts_with("HTTP/1.1 200 "));
        }
        let error = connect(&client(&[]), address, "unknown.test").unwrap_err().to_string();
        assert!(error.contains("localhost"), "the first certificate: {error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_resumed() {
    let (_world, address) = start(&[&certificate_file("server.pem")]).await;
    blocking(move || {
        for version in [&TLS13, &TLS12] {
            let config = client_of(&[version], &[]);
            let kinds = [0; 2].map(|_| {
                let mut stream = connect(&config, address, "localhost").unwrap();
                get(&mut stream, "/repos/acme/widgets");
                stream.conn.handshake_kind().unwrap()
            });
            assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed], "{version:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_served_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let [link, next] = ["tls.pem", "next.pem"].map(|name| folder.path().join(name));
    symlink(certificate_file("server.pem"), &link).unwrap();
    let (world, address) = start(&[&link]).await;
    let before = blocking(move || connect(&client(&[]), address, "localhost").unwrap());
    let mut before = before.await;
    // As Kubernetes and cert-manager do it.
    symlink(certificate_file("other_name.pem"), &next).unwrap();
    fs::rename(&next, &link).unwrap();
    let is_served = |name: &'static str| connect(&client(&[]), address, name).is_ok();
    eventually(|| tokio::task::block_in_place(|| is_served("elsewhere.test"))).await;
    assert!(!is_served("localhost"));
    let answer = blocking(move || get(&mut before, "/repos/acme/widgets")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "an open connection goes on: {answer}");
    drop(world);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_handshake_ends_its_connection_alone() {
    let (world, address) = start(&[&certificate_file("server.pem")]).await;
    blocking(move || {
        let mut plain = TcpStream::connect(address).unwrap();
        plain.write_all(b"GET /repos/acme/widgets HTTP/1.1\r\nHost: weir\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
        assert!(connect(&client(&[]), address, "localhost").is_ok());
    })
    .await;
    eventually(|| handshakes_failed(&world)).await;
}

#[tokio::test]
async fn a_failed_handshake_names_its_cause() {
    captured_log::begin();
    let (_world, address) = start(&[&certificate_file("server.pem")]).await;
    for (sent, cause) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "the client does not speak TLS"),
        (b"", "the client closed the connection during the handshake"),
    ] {
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let _ = client.read_to_end(&mut Vec::new()).await;
        eventually(|| captured_log::own().contains(cause)).await;
    }
    for (config, name, cause) in [
        (client_of(&[&TLS12], &[]), "unknown.test", "with the alert BadCertificate"),
        (client(&[b"spdy/3"]), "localhost", "the client offers no HTTP by ALPN"),
    ] {
        let failed = blocking(move || connect(&config, address, name).is_err());
        assert!(failed.await);
        eventually(|| captured_log::own().contains(cause)).await;
    }
}

/// A client that asks without a pause by its connections in turn, and by a new one each time, until
/// the stop. Returns the requests and the handshakes, none of which failed.
fn asks_until(stop: &AtomicBool, address: SocketAddr, connections: usize) -> (usize, usize) {
    let config = client(&[]);
    let new = || {
        let served = ["localhost", "elsewhere.test"]
            .into_iter()
            .map(|name| connect(&config, address, name))
            .find_map(Result::ok);
        served.expect("one of both certificates is served")
    };
    let mut open: Vec<_> = (0..connections).map(|_| new()).collect();
    let (mut requests, mut handshakes) = (0, connections);
    while !stop.load(Ordering::Relaxed) {
        for stream in &mut open {
            let mut one_more = new();
            handshakes += 1;
            for stream in [stream, &mut one_more] {
                let answer = get(stream, "/repos/acme/widgets");
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                requests += 1;
            }
        }
    }
    (requests, handshakes)
}

/// Open connections during the renewal, unless the environment variable has another number.
const CONNECTIONS: usize = 64;
const CONNECTIONS_VARIABLE: &str = "RENEWAL_CONNECTIONS";

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_under_load_fails_no_request() {
    const CLIENTS: usize = 8;
    let wanted = std::env::var(CONNECTIONS_VARIABLE).ok().and_then(|count| count.parse().ok());
    let connections = wanted.unwrap_or(CONNECTIONS);
    weir::gateway::raise_descriptor_limit();
    let folder = tempfile::tempdir().unwrap();
    let [link, next] = ["tls.pem", "next.pem"].map(|name| folder.path().join(name));
    symlink(certificate_file("server.pem"), &link).unwrap();
    // A client may come back late to each of its connections.
    let patient = "\nheader_timeout = \"5m\"\nidle_timeout = \"5m\"";
    let world = Setup::new().listen(&(https(&[&link]) + patient)).start().await;
    let address = world.https.expect("it listens");
    let stop = Arc::new(AtomicBool::new(false));
    let clients = [(); CLIENTS].map(|()| {
        let stop = Arc::clone(&stop);
        tokio::task::spawn_blocking(move || asks_until(&stop, address, connections / CLIENTS))
    });
    let open = || world.gateway.env.metrics.scrape(|_| ());
    let all = u64::try_from(connections).unwrap();
    eventually(|| accepted(&open()) >= all + 10).await;
    symlink(certificate_file("other_name.pem"), &next).unwrap();
    fs::rename(&next, &link).unwrap();
    let renewed_at = machine_instant();
    let is_served = || connect(&client(&[]), address, "elsewhere.test").is_ok();
    eventually(|| tokio::task::block_in_place(is_served)).await;
    let served_after = renewed_at.elapsed();
    let accepted_then = accepted(&open());
    // Each of them is asked again meanwhile.
    eventually(|| accepted(&open()) >= accepted_then + 2 * all).await;
    stop.store(true, Ordering::Relaxed);
    let (mut requests, mut handshakes) = (0, 0);
    for client in clients {
        let (asked, shaken) = client.await.unwrap();
        (requests, handshakes) = (requests + asked, handshakes + shaken);
    }
    if wanted.is_some() {
        eprintln!(
            "{connections} connections, {requests} requests, {handshakes} handshakes, 0 failed, \
             renewed after {served_after:?}"
        );
        assert!(served_after < Duration::from_secs(5), "{served_after:?}");
    }
}

/// The connections that the listener for TLS has accepted.
fn accepted(metrics: &str) -> u64 {
    let sample = "weir_connections_accepted_total{listener=\"https\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample));
    line.map_or(0, |count| count.parse().unwrap())
}
