//! Every URL in a response names the gateway as the client addresses it (SPECIFICATION, "Rewritten
//! URLs").

use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::json;

use crate::support::origin::{Origin, header};
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World};

#[tokio::test]
async fn pagination_links_lead_to_the_end_of_a_list() {
    let world = Setup::new().start().await;
    // Issues and pull requests: more than three pages of twenty.
    let truth = world.count_at_emulator("/repos/acme/widgets/issues?state=all");
    assert!(truth > 60);
    for prefix in ["", "/api/v3"] {
        let mut next = Some(format!("{prefix}/repos/acme/widgets/issues?state=all&per_page=20"));
        let mut seen = 0;
        while let Some(path) = next {
            let page = world.get(&path).await;
            page.assert_status(200);
            seen += page.json().as_array().unwrap().len();
            assert!(path.starts_with(prefix), "{path}");
            next = page.next_page();
        }
        assert_eq!(seen, truth);
    }
}

#[tokio::test]
async fn link_and_body_urls_use_the_clients_host() {
    let world = Setup::new().start().await;
    let page = world
        .get_with("/api/v3/repos/acme/widgets/issues?per_page=2", &[("host", "weir.internal:8443")])
        .await;
    let link = page.header("link").unwrap();
    assert!(
        link.split(", ").all(|entry| entry.starts_with("<http://weir.internal:8443/api/v3/")),
        "{link}"
    );
    for relation in ["next", "last"] {
        assert!(link.contains(&format!("rel=\"{relation}\"")));
    }
    let issue = &page.json()[0];
    assert!(issue["url"].as_str().unwrap().starts_with("http://weir.internal:8443/api/v3/repos/"));
    assert!(!issue["html_url"].as_str().unwrap().contains("weir.internal"));
}

#[tokio::test]
async fn a_base_url_may_end_in_a_slash() {
    let world = Setup::new().cache_ttl("/repos/{owner}/{repo}/issues", "1h").start().await;
    // The base `http://HOST/api/v3/` before the path `/repos/…`, as some libraries join them.
    let page = world.get("/api/v3//repos/acme/widgets/issues?per_page=2").await;
    page.assert_status(200);
    let link = page.header("link").unwrap();
    let base = format!("<http://{}/api/v3/repos/", world.address);
    assert!(link.split(", ").all(|entry| entry.starts_with(&base)), "{link}");
    world.get("/api/v3/repos/acme/widgets/issues?per_page=2").await.assert_hit();
    let release = world.get("/api/v3//repos/acme/widgets/releases").await.json()[0].clone();
    let asset = format!(
        "/api/uploads//repos/acme/widgets/releases/{}/assets?name=joined.txt",
        release["id"].as_u64().unwrap()
    );
    let headers = [("content-type", "text/plain")];
    world.send(Method::POST, &asset, &headers, "content").await.assert_status(201);
    for graphql in ["//graphql", "/api//graphql", "/api/v3//graphql"] {
        let query = json!({ "query": "{viewer{login}}" });
        world.post(graphql, query).await.assert_status(200);
    }
}

async fn raw_answer(world: &World, target: &str, host: &str) -> String {
    let mut connection = Connection::open(world.address).await;
    let request = format!("GET {target} HTTP/1.1\r\n{host}Authorization: Bearer {KEY}\r\n\r\n");
    connection.send(request.as_bytes()).await;
    connection.read_answer().await
}

#[tokio::test]
async fn an_absolute_target_is_served_like_its_path() {
    let world = Setup::new().cache_ttl("/repos/{owner}/{repo}", "1h").start().await;
    let same = "Host: weir.internal\r\n";
    for (target, host, base) in [
        ("/repos/acme/widgets", same, "http://weir.internal"),
        ("http://weir.internal/repos/acme/widgets", same, "http://weir.internal"),
        ("https://weir.internal/repos/acme/widgets", same, "https://weir.internal"),
        ("HTTPS://weir.internal:8443/repos/acme/widgets", same, "https://weir.internal:8443"),
        // RFC 9112 §3.2.2: the host of the target counts.
        ("http://weir.internal/repos/acme/widgets", "Host: other\r\n", "http://weir.internal"),
    ] {
        let answer = raw_answer(&world, target, host).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
        let url = format!("\"{base}/repos/acme/widgets\"");
        assert!(answer.contains(&url), "{target}: {answer}");
    }
    // One key of the cache for all.
    let fetched = world.upstream_requests();
    assert_eq!(fetched.len(), 1, "{fetched:?}");
    for (target, host) in [
        ("https://weir.internal/user", ""),
        ("ftp://weir.internal/user", same),
        ("https:/weir.internal/user", same),
        ("https://user@weir.internal/user", same),
    ] {
        let answer = raw_answer(&world, target, host).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{target}: {answer}");
    }
}

