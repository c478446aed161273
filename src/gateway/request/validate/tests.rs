//! The validation rules for requests, one by one.

use http::HeaderValue;

use super::*;

fn take(raw: &str) -> Result<ValidRequest, Malformed> {
    let mut lines = raw.split("\r\n");
    let mut request_line = lines.next().unwrap_or_default().split(' ');
    let method = Method::from_bytes(request_line.next().unwrap_or_default().as_bytes()).unwrap();
    let target = request_line.next().unwrap_or_default();
    let uri: Uri = target.parse().map_err(|_| Malformed::Bad("a target that is no URI"))?;
    let mut headers = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        headers.append(
            http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value.trim()).unwrap(),
        );
    }
    check(&method, Methods::Documented, &uri, &headers, Wire::Http1(raw.as_bytes()))
}

fn get(target: &str) -> Result<ValidRequest, Malformed> {
    take(&format!("GET {target} HTTP/1.1\r\nHost: weir:8080\r\n\r\n"))
}

#[test]
fn every_shape_leads_to_the_same_canonical_path() {
    for (target, root, service, path) in [
        ("/repos/a/b", Root::Plain, Service::Rest, "/repos/a/b"),
        ("//repos/a/b", Root::Plain, Service::Rest, "/repos/a/b"),
        ("/api/v3/repos/a/b", Root::V3, Service::Rest, "/repos/a/b"),
        ("/api/v3", Root::V3, Service::Rest, "/"),
        ("/api/v3/", Root::V3, Service::Rest, "/"),
        ("/api/v3//", Root::V3, Service::Rest, "/"),
        ("/api/v3//repos/a/b", Root::V3, Service::Rest, "/repos/a/b"),
        ("//api/v3///repos/a/b", Root::V3, Service::Rest, "/repos/a/b"),
        ("/api/v3//graphql", Root::V3, Service::Graphql, "/graphql"),
        ("/api/v3//_weir/writes/1", Root::V3, Service::Weir, "/_weir/writes/1"),
        ("/api/uploads//repos/a/b", Root::V3, Service::Uploads, "/repos/a/b"),
        ("/api/v3/_weir/writes/1-2", Root::V3, Service::Weir, "/_weir/writes/1-2"),
        ("/api/v3/_weird", Root::V3, Service::Rest, "/_weird"),
        ("/api/v3x", Root::Plain, Service::Rest, "/api/v3x"),
        ("/graphql", Root::Plain, Service::Graphql, "/graphql"),
        ("/api/graphql", Root::V3, Service::Graphql, "/graphql"),
        ("/api/v3/graphql", Root::V3, Service::Graphql, "/graphql"),
        (
            "/api/uploads/repos/a/b/releases/1/assets",
            Root::V3,
            Service::Uploads,
            "/repos/a/b/releases/1/assets",
        ),
        ("/_weir/writes/1", Root::Plain, Service::Weir, "/_weir/writes/1"),
    ] {
        let valid = get(target).unwrap();
        assert_eq!(
            (valid.root, valid.service, valid.path.as_str()),
            (root, service, path),
            "{target}"
        );
    }
}

#[test]
fn an_encoded_letter_is_the_letter() {
    assert_eq!(get("/%75ser").unwrap().path, "/user");
    assert_eq!(get("/a%2fb/x%7e%c3%a9").unwrap().path, "/a%2Fb/x~%C3%A9");
    assert_eq!(get("/%61pi/v3/user").unwrap().path, "/user");
}

#[test]
fn a_second_or_misspelled_address_prefix_is_rejected() {
    for target in [
        "/api/v3/api/v3/user",
        "/api/v3//api/v3/user",
        "/api/v3/repos//b",
        "/api/v3x//repos",
        "/api/v3/API/V3/user",
        "/api/v3/api%2fv3/user",
        "/API/v3/user",
        "/api%2Fv3/user",
        "/api/uploads/api/v3/x",
    ] {
        assert!(matches!(get(target), Err(Malformed::Bad(_))), "{target}");
    }
}

#[test]
fn a_request_line_is_not_repaired() {
    for line in [
        "GET  /x HTTP/1.1",
        "GET x HTTP/1.1",
        "GET w:443 HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET ftp://a/x HTTP/1.1",
        "GET /x HTTP/2.0",
        "GET /x",
    ] {
        assert!(check_request_line(line.as_bytes()).is_err(), "{line}");
    }
    assert!(get("/x?q=%01").is_err() && get("/x?q=%7F").is_err() && get("/x?q=%0A%20").is_ok());
}

