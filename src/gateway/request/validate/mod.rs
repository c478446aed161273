//! Validates that a request is exactly one well-formed request; classifies root and service.
//!
//! Clients, endpoints and limits are left out. Everything that two HTTP implementations could read
//! differently is rejected (SPECIFICATION, "Well-formed requests"): a request that gateway and
//! upstream read differently bypasses all later checks. Encoded bytes of a path segment are data
//! and stay as they are.

pub mod absolute;

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use crate::gateway::address::{Root, Service, below, decode_unreserved, hex_digit};
use crate::gateway::error::Malformed;
use crate::gateway::http::headers::{Repeated, only_value};

/// The longest request head, in bytes (SPECIFICATION, "Well-formed requests").
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The most header fields of a request (SPECIFICATION, "Well-formed requests").
pub const HEADERS_MAX: usize = 100;
/// The longest request target, in bytes: RFC 9110 §4.1 asks for at least 8,000.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;

/// A valid request with its address in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidRequest {
    /// Any documented method; with [`Methods::All`] any but CONNECT and TRACE.
    pub method: Method,
    pub root: Root,
    pub service: Service,
    /// The path without `/api/v3` and the like; one leading `/`, no dot segments.
    pub path: String,
    /// The raw query without `?`.
    pub query: Option<String>,
    /// The host of the target where it has one (RFC 9112 §3.2.2), else the Host header.
    pub host: String,
    /// True if the target is an `https` URL, on whichever listener.
    pub is_https: bool,
    pub body: BodyFraming,
}

/// The declared length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    None,
    /// `Content-Length`; zero only on HTTP/2.
    Length(u64),
    /// `Transfer-Encoding: chunked`, or an HTTP/2 body without a length.
    Chunked,
}

impl ValidRequest {
    /// True for a GET of the GraphQL schema. The upstream may run an operation in the query.
    pub fn is_schema(&self) -> bool {
        self.service == Service::Graphql
            && matches!(self.method, Method::GET | Method::HEAD)
            && self.query.as_deref().is_none_or(str::is_empty)
    }

    /// The method that the rules of `clients.allow` must permit. Any GraphQL operation may be a
    /// mutation and counts as a POST.
    pub fn method_for_rules(&self) -> &Method {
        static POST: Method = Method::POST;
        let is_graphql = self.service == Service::Graphql || resembles_graphql(&self.path);
        if is_graphql && !self.is_schema() { &POST } else { &self.method }
    }