/// The rewritten head is as long as its target's host, and no byte of the next request moves.
#[tokio::test]
async fn a_connection_goes_on_after_an_absolute_target() {
    let world = Setup::new().unspaced_writes().start().await;
    let message = |line: &str, host: &str, body: &str| {
        format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let (get, issue) = ("GET /repos/acme/widgets", "{\"title\":\"absolute\"}");
    let far = "https://a.much.longer.name.than.the.host:8443/api/v3/repos/acme/widgets";
    let requests = [
        (message(&format!("GET {far}"), "b", ""), "https://a.much.longer"),
        (message(get, "first", ""), "http://first/"),
        (message(&format!("POST {far}/issues"), "b", issue), "https://a.much.longer"),
        (message("GET http://c/repos/acme/widgets", "long.host.name", ""), "http://c/"),
        (message("POST http://c/repos/acme/widgets/issues", "long.name", issue), "http://c/"),
        (message(get, "last", ""), "http://last/"),
    ];
    for is_pipelined in [false, true] {
        let mut connection = Connection::open(world.address).await;
        if is_pipelined {
            let all: String = requests.iter().map(|(request, _)| request.as_str()).collect();
            connection.send(all.as_bytes()).await;
        }
        for (request, base) in &requests {
            if !is_pipelined {
                connection.send(request.as_bytes()).await;
            }
            let answer = connection.read_answer().await;
            assert!(answer.starts_with("HTTP/1.1 20"), "{request}: {answer}");
            assert!(answer.contains(&format!("\"{base}")), "{request}: {answer}");
        }
    }
}

#[tokio::test]
async fn no_response_names_the_upstreams_address() {
    let world = Setup::new().start().await;
    let upstream = world.emulator.addr().to_string();
    for path in [
        "/",
        "/repos/acme/widgets",
        "/repos/acme/widgets/issues",
        "/repos/acme/widgets/releases",
        "/user",
        "/notifications",
    ] {
        let answer = world.get(path).await;
        answer.assert_status(200);
        let urls_left: Vec<_> = String::from_utf8_lossy(&answer.body)
            .match_indices(&upstream)
            .map(|(at, _)| at)
            .collect();
        assert!(urls_left.is_empty(), "{path}: {}", String::from_utf8_lossy(&answer.body));
        assert!(!format!("{:?}", answer.headers).contains(&upstream), "{path}");
    }
}

#[tokio::test]
async fn public_url_replaces_the_clients_host() {
    let world = Setup::new().listen("public_url = \"https://weir.example\"").start().await;
    let page = world.get("/repos/acme/widgets/issues?per_page=2").await;
    assert!(page.header("link").unwrap().starts_with("<https://weir.example/"));
    assert!(page.json()[0]["url"].as_str().unwrap().starts_with("https://weir.example/repos/"));
}

#[tokio::test]
async fn a_redirect_leads_to_the_gateway() {
    let world = Setup::new().start().await;
    let moved = world.get("/api/v3/repos/acme/cogs").await;
    moved.assert_status(301);
    let location = moved.header("location").unwrap();
    assert!(
        location.starts_with(&format!("http://{}/api/v3/repositories/", world.address)),
        "{location}"
    );
    let path = &location[location.find("/api/v3").unwrap()..];
    assert_eq!(world.get(path).await.json()["name"], "sprockets");
}

#[tokio::test]
async fn forwarded_headers_are_not_trusted() {
    let world = Setup::new().start().await;
    let answer = world
        .get_with(
            "/repos/acme/widgets",
            &[("x-forwarded-host", "evil.example"), ("forwarded", "host=evil.example")],
        )
        .await;
    assert!(!String::from_utf8_lossy(&answer.body).contains("evil.example"));
}

/// A response with a digest: text, or JSON with an upstream URL, short or long.
async fn digested(request: Request<()>) -> Response<Bytes> {
    let url = format!("http://{}{}", header(request.headers(), "host"), request.uri().path());
    let (media_type, long) = (
        if url.ends_with("/readme") { "text/plain" } else { "application/json" },
        url.ends_with("/issues"),
    );
    let padding = " ".repeat(if long { 4096 } else { 0 });
    let response = DIGESTS
        .iter()
        .fold(Response::builder().header("content-type", media_type), |response, name| {
            response.header(*name, "x")
        });
    response.body(format!("{{\"url\":\"{url}\"{padding}}}").into()).unwrap()
}

const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

#[tokio::test]
async fn a_digest_is_passed_on_only_with_its_own_bytes() {
    let origin = Origin::start(digested).await;
    let world = Setup::new()
        .upstream(origin.url())
        .cache("max_object = \"1KiB\"\nfreshness = \"rfc9111\"")
        .start()
        .await;
    // A text, a response that is stored, and one that is too long for it.
    for (path, is_as_sent) in [("/readme", true), ("/labels", false), ("/issues", false)] {
        for _ in 0..2 {
            let answer = world.get(&format!("/repos/acme/widgets{path}")).await;
            answer.assert_status(200);
            for name in DIGESTS {
                assert_eq!(answer.header(name).is_some(), is_as_sent, "{path}: {name}");
            }
        }
    }
    let written = world
        .send(
            Method::POST,
            "/repos/acme/widgets/labels",
            &[("content-type", "application/json")],
            "{}",
        )
        .await;
    written.assert_status(200);
    assert!(DIGESTS.iter().all(|name| written.header(name).is_none()), "{written:?}");
}
