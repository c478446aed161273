//! Large answers that are stored on disk (SPECIFICATION D1): confirmed, replaced, removed and
//! evicted like others.

use std::time::Duration;

use http::Method;
use weir::gateway::Prefix;

use super::large_bodies::{BYTES, Fixture, PATH, has_parts, head, lower, noise};
use crate::support::raw::Connection;
use crate::support::scripted::ScriptedConnection;
use crate::support::{KEY, config, eventually};

const KEPT: &str = "spool_keep = \"64MiB\"";
const NOT_MODIFIED: &str = "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n";

/// A gateway that has stored this body on disk, with the connection that it came on.
async fn stored(keys: &str, body: &[u8], more: &str) -> (Fixture, ScriptedConnection) {
    let fixture = Fixture::with_cache(&format!("{KEPT}\n{keys}")).await;
    let first = fixture.get();
    let mut connection = fixture.upstream.next().await;
    connection.send([head(body.len(), more).as_bytes(), body].concat()).await;
    let first = first.await.unwrap();
    assert_eq!(first.cache_status(), "weir; fwd=uri-miss; stored");
    assert!(first.body == body);
    eventually(|| entries(&fixture) == 1).await;
    (fixture, connection)
}

fn entries(fixture: &Fixture) -> u64 {
    fixture.world.gateway.env.spool_space.figures().kept_files
}

