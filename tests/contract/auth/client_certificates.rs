//! Clients that are known by a certificate: whom the gateway takes them for, and the certificates
//! that it refuses (SPECIFICATION, "Keys").

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::client::{ResolvesClientCert, Resumption, Tls12Resumption};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ALL_VERSIONS, ClientConfig, HandshakeKind, SignatureScheme};
use serde_json::Value;
use weir::clock::{Clock, Timestamp};

use crate::support::tls_client::{blocking, client_with, connect, get_with};
use crate::support::tls_upstream::certificate_file;
use crate::support::{KEY, OTHER_KEY, Setup, World, captured_log, eventually};

const WIDGETS: &str = "/repos/acme/widgets";
/// The names of `ci_client.pem`.
const URI: &str = "spiffe://corp.test/ci";
const DNS: &str = "ci.corp.test";

fn listens(client_ca: &str, more: &str) -> String {
    let server = certificate_file("server.pem");
    format!(
        "https = {{ address = \"127.0.0.1:0\", cert = '{0}', key = '{0}', client_ca = '{client_ca}'{more} }}",
        server.display()
    )
}

fn authority() -> String {
    certificate_file("client_authority.pem").display().to_string()
}

/// A gateway whose client `certified` has the certificate of this name, and no key.
async fn start(more: &str, name: &str) -> (World, SocketAddr) {
    let client = format!("[[clients]]\nname = \"certified\"\ncertificate = \"{name}\"\n");
    let setup = Setup::new().listen(&listens(&authority(), more)).config(&client);
    let world = setup.start().await;
    let address = world.https.expect("it listens");
    (world, address)
}

/// The answer to a GET with these header lines by a client with this certificate.
async fn asks(
    address: SocketAddr,
    certificate: Option<&'static str>,
    headers: String,
) -> std::io::Result<String> {
    blocking(move || {
        let config = client_with(ALL_VERSIONS, &[], certificate);
        get_with(&mut connect(&config, address, "localhost")?, WIDGETS, &headers)
    })
    .await
}

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

