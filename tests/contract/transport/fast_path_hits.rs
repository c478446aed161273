//! Fast path, hits: responses written before a session exists. They equal the session's responses
//! and leave the same log line.

use std::time::Duration;

use crate::support::raw::{Connection, Parts};
use crate::support::{KEY, OTHER_KEY, Setup, World, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues?per_page=2";
/// Hands the connection to a session and has no other effect.
const BY_SESSION: &str = "TE: trailers\r\n";
const LONG_LIVED: &str = "[[cache.rules]]\nroute = \"/repos/{owner}/{repo}\"\nttl = \"1h\"\n\
     [[cache.rules]]\nroute = \"/repos/{owner}/{repo}/issues\"\nttl = \"1h\"\n\
     [[cache.rules]]\nroute = \"/user\"\nttl = \"1h\"";

/// A world with stored responses of some age.
async fn filled() -> World {
    let world =
        Setup::new().manual_clock().client("allow = [\"GET *\"]").config(LONG_LIVED).start().await;
    for (path, media_type) in
        [(REPOSITORY, "*/*"), (ISSUES, "*/*"), ("/user", "*/*"), ("/repos/acme/nothing", "*/*")]
    {
        world.get_with(path, &[("accept", media_type)]).await;
    }
    world.advance_both(Duration::from_secs(7));
    world
}

fn request(line: &str, headers: &str) -> String {
    let key = if headers.to_ascii_lowercase().contains("key") || headers.contains("uthorization") {
        String::new()
    } else {
        format!("Authorization: Bearer {KEY}\r\n")
    };
    let host = if headers.contains("Host:") { "" } else { "Host: weir:8080\r\n" };
    format!(
        "{line} HTTP/1.1\r\n{host}{key}X-Request-Id: the-same\r\nPrefer: wait=0\r\n{headers}\r\n"
    )
}

async fn answer(world: &World, line: &str, headers: &str) -> Parts {
    answer_on(&mut Connection::open(world.address).await, line, headers).await
}

async fn answer_on(connection: &mut Connection, line: &str, headers: &str) -> Parts {
    connection.send(request(line, headers).as_bytes()).await;
    connection.read_parts(line.starts_with("HEAD"), &["date: "]).await
}

#[tokio::test]
async fn a_fast_hit_equals_the_sessions_response() {
    let world = filled().await;
    let etag = world.get(REPOSITORY).await.header("etag").unwrap().to_owned();
    let own = format!("If-None-Match: {etag}\r\n");
    let listed = format!("If-None-Match: \"x\", {}\r\n", etag.trim_start_matches("W/"));
    let other = format!("Authorization: token {OTHER_KEY}\r\n");
    let header = format!("X-Weir-Key: {KEY}\r\nAuthorization: Bearer theirs\r\n");
    let mut hits = 0;
    for path in [
        REPOSITORY,
        ISSUES,
        "/user",
        "/api/v3/repos/acme/widgets",
        "//repos/acme/widgets",
        "/repos/acme/%77idgets",
        "/repos/acme/widgets?a=%20",
    ] {
        for method in ["GET", "HEAD"] {
            for headers in [
                "",
                &own,
                &listed,
                &other,
                &header,
                "If-None-Match: *\r\n",
                "If-None-Match: \"x\"\r\n",
                "If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT\r\n",
                "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
                "Range: bytes=0-9\r\n",
                "Range: bytes=-5\r\nIf-Range: \"x\"\r\n",
                "Range: bytes=99999999-\r\n",
                "Accept: application/vnd.github+json\r\nAccept: application/json\r\n",
                "accept: application/vnd.github.raw+json\r\n",
                "Host: Other.Example\r\n",
                "Connection: Keep-Alive\r\nUser-Agent: x\r\n",
                "X-Weir-Key: wrong\r\n",
                "Authorization: none\r\n",
                "X-GitHub-Api-Version: 2022-11-28\r\n",
                "Accept-Encoding: gzip\r\n",
                "Accept-Encoding: br;q=1, *;q=0.5\r\nIf-None-Match: \"x\"\r\n",
                "Accept-Encoding: gzip\r\nIf-None-Match: *\r\n",
                "Accept-Encoding: gzip\r\nRange: bytes=0-9\r\n",
                "Cache-Control: max-age=9\r\n",
                "Cache-Control: only-if-cached\r\n",
                "Cache-Control: only-if-cached, no-cache\r\nPragma: x\r\n",
            ] {
                let line = format!("{method} {path}");
                let as_session = format!("{headers}{BY_SESSION}");
                answer(&world, &line, &as_session).await;
                let before = world.upstream_requests().len();
                let hit = answer(&world, &line, headers).await;
                let by_session = answer(&world, &line, &as_session).await;
                assert!(hit.0.starts_with("HTTP/1.1 "), "{line} {headers:?}: {hit:?}");
                // A fetched response differs in its cost.
                if world.upstream_requests().len() == before {
                    assert_eq!(hit, by_session, "{line} {headers:?}");
                }
                hits += usize::from(hit.1.contains("cache-status: weir; hit"));
            }
        }
    }
    assert!(hits > 100, "{hits} hits were compared");
}

#[tokio::test]
async fn earlier_requests_of_a_connection_change_no_response() {
    let world = filled().await;
    // A key of the right length that differs in its last letter.
    let wrong_key =
        format!("{}{}", &KEY[..KEY.len() - 1], if KEY.ends_with('0') { '1' } else { '0' });
    let [own, other, wrong] =
        [KEY, OTHER_KEY, &wrong_key].map(|key| format!("Authorization: Bearer {key}\r\n"));
    let heads = [
        own.clone(),
        other,
        wrong,
        format!("{own}Accept: */*\r\n"),
        format!("{own}If-None-Match: *\r\n"),
        format!("{own}Host: b\r\n"),
    ];
    let lines = [
        "GET /repos/acme/widgets",
        "HEAD /repos/acme/widgets",
        "GET /repos/acme/widgets/issues?per_page=2",
        "GET /api/v3/repos/acme/widgets",
        "GET /user",
        "GET /rate_limit",
        "GET /repos/acme/../widgets",
        "GET /repos/acme/widgets?a=%01",
        "GET /repos/acme/widgets?a=\u{7f}",
        "GET /repos/acme/widgets#a",
        "GET /repos/acme widgets",
        "GET /_weir/nothing",
    ];
    // Responses depend on the base URL of the request, and the clients share stored ones. So every
    // request is made once before the comparison.
    for (head, line) in heads.iter().flat_map(|head| lines.map(|line| (head, line))) {
        answer(&world, line, head).await;
    }
    for (first, second) in
        heads.iter().flat_map(|first| heads.iter().map(move |second| (first, second)))
    {
        for line in lines {
            let mut connection = Connection::open(world.address).await;
            let begun = answer_on(&mut connection, lines[0], first).await;
            if !begun.1.contains("connection: close") {
                let reported = answer_on(&mut connection, line, second).await;
                assert_eq!(
                    reported,
                    answer(&world, line, second).await,
                    "{first} then {line} {second}"
                );
            }
        }
    }
}

#[tokio::test]
async fn pipelined_hits_are_answered_in_order() {
    let world = filled().await;
    let mut connection = Connection::open(world.address).await;
    let three =
        [REPOSITORY, ISSUES, REPOSITORY].map(|path| request(&format!("GET {path}"), "")).concat();
    for _ in 0..2 {
        connection.send(three.as_bytes()).await;
        for begins in ['{', '[', '{'] {
            let answer = connection.read_answer().await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(
                answer.split_once("\r\n\r\n").is_some_and(|(_, body)| body.starts_with(begins)),
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn a_connection_alternates_between_hits_and_misses() {
    let world = filled().await;
    let mut connection = Connection::open(world.address).await;
    let before = world.upstream_requests().len();
    for (line, headers, status) in [
        ("GET /repos/acme/widgets", "", "200"),
        ("GET /repos/acme/sprockets", "", "200"),
        ("GET /repos/acme/widgets", BY_SESSION, "200"),
        ("POST /repos/acme/widgets/issues", "Content-Length: 2\r\n", "403"),
    ] {
        connection.send(request(line, headers).as_bytes()).await;
        if line.starts_with("POST") {
            connection.send(b"{}").await;
        }
        let answer = connection.read_answer().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {answer}");
    }
    assert_eq!(world.upstream_requests().len(), before + 1);
}

#[tokio::test]
async fn a_request_head_in_pieces_is_one_request() {
    let world = filled().await;
    let mut connection = Connection::open(world.address).await;
    let whole = request(&format!("GET {REPOSITORY}"), "");
    for _ in 0..3 {
        for piece in whole.as_bytes().chunks(19) {
            connection.send(piece).await;
            // The gateway may or may not run between the pieces; both are correct.
            tokio::task::yield_now().await;
        }
        assert!(connection.read_answer().await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn a_client_that_never_reads_its_hits_is_disconnected() {
    let world = Setup::new().listen("body_timeout = \"300ms\"").config(LONG_LIVED).start().await;
    world.get(REPOSITORY).await.assert_status(200);
    let mut connection = Connection::open(world.address).await;
    let many = request(&format!("GET {REPOSITORY}"), "").repeat(100);
    while connection.send_unless_full(many.as_bytes()).await {}
    eventually(|| world.gateway.env.active.count() == 0).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_idle_timeout() {
    let world = Setup::new().listen("idle_timeout = \"1s\"").config(LONG_LIVED).start().await;
    world.get(REPOSITORY).await.assert_status(200);
    let mut connection = Connection::open(world.address).await;
    connection.send(request(&format!("GET {REPOSITORY}"), "").as_bytes()).await;
    assert!(connection.read_answer().await.starts_with("HTTP/1.1 200"));
    assert_eq!(connection.read_to_close().await, "");
}
