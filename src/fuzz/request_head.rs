//! Heads of requests: the gateway's reader, its validation, and the framework's parser agree.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::pieces::plans;
use crate::gateway::address::Service;
use crate::gateway::error::Malformed;
use crate::gateway::request::validate::absolute::with_host_of_target;
use crate::gateway::request::validate::{
    HEAD_BYTES_MAX, HEADERS_MAX, Methods, ValidRequest, Wire, check, framing_of,
};
use crate::gateway::server::head::HeadReader;

/// The end of a head depends on its bytes alone. All readers of a valid head find one end, one
/// framing and one host. A valid address is canonical.
pub fn request_head(input: &[u8]) {
    let length = length_of(&[input]);
    for plan in plans(input) {
        assert_eq!(length_of(&plan), length, "the end depends on the pieces");
    }
    let parsed = parse(input);
    match length {
        Ok(Some(length)) => {
            assert!(length <= HEAD_BYTES_MAX && input[..length].ends_with(b"\r\n\r\n"));
            assert_eq!(length_of(&[&input[..length - 1]]), Ok(None), "it ended earlier");
            if let Some((parsed, ..)) = &parsed {
                assert_eq!(*parsed, length, "the parser finds another end");
            }
            absolute_target(&input[..length]);
        }
        Ok(None) => assert!(parsed.is_none(), "the parser found an end"),
        Err(_) => {}
    }
    let Some((head_bytes, method, uri, headers)) = parsed else { return };
    let head = &input[..head_bytes];
    let checked = check(&method, Methods::All, &uri, &headers, Wire::Http1(head));
    if let Ok(valid) = checked {
        assert_eq!(length, Ok(Some(head_bytes)), "the reader refuses a valid head");
        assert_eq!(framing_of(head), Ok(valid.body), "two framings");
        canonical_address(&valid);
    }
}

fn length_of(pieces: &[&[u8]]) -> Result<Option<usize>, Malformed> {
    let (mut reader, mut read) = (HeadReader::default(), Vec::new());
    for piece in pieces {
        read.extend_from_slice(piece);
        if let Some(length) = reader.length(&read)? {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

/// The head as the framework's parser reads it.
fn parse(input: &[u8]) -> Option<(usize, Method, Uri, HeaderMap)> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut lines);
    let Ok(httparse::Status::Complete(length)) = request.parse(input) else { return None };
    let method = Method::from_bytes(request.method?.as_bytes()).ok()?;
    let uri = request.path?.parse().ok()?;
    let mut headers = HeaderMap::new();
    for line in request.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(line.value).ok()?);
    }
    Some((length, method, uri, headers))
}

/// The corrected line `Host` is that of the target, and nothing else changes.
fn absolute_target(head: &[u8]) {
    let Some(corrected) = with_host_of_target(head) else { return };
    assert_eq!(length_of(&[&corrected]), Ok(Some(corrected.len())), "no longer one head");
    assert_eq!(with_host_of_target(&corrected), None, "corrected twice");
    let lines = |head: &[u8]| head.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (before, after): (Vec<_>, Vec<_>) = (lines(head), lines(&corrected));
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert!(before.len() == after.len() && changed == 1, "more than the host has changed");
    let checked = |head: &[u8]| {
        let (_, method, uri, headers) = parse(head)?;
        check(&method, Methods::All, &uri, &headers, Wire::Http1(head)).ok()
    };
    assert_eq!(checked(head), checked(&corrected), "the correction changes the request");
}

/// A valid address leads nowhere else when it is validated again.
fn canonical_address(valid: &ValidRequest) {
    let path = &valid.path;
    assert!(path.starts_with('/') && !path.contains("//"), "{path:?}");
    assert!(path.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'?'), "{path:?}");
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    assert!(!path.split('/').any(is_dots), "{path:?}");
    let is_operation = valid.service == Service::Graphql;
    assert!(!is_operation || path == "/graphql", "{path:?}");
    let head =
        format!("{} {} HTTP/1.1\r\nHost: {}\r\n\r\n", valid.method, valid.target(), valid.host);
    let (_, method, uri, headers) = parse(head.as_bytes()).expect("a canonical head is parsed");
    let again = check(&method, Methods::All, &uri, &headers, Wire::Http1(head.as_bytes()));
    // An address below `/api` may be as long as the longest target only with its prefix.
    let again = again.unwrap_or_else(|fault| panic!("{head:?}: {fault:?}"));
    assert_eq!((&again.path, &again.query, &again.host), (path, &valid.query, &valid.host));
}