fn requests_of(world: &World, client: &str) -> bool {
    world.gateway.env.metrics.scrape(|_| ()).contains(&format!("client=\"{client}\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_two_clients_identifies_none() {
    let clients = format!(
        "[[clients]]\nname = \"one\"\ncertificate = \"{URI}\"\n[[clients]]\nname = \"two\"\ncertificate = \"{DNS}\"\n"
    );
    let setup = Setup::new().listen(&listens(&authority(), "")).config(&clients);
    let world = setup.start().await;
    let address = world.https.expect("it listens");
    let answer = asks(address, Some("ci_client.pem"), String::new()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(answer.contains("belong to several clients"), "{answer}");
    let answer = asks(address, Some("ci_client.pem"), bearer(KEY)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_identifies_its_client_without_a_key() {
    for name in [URI, DNS] {
        let (world, address) = start("", name).await;
        let answer = asks(address, Some("ci_client.pem"), String::new()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{name}: {answer}");
        eventually(|| requests_of(&world, "certified")).await;
        assert!(!requests_of(&world, "ci"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_optional_certificate_leaves_keys_in_use() {
    let (world, address) = start("", URI).await;
    let answer = asks(address, None, bearer(KEY)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = asks(address, Some("nobody_client.pem"), bearer(KEY)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for certificate in [None, Some("nobody_client.pem")] {
        let answer = asks(address, certificate, String::new()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    }
    eventually(|| requests_of(&world, "ci")).await;
    assert!(!requests_of(&world, "certified"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_has_ended_identifies_nobody() {
    let client = format!("[[clients]]\nname = \"certified\"\ncertificate = \"{URI}\"\n");
    let setup = Setup::new().manual_clock().listen(&listens(&authority(), "")).config(&client);
    let world = setup.start().await;
    let address = world.https.expect("it listens");
    let (mut open, config) = blocking(move || {
        let config = client_with(ALL_VERSIONS, &[], Some("ci_client.pem"));
        let mut open = connect(&config, address, "localhost").unwrap();
        assert!(get_with(&mut open, WIDGETS, "").unwrap().starts_with("HTTP/1.1 200 "));
        (open, config)
    })
    .await;
    // `ci_client.pem` ends with the year 2119.
    world.clock.advance(Duration::from_secs(100 * 366 * 24 * 60 * 60));
    blocking(move || {
        // It was valid when the connection began.
        assert!(get_with(&mut open, WIDGETS, "").unwrap().starts_with("HTTP/1.1 401 "));
        let again = connect(&config, address, "localhost");
        assert!(again.and_then(|mut again| get_with(&mut again, WIDGETS, "")).is_err());
    })
    .await;
}

/// The certificate of a client whose files are renewed while it keeps its sessions.
#[derive(Debug)]
struct Renewed {
    is_renewed: AtomicBool,
    certificates: [Arc<dyn ResolvesClientCert>; 2],
}

impl ResolvesClientCert for Renewed {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let now = usize::from(self.is_renewed.load(Ordering::SeqCst));
        self.certificates[now].resolve(authorities, schemes)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The kind of the handshake of a client that is then served.
fn handshake(config: &Arc<ClientConfig>, address: SocketAddr) -> Option<HandshakeKind> {
    let mut stream = connect(config, address, "localhost").unwrap();
    let answer = get_with(&mut stream, WIDGETS, "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stream.conn.handshake_kind()
}

/// By tickets of both versions, and by a session that the gateway keeps.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_ends_the_old_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let authorities = ["client_authority.pem", "renewed_authority.pem"]
        .map(|name| fs::read_to_string(certificate_file(name)).unwrap());
    let client_ca = folder.path().join("ca.pem");
    fs::write(&client_ca, authorities.concat()).unwrap();
    let https = listens(&client_ca.display().to_string(), "");
    let client = format!("[[clients]]\nname = \"certified\"\ncertificate = \"{URI}\"\n");
    for (version, way) in [
        (&TLS13, Tls12Resumption::Disabled),
        (&TLS12, Tls12Resumption::SessionIdOrTickets),
        (&TLS12, Tls12Resumption::SessionIdOnly),
    ] {
        // A minute before the end of `ci_client.pem`.
        let clock = Clock::manual(Timestamp::from_secs(4_733_510_340));
        let setup = Setup::new().clock(clock).listen(&https).config(&client);
        let world = setup.start().await;
        let address = world.https.expect("it listens");
        let certificates = ["ci_client.pem", "renewed_client.pem"].map(|name| {
            Arc::clone(&client_with(&[version], &[], Some(name)).client_auth_cert_resolver)
        });
        let renewed = Arc::new(Renewed { is_renewed: AtomicBool::new(false), certificates });
        let mut config = ClientConfig::clone(&client_with(&[version], &[], None));
        config.client_auth_cert_resolver = Arc::clone(&renewed) as _;
        config.resumption = Resumption::in_memory_sessions(8).tls12_resumption(way);
        let config = Arc::new(config);
        let asks = async || {
            let config = Arc::clone(&config);
            blocking(move || handshake(&config, address)).await
        };
        assert_eq!(asks().await, Some(HandshakeKind::Full));
        assert_eq!(asks().await, Some(HandshakeKind::Resumed), "{version:?} {way:?}");
        renewed.is_renewed.store(true, Ordering::SeqCst);
        world.clock.advance(Duration::from_secs(120));
        assert_eq!(asks().await, Some(HandshakeKind::Full));
        assert_eq!(asks().await, Some(HandshakeKind::Resumed), "{version:?} {way:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_client_contradicts_the_certificate() {
    let (_world, address) = start("", URI).await;
    for headers in [bearer(OTHER_KEY), format!("X-Weir-Key: {OTHER_KEY}\r\n")] {
        let answer = asks(address, Some("ci_client.pem"), headers).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(answer.contains("belong to different clients"), "{answer}");
    }
    let unknown = asks(address, Some("ci_client.pem"), "X-Weir-Key: weir_x\r\n".into()).await;
    assert!(unknown.unwrap().starts_with("HTTP/1.1 401 "));
}

#[tokio::test]
async fn a_bad_certificate_ends_the_handshake() {
    captured_log::begin();
    for more in ["", ", client_auth = \"required\""] {
        let (_world, address) = start(more, URI).await;
        for (certificate, cause) in
            [("expired_client.pem", "expired"), ("foreign_client.pem", "UnknownIssuer")]
        {
            let refused = asks(address, Some(certificate), String::new()).await;
            assert!(refused.is_err(), "{certificate}: {refused:?}");
            eventually(|| {
                let log = captured_log::own();
                log.contains("the client's certificate is refused") && log.contains(cause)
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_required_certificate_must_be_presented() {
    let (_world, address) = start(", client_auth = \"required\"", URI).await;
    assert!(asks(address, None, bearer(KEY)).await.is_err());
    let answer = asks(address, Some("nobody_client.pem"), bearer(KEY)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_session_keeps_its_client() {
    let (_world, address) = start("", URI).await;
    blocking(move || {
        for version in [&TLS13, &TLS12] {
            let config = client_with(&[version], &[], Some("ci_client.pem"));
            for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
                let mut stream = connect(&config, address, "localhost").unwrap();
                let answer = get_with(&mut stream, WIDGETS, "").unwrap();
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                assert_eq!(stream.conn.handshake_kind(), Some(kind), "{version:?}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_knows_its_client_under_a_new_config() {
    let (world, address) = start("", URI).await;
    let config = client_with(ALL_VERSIONS, &[], Some("ci_client.pem"));
    let mut stream = blocking(move || {
        let mut stream = connect(&config, address, "localhost").unwrap();
        assert!(get_with(&mut stream, WIDGETS, "").unwrap().starts_with("HTTP/1.1 200 "));
        stream
    })
    .await;
    world.reload(|text| text.replace(URI, "spiffe://corp.test/gone"));
    let answer = blocking(move || get_with(&mut stream, WIDGETS, "").unwrap()).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_authorities_are_in_force_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let [link, next] = ["ca.pem", "next.pem"].map(|name| folder.path().join(name));
    symlink(certificate_file("authority.pem"), &link).unwrap();
    let client = format!("[[clients]]\nname = \"certified\"\ncertificate = \"{URI}\"\n");
    let https = listens(&link.display().to_string(), "");
    let world = Setup::new().listen(&https).config(&client).start().await;
    let address = world.https.unwrap();
    assert!(asks(address, Some("ci_client.pem"), String::new()).await.is_err());
    symlink(certificate_file("client_authority.pem"), &next).unwrap();
    fs::rename(&next, &link).unwrap();
    let asks = || {
        let config = client_with(ALL_VERSIONS, &[], Some("ci_client.pem"));
        let stream = connect(&config, address, "localhost");
        stream.and_then(|mut stream| get_with(&mut stream, WIDGETS, "")).is_ok()
    };
    eventually(|| tokio::task::block_in_place(asks)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_beside_a_certificate_is_the_clients_own() {
    let client = format!("[[clients]]\nname = \"certified\"\ncertificate = \"{URI}\"\n");
    let setup = Setup::new().listen(&listens(&authority(), ""));
    let setup = setup.config("[passthrough]\nenabled = true").config(&client);
    let world = setup.start().await;
    let address = world.https.unwrap();
    let own = bearer("emu_classic_cleo_all_scopes");
    let answer = blocking(move || {
        let config = client_with(ALL_VERSIONS, &[], Some("ci_client.pem"));
        let mut stream = connect(&config, address, "localhost").unwrap();
        get_with(&mut stream, "/user", &own).unwrap()
    })
    .await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let user: Value = serde_json::from_str(body).unwrap();
    assert_eq!(user["login"], "cleo", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_another_kind_identifies_nobody() {
    // Its URI has the text of the DNS name: constraints of an authority are about one kind only.
    let authority = certificate_file("kinds_authority.pem").display().to_string();
    for (name, status) in [(DNS, 401), ("spiffe@corp.test", 200)] {
        let client = format!("[[clients]]\nname = \"certified\"\ncertificate = \"{name}\"\n");
        let setup = Setup::new().listen(&listens(&authority, "")).config(&client);
        let world = setup.start().await;
        let address = world.https.unwrap();
        let answer = asks(address, Some("kinds_client.pem"), String::new()).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
    }
}
