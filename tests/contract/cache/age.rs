//! Age: the time of the request counts, not that of the response, for the lifetime and for the
//! choice between two responses. Also a client's date, and a late `no-store`.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

use crate::support::origin::{Origin, header};
use crate::support::scripted::{ScriptedConnection, ScriptedUpstream};
use crate::support::{Reply, Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";

fn after(world: &World, seconds: u64) {
    world.clock.advance(Duration::from_secs(seconds));
}

/// Sends a response with its remaining budget, so that no other request waits for it.
async fn send(world: &World, connection: &mut ScriptedConnection, version: u32) {
    let reset = world.clock.now().as_secs() + 1_800;
    let left = format!(
        "x-ratelimit-limit: 5000\r\nx-ratelimit-remaining: 4000\r\nx-ratelimit-used: 1000\r\nx-ratelimit-reset: {reset}\r\n"
    );
    let body = format!("{{\"v\":{version}}}");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
    connection
        .send(format!(
            "{head} {}\r\n{left}x-ratelimit-resource: core\r\netag: \"{version}\"\r\n\r\n{body}",
            body.len()
        ))
        .await;
}

fn version(reply: &Reply) -> Option<u64> {
    reply.json()["v"].as_u64()
}

#[tokio::test]
async fn transit_time_counts_against_the_lifetime() {
    let scripted = ScriptedUpstream::start().await;
    let world = Setup::new()
        .upstream(scripted.url())
        .manual_clock()
        .cache_ttl("/repos/{owner}/{repo}", "10s")
        .start()
        .await;
    let upstream = async {
        let mut connection = scripted.next().await;
        after(&world, 8);
        send(&world, &mut connection, 1).await;
        connection
    };
    let (first, _connection) = tokio::join!(world.get(REPOSITORY), upstream);
    first.assert_status(200);
    after(&world, 1);
    let hit = world.get(REPOSITORY).await;
    assert_eq!((hit.cache_status(), hit.header("age")), ("weir; hit", Some("9")));
    after(&world, 1);
    let stored = world.get_with(REPOSITORY, &[("cache-control", "only-if-cached")]).await;
    assert_ne!(stored.cache_status(), "weir; hit");
}

#[tokio::test]
async fn a_late_response_to_an_earlier_request_replaces_nothing() {
    let scripted = ScriptedUpstream::start().await;
    let setup = Setup::new()
        .upstream(scripted.url())
        .manual_clock()
        .cache_ttl("/repos/{owner}/{repo}", "10s");
    let world = setup.unspaced_writes().start().await;
    let upstream = async {
        let mut connection = scripted.next().await;
        send(&world, &mut connection, 0).await;
        connection
    };
    let (first, connection) = tokio::join!(world.get("/repos/acme/other"), upstream);
    first.assert_status(200);
    drop(connection);
    let upstream = async {
        let mut late = scripted.next().await;
        after(&world, 1);
        let written = async {
            let mut connection = scripted.next().await;
            connection.send("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            connection
        };
        let (reply, _connection) =
            tokio::join!(world.send(http::Method::PATCH, REPOSITORY, &[], "{}"), written);
        reply.assert_status(204);
        after(&world, 1);
        let read = async {
            let mut connection = scripted.next().await;
            send(&world, &mut connection, 2).await;
            connection
        };
        let (reply, _connection) = tokio::join!(world.get(REPOSITORY), read);
        assert_eq!(version(&reply), Some(2));
        send(&world, &mut late, 1).await;
        late
    };
    let (first, _late) = tokio::join!(world.get(REPOSITORY), upstream);
    assert_eq!(version(&first), Some(1), "it was asked before the change");
    let kept = world.get_with(REPOSITORY, &[("cache-control", "only-if-cached")]).await;
    assert_eq!((kept.cache_status(), version(&kept)), ("weir; hit", Some(2)));
}

/// A repository that changed at this second of a minute, as of another second of it.
fn changed(second: u32, now: u32) -> Response<Bytes> {
    let date = |second| format!("Tue, 01 Jul 2025 00:00:{second:02} GMT");
    let response = Response::builder()
        .header("last-modified", date(second))
        .header("date", date(now))
        .header("etag", "\"it\"");
    response.header("content-type", "application/json").body("{}".into()).unwrap()
}

#[tokio::test]
async fn an_ambiguous_date_revalidates_no_clients_copy() {
    for (second, status) in [(25, 200), (5, 304)] {
        let origin = Origin::start(move |_: Request<()>| async move { changed(second, 30) }).await;
        let world = Setup::new().upstream(origin.url()).start().await;
        let held = world.get(REPOSITORY).await;
        let date = held.header("last-modified").unwrap();
        world.get_with(REPOSITORY, &[("if-modified-since", date)]).await.assert_status(status);
    }
}

#[tokio::test]
async fn a_304_with_no_store_removes_the_stored_response() {
    let origin = Origin::start(|request: Request<()>| async move {
        let is_known = header(request.headers(), "if-none-match") == "\"it\"";
        let response =
            Response::builder().header("etag", "\"it\"").header("content-type", "application/json");
        let response = if is_known {
            response.status(304).header("cache-control", "no-store")
        } else {
            response
        };
        response.body(if is_known { Bytes::new() } else { "{}".into() }).unwrap()
    })
    .await;
    for config in ["", "[cache]\nfreshness = \"rfc9111\""] {
        let world = Setup::new().upstream(origin.url()).config(config).start().await;
        for conditional in [false, true, false] {
            world.get(REPOSITORY).await.assert_status(200);
            assert_eq!(origin.last().header("if-none-match") == "\"it\"", conditional, "{config}");
        }
    }
}
