//! The address of a client behind trusted proxies: `Forwarded` (RFC 7239) and `X-Forwarded-For`.
//!
//! Each proxy appends the address that it was asked from, so only the end of a list can be trusted.
//! The client is the last address that is no trusted proxy's. Left out: the headers' other facts.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::FORWARDED;
use ipnet::IpNet;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The client of a request that came from `peer`. It is `peer` itself if that is no trusted proxy,
/// or names no address, or if the two headers disagree: a proxy passes the one on that it does not
/// write, and then a client may have written it.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let has = |name: &str| headers.contains_key(name);
    let by_forwarded = || last_untrusted(headers, FORWARDED.as_str(), forwarded_address, trusted);
    let by_x = || last_untrusted(headers, X_FORWARDED_FOR, address, trusted);
    let client = match (has(FORWARDED.as_str()), has(X_FORWARDED_FOR)) {
        (true, true) => by_forwarded().filter(|client| by_x() == Some(*client)),
        (true, false) => by_forwarded(),
        (false, true) => by_x(),
        (false, false) => None,
    };
    client.unwrap_or(peer)
}

pub fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

/// The last address of a list that is no trusted proxy's; `None` if what is last is no address.
fn last_untrusted(
    headers: &HeaderMap,
    name: &str,
    address: fn(&str) -> Option<IpAddr>,
    trusted: &[IpNet],
) -> Option<IpAddr> {
    let lines = headers.get_all(name).iter().rev();
    let elements = lines.flat_map(|line| split_from_end(line.to_str().unwrap_or("?"), b','));
    // A list of trusted addresses alone comes from one of them: the first.
    let mut first = None;
    for element in elements {
        let address = address(element.trim())?;
        if !is_trusted(address, trusted) {
            return Some(address);
        }
        first = Some(address);
    }
    first
}

/// Splits a text where the separator is in no quoted string (RFC 9110 §5.6.4), from its end: what
/// a client has written before it has no influence on what a proxy has appended.
fn split_from_end(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut is_quoted = false;
        let begin = text.bytes().enumerate().rev().find_map(|(at, byte)| {
            let escapes = || text[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
            is_quoted ^= byte == b'"' && escapes() % 2 == 0;
            (byte == separator && !is_quoted).then_some(at)
        });
        rest = begin.map(|at| &text[..at]);
        Some(begin.map_or(text, |at| &text[at + 1..]))
    })
}

/// The node of an element of `Forwarded`, such as `proto=https;for="[2001:db8::1]:4711"`.
fn forwarded_address(element: &str) -> Option<IpAddr> {
    let mut nodes = split_from_end(element, b';').filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(value)
    });
    let node = nodes.next().filter(|_| nodes.next().is_none())?;
    address(node.strip_prefix('"').and_then(|node| node.strip_suffix('"')).unwrap_or(node))
}

/// An address with or without brackets and port. Names such as `unknown` and `_hidden` are none.
fn address(node: &str) -> Option<IpAddr> {
    let is_port = |port: &str| port.is_empty() || port.starts_with(':');
    let address = if let Some(rest) = node.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        IpAddr::V6(address.parse().ok().filter(|_| is_port(port))?)
    } else if let Some((address, _)) = node.split_once(':').filter(|(_, port)| !port.contains(':'))
    {
        IpAddr::V4(address.parse().ok()?)
    } else {
        node.parse().ok()?
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// The client that the lines name, when a trusted proxy sends them.
    fn named(lines: &[(&str, &str)]) -> String {
        named_by("10.0.0.1", lines)
    }

    fn named_by(peer: &str, lines: &[(&str, &str)]) -> String {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        client(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    const X: &str = "x-forwarded-for";

    #[test]
    fn the_client_is_the_last_address_that_is_not_trusted() {
        for (value, client) in [
            ("192.0.2.7", "192.0.2.7"),
            ("198.51.100.1, 192.0.2.7", "192.0.2.7"),
            ("198.51.100.1, 192.0.2.7, 10.0.0.9,fd00::1", "192.0.2.7"),
            ("192.0.2.7:4711", "192.0.2.7"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("10.0.0.8, 10.0.0.9", "10.0.0.8"),
            ("192.0.2.7, unknown", "10.0.0.1"),
            ("192.0.2.7,", "10.0.0.1"),
            ("192.0.2.7]", "10.0.0.1"),
            ("", "10.0.0.1"),
        ] {
            assert_eq!(named(&[(X, value)]), client, "{value}");
        }
        assert_eq!(named(&[(X, "198.51.100.1"), (X, "192.0.2.7"), (X, "10.0.0.9")]), "192.0.2.7");
    }

    #[test]
    fn forwarded_names_the_client_too() {
        for (value, client) in [
            ("for=192.0.2.7", "192.0.2.7"),
            ("For=\"[2001:db8:cafe::17]:4711\";proto=https", "2001:db8:cafe::17"),
            ("for=198.51.100.1, by=10.0.0.9;for=192.0.2.7;proto=http", "192.0.2.7"),
            ("for=192.0.2.7, for=10.0.0.9", "192.0.2.7"),
            ("for=192.0.2.7, for=_hidden", "10.0.0.1"),
            ("for=192.0.2.7, for=unknown", "10.0.0.1"),
            ("proto=https", "10.0.0.1"),
            ("for=192.0.2.7;host=\"a;for=198.51.100.1\"", "192.0.2.7"),
            ("for=192.0.2.7;host=\"a, for=198.51.100.1\"", "192.0.2.7"),
            ("for=192.0.2.7;host=\"a\\\", for=198.51.100.1\"", "192.0.2.7"),
            ("for=\"198.51.100.1, for=192.0.2.7", "192.0.2.7"),
            ("host=\"for=198.51.100.1\"", "10.0.0.1"),
            ("for=192.0.2.7;for=192.0.2.8", "10.0.0.1"),
        ] {
            assert_eq!(named(&[("forwarded", value)]), client, "{value}");
        }
    }

    #[test]
    fn headers_that_disagree_name_nobody() {
        let forwarded = ("forwarded", "for=192.0.2.7");
        assert_eq!(named(&[forwarded, (X, "192.0.2.7")]), "192.0.2.7");
        assert_eq!(named(&[forwarded, (X, "192.0.2.8")]), "10.0.0.1");
    }

    #[test]
    fn a_stranger_names_no_client() {
        assert_eq!(named_by("192.0.2.1", &[(X, "198.51.100.1")]), "192.0.2.1");
        assert_eq!(named(&[]), "10.0.0.1");
    }
}
