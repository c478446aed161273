//! HTTP/1.1 and HTTP/2 on one port, and a Unix socket (SPECIFICATION, "Client interface").

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{KEY, Reply, Setup};

#[tokio::test]
async fn http2_without_tls_is_spoken_on_the_same_port() {
    let world = Setup::new().start().await;
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    for (path, key, status) in [
        ("/repos/acme/widgets", KEY, 200),
        ("/repos/acme/widgets", "wrong", 401),
        ("/no/such/route", KEY, 404),
    ] {
        let request = Request::get(format!("http://{}{path}", world.address))
            .header("authorization", format!("Bearer {key}"));
        let answer =
            Reply::read(client.request(request.body(Full::default()).unwrap()).await.unwrap())
                .await;
        answer.assert_status(status);
    }
    world.get("/repos/acme/widgets").await.assert_status(200);
}

#[tokio::test]
async fn a_browsers_preflight_needs_no_key() {
    let world = Setup::new().start().await;
    let answer = world
        .send(http::Method::OPTIONS, "/repos/acme/widgets", &[("authorization", "")], "")
        .await;
    answer.assert_status(204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert!(answer.header("access-control-allow-headers").unwrap().contains("Authorization"));
}

#[tokio::test]
async fn every_answer_has_a_date_and_a_request_id() {
    let world = Setup::new().start().await;
    let kept = world.get_with("/repos/acme/widgets", &[("x-request-id", "mine-1")]).await;
    assert_eq!(kept.header("x-request-id"), Some("mine-1"));
    let made = world.get("/repos/acme/widgets").await;
    assert!(
        made.header("x-request-id").is_some_and(|id| id.len() == 32)
            && made.header("date").is_some()
    );
    assert!(made.header("server-timing").unwrap().contains("upstream;dur="));
    assert_eq!(made.header("x-weir-account"), Some("account-0"));
}

#[tokio::test]
async fn a_unix_socket_serves_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.sock");
    let world = Setup::new().listen(&format!("unix = \"{}\"", path.display())).start().await;
    crate::support::eventually(|| path.exists()).await;
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    // The request of the service's command-line client over a socket.
    let request = format!(
        "GET /repos/acme/widgets HTTP/1.1\r\nHost: api.github.com\r\nAuthorization: token {KEY}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(world);
}

#[tokio::test]
async fn a_unix_socket_that_cannot_be_opened_stops_the_start() {
    use weir::gateway::Listening;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plain-file");
    std::fs::write(&file, "kept").unwrap();
    let taken = directory.path().join("taken.sock");
    let _other = tokio::net::UnixListener::bind(&taken).unwrap();
    for path in [directory.path().join("nowhere/x.sock"), file.clone(), taken] {
        let current =
            Setup::new().listen(&format!("unix = \"{}\"", path.display())).gateway_alone();
        let refused = Listening::open(&current).err().unwrap();
        assert!(refused.to_string().contains("cannot listen on"), "{refused}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
}