    pub fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

/// True if an upstream might take the path for that of GraphQL, such as `/graphql.json`.
fn resembles_graphql(path: &str) -> bool {
    const NAME: &[u8] = b"/graphql";
    let Some((name, rest)) = path.as_bytes().split_at_checked(NAME.len()) else { return false };
    let ends = |byte: &u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    name.eq_ignore_ascii_case(NAME) && rest.first().is_none_or(ends)
}

/// The HTTP version of the head, and the head's bytes where the protocol has them.
#[derive(Clone, Copy, Debug)]
pub enum Wire<'a> {
    /// HTTP/1.x with the raw head, because the parsed form hides some faults.
    Http1(&'a [u8]),
    /// HTTP/2: its framing cannot contradict itself.
    Http2,
}

const DOCUMENTED_METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// TRACE and its like echo the request head, credentials included.
const UNSERVED_METHODS: [&str; 3] = ["CONNECT", "TRACE", "TRACK"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Methods {
    Documented,
    /// Unknown methods too: they count as unsafe and are never repeated (RFC 9110 §9.1, §16.1.1).
    All,
}

/// Validates a request head and brings its address into canonical form.
pub fn check(
    method: &Method,
    methods: Methods,
    uri: &Uri,
    headers: &HeaderMap,
    wire: Wire<'_>,
) -> Result<ValidRequest, Malformed> {
    check_size(uri, headers, wire)?;
    let body = check_framing(headers, wire)?;
    let mut known = DOCUMENTED_METHODS.iter().chain(&UNSERVED_METHODS);
    let is_passed = DOCUMENTED_METHODS.contains(&method.as_str())
        // An upstream that ignores case would execute a known method and bypass its rules.
        || methods == Methods::All
            && !known.any(|known| method.as_str().eq_ignore_ascii_case(known));
    if !is_passed {
        return Err(Malformed::Method);
    }
    let host = check_host(uri, headers, wire)?;
    check_one_ascii(headers)?;
    Ok(ValidRequest { is_https: check_scheme(uri, wire)?, ..addressed(method, uri, host, body)? })
}

/// Validates an HTTP/1.1 head with a new request line, no body and a documented method. Its header
/// lines have passed [`check`] before, byte for byte, with `host` among them.
pub fn check_again(
    method: &Method,
    uri: &Uri,
    head: &[u8],
    host: &str,
) -> Result<ValidRequest, Malformed> {
    if head.len() > HEAD_BYTES_MAX {
        return Err(Malformed::HeadTooLarge);
    }
    check_line(head)?;
    check_target(method, uri, host, false)
}

/// Validates a new target with no body and a documented method. The rest of its head has passed
/// [`check`] before, with this host and scheme.
pub fn check_target(
    method: &Method,
    uri: &Uri,
    host: &str,
    is_https: bool,
) -> Result<ValidRequest, Malformed> {
    if target_bytes(uri) > TARGET_BYTES_MAX {
        return Err(Malformed::TargetTooLong);
    }
    let valid = addressed(method, uri, host.to_owned(), BodyFraming::None)?;
    Ok(ValidRequest { is_https, ..valid })
}

/// Validates the first line from a client: the parsers below repair some invalid request lines.
pub fn check_line(read: &[u8]) -> Result<(), Malformed> {
    let line = memchr::memchr(b'\n', read).and_then(|end| read.get(..end)?.strip_suffix(b"\r"));
    check_request_line(line.ok_or(Malformed::Bad("a line that does not end in CR LF"))?)
}

/// Validates the address of a request with a valid head.
fn addressed(
    method: &Method,
    uri: &Uri,
    host: String,
    body: BodyFraming,
) -> Result<ValidRequest, Malformed> {
    // RFC 9112 §3.2.4: `*` addresses the server as a whole and is valid only for OPTIONS.
    let path = if uri.path() == "*" && *method == Method::OPTIONS { "/" } else { uri.path() };
    let (root, service, path) = split_shape(&decode_unreserved(&check_path(path)?));
    if is_prefixed(&path) {
        return Err(Malformed::Bad("an address prefix twice"));
    }
    let query = uri.query().map(check_query).transpose()?;
    Ok(ValidRequest {
        method: method.clone(),
        root,
        service,
        path,
        query,
        host,
        is_https: false,
        body,
    })
}

fn target_bytes(uri: &Uri) -> usize {
    uri.path_and_query().map_or(0, |target| target.as_str().len())
}

fn check_size(uri: &Uri, headers: &HeaderMap, wire: Wire<'_>) -> Result<(), Malformed> {
    if target_bytes(uri) > TARGET_BYTES_MAX {
        return Err(Malformed::TargetTooLong);
    }
    let head_bytes = match wire {
        Wire::Http1(raw) => raw.len(),
        // Names and values as in HTTP/1.1, without the overhead of RFC 9113 §6.5.2.
        Wire::Http2 => {
            headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
        }
    };
    if head_bytes > HEAD_BYTES_MAX || headers.len() > HEADERS_MAX {
        return Err(Malformed::HeadTooLarge);
    }
    Ok(())
}

/// RFC 9112 §6.1–6.3, read strictly: every known basis of request smuggling is rejected.
fn check_framing(headers: &HeaderMap, wire: Wire<'_>) -> Result<BodyFraming, Malformed> {
    if let Wire::Http1(raw) = wire {
        check_raw_head(raw)?;
    }
    let values = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    framing(values(TRANSFER_ENCODING), values(CONTENT_LENGTH), matches!(wire, Wire::Http2))
}

/// The framing of the body after a whole HTTP/1.1 head, as [`check`] finds it.
pub fn framing_of(head: &[u8]) -> Result<BodyFraming, Malformed> {
    check_raw_head(head)?;
    let values = |name: HeaderName| {
        head.split(|&byte| byte == b'\n').skip(1).filter_map(move |line| {
            let (field, value) = line.split_at(memchr::memchr(b':', line)?);
            field.eq_ignore_ascii_case(name.as_str().as_bytes()).then(|| value[1..].trim_ascii())
        })
    };
    framing(values(TRANSFER_ENCODING), values(CONTENT_LENGTH), false)
}

fn framing<'h>(
    mut codings: impl Iterator<Item = &'h [u8]>,
    mut lengths: impl Iterator<Item = &'h [u8]>,
    is_http2: bool,
) -> Result<BodyFraming, Malformed> {
    let (coding, length) = (codings.next(), lengths.next());
    if codings.next().is_some() {
        return Err(Malformed::Bad("more than one Transfer-Encoding"));
    }
    if lengths.next().is_some() {
        return Err(Malformed::Bad("more than one Content-Length"));
    }
    match (coding, length) {
        (Some(_), Some(_)) => Err(Malformed::Bad("both Transfer-Encoding and Content-Length")),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(BodyFraming::Chunked),
        (Some(_), None) => Err(Malformed::Bad("a Transfer-Encoding other than chunked")),
        (None, Some(length)) => match plain_digits(length) {
            // HTTP/2 frames the body by itself and can send one all the same.
            Some(0) if !is_http2 => Ok(BodyFraming::None),
            Some(length) => Ok(BodyFraming::Length(length)),
            None => Err(Malformed::Bad("a Content-Length that is not plain digits")),
        },
        (None, None) if is_http2 => Ok(BodyFraming::Chunked),
        (None, None) => Ok(BodyFraming::None),
    }
}

/// Rejects faults that the parser below forgives or hides, such as bare line feeds.
fn check_raw_head(raw: &[u8]) -> Result<(), Malformed> {
    let mut length_seen = false;
    let mut coding_seen = false;
    let mut rest = raw;
    for index in 0.. {
        if rest.is_empty() {
            break;
        }
        let (line, after) =
            rest.split_at(memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1));
        rest = after;
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(Malformed::Bad("a line that does not end in CR LF"));
        };
        // Compares every byte without an early exit, so that the comparison vectorizes.
        if line.iter().filter(|byte| (**byte < 0x20 && **byte != b'\t') || **byte == 0x7f).count()
            > 0
        {
            return Err(Malformed::Bad("control characters"));
        }
        if index == 0 {
            check_request_line(line)?;
            continue;
        }
        if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(Malformed::Bad("a folded header line"));
        }
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        length_seen |= name.eq_ignore_ascii_case(b"content-length");
        coding_seen |= name.eq_ignore_ascii_case(b"transfer-encoding");
    }
    if length_seen && coding_seen {
        return Err(Malformed::Bad("both Transfer-Encoding and Content-Length"));
    }
    Ok(())
}

