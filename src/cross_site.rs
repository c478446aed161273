//! Requests that a browser sends for a page of another site.
//!
//! A listener that asks for no credential is open to every page that somebody on its machine
//! visits. A page can send simple requests to loopback addresses, and with a name of its own that
//! resolves to one (DNS rebinding) it reads the answers too. Browsers always send `Host`, and mark
//! requests of pages with `Origin` or `Sec-Fetch-Site`. Other clients send no such marks and pass.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Uri};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns true if the request names a host other than an IP address or `localhost`: a name that
/// its owner may resolve to any address.
pub fn has_foreign_host(uri: &Uri, headers: &HeaderMap) -> bool {
    !hosts(uri, headers).all(is_address_or_localhost)
}

/// Returns true if a page of another origin caused the request.
pub fn is_of_foreign_page(uri: &Uri, headers: &HeaderMap, scheme: &str) -> bool {
    // Fetch Metadata: `none` is a person who typed the address.
    let is_own_site = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    let is_own_origin = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        origin.is_some_and(|(of, authority)| {
            of == scheme && hosts(uri, headers).any(|host| host.eq_ignore_ascii_case(authority))
        })
    };
    !headers.get_all(SEC_FETCH_SITE).iter().all(is_own_site)
        || !headers.get_all(header::ORIGIN).iter().all(is_own_origin)
}

/// Returns true if a page of this origin certainly caused the request. The scheme may differ,
/// because TLS may end before the listener. Browsers send `Sec-Fetch-Site` to trustworthy addresses
/// alone, and `Origin` with every POST.
pub fn is_of_own_page(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter().peekable();
    if sites.peek().is_some() {
        return sites.all(|site| site.as_bytes() == b"same-origin");
    }
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let is_host = |own: &str, host: &str| host.eq_ignore_ascii_case(own);
        origin.is_some_and(|(_, own)| hosts(uri, headers).any(|host| is_host(own, host)))
    };
    let mut origins = headers.get_all(header::ORIGIN).iter().peekable();
    origins.peek().is_some() && origins.all(is_own)
}

/// Returns the media type of the body in lower case, without parameters; `None` without one, empty
/// for several.
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let value = values.next()?.to_str().unwrap_or_default();
    let value = if values.next().is_none() { value } else { "" };
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// Lists the hosts that a request names: in its target and in its `Host` headers.
fn hosts<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> impl Iterator<Item = &'r str> {
    let sent = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    uri.authority().map(Authority::as_str).into_iter().chain(sent)
}

fn is_address_or_localhost(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_own_hosts() {
        for host in ["127.0.0.1", "127.0.0.1:9090", "[::1]:9090", "10.1.2.3", "LocalHost:1"] {
            assert!(is_address_or_localhost(host), "{host}");
        }
        for host in [
            "",
            "evil.example:9090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost.",
            "weir",
            "a b",
            ":9090",
        ] {
            assert!(!is_address_or_localhost(host), "{host}");
        }
    }

    #[test]
    fn every_host_of_a_request_counts() {
        let mut headers = HeaderMap::new();
        let target = Uri::from_static("http://evil.example/api/reload");
        assert!(!has_foreign_host(&Uri::from_static("/"), &headers), "HTTP/1.0 needs no Host");
        assert!(has_foreign_host(&target, &headers));
        headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1"));
        assert!(has_foreign_host(&target, &headers));
        assert!(!has_foreign_host(&Uri::from_static("/"), &headers));
        headers.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(has_foreign_host(&Uri::from_static("/"), &headers));
    }

    #[test]
    fn an_origin_has_the_scheme_of_the_listener() {
        let page = |origin| {
            let headers = [(header::HOST, "127.0.0.1:9090"), (header::ORIGIN, origin)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
            is_of_foreign_page(&Uri::from_static("/"), &HeaderMap::from_iter(headers), "http")
        };
        assert!(!page("http://127.0.0.1:9090"));
        for foreign in ["https://127.0.0.1:9090", "chrome-extension://127.0.0.1:9090", "null"] {
            assert!(page(foreign), "{foreign}");
        }
    }

    #[test]
    fn an_own_page_shows_its_origin() {
        let is_own = |marks: &[(HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("weir.internal:9090"));
            for (name, value) in marks {
                headers.append(name, HeaderValue::from_static(value));
            }
            is_of_own_page(&Uri::from_static("/"), &headers)
        };
        let (site, origin) = (SEC_FETCH_SITE, header::ORIGIN);
        assert!(is_own(&[(site.clone(), "same-origin")]));
        assert!(is_own(&[(origin.clone(), "https://weir.internal:9090")]));
        for foreign in [
            &[][..],
            &[(site.clone(), "none")],
            &[(site.clone(), "same-site"), (origin.clone(), "http://weir.internal:9090")],
            &[(site.clone(), "same-origin"), (site.clone(), "cross-site")],
            &[(origin.clone(), "null")],
            &[(origin.clone(), "http://weir.internal")],
            &[
                (origin.clone(), "http://weir.internal:9090"),
                (origin.clone(), "http://evil.example"),
            ],
        ] {
            assert!(!is_own(foreign), "{foreign:?}");
        }
    }

    #[test]
    fn a_second_media_type_is_none() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert_eq!(media_type(&headers).as_deref(), Some("application/json"));
        headers.append(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        assert_eq!(media_type(&headers).as_deref(), Some(""));
    }

    #[test]
    fn a_second_mark_does_not_hide_the_first() {
        let mut headers = HeaderMap::new();
        headers.insert(SEC_FETCH_SITE, HeaderValue::from_static("none"));
        assert!(!is_of_foreign_page(&Uri::from_static("/"), &headers, "http"));
        headers.append(SEC_FETCH_SITE, HeaderValue::from_static("same-site"));
        assert!(is_of_foreign_page(&Uri::from_static("/"), &headers, "http"));
    }
}