/// Answers the next request for the stored body with 304.
async fn confirms(fixture: &Fixture, connection: &mut ScriptedConnection) {
    fixture.upstream.next_reusing(connection).await;
    let request = lower(&connection.request);
    assert!(request.contains("if-none-match: \"a\"\r\n"), "{request}");
    connection.send(NOT_MODIFIED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_on_disk_is_confirmed_by_a_304() {
    let body = noise(BYTES);
    let (fixture, mut connection) = stored("", &body, "").await;
    for _ in 0..2 {
        let again = fixture.get();
        confirms(&fixture, &mut connection).await;
        let again = again.await.unwrap();
        again.assert_revalidated();
        assert!(again.body == body, "{} bytes", again.body.len());
        assert_eq!(again.header("content-length"), Some(&*BYTES.to_string()));
    }
    let bytes = fixture.world.gateway.env.spool_space.figures().bytes;
    assert!((BYTES as u64..2 * BYTES as u64).contains(&bytes), "{bytes}");
    let (_, in_memory) = fixture.world.gateway.cache.store().size();
    assert!(in_memory < 10_000, "its head alone is in memory: {in_memory}");
    fixture.assert_no_further_request();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_answer_on_disk_has_parts_without_a_request() {
    let body = noise(BYTES);
    let keys = config::RFC9111;
    let (fixture, _connection) = stored(keys, &body, "Cache-Control: max-age=600\r\n").await;
    has_parts(&fixture, &body).await;
    fixture.get().await.unwrap().assert_hit();
    fixture.assert_no_further_request();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_keeps_the_file_that_others_lose() {
    let body = noise(BYTES);
    let (fixture, mut connection) = stored("", &body, "").await;
    let mut slow = fixture.asks("GET", "").await;
    confirms(&fixture, &mut connection).await;
    assert!(slow.read_head().await.starts_with("HTTP/1.1 200 "));
    fixture.world.clock.advance(Duration::from_secs(5));
    purge(&fixture);
    assert_eq!(entries(&fixture), 0);
    let other = fixture.get();
    fixture.upstream.next_reusing(&mut connection).await;
    assert!(!lower(&connection.request).contains("if-none-match"), "{}", connection.request);
    connection.send(head(2, "") + "hi").await;
    assert_eq!(other.await.unwrap().body, "hi");
    assert!(slow.read_bytes(BYTES).await == body);
    fixture.has_no_files().await;
}

fn purge(fixture: &Fixture) {
    let (gateway, clock) = (&fixture.world.gateway, &fixture.world.clock);
    let purged = gateway.cache.store().purge(&Prefix::new("/repos/acme/").unwrap(), clock.now());
    assert_eq!(purged.entries, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_replaces_the_file() {
    let (body, other) = (noise(BYTES), noise(BYTES / 2));
    let (fixture, mut connection) = stored("", &body, "").await;
    let mut again = fixture.asks("GET", "").await;
    fixture.upstream.next_reusing(&mut connection).await;
    connection.send([head(other.len(), "").as_bytes(), &other].concat()).await;
    again.read_head().await;
    assert!(again.read_bytes(other.len()).await == other);
    let bytes = || fixture.world.gateway.env.spool_space.figures().bytes;
    eventually(|| bytes() < BYTES as u64 && entries(&fixture) == 1).await;
    let again = fixture.get();
    confirms(&fixture, &mut connection).await;
    assert!(again.await.unwrap().body == other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_has_the_file_confirmed_before_its_next_use() {
    let body = noise(BYTES);
    let keys = format!("{}\n{}", config::RFC9111, "stale_if_error = \"0s\"");
    let (fixture, mut connection) = stored(&keys, &body, "Cache-Control: max-age=600\r\n").await;
    fixture.get().await.unwrap().assert_hit();
    fixture.world.clock.advance(Duration::from_secs(1));
    let mut write = Connection::open(fixture.world.address).await;
    let json = serde_json::json!({});
    write.send_write(&Method::PUT, PATH, &[], &json).await;
    fixture.upstream.next_reusing(&mut connection).await;
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await;
    assert!(write.read_head().await.starts_with("HTTP/1.1 200 "));
    fixture.world.clock.advance(Duration::from_secs(1));
    let again = fixture.get();
    confirms(&fixture, &mut connection).await;
    assert!(again.await.unwrap().body == body);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_that_was_not_used_for_longest_makes_room() {
    let fixture = Fixture::with_cache("spool_max = \"60MiB\"\nspool_keep = \"30MiB\"").await;
    let body = noise(BYTES);
    let paths = ["/repos/acme/one/contents/a", "/repos/acme/two/contents/b", PATH];
    let mut connection = None;
    for (path, (stored, evicted)) in paths.into_iter().zip([(1, 0), (2, 0), (2, 1)]) {
        let mut client = fixture.asks_for(path, "GET", "").await;
        let mut answering = match connection.take() {
            None => fixture.upstream.next().await,
            Some(mut connection) => {
                fixture.upstream.next_reusing(&mut connection).await;
                connection
            }
        };
        answering.send([head(BYTES, "").as_bytes(), &body].concat()).await;
        client.read_head().await;
        assert!(client.read_bytes(BYTES).await == body);
        let evictions = || fixture.world.gateway.env.metrics.spool_evictions();
        eventually(|| evictions() == evicted && entries(&fixture) == stored).await;
        connection = Some(answering);
    }
    let mut connection = connection.unwrap();
    for (path, is_kept) in paths.into_iter().zip([false, true]) {
        let mut client = fixture.asks_for(path, "HEAD", "").await;
        fixture.upstream.next_reusing(&mut connection).await;
        let is_conditional = lower(&connection.request).contains("if-none-match");
        assert_eq!(is_conditional, is_kept, "{path}");
        connection.send(if is_kept { NOT_MODIFIED.to_owned() } else { head(2, "") + "hi" }).await;
        assert!(client.read_head().await.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_complete_answers_of_allowed_length_stay_on_disk() {
    let body = noise(BYTES);
    for (keys, more, sent, headers) in [
        ("spool_keep = \"23MiB\"", "", BYTES, ""),
        ("spool_keep = \"0B\"", "", BYTES, ""),
        (KEPT, "", BYTES - 1, ""),
        (KEPT, "Cache-Control: no-store\r\n", BYTES, ""),
        (KEPT, "", BYTES, "Cache-Control: no-store\r\n"),
        (KEPT, "Vary: *\r\n", BYTES, ""),
    ] {
        let fixture = Fixture::with_cache(keys).await;
        let mut client = fixture.asks("GET", headers).await;
        let mut connection = fixture.upstream.next().await;
        let answer = head(BYTES, &format!("Connection: close\r\n{more}"));
        let answer = [answer.as_bytes(), &body[..sent]].concat();
        let sending = tokio::spawn(async move { connection.try_send(answer).await });
        client.read_head().await;
        assert!(client.read_bytes_or_less(BYTES).await.len() == sent);
        assert!(sending.await.unwrap());
        fixture.has_no_files().await;
        assert_eq!(entries(&fixture), 0, "{keys} {more}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_on_disk_has_each_clients_urls_and_no_secrets() {
    let fixture = Fixture::with_cache(KEPT).await;
    let item = format!("{{\"url\":\"{}/repos/acme/widgets\"}}", fixture.upstream.url());
    let list = vec![item; 1000].join(",");
    let body = format!("{{\"temp_clone_token\":\"secret\",\"list\":[{list}]}}");
    let mut connection = None;
    for host in ["one:1", "two:2"] {
        // Without chunks, so that the body is what follows the head.
        let mut client = Connection::open(fixture.world.address).await;
        let request = format!(
            "GET {PATH} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\n\
             Range: bytes=0-9\r\n\r\n"
        );
        client.send(request.as_bytes()).await;
        if connection.is_none() {
            let mut answering = fixture.upstream.next().await;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"a\"\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            );
            answering.send(head + &body).await;
            connection = Some(answering);
        } else if let Some(connection) = &mut connection {
            confirms(&fixture, connection).await;
        }
        let received = client.read_to_close().await;
        assert!(received.starts_with("HTTP/1.1 200 "), "rewritten bytes have no parts");
        let own = format!("http://{host}/repos");
        let counts = (received.matches(&own).count(), received.matches("secret").count());
        assert_eq!(counts, (1000, 0));
        assert!(lower(&received).contains("etag: w/\"a\"\r\n"));
        eventually(|| entries(&fixture) == 1).await;
    }
}
