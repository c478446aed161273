//! Keys of this gateway outside of their places: refused, and never sent upstream (SPECIFICATION,
//! "Keys").

use std::fmt::Write as _;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use http::Method;

use crate::support::raw::Connection;
use crate::support::{KEY, OTHER_KEY, Reply, Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUES: &str = "/repos/acme/widgets/issues";

#[track_caller]
fn assert_misplaced(answer: &Reply, position: &str) {
    answer.assert_status(400);
    let body = answer.json();
    assert!(body["message"].as_str().unwrap().contains(position), "{body}");
    assert!(body["documentation_url"].as_str().unwrap().ends_with("#misplaced_key"), "{body}");
    assert!(!format!("{answer:?}").contains(KEY), "{answer:?}");
}

async fn passing_through() -> World {
    Setup::new().config("[passthrough]\nenabled = true").start().await
}

#[tokio::test]
async fn a_key_in_path_query_or_another_header_is_refused() {
    let world = Setup::new().start().await;
    let page = format!("https://example.com/?as={KEY}");
    let encoded = BASE64_STANDARD.encode(KEY);
    for (method, body) in [(Method::GET, ""), (Method::POST, "{\"title\": \"x\"}")] {
        for (name, value) in [
            ("referer", page.as_str()),
            ("x-api-key", KEY),
            ("x-api-key", encoded.as_str()),
            ("private-token", KEY),
            ("private-token", OTHER_KEY),
            ("cookie", &format!("token={KEY}")),
            ("proxy-authorization", &format!("Bearer {KEY}")),
        ] {
            let answer = world.send(method.clone(), ISSUES, &[(name, value)], body).await;
            assert_misplaced(&answer, name);
        }
        for key in [KEY.to_owned(), KEY.replace('_', "%5F"), KEY.replace('_', "%255f")] {
            let query = format!("{ISSUES}?per_page=1&access_token={key}");
            assert_misplaced(&world.send(method.clone(), &query, &[], body).await, "the query");
            let path = format!("{REPOSITORY}/labels/{key}");
            assert_misplaced(&world.send(method.clone(), &path, &[], body).await, "the path");
        }
    }
    // Also without a key in its place.
    let query = format!("{ISSUES}?access_token={KEY}");
    assert_misplaced(&world.get_with(&query, &[("authorization", "")]).await, "the query");
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn an_oddly_spelt_key_in_authorization_is_refused() {
    let world = passing_through().await;
    for value in [
        KEY.to_owned(),
        format!("Bearer\t{KEY}"),
        format!("Bearer \"{KEY}\""),
        format!("Bearer {KEY},"),
        format!("Bearer token {KEY}"),
        format!("Token token={KEY}"),
        format!("Bearer:{KEY}"),
        format!("Bearer {}", KEY.replace('_', "%5f")),
        format!("Basic {}", BASE64_STANDARD.encode(KEY)),
        format!("Basic {}", BASE64_STANDARD_NO_PAD.encode(format!("bot:x:{KEY}"))),
        format!("Bearer {}", BASE64_STANDARD.encode(format!("Bearer {KEY}"))),
        format!("Digest username=\"{OTHER_KEY}\""),
    ] {
        let headers = [("x-weir-key", KEY), ("authorization", value.as_str())];
        assert_misplaced(&world.get_with(REPOSITORY, &headers).await, "authorization");
    }
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn a_remembered_head_does_not_let_a_key_in_the_target_pass() {
    let world = Setup::new().start().await;
    let mut connection = Connection::open(world.address).await;
    let request = |target: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n")
    };
    for target in [REPOSITORY, REPOSITORY] {
        connection.send(request(target).as_bytes()).await;
        assert!(connection.read_answer().await.starts_with("HTTP/1.1 200"));
    }
    let sent = world.upstream_requests().len();
    connection.send(request(&format!("{REPOSITORY}?key={KEY}")).as_bytes()).await;
    assert!(connection.read_answer().await.starts_with("HTTP/1.1 400"));
    assert_eq!(world.upstream_requests().len(), sent);
}

#[tokio::test]
async fn texts_that_only_resemble_a_key_are_served() {
    let world = Setup::new().start().await;
    let mut agent = String::from("weir_bot/1.0");
    for number in 0..20 {
        // Writing to a string cannot fail.
        let _ = write!(agent, " weir_plugin_{number}");
    }
    let path = format!("{ISSUES}?labels=weir_integration_tests_of_the_client");
    world.get_with(&path, &[("user-agent", &agent)]).await.assert_status(200);
}