/// RFC 9112 §3: three parts, single spaces; the target is a path, a URL (§3.2.2) or `*`.
fn check_request_line(line: &[u8]) -> Result<(), Malformed> {
    let mut parts = line.split(|&byte| byte == b' ');
    let (Some(_), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Malformed::Bad("a request line that is not three words"));
    };
    let is_url = |scheme: &[u8]| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let is_known =
        target.starts_with(b"/") || target == b"*" || is_url(b"http://") || is_url(b"https://");
    if !is_known || target.iter().any(|&byte| byte <= 0x20 || byte >= 0x7f || byte == b'#') {
        return Err(Malformed::Bad("a request target that is no path"));
    }
    if !version.starts_with(b"HTTP/1.") {
        return Err(Malformed::Bad("an HTTP version that is not served"));
    }
    Ok(())
}

fn plain_digits(text: &[u8]) -> Option<u64> {
    // Some parsers read a leading zero as octal, and no client writes one.
    let canonical = text == b"0"
        || (text.first().is_some_and(|byte| (b'1'..=b'9').contains(byte))
            && text.iter().all(u8::is_ascii_digit));
    canonical.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// True for `https`. The parser below drops the scheme of an HTTP/1.1 target, so the head has it.
fn check_scheme(uri: &Uri, wire: Wire<'_>) -> Result<bool, Malformed> {
    let scheme = match wire {
        Wire::Http1(head) => absolute::scheme_of(head),
        Wire::Http2 => uri.scheme_str().map(str::as_bytes),
    };
    let is = |name: &str| scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(name.as_bytes()));
    if scheme.is_none() || is("http") || is("https") {
        return Ok(is("https"));
    }
    Err(Malformed::Bad("a scheme other than http and https"))
}

fn check_host(uri: &Uri, headers: &HeaderMap, wire: Wire<'_>) -> Result<String, Malformed> {
    let host = only_value(headers, HOST)
        .map_err(|Repeated| Malformed::Bad("more than one Host"))?
        .map(|host| host.to_str().map_err(|_| Malformed::Bad("a Host that is not ASCII")))
        .transpose()?;
    let authority = uri.authority().map(Authority::as_str);
    let used = match (authority, host, wire) {
        (Some(authority), Some(host), Wire::Http2) if !authority.eq_ignore_ascii_case(host) => {
            return Err(Malformed::Bad("a Host that differs from the request target"));
        }
        (_, None, Wire::Http1(_)) | (None, None, Wire::Http2) => {
            return Err(Malformed::Bad("no Host"));
        }
        // RFC 9112 §3.2.2: the Host beside an absolute target is ignored.
        (Some(used), ..) | (None, Some(used), _) => used,
    };
    // The host is echoed into Link, Location and body URLs, so only a host and a port are allowed.
    if !host.into_iter().chain([used]).all(absolute::is_host) {
        return Err(Malformed::Bad("a Host that is not a host name with an optional port"));
    }
    Ok(used.to_owned())
}

/// Prefixes of base URLs, which libraries put before every path.
const BASE_PATHS: [&str; 3] = ["/api", "/api/v3", "/api/uploads"];

