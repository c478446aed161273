//! A base address: scheme, host, port and path prefix, and nothing else.
//!
//! A user name, password, query or fragment in a base address is a mistake, and might be a
//! misplaced secret.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::Uri;

use super::reader::{Entry, Read};

/// The scheme of an [`HttpUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// Returns `http` or `https`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the port of an address without one (RFC 9110 §4.2).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A base address such as `https://api.example.com` or `http://127.0.0.1:8090/api/v3`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HttpUrl {
    scheme: Scheme,
    host: String,
    port: u16,
    path_prefix: String,
    authority: String,
    text: String,
}

/// An [`HttpUrl`] of the upstream.
pub type UpstreamUrl = HttpUrl;

impl HttpUrl {
    /// Builds an address. `host` is a lower-case name or an IP address without brackets;
    /// `path_prefix` is empty, or begins with `/` and does not end in one.
    pub(crate) fn new(scheme: Scheme, host: String, port: u16, path_prefix: String) -> Self {
        let written = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority =
            if port == scheme.default_port() { written } else { format!("{written}:{port}") };
        let text = format!("{}://{authority}{path_prefix}", scheme.as_str());
        Self { scheme, host, port, path_prefix, authority, text }
    }

    /// Returns the normalised address: lower-case host, no default port, no slash at the end.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the value of a `Host` header: the host, in brackets for IPv6, and the port unless it
    /// is the default.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the host: a name in lower case, or an IP address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, by default the scheme's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the scheme, which decides whether connections use TLS.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns true for HTTPS.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Returns the prefix of all paths: empty, or like `/api/v3`, without a slash at the end.
    pub fn path_prefix(&self) -> &str {
        &self.path_prefix
    }

    /// Returns true if the host is this machine: a loopback address or `localhost`.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Faults do not quote the URL, because it may hold a password.
impl Read for HttpUrl {
    fn accepted() -> String {
        "an address such as \"https://api.example.com\": http or https, a host, and optionally a port and a path".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = entry.text::<Self>()?;
        match parse(text) {
            Ok(url) => Some(url),
            Err(problem) => entry.refuse(format!("bad URL: {problem}"), Self::accepted()),
        }
    }
}

/// Parses an address; an error quotes nothing of it.
pub(crate) fn parse(text: &str) -> Result<HttpUrl, &'static str> {
    if text.contains(['#', '?']) {
        return Err("it has a query or a fragment");
    }
    let uri: Uri = text.parse().map_err(|_| "it cannot be read as one")?;
    let (scheme, host, port) = origin(&uri)?;
    let path = uri.path().trim_end_matches('/');
    if path.contains("//") || path.split('/').any(|segment| segment == "." || segment == "..") {
        return Err("its path has an empty or a dot segment");
    }
    Ok(HttpUrl::new(scheme, host, port, path.to_owned()))
}

/// Returns scheme, host and port of an address; an error quotes nothing of it.
pub(crate) fn origin(uri: &Uri) -> Result<(Scheme, String, u16), &'static str> {
    let scheme = match uri.scheme_str() {
        Some("http") => Scheme::Http,
        Some("https") => Scheme::Https,
        Some(_) => return Err("its scheme is neither http nor https"),
        None => return Err("it has no scheme"),
    };
    let (host, port) = host_and_port(uri)?;
    Ok((scheme, host, port.unwrap_or_else(|| scheme.default_port())))
}

/// Returns host and port of an address of any scheme; an error quotes nothing of it.
pub(crate) fn host_and_port(uri: &Uri) -> Result<(String, Option<u16>), &'static str> {
    let authority = uri.authority().ok_or("it has no host")?;
    if authority.as_str().contains('@') {
        return Err("it has a user name or password");
    }
    let host = host(authority.host()).ok_or("its host is not a name or an IP address")?;
    let port = match authority.as_str().get(authority.host().len()..).unwrap_or_default() {
        "" => None,
        written => Some(
            written
                .strip_prefix(':')
                .and_then(port)
                .ok_or("its port is not a number from 1 to 65535")?,
        ),
    };
    Ok((host, port))
}

fn host(written: &str) -> Option<String> {
    if let Some(address) = written.strip_prefix('[') {
        return address
            .strip_suffix(']')?
            .parse::<Ipv6Addr>()
            .ok()
            .map(|address| address.to_string());
    }
    let labels_fit = written.split('.').all(|label| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    });
    labels_fit.then(|| written.to_ascii_lowercase())
}

fn port(written: &str) -> Option<u16> {
    let digits = written.bytes().all(|byte| byte.is_ascii_digit());
    written.parse().ok().filter(|port| digits && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_address_is_parsed_and_normalised() {
        for (written, text, authority, host, port, prefix) in [
            (
                "https://api.example.com",
                "https://api.example.com",
                "api.example.com",
                "api.example.com",
                443,
                "",
            ),
            (
                "https://API.Example.com:443/",
                "https://api.example.com",
                "api.example.com",
                "api.example.com",
                443,
                "",
            ),
            (
                "http://code.corp:8443/api/v3/",
                "http://code.corp:8443/api/v3",
                "code.corp:8443",
                "code.corp",
                8443,
                "/api/v3",
            ),
            ("http://[::1]:8090", "http://[::1]:8090", "[::1]:8090", "::1", 8090, ""),
            ("HTTP://localhost", "http://localhost", "localhost", "localhost", 80, ""),
        ] {
            let url = parse(written).unwrap();
            assert_eq!(
                (url.as_str(), url.authority(), url.host(), url.port(), url.path_prefix()),
                (text, authority, host, port, prefix)
            );
        }
    }

    #[test]
    fn a_malformed_or_extended_base_address_is_refused() {
        for written in [
            "",
            "/",
            "*",
            "api.example.com",
            "api.example.com:443",
            "https://",
            "https:///x",
            "https://:443",
            "https://me@host",
            "https://me:pw@host",
            "https://host?q",
            "https://host#f",
            "https://host:",
            "https://host:0",
            "https://host:65536",
            "https://host:+1",
            "https://a b",
            "https://a..b",
            "https://[::1",
            "http://::1",
            "https://host//x",
            "https://host/a/../b",
            "ws://host",
            "https://hööst",
        ] {
            assert!(parse(written).is_err(), "{written}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let is_loopback = |written: &str| parse(written).is_ok_and(|url| url.is_loopback());
        assert!(
            ["http://127.0.0.2", "http://[::1]", "http://localhost:1", "http://[::ffff:127.0.0.1]"]
                .into_iter()
                .all(is_loopback)
        );
        assert!(
            !["http://10.0.0.1", "http://localhost.corp", "http://127.example.com"]
                .into_iter()
                .any(is_loopback)
        );
    }
}
