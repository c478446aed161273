//! Tests the server: both protocols, gates, disconnecting clients.

use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::clock::Clock;
use crate::emulator::events::delivery::sender::WebhookSender;
use crate::emulator::faults::gates::GateId;
use crate::emulator::server::{Handle, Server};
use crate::emulator::tests::*;

type Http = Client<HttpConnector, Full<Bytes>>;

async fn serve() -> Handle {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let clock = Clock::manual(START);
    Server::start(listener, Emulator::new(Options::default(), clock.now()), clock, Duration::ZERO)
}

fn http1() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn ask(
    client: &Http,
    handle: &Handle,
    method: Method,
    path: &str,
    body: Bytes,
) -> (u16, Value) {
    let uri = format!("http://{}{path}", handle.addr());
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("authorization", format!("Bearer {ADA}"))
        .header("content-type", "application/json")
        .body(Full::new(body))
        .expect("well formed");
    let response = client.request(request).await.expect("an answer");
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

#[tokio::test]
async fn the_server_speaks_http1_and_h2c_on_one_port() {
    let handle = serve().await;
    let h2: Http = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    for client in [http1(), h2] {
        let (status, body) = ask(&client, &handle, Method::GET, "/user", Bytes::new()).await;
        assert_eq!((status, &body["login"]), (200, &json!("ada")));
        assert_eq!(body["url"], format!("http://{}/users/ada", handle.addr()));
    }
    let (_, usage) = ask(&http1(), &handle, Method::GET, "/_emulator/books", Bytes::new()).await;
    assert_eq!(usage["secondary"][0]["in_flight"], 0, "an answered request is not in flight");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_control_request_waits_until_a_gate_holds_requests() {
    let handle = serve().await;
    let client = http1();
    let (_, gate) = ask(
        &client,
        &handle,
        Method::POST,
        "/_emulator/gates",
        Bytes::from(r#"{"match":{"path":"/user"}}"#),
    )
    .await;
    let id = gate["id"].as_u64().expect("an id");
    let held = async {
        let (first, second) = tokio::join!(
            ask(&client, &handle, Method::GET, "/user", Bytes::new()),
            ask(&client, &handle, Method::GET, "/user", Bytes::new())
        );
        assert_eq!((first.0, second.0), (200, 200));
    };
    let opened = async {
        let (_, seen) = ask(
            &client,
            &handle,
            Method::GET,
            &format!("/_emulator/gates/{id}?held=2"),
            Bytes::new(),
        )
        .await;
        assert_eq!(seen["held"], 2);
        assert_eq!(handle.with_emulator(|emulator| emulator.held(GateId(id))), 2);
        let (status, _) =
            ask(&client, &handle, Method::DELETE, &format!("/_emulator/gates/{id}"), Bytes::new())
                .await;
        assert_eq!(status, 200);
    };
    tokio::join!(held, opened);
    handle.shutdown().await;
}

#[tokio::test]
async fn a_disconnected_client_leaves_its_gate() {
    let handle = serve().await;
    let client = http1();
    let (_, gate) = ask(
        &client,
        &handle,
        Method::POST,
        "/_emulator/gates",
        Bytes::from(r#"{"match":{"path":"/user"}}"#),
    )
    .await;
    let gate = GateId(gate["id"].as_u64().expect("an id"));
    let mut leaving = Box::pin(ask(&client, &handle, Method::GET, "/user", Bytes::new()));
    tokio::select! {
        _ = &mut leaving => panic!("it is held"),
        () = handle.wait_until_held(gate, 1) => {}
    }
    drop(leaving);
    let one_more = http1();
    let freed = async {
        while handle.with_emulator(|emulator| emulator.held(gate)) > 0 {
            ask(&one_more, &handle, Method::GET, "/_emulator/books", Bytes::new()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), freed).await.expect("the slot is freed");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_body_above_the_limit_is_413_and_an_upload_is_only_counted() {
    let handle = serve().await;
    let client = http1();
    let large = Bytes::from(vec![b'x'; 11 * 1024 * 1024]);
    let (_, releases) =
        ask(&client, &handle, Method::GET, "/repos/acme/widgets/releases", Bytes::new()).await;
    let path = format!(
        "/api/uploads/repos/acme/widgets/releases/{}/assets?name=large.bin",
        releases[0]["id"]
    );
    let (status, asset) = ask(&client, &handle, Method::POST, &path, large).await;
    assert_eq!((status, &asset["size"]), (201, &json!(11 * 1024 * 1024)));
    let just_too_large = Bytes::from(vec![b'x'; 10 * 1024 * 1024 + 1]);
    let (status, _) =
        ask(&client, &handle, Method::POST, "/repos/acme/widgets/issues", just_too_large).await;
    assert_eq!(status, 413);
    handle.shutdown().await;
}

#[tokio::test]
async fn a_too_large_content_length_is_413_before_the_body() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let handle = serve().await;
    for path in ["/repos/acme/widgets/issues", "/graphql", "/_emulator/limits"] {
        let mut stream = tokio::net::TcpStream::connect(handle.addr()).await.expect("a connection");
        let method = if path.starts_with("/_emulator") { "PUT" } else { "POST" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADA}\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("it is read");
        let mut answer = Vec::new();
        // Reads to the end of the connection, because raw bytes do not separate two responses.
        stream.read_to_end(&mut answer).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 413 "), "{path}: {answer}");
        assert!(answer.contains("\"message\":"), "{path}: {answer}");
    }
    handle.shutdown().await;
}

#[tokio::test]
async fn the_server_shuts_down_with_all_connections_in_use() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let clock = Clock::manual(START);
    let emulator = Emulator::new(Options::default(), clock.now());
    let handle = Server::start_narrow(
        listener,
        emulator,
        clock,
        Duration::ZERO,
        WebhookSender::default(),
        1,
    );
    let client = http1();
    let (_, gate) = ask(
        &client,
        &handle,
        Method::POST,
        "/_emulator/gates",
        Bytes::from(r#"{"match":{"path":"/user"}}"#),
    )
    .await;
    let gate = GateId(gate["id"].as_u64().expect("an id"));
    let request = Request::get(format!("http://{}/user", handle.addr()))
        .body(Full::new(Bytes::new()))
        .expect("well formed");
    let held = tokio::spawn(client.request(request));
    handle.wait_until_held(gate, 1).await;
    tokio::time::timeout(Duration::from_secs(30), handle.shutdown()).await.expect("it ends");
    assert!(held.await.expect("the request was sent").is_err(), "its connection went");
}

#[tokio::test]
async fn the_control_plane_has_no_names_but_localhost() {
    let handle = serve().await;
    let client = http1();
    let port = handle.addr().port();
    for (host, path, status) in [
        (format!("127.0.0.1:{port}"), "/_emulator/world", 200),
        (format!("localhost:{port}"), "/_emulator/world", 200),
        (format!("evil.example:{port}"), "/_emulator/world", 403),
        (format!("localhost.evil.example:{port}"), "/_emulator/books", 403),
        ("emulator".to_owned(), "/rate_limit", 200),
    ] {
        let uri = format!("http://{}{path}", handle.addr());
        let request = Request::get(uri).header("host", &host).body(Full::default());
        let response = client.request(request.expect("well formed")).await.expect("an answer");
        assert_eq!(response.status().as_u16(), status, "{host}{path}");
    }
    handle.shutdown().await;
}
