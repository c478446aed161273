//! The admin listener over TLS: its certificate, those of operators, and the commands that use it
//! (SPECIFICATION, "Admin listener").

use std::net::SocketAddr;
use std::process::{Command, Output};

use rustls::ALL_VERSIONS;
use weir::admin::Admin;

use super::operator::TOKEN;
use crate::support::tls_client::{blocking, client_with, connect, get_with};
use crate::support::tls_upstream::certificate_file;
use crate::support::{Setup, World};

fn listens(more: &str) -> String {
    let server = certificate_file("server.pem");
    format!(
        "admin = \"127.0.0.1:0\"\nadmin_tls = {{ cert = '{0}', key = '{0}'{more} }}",
        server.display()
    )
}

fn client_ca() -> String {
    let authority = certificate_file("client_authority.pem");
    format!(", client_ca = '{}', client_auth = \"required\"", authority.display())
}

async fn start(listen: &str) -> (World, SocketAddr) {
    let world = Setup::new().listen(listen).start().await;
    let admin = Admin::open(&world.current).unwrap().address().unwrap();
    (world, admin)
}

fn get(admin: SocketAddr, certificate: Option<&str>, path: &str) -> std::io::Result<String> {
    let config = client_with(ALL_VERSIONS, &[], certificate);
    get_with(&mut connect(&config, admin, "localhost")?, path, "")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_listener_speaks_tls() {
    let (_world, admin) = start(&listens("")).await;
    blocking(move || {
        assert!(get(admin, None, "/healthz").unwrap().starts_with("HTTP/1.1 200 "));
        let ready = get(admin, None, "/readyz").unwrap();
        let (_, left) = ready.split_once("listen.admin_tls: ").expect("it names the certificate");
        let days: u32 = left.split_once(' ').unwrap().0.parse().unwrap();
        assert!((30_000..40_000).contains(&days), "{ready}");
        let metrics = get(admin, None, "/metrics").unwrap();
        let line = "weir_certificate_days_left{listener=\"listen.admin_tls\",certificate=\"";
        assert!(metrics.contains(line), "{metrics}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_usual_number_speak_tls_too() {
    let (_world, admin) = start(&listens("")).await;
    blocking(move || {
        let config = client_with(ALL_VERSIONS, &[], None);
        let held: Vec<_> = (0..64).map(|_| connect(&config, admin, "localhost").unwrap()).collect();
        assert!(get(admin, None, "/healthz").unwrap().starts_with("HTTP/1.1 200 "));
        drop(held);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_without_the_required_certificate_is_refused() {
    let (_world, admin) = start(&listens(&client_ca())).await;
    blocking(move || {
        for certificate in [None, Some("foreign_client.pem"), Some("expired_client.pem")] {
            assert!(get(admin, certificate, "/metrics").is_err(), "{certificate:?}");
        }
        let answer = get(admin, Some("ci_client.pem"), "/metrics").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    })
    .await;
}

/// Runs `weir budgets` with these arguments.
async fn budgets(arguments: Vec<String>) -> Output {
    blocking(move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let folder = tempfile::tempdir().unwrap();
        command.current_dir(folder.path()).env("WEIR_ADMIN_TOKEN", TOKEN);
        command.arg("budgets").args(arguments).output().unwrap()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_ask_an_admin_listener_by_tls() {
    let token = format!("admin_token = {{ value = \"{TOKEN}\" }}\n");
    let (world, admin) = start(&(listens(&client_ca()) + "\n" + &token)).await;
    let path = |name| certificate_file(name).display().to_string();
    let own =
        ["--admin-cert".into(), path("ci_client.pem"), "--admin-key".into(), path("ci_client.pem")];
    let url = ["--admin".to_owned(), format!("https://localhost:{}", admin.port())];
    let authority = ["--admin-ca".to_owned(), path("authority.pem")];
    let output = budgets([&url[..], &authority, &own].concat()).await;
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("account-0"), "{output:?}");
    let output = budgets([&url[..], &own].concat()).await;
    assert!(!output.status.success(), "the system knows no such authority: {output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("UnknownIssuer"), "{output:?}");
    // The config names the very certificate, which needs no name for the address then.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("weir.toml");
    let text = world.text.replace("admin = \"127.0.0.1:0\"", &format!("admin = \"{admin}\""));
    std::fs::write(&config, text).unwrap();
    let named = ["--config".to_owned(), config.display().to_string()];
    let output = budgets([&named[..], &own].concat()).await;
    assert!(output.status.success(), "{output:?}");
    let output = budgets(named.to_vec()).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("give --admin-cert and --admin-key"),
        "{said}"
    );
}
