//! Pages of other sites at an admin listener without a token (SPECIFICATION, "Admin listener").

use std::net::SocketAddr;

use super::operator::{ADMIN, ISSUES, Operator, TOKEN, printed};
use crate::support::raw::Connection;
use crate::support::{Setup, World};

const JSON: &str = "Content-Type: application/json";
const PURGE: &str = "POST /api/cache/purge";

/// Sends a request with these header lines and the body of a purge. Returns status and body.
async fn ask(address: SocketAddr, line: &str, host: &str, headers: &[&str]) -> (u16, String) {
    let mut connection = Connection::open(address).await;
    let body = if line.starts_with("POST") { "{\"prefix\": \"/\"}" } else { "" };
    let headers = headers.iter().flat_map(|header| [header, "\r\n"]).collect::<String>();
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    connection.send((head + body).as_bytes()).await;
    let answer = connection.read_to_close().await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

async fn with_a_stored_answer(listen: &str) -> (World, Operator) {
    let world = Setup::new().listen(listen).start().await;
    let operator = Operator::of(&world);
    world.get(ISSUES).await.assert_status(200);
    (world, operator)
}

#[tokio::test]
async fn a_foreign_host_gets_health_alone_from_an_open_listener() {
    let (_world, operator) = with_a_stored_answer(ADMIN).await;
    let port = operator.address.port();
    for host in ["evil.example", "weir", "127.0.0.1.evil.example:80", "localhost.evil.example", ""]
    {
        for line in ["GET /api/budgets", "GET /metrics", "GET /nothing", PURGE] {
            let (status, body) = ask(operator.address, line, host, &[JSON]).await;
            assert_eq!(status, 403, "{line} {host}");
            assert!(body.contains("admin_token"), "{body}");
        }
        for line in ["GET /healthz", "GET /readyz"] {
            assert_eq!(ask(operator.address, line, host, &[]).await.0, 200, "{line} {host}");
        }
    }
    assert_eq!(operator.metric("weir_cache_entries").await, Some(1.0));
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), "[::1]".to_owned()] {
        assert_eq!(ask(operator.address, "GET /api/budgets", &host, &[]).await.0, 200, "{host}");
    }
}

#[tokio::test]
async fn a_page_of_another_site_cannot_act_on_an_open_listener() {
    let (_world, operator) = with_a_stored_answer(ADMIN).await;
    let host = operator.address.to_string();
    let own = format!("Origin: http://{host}");
    for marks in [
        &["Origin: https://evil.example"][..],
        &["Origin: null"],
        &["Origin: http://127.0.0.1"],
        &["Sec-Fetch-Site: cross-site"],
        &["Sec-Fetch-Site: same-site", &own],
        &[&own, "Origin: https://evil.example"],
    ] {
        for line in [PURGE, "POST /api/reload", "POST /api/writes/1f-7/retry", "GET /metrics"] {
            let (status, _) = ask(operator.address, line, &host, &[marks, &[JSON]].concat()).await;
            assert_eq!(status, 403, "{line} {marks:?}");
        }
    }
    assert_eq!(operator.metric("weir_cache_entries").await, Some(1.0));
    let marks = [&own, "Sec-Fetch-Site: same-origin", JSON];
    assert_eq!(ask(operator.address, PURGE, &host, &marks).await.0, 200);
    assert_eq!(operator.metric("weir_cache_entries").await, Some(0.0));
}

#[tokio::test]
async fn a_post_to_an_open_listener_is_json() {
    let (_world, operator) = with_a_stored_answer(ADMIN).await;
    let host = operator.address.to_string();
    for form in [
        &[][..],
        &["Content-Type: text/plain"],
        &["Content-Type: application/x-www-form-urlencoded"],
        &["Content-Type: multipart/form-data; boundary=x"],
        &["Content-Type: text/plain; application/json"],
    ] {
        for line in [PURGE, "POST /api/reload", "POST /api/writes/1f-7/cancel"] {
            let (status, body) = ask(operator.address, line, &host, form).await;
            assert_eq!(status, 415, "{line} {form:?}");
            assert!(body.contains("Content-Type: application/json"), "{body}");
        }
    }
    assert_eq!(operator.metric("weir_cache_entries").await, Some(1.0));
    let json = ["Content-Type: Application/JSON; charset=utf-8"];
    assert_eq!(ask(operator.address, PURGE, &host, &json).await.0, 200);
}

#[tokio::test]
async fn a_token_makes_the_marks_of_browsers_irrelevant() {
    let listen = format!("{ADMIN}\nadmin_token = {{ value = \"{TOKEN}\" }}");
    let (_world, operator) = with_a_stored_answer(&listen).await;
    let authorization = format!("Authorization: Bearer {TOKEN}");
    let headers = [authorization.as_str(), "Origin: https://dashboard.example"];
    assert_eq!(ask(operator.address, PURGE, "weir.internal", &headers).await.0, 200);
    assert_eq!(ask(operator.address, PURGE, "weir.internal", &headers[1..]).await.0, 401);
}

#[tokio::test]
async fn the_commands_act_on_an_open_listener() {
    let (_world, operator) = with_a_stored_answer(ADMIN).await;
    let port = operator.address.port();
    for admin in [operator.address.to_string(), format!("localhost:{port}")] {
        let output = operator.weir("cache", &["purge", "/", "--admin", &admin], None).await;
        assert_eq!(output.status.code(), Some(0), "{admin}: {}", printed(&output));
    }
}
