//! Absolute request targets of HTTP/1.1: their host takes the place of `Host` (RFC 9112 §3.2.2).
//!
//! The framework refuses a `Host` that differs from the target. So the line `Host` is corrected
//! before the framework reads it. Left out: the validation of everything else.

use std::net::Ipv6Addr;

use memchr::{memchr, memmem};

/// The scheme of the target, if the head begins with a request line whose target is a URL.
pub fn scheme_of(head: &[u8]) -> Option<&[u8]> {
    target_parts(head).map(|(scheme, _)| scheme)
}

/// A whole head with the host of its absolute target in the line `Host`. `None` if that line needs
/// no change, or is a fault of its own.
pub fn with_host_of_target(head: &[u8]) -> Option<Vec<u8>> {
    let (_, host) = target_parts(head)?;
    let mut found = None;
    let mut line_start = 0;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"host") && name.len() < line.len() {
            let value = line.get(name.len() + 1..)?.strip_suffix(b"\r\n")?;
            let start = line_start + name.len() + 1;
            if found.replace((value, start)).is_some() {
                return None;
            }
        }
        line_start += line.len();
    }
    let (value, start) = found?;
    let is_valid = |host: &[u8]| std::str::from_utf8(host).is_ok_and(is_host);
    let sent = value.trim_ascii();
    if sent.eq_ignore_ascii_case(host) || !is_valid(sent) || !is_valid(host) {
        return None;
    }
    let after = head.get(start + value.len()..)?;
    Some([head.get(..start)?, b" ", host, after].concat())
}

/// Scheme and authority of the target in the request line.
fn target_parts(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = head.get(..memchr(b'\n', head)?)?;
    let target = line.split(|byte| *byte == b' ').nth(1)?;
    if target.starts_with(b"/") {
        return None;
    }
    let scheme_end = memmem::find(target, b"://")?;
    let (scheme, rest) = (target.get(..scheme_end)?, target.get(scheme_end + 3..)?);
    let authority = rest.split(|byte| matches!(byte, b'/' | b'?' | b'#')).next()?;
    Some((scheme, authority))
}

/// RFC 9110 §7.2: a name or an address, and an optional port.
pub(super) fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, rest)) if address.parse::<Ipv6Addr>().is_ok() => ("v6", rest),
            _ => return false,
        },
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let is_name = name.split('.').all(|label| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    });
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| {
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
        });
    is_name && is_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_absolute_target_replaces_another() {
        let rewritten = |head: &str| {
            let head = with_host_of_target(head.as_bytes());
            head.map(|head| String::from_utf8(head).unwrap())
        };
        assert_eq!(
            rewritten("GET https://b:1/x?y HTTP/1.1\r\nA: 1\r\nhost:a \r\nB: 2\r\n\r\n").unwrap(),
            "GET https://b:1/x?y HTTP/1.1\r\nA: 1\r\nhost: b:1\r\nB: 2\r\n\r\n"
        );
        for unchanged in [
            "GET /http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://A/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://b/ HTTP/1.1\r\n\r\n",
            "GET http://b/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET http://b/ HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://b/ HTTP/1.1\r\nHost\r\n\r\n",
        ] {
            assert_eq!(rewritten(unchanged), None, "{unchanged}");
        }
    }
}