#[test]
fn headers_that_select_an_answer_are_unique_and_ascii() {
    assert!(take("GET / HTTP/1.1\r\nHost: a\r\nX-GitHub-Api-Version: 1\r\nX-GitHub-Api-Version: 2\r\n\r\n").is_err());
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_bytes("a/b; x=\"é\"".as_bytes()).unwrap());
    assert!(check_one_ascii(&headers).is_err());
}

#[test]
fn a_host_is_a_name_or_an_address_with_a_port() {
    for host in ["weir", "weir:8080", "api.example.com", "127.0.0.1:1", "[::1]", "[::1]:80", "a_b"]
    {
        assert!(absolute::is_host(host), "{host}");
    }
    for host in [
        "", "]:[", "h:abc", ":80", "..", "a..b", "h:99999", "[::1", "[x]:1", "a/b", "a b", "u@h",
        "h:+1",
    ] {
        assert!(!absolute::is_host(host), "{host}");
    }
}

#[test]
fn an_encoded_slash_is_data() {
    assert_eq!(
        get("/repos/a/b/contents/x%2Fy?ref=a%0Ab").unwrap().target(),
        "/repos/a/b/contents/x%2Fy?ref=a%0Ab"
    );
}

#[test]
fn an_ambiguous_path_is_rejected() {
    for target in [
        "/a/../b",
        "/a/./b",
        "/a/%2e%2E/b",
        "/a/.%2e",
        "/a/x%2F..%2fb",
        "/a/%2e%2e%5cb",
        "/a//b",
        "/a%00",
        "/a%0d%0ab",
        "/a%7f",
        "/a%zz",
        "/a%2",
    ] {
        assert!(matches!(get(target), Err(Malformed::Bad(_))), "{target}");
    }
}

#[test]
fn ambiguous_framing_is_rejected() {
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: +5",
        "Content-Length: 005",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "X: a\nContent-Length: 5",
    ] {
        let raw = format!("POST /a HTTP/1.1\r\nHost: w\r\n{headers}\r\n\r\n");
        let parsed = format!(
            "POST /a HTTP/1.1\r\nHost: w\r\n{}\r\n\r\n",
            headers.replace('\n', "\r\n").replace("\r\r", "\r")
        );
        let refused = take(&parsed).is_err() || check_raw_head(raw.as_bytes()).is_err();
        assert!(refused, "{headers}");
    }
}

#[test]
fn a_length_that_the_parser_hides_is_seen() {
    let raw =
        b"POST /a HTTP/1.1\r\nHost: w\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_static("w"));
    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    let answer = check(
        &Method::POST,
        Methods::Documented,
        &Uri::from_static("/a"),
        &headers,
        Wire::Http1(raw),
    );
    assert_eq!(answer, Err(Malformed::Bad("both Transfer-Encoding and Content-Length")));
}

#[test]
fn exactly_one_plain_host_is_needed() {
    assert!(take("GET / HTTP/1.1\r\n\r\n").is_err());
    assert!(take("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n").is_err());
    assert!(take("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n").is_err());
    // RFC 9112 §3.2.2: a Host beside an absolute target is needed, and ignored.
    assert_eq!(take("GET https://b:1/ HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().host, "b:1");
    for refused in [
        "GET http://b/ HTTP/1.1\r\n\r\n",
        "GET http://b/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET http://b/ HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET http://user@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET ftp://b/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET httpss://b/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET https:/b HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET https:///b HTTP/1.1\r\nHost: b\r\n\r\n",
    ] {
        assert!(take(refused).is_err(), "{refused}");
    }
    for target in ["http://a/x", "https://a/x", "HTTPS://a/x", "/x"] {
        let valid = take(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
        assert_eq!(valid.path, "/x", "{target}");
    }
    assert_eq!(take("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n").unwrap().host, "[::1]:8080");
}

#[test]
fn size_and_method_faults_have_errors_of_their_own() {
    assert_eq!(get(&format!("/{}", "a".repeat(9000))), Err(Malformed::TargetTooLong));
    assert_eq!(take("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"), Err(Malformed::Method));
    assert_eq!(take("BREW / HTTP/1.1\r\nHost: a\r\n\r\n"), Err(Malformed::Method));
    let many = (0..101).fold(String::from("GET / HTTP/1.1\r\nHost: a\r\n"), |raw, n| {
        raw + &format!("X-{n}: 1\r\n")
    }) + "\r\n";
    assert_eq!(take(&many), Err(Malformed::HeadTooLarge));
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(HEAD_BYTES_MAX));
    assert_eq!(take(&long), Err(Malformed::HeadTooLarge));
}

#[test]
fn a_zero_length_is_no_body() {
    assert_eq!(
        take("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").unwrap().body,
        BodyFraming::None
    );
    assert_eq!(
        take("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n").unwrap().body,
        BodyFraming::Length(12)
    );
}
