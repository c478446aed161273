//! The request headers that the upstream sees. The cache key and `Vary` are evaluated on the same
//! ones, so that no client stores an answer for others under a key that is not its own.

use bytes::Bytes;
use http::{HeaderMap, Method, Response};

use crate::support::origin::{Origin, header};
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World};

const LABELS: &str = "/repos/acme/widgets/labels";
const DIFF: &str = "application/vnd.github.diff";
/// The headers by which a proxy or a framework executes another request, or for another caller.
const OVERRIDES: [&str; 22] = [
    "Sudo",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Original-Host",
    "X-Host",
    "X-HTTP-Host-Override",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "X_HTTP_Method_Override",
    "X.HTTP.Method.Override",
    "X-Forwarded-Host",
    "X-Forwarded",
    "X-Real-IP",
    "X-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Weir-Account",
    "X-Remote-User",
    "baggage",
    "traceparent",
    "tracestate",
];
/// The headers of every request to the upstream.
const ALWAYS: [&str; 5] = ["accept", "accept-encoding", "authorization", "host", "user-agent"];

/// An upstream whose response is made from the request headers, in front of it a gateway that
/// serves stored responses unasked.
async fn world_of(
    setup: Setup,
    answer: impl Fn(&HeaderMap) -> Response<Bytes> + Send + Sync + 'static,
) -> (World, Origin) {
    let origin = Origin::start(move |request| {
        let response = answer(request.headers());
        async move { response }
    })
    .await;
    (setup.upstream(origin.url()).start().await, origin)
}

/// A setup for each mode of the cache. In both, stored responses are fresh.
fn modes() -> [Setup; 2] {
    [
        Setup::new().cache_ttl("/repos/{owner}/{repo}/labels", "10m"),
        Setup::new().config("[passthrough]\nenabled = true").rfc9111(),
    ]
}

fn ok(body: &str) -> Response<Bytes> {
    let response = Response::builder().header("cache-control", "max-age=600");
    response.body(body.to_owned().into()).unwrap()
}

/// The names of the headers that the upstream has seen last, sorted, without the usual ones.
fn seen(origin: &Origin) -> Vec<String> {
    let last = origin.last();
    let names = last.headers.keys().map(|name| name.as_str().to_owned());
    let mut names: Vec<_> = names.filter(|name| !ALWAYS.contains(&name.as_str())).collect();
    names.sort_unstable();
    names
}

/// A GET with one header that `Connection` names, over a connection of its own.
async fn get_naming(world: &World, name: &str, value: &str) -> String {
    let mut connection = Connection::open(world.address).await;
    let request = format!(
        "GET {LABELS} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\
         Connection: {name}\r\n{name}: {value}\r\n\r\n"
    );
    connection.send(request.as_bytes()).await;
    connection.read_answer().await
}

#[tokio::test]
async fn a_header_named_by_connection_selects_no_answer() {
    let cases = [
        ("accept", DIFF, ""),
        ("x-github-api-version", "2026-03-10", ""),
        ("accept-language", "de", "Accept-Language"),
        ("user-agent", "odd", "User-Agent"),
    ];
    for (name, value, vary) in cases {
        for setup in modes() {
            let (world, origin) = world_of(setup, move |headers| {
                let mut response = ok(&format!("for {}", header(headers, name)));
                if !vary.is_empty() {
                    response.headers_mut().insert("vary", vary.parse().unwrap());
                }
                response
            })
            .await;
            let named = get_naming(&world, name, value).await;
            assert!(!named.ends_with(&format!("for {value}")), "{named}");
            let reply = world.get_with(LABELS, &[(name, value)]).await;
            assert_eq!(reply.body, format!("for {value}"), "{name}");
            assert_eq!(origin.exchanges().len(), 2, "{name}");
            // In the other order too: each has the answer of what the upstream saw.
            assert_eq!(get_naming(&world, name, value).await.lines().last(), named.lines().last());
        }
    }
}

