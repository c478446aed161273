//! An upstream by TLS: trusted certificates, and failures that name their cause (SPECIFICATION,
//! "Configuration" and "Logs").

use std::io::{Read, Write};

use serde_json::Value;

use crate::support::proxy::{TestProxy, Tunnel};
use crate::support::tls_upstream::{self, certificate_file};
use crate::support::{Setup, World, captured_log, eventually};

/// A world whose upstream is at this URL, with the certificates of a file to trust.
async fn world(url: String, ca_file: Option<&str>) -> World {
    let key = ca_file.map(|name| format!("ca_file = \"{}\"", certificate_file(name).display()));
    Setup::new().upstream(url).upstream_keys(&key.unwrap_or_default()).start().await
}

/// The `error` in the log line of the failed request.
fn logged_error() -> String {
    let log = captured_log::own();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = lines
        .filter(|line| line["message"] == "request")
        .filter_map(|line| Some(line.get("error")?.as_str()?.to_owned()));
    errors.next_back().unwrap_or_default()
}

#[tokio::test]
async fn an_upstream_with_a_trusted_certificate_is_asked() {
    for (presented, ca_file) in [
        ("server.pem", "authority.pem"),
        // Its own root, as `openssl req -x509` makes it.
        ("self_signed.pem", "self_signed.pem"),
        // Listed itself, and not its authority.
        ("server.pem", "server.pem"),
    ] {
        let address = tls_upstream::start(presented);
        for host in ["127.0.0.1", "localhost"] {
            let url = format!("https://{host}:{}", address.port());
            let world = world(url, Some(ca_file)).await;
            let answer = world.get("/repos/acme/widgets").await;
            answer.assert_status(200);
            assert_eq!(answer.json()["secure"], true, "{presented} at {host}");
        }
    }
}

#[tokio::test]
async fn a_failed_handshake_names_its_cause() {
    captured_log::begin();
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let plain_port = plain.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = plain.accept() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            // A close with unread bytes would be a reset, which hides the answer.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    for (presented, ca_file, cause) in [
        ("server.pem", None, "the issuer of the upstream's certificate is unknown"),
        ("server.pem", Some("self_signed.pem"), "upstream.ca_file can name it"),
        ("expired.pem", Some("authority.pem"), "the upstream's certificate has expired"),
        ("expired_self_signed.pem", Some("expired_self_signed.pem"), "certificate has expired"),
        ("expired.pem", Some("expired.pem"), "certificate has expired"),
        (
            "other_name.pem",
            Some("authority.pem"),
            "is not for the name 127.0.0.1, but for elsewhere.test",
        ),
        ("other_name.pem", Some("other_name.pem"), "is not for the name 127.0.0.1"),
        ("", Some("authority.pem"), "the answer is not TLS; does the upstream speak plain HTTP"),
    ] {
        let port =
            if presented.is_empty() { plain_port } else { tls_upstream::start(presented).port() };
        let world = world(format!("https://127.0.0.1:{port}"), ca_file).await;
        world.get("/repos/acme/widgets").await.assert_status(502);
        let error = logged_error();
        assert!(
            error.starts_with("no connection to the upstream: 127.0.0.1:")
                && error.contains(": TLS: ")
                && error.contains(cause),
            "{presented} {ca_file:?}: {error}"
        );
    }
}

#[tokio::test]
async fn a_refused_connection_is_logged_in_the_systems_words() {
    captured_log::begin();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = world(format!("http://{closed}"), None).await;
    world.get("/repos/acme/widgets").await.assert_status(502);
    let error = logged_error();
    assert!(error.contains("Connection refused (os error 111)"), "{error}");
}

#[tokio::test]
async fn a_reload_takes_another_ca_file() {
    let address = tls_upstream::start("server.pem");
    let world = world(format!("https://{address}"), Some("self_signed.pem")).await;
    world.get("/repos/acme/widgets").await.assert_status(502);
    world.reload(|text| text.replace("self_signed.pem", "authority.pem"));
    world.get("/repos/acme/widgets").await.assert_status(200);
}

#[tokio::test]
async fn a_reload_with_a_missing_ca_file_changes_nothing() {
    let address = tls_upstream::start("server.pem");
    let world = world(format!("https://{address}"), Some("authority.pem")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    let missing = certificate_file("missing.pem").display().to_string();
    let text =
        world.text.replace(&certificate_file("authority.pem").display().to_string(), &missing);
    std::fs::write(&file, text).unwrap();
    world.current.read_from(file);
    let refused = world.current.reload().unwrap_err().to_string();
    assert!(refused.contains("upstream.ca_file: ") && refused.contains("missing.pem"), "{refused}");
    world.get("/repos/acme/widgets").await.assert_status(200);
}

/// The keys of an upstream of `authority.pem` with this certificate for the gateway.
fn keys_with_client_certificate(file: Option<&str>) -> String {
    let ca_file = format!("ca_file = \"{}\"", certificate_file("authority.pem").display());
    file.map_or(ca_file.clone(), |name| {
        let file = certificate_file(name);
        let file = file.display();
        format!("{ca_file}\nclient_certificate = {{ cert = \"{file}\", key = \"{file}\" }}")
    })
}

async fn world_with_client_certificate(port: u16, file: Option<&str>) -> World {
    let keys = keys_with_client_certificate(file);
    Setup::new().upstream(format!("https://127.0.0.1:{port}")).upstream_keys(&keys).start().await
}

#[tokio::test]
async fn an_upstream_that_demands_a_client_certificate_gets_it() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let port =
            tls_upstream::start_for_clients_of("server.pem", "authority.pem", &[version]).port();
        let world = world_with_client_certificate(port, Some("server.pem")).await;
        let answer = world.get("/repos/acme/widgets").await;
        answer.assert_status(200);
        assert_eq!(answer.json()["secure"], true, "{version:?}");
    }
}