/// Validates the path. Collapses the slashes at its beginning and after the path of a base URL,
/// which may end in one (SPECIFICATION, "Client libraries" 6).
fn check_path(path: &str) -> Result<Cow<'_, str>, Malformed> {
    if !path.starts_with('/') {
        return Err(Malformed::Bad("a request target that is not a path"));
    }
    let rest = path.trim_start_matches('/');
    let path = &path[path.len() - rest.len() - 1..];
    let after_base = BASE_PATHS
        .iter()
        .find_map(|base| Some((base, path.strip_prefix(base)?.strip_prefix("//")?)));
    let path = match after_base {
        Some((base, rest)) => Cow::Owned([base, "/", rest.trim_start_matches('/')].concat()),
        None => Cow::Borrowed(path),
    };
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            0..=0x20 | 0x7f.. | b'\\' | b'#' => {
                return Err(Malformed::Bad("a path with characters that must be encoded"));
            }
            b'%' => match (bytes.next().and_then(hex_digit), bytes.next().and_then(hex_digit)) {
                (Some(high), Some(low)) if high * 16 + low >= 0x20 && high * 16 + low != 0x7f => {}
                (Some(_), Some(_)) => return Err(Malformed::Bad("control characters in the path")),
                _ => return Err(Malformed::Bad("a percent sign that encodes nothing")),
            },
            _ => {}
        }
    }
    if path.as_bytes().windows(2).any(|two| two == b"//") {
        return Err(Malformed::Bad("an empty path segment"));
    }
    if path.bytes().any(|byte| matches!(byte, b'.' | b'%')) && path.split('/').any(is_dot_segment) {
        return Err(Malformed::Bad("a dot segment in the path"));
    }
    Ok(path)
}

/// True for `.` and `..`, plain or encoded (RFC 3986 §5.2.4), also before an encoded slash.
fn is_dot_segment(segment: &str) -> bool {
    let decoded =
        segment.to_ascii_lowercase().replace("%2e", ".").replace("%5c", "/").replace("%2f", "/");
    decoded.split('/').any(|part| part == "." || part == "..")
}

fn check_query(query: &str) -> Result<String, Malformed> {
    if query.bytes().any(|byte| byte <= 0x20 || byte >= 0x7f || byte == b'#') {
        return Err(Malformed::Bad("a query with characters that must be encoded"));
    }
    if !query.contains('%') {
        return Ok(query.to_owned());
    }
    // The parser below encodes raw control characters; queries need only tabs and line ends.
    let lower = query.to_ascii_lowercase();
    let is_control = |escape: &str| {
        let code = escape.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        code.is_some_and(|code| {
            (code < 0x20 && !matches!(code, b'\t' | b'\n' | b'\r')) || code == 0x7f
        })
    };
    if lower.split('%').skip(1).any(is_control) {
        return Err(Malformed::Bad("control characters in the query"));
    }
    Ok(query.to_owned())
}

/// True if a canonical path still has a prefix, which the upstream might strip too.
fn is_prefixed(path: &str) -> bool {
    if !path.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("/api")) {
        return false;
    }
    let lower = path.to_ascii_lowercase().replace("%2f", "/");
    ["/api/v3", "/api/graphql", "/api/uploads"].iter().any(|prefix| below(&lower, prefix).is_some())
}

/// Headers that choose between stored answers must be unambiguous: unique, and ASCII.
fn check_one_ascii(headers: &HeaderMap) -> Result<(), Malformed> {
    for name in ["x-service-api-version", "x-github-api-version"] {
        only_value(headers, name)
            .map_err(|Repeated| Malformed::Bad("more than one API version"))?;
    }
    let choosing = ["accept", "x-service-api-version", "x-github-api-version"];
    let is_ascii =
        choosing.iter().flat_map(|name| headers.get_all(*name)).all(|value| value.to_str().is_ok());
    if is_ascii { Ok(()) } else { Err(Malformed::Bad("a header value that is not ASCII")) }
}

/// SPECIFICATION, "Base URLs".
fn split_shape(path: &str) -> (Root, Service, String) {
    if below(path, "/_weir").is_some() {
        return (Root::Plain, Service::Weir, path.to_owned());
    }
    if matches!(path, "/graphql" | "/api/graphql" | "/api/v3/graphql") {
        let root = if path == "/graphql" { Root::Plain } else { Root::V3 };
        return (root, Service::Graphql, "/graphql".to_owned());
    }
    let absolute = |rest: &str| if rest.is_empty() { "/".to_owned() } else { rest.to_owned() };
    if let Some(rest) = below(path, "/api/uploads") {
        return (Root::V3, Service::Uploads, absolute(rest));
    }
    if let Some(rest) = below(path, "/api/v3") {
        // A library puts its base URL before every path, the `Location` of a queued write included.
        if below(rest, "/_weir").is_some() {
            return (Root::V3, Service::Weir, rest.to_owned());
        }
        return (Root::V3, Service::Rest, absolute(rest));
    }
    (Root::Plain, Service::Rest, path.to_owned())
}

#[cfg(test)]
mod tests;