#[tokio::test]
async fn the_parameters_of_a_media_type_select_an_answer() {
    for setup in modes() {
        let (world, _) = world_of(setup, |headers| ok(header(headers, "accept"))).await;
        for accept in [format!("{DIFF}; plain=1"), DIFF.to_owned(), format!("{DIFF}; plain=2")] {
            for _ in 0..2 {
                let reply = world.get_with(LABELS, &[("accept", &accept)]).await;
                assert_eq!(reply.body, accept);
            }
        }
    }
}

#[tokio::test]
async fn only_listed_headers_pass_with_a_pooled_read() {
    let (world, origin) = world_of(Setup::new(), |_| ok("it")).await;
    let unlisted = [
        "X-Anything",
        "X-GitHub-OTP",
        "X-Requested-With",
        "X-GitHub-Next-Global-ID",
        "X-Service-Api-Version",
        "Origin",
        "Referer",
        "Content-Type",
        "Time-Zone",
        "Private-Token",
        "If-None-Match",
        "Range",
    ];
    let names = unlisted.iter().chain(&OVERRIDES);
    let mut headers: Vec<(&str, &str)> = names.map(|name| (*name, "1")).collect();
    headers.extend([
        ("accept", DIFF),
        ("accept-language", "de"),
        ("user-agent", "a bot"),
        ("x-github-api-version", "2026-03-10"),
    ]);
    for method in [Method::GET, Method::HEAD] {
        world.send(method, LABELS, &headers, "").await.assert_status(200);
        assert_eq!(seen(&origin), ["accept-language", "x-github-api-version"]);
        let last = origin.last();
        assert_eq!((last.header("accept"), last.header("user-agent")), (DIFF, "a bot"));
    }
}

#[tokio::test]
async fn a_read_with_its_own_credential_passes_the_same_headers() {
    let setup = Setup::new().config("[passthrough]\nenabled = true");
    let (world, origin) = world_of(setup, |_| ok("it")).await;
    let own = [("x-weir-key", KEY), ("authorization", "Bearer own")];
    let headers: Vec<_> = own.into_iter().chain(OVERRIDES.map(|name| (name, "1"))).collect();
    world.get_with(LABELS, &headers).await.assert_status(200);
    assert_eq!((origin.last().token(), seen(&origin)), ("own", Vec::new()));
}

#[tokio::test]
async fn the_mode_rfc9111_passes_all_but_overriding_headers() {
    let (world, origin) = world_of(Setup::new().rfc9111(), |_| ok("it")).await;
    let mut headers: Vec<_> = OVERRIDES.iter().map(|name| (*name, "1")).collect();
    // Stored for the whole pool, an answer to one of these would be one client's.
    headers.extend(
        ["private-token", "x-auth-user", "impersonate-user", "x-client-cert", "origin", "x-url"]
            .map(|name| (name, "1")),
    );
    headers.extend([("foo", "1"), ("x-variant", "1")]);
    world.get_with(LABELS, &headers).await.assert_status(200);
    assert_eq!(seen(&origin), ["foo", "via", "x-variant"]);
}

#[tokio::test]
async fn overriding_headers_of_a_write_end_at_the_gateway() {
    let (world, origin) = world_of(Setup::new().unspaced_writes(), |_| ok("it")).await;
    let mut headers: Vec<_> = OVERRIDES.iter().map(|name| (*name, "DELETE")).collect();
    headers.extend([
        ("content-type", "text/plain"),
        ("if-match", "\"a\""),
        ("time-zone", "Europe/Berlin"),
        ("x-github-otp", "123"),
    ]);
    world.send(Method::POST, LABELS, &headers, "{}").await.assert_status(200);
    assert_eq!(
        seen(&origin),
        ["content-length", "content-type", "if-match", "time-zone", "x-github-otp"]
    );
}

#[tokio::test]
async fn a_read_without_a_user_agent_gets_the_gateways() {
    let (world, origin) = world_of(Setup::new(), |_| ok("it")).await;
    let mut connection = Connection::open(world.address).await;
    for line in ["", "User-Agent:\r\n"] {
        let request = format!(
            "GET {LABELS} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n{line}\r\n"
        );
        connection.send(request.as_bytes()).await;
        assert!(connection.read_answer().await.starts_with("HTTP/1.1 200"));
        assert!(origin.last().header("user-agent").starts_with("weir/"), "{line}");
    }
}
