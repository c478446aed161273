//! A proxy between gateway and upstream (SPECIFICATION, "Connections to the upstream").

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::name_server::ManyAddresses;
use crate::support::proxy::{TestProxy, Tunnel};
use crate::support::tls_upstream::{self, certificate_file};
use crate::support::{Setup, World, captured_log};

/// `bot:s3cret` for Basic.
const CREDENTIALS: &str = "Basic Ym90OnMzY3JldA==";

async fn world(url: &str, keys: &str) -> World {
    Setup::new().upstream(url.to_owned()).upstream_keys(keys).start().await
}

fn with_credentials(proxy: SocketAddr) -> String {
    format!(
        "proxy = {{ url = \"http://{proxy}\", username = \"bot\", password = {{ value = \"s3cret\" }} }}"
    )
}

fn trusting(file: &str) -> String {
    format!("ca_file = \"{}\"", certificate_file(file).display())
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

#[tokio::test]
async fn tls_goes_through_the_tunnel_to_the_upstream_itself() {
    let upstream = tls_upstream::start("server.pem");
    let proxy = TestProxy::start(Tunnel::To(upstream)).await;
    let keys = format!("{}\n{}", with_credentials(proxy.address), trusting("authority.pem"));
    let world = world("https://localhost:8443", &keys).await;
    let answer = world.get("/repos/acme/widgets").await;
    answer.assert_status(200);
    assert_eq!(answer.json()["secure"], true);
    let heads = proxy.heads();
    assert_eq!(
        heads.first().map(String::as_str),
        Some(
            format!(
                "CONNECT localhost:8443 HTTP/1.1\r\nHost: localhost:8443\r\nProxy-Authorization: {CREDENTIALS}\r\n\r\n"
            )
            .as_str()
        )
    );
    assert!(heads.iter().all(|head| head.starts_with("CONNECT ")), "{heads:?}");
}

#[tokio::test]
async fn a_tunnel_is_used_again_for_reads() {
    let upstream = tls_upstream::start("server.pem");
    let proxy = TestProxy::start(Tunnel::To(upstream)).await;
    let keys = format!("proxy = \"http://{}\"\n{}", proxy.address, trusting("authority.pem"));
    let world = world("https://localhost:8443", &keys).await;
    for _ in 0..3 {
        world.get("/repos/acme/widgets").await.assert_status(200);
    }
    assert_eq!(proxy.heads().len(), 1);
}

#[tokio::test]
async fn plain_http_goes_through_a_tunnel_without_credentials() {
    let received = TestProxy::start(Tunnel::Refused(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    ))
    .await;
    let proxy = TestProxy::start(Tunnel::To(received.address)).await;
    let world = world("http://api.upstream.test", &with_credentials(proxy.address)).await;
    world.get("/repos/acme/widgets").await.assert_status(200);
    assert!(proxy.heads()[0].starts_with("CONNECT api.upstream.test:80 HTTP/1.1\r\n"));
    let upstream = received.heads();
    assert!(upstream[0].starts_with("GET /repos/acme/widgets HTTP/1.1\r\n"), "{upstream:?}");
    for head in upstream {
        let head = head.to_lowercase();
        assert!(!head.contains("proxy") && !head.contains("ym90onmzy3jlda"), "{head}");
    }
}

#[tokio::test]
async fn the_name_of_the_upstream_is_verified_through_the_tunnel() {
    captured_log::begin();
    let proxy = TestProxy::start(Tunnel::To(tls_upstream::start("other_name.pem"))).await;
    let keys = format!("{}\n{}", with_credentials(proxy.address), trusting("authority.pem"));
    let world = world("https://localhost:8443", &keys).await;
    world.get("/repos/acme/widgets").await.assert_status(502);
    let error = logged_error();
    assert!(
        error.starts_with("no connection to the upstream: by the proxy http://127.0.0.1:")
            && error.contains("is not for the name localhost, but for elsewhere.test"),
        "{error}"
    );
}

#[tokio::test]
async fn a_refusal_of_the_proxy_is_named_without_the_password() {
    for (answer, keys, cause) in [
        (
            "HTTP/1.1 407 Authenticate\r\nProxy-Authenticate: Basic\r\n\r\n",
            "",
            "the proxy demands a user name and password: it answered 407 Proxy Authentication",
        ),
        (
            "HTTP/1.1 407 Authenticate\r\nProxy-Authenticate: Basic\r\n\r\n",
            "with credentials",
            "the proxy rejects a user name and password: it answered 407 Proxy Authentication",
        ),
        (
            "HTTP/1.1 403 s3cret\r\n\r\n",
            "with credentials",
            "the proxy opens no tunnel to localhost:8443: it answered 403 Forbidden",
        ),
        ("HTTP/1.1 503 Busy\r\n\r\n", "", "to localhost:8443: it answered 503 Service Unavailable"),
        ("", "", "the proxy closed the connection without an answer"),
        ("SSH-2.0-x\r\n", "", "the proxy's answer is not HTTP/1.1"),
    ] {
        captured_log::begin();
        let proxy = TestProxy::start(Tunnel::Refused(answer)).await;
        let keys = match keys {
            "" => format!("proxy = \"http://{}\"", proxy.address),
            _ => with_credentials(proxy.address),
        };
        let world = world("https://localhost:8443", &keys).await;
        world.get("/repos/acme/widgets").await.assert_status(502);
        let error = logged_error();
        let by = format!("by the proxy http://{}: ", proxy.address);
        assert!(error.contains(&by) && error.contains(cause), "{error}");
        let log = captured_log::own();
        assert!(!log.contains("s3cret") && !log.contains(CREDENTIALS), "{log}");
    }
}

#[tokio::test]
async fn a_silent_proxy_is_given_up_after_the_connect_timeout() {
    captured_log::begin();
    let proxy = TestProxy::start(Tunnel::Silence).await;
    let keys = format!("proxy = \"http://{}\"\nconnect_timeout = \"300ms\"", proxy.address);
    let world = world("https://localhost:8443", &keys).await;
    world.get("/repos/acme/widgets").await.assert_status(502);
    let error = logged_error();
    assert!(error.contains(&format!("{}: no tunnel in time", proxy.address)), "{error}");
}

#[tokio::test]
async fn a_write_without_a_connection_in_time_was_not_executed() {
    captured_log::begin();
    let proxy = TestProxy::start(Tunnel::Silence).await;
    let times = "connect_timeout = \"1m\"\ntotal_timeout = \"300ms\"";
    let keys = format!("proxy = \"http://{}\"\n{times}", proxy.address);
    let world = world("https://localhost:8443", &keys).await;
    let reply = world.post("/repos/acme/widgets/issues", json!({ "title": "x" })).await;
    reply.assert_status(502);
    let link = reply.json()["documentation_url"].as_str().unwrap().to_owned();
    assert!(link.ends_with("#upstream_unreachable"), "{link}");
    let error = logged_error();
    assert!(
        error.contains(&format!("by the proxy http://{}: none when", proxy.address)),
        "{error}"
    );
    let metrics = world.gateway.env.metrics.encode();
    assert!(!metrics.contains("weir_upstream_requests_total{"), "{metrics}");
}

#[tokio::test]
async fn a_reload_takes_another_proxy() {
    let upstream = ManyAddresses::start(&["127.0.0.1"], false).await;
    let to = SocketAddr::from(([127, 0, 0, 1], upstream.port));
    let (one, other) =
        (TestProxy::start(Tunnel::To(to)).await, TestProxy::start(Tunnel::To(to)).await);
    let keys = format!("proxy = \"http://{}\"", one.address);
    let world = world("http://api.upstream.test", &keys).await;
    world.get("/repos/acme/widgets").await.assert_status(200);
    let asked = one.heads().len();
    world.reload(|text| text.replace(&one.address.to_string(), &other.address.to_string()));
    world.get("/repos/acme/widgets").await.assert_status(200);
    assert_eq!((one.heads().len(), other.heads().len()), (asked, 1));
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_used() {
    let upstream = tls_upstream::start("server.pem");
    let proxy = TestProxy::start(Tunnel::To(upstream)).await;
    let world = world("http://api.upstream.test", &trusting("server.pem")).await;
    let env =
        |name: &str| (name == "http_proxy").then(|| format!("http://bot:s3cret@{}", proxy.address));
    let config = weir::config::parse(&world.text, "test", &env, Path::new(".")).unwrap();
    proxy.change(Tunnel::Refused("HTTP/1.1 502 Bad Gateway\r\n\r\n"));
    world.current.apply_config(config);
    world.get("/repos/acme/widgets").await.assert_status(502);
    assert!(proxy.heads()[0].contains(CREDENTIALS), "{:?}", proxy.heads());
}