#[tokio::test]
async fn a_renewed_client_certificate_is_presented_without_a_signal() {
    captured_log::begin();
    let versions = [&rustls::version::TLS13];
    let port = tls_upstream::start_for_clients_of("server.pem", "authority.pem", &versions).port();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.pem");
    let renew = |name: &str| std::fs::copy(certificate_file(name), &file).unwrap();
    renew("self_signed.pem");
    let ca_file = certificate_file("authority.pem");
    let (ca_file, named) = (ca_file.display(), file.display());
    let keys = format!(
        "ca_file = \"{ca_file}\"\nclient_certificate = {{ cert = \"{named}\", key = \"{named}\" }}"
    );
    let upstream = format!("https://127.0.0.1:{port}");
    let world = Setup::new().upstream(upstream).upstream_keys(&keys).start().await;
    world.get("/repos/acme/widgets").await.assert_status(502);
    let named = named.to_string();
    let lines = |text: &str| {
        let log = captured_log::all();
        log.lines().filter(|line| line.contains(&named) && line.contains(text)).count()
    };
    std::fs::write(&file, "cut off").unwrap();
    eventually(|| lines("a secret was not read again") > 0).await;
    renew("server.pem");
    eventually(|| lines("secrets were read again") > 0).await;
    world.get("/repos/acme/widgets").await.assert_status(200);
}

#[tokio::test]
async fn a_client_certificate_that_is_missing_or_wrong_is_named() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let port =
            tls_upstream::start_for_clients_of("server.pem", "authority.pem", &[version]).port();
        for (file, cause) in [
            (None, "TLS: the upstream demands a client certificate: upstream.client_certificate"),
            (Some("self_signed.pem"), "TLS: the upstream refuses the client certificate"),
        ] {
            captured_log::begin();
            let world = world_with_client_certificate(port, file).await;
            world.get("/repos/acme/widgets").await.assert_status(502);
            let error = logged_error();
            assert!(
                error.starts_with("no connection to the upstream: ") && error.contains(cause),
                "{version:?} {file:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn a_write_stopped_by_a_client_certificate_was_not_executed() {
    let versions = [&rustls::version::TLS13];
    let port = tls_upstream::start_for_clients_of("server.pem", "authority.pem", &versions).port();
    let world = world_with_client_certificate(port, None).await;
    let answer = world.post("/repos/acme/widgets/issues", serde_json::json!({"title": "x"})).await;
    answer.assert_status(502);
    let message = answer.json()["message"].to_string();
    assert!(message.contains("nothing was executed"), "{message}");
}

#[tokio::test]
async fn a_reload_takes_another_client_certificate() {
    let versions = rustls::ALL_VERSIONS;
    let port = tls_upstream::start_for_clients_of("server.pem", "authority.pem", versions).port();
    let world = world_with_client_certificate(port, Some("self_signed.pem")).await;
    world.get("/repos/acme/widgets").await.assert_status(502);
    world.reload(|text| text.replace("self_signed.pem", "server.pem"));
    world.get("/repos/acme/widgets").await.assert_status(200);
}

/// The outcome of `weir check --online` with these keys of `[upstream]` and variables.
fn checked(world: &World, url: &str, keys: &str, variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    let (before, after) = world.text.split_once("[upstream]\n").unwrap();
    let (_, after) = after.split_once('\n').unwrap();
    let text = format!("{before}[upstream]\nurl = \"{url}\"\n{keys}\n{after}");
    std::fs::write(&file, text).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["check", "--online", "--config"])
        .arg(&file)
        .env_remove("SSL_CERT_DIR")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_systems_roots_join_a_ca_file_only_on_demand() {
    let url = format!("https://{}", tls_upstream::start("server.pem"));
    let world = Setup::new().start().await;
    let system = certificate_file("authority.pem").display().to_string();
    let ca_file = format!("ca_file = \"{}\"", certificate_file("self_signed.pem").display());
    for (keys, is_trusted) in [
        (String::new(), true),
        (ca_file.clone(), false),
        (format!("{ca_file}\nca_roots = \"file\""), false),
        (format!("{ca_file}\nca_roots = \"file-and-system\""), true),
    ] {
        let said = checked(&world, &url, &keys, &[("SSL_CERT_FILE", &system)]);
        let expected = if is_trusted {
            "accepted by the upstream"
        } else {
            "the issuer of the upstream's certificate is unknown"
        };
        assert!(said.contains(expected), "{keys}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_online_check_goes_through_the_proxy_of_the_environment() {
    let proxy = TestProxy::start(Tunnel::To(tls_upstream::start("server.pem"))).await;
    let world = Setup::new().start().await;
    let system = certificate_file("authority.pem").display().to_string();
    let url = "https://api.upstream.test";
    let with_user = format!("http://me:s3cret@{}", proxy.address);
    let variables =
        [("HTTPS_PROXY", with_user.as_str()), ("NO_PROXY", ""), ("SSL_CERT_FILE", &system)];
    let said = checked(&world, url, "", &variables);
    let cause = "the upstream's certificate is not for the name api.upstream.test";
    assert!(said.contains(cause) && said.contains("(HTTPS_PROXY)"), "{said}");
    proxy.change(Tunnel::Refused("HTTP/1.1 407 Who?\r\n\r\n"));
    let said = checked(&world, url, "", &variables);
    let by = format!("by the proxy http://{} (HTTPS_PROXY): ", proxy.address);
    assert!(said.contains(&by) && said.contains("rejects a user name and password"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    let said = checked(&world, url, "proxy = \"none\"", &variables);
    assert!(!said.contains("proxy"), "{said}");
}
