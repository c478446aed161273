//! `upstream.proxy`: the HTTP proxy between gateway and upstream, by the config or by the variables
//! that curl and Go read too.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::config::input::document::Secrets;
use crate::config::input::http_url::{self, HttpUrl, Scheme, UpstreamUrl};
use crate::config::input::reader::{Entry, Read, Reader};
use crate::config::input::secret::Secret;
use crate::config::printer::{Printer, inline, redacted, text};

const ACCEPTED: &str = "an address such as \"http://proxy.corp:3128\", { url = …, username = …, password = { env = \"NAME\" } }, or \"none\"";

/// A proxy that opens tunnels by CONNECT.
#[derive(PartialEq)]
pub struct Proxy {
    url: HttpUrl,
    credentials: Option<Credentials>,
    /// The environment variable that names it; `None`: the config does.
    variable: Option<&'static str>,
}

struct Credentials {
    username: String,
    /// The source of the password as TOML.
    password: String,
    /// The value of `Proxy-Authorization`.
    header: SecretString,
}

impl PartialEq for Credentials {
    /// Compares the passwords too, both of which are the config's own.
    fn eq(&self, other: &Self) -> bool {
        self.header.expose_secret() == other.header.expose_secret()
    }
}

impl Credentials {
    fn new(username: String, password: &str, source: String) -> Self {
        let pair = Zeroizing::new(format!("{username}:{password}"));
        let header = format!("Basic {}", BASE64_STANDARD.encode(pair.as_bytes()));
        Self { username, password: source, header: header.into() }
    }
}

/// The choice of a proxy for each address of the upstream.
#[derive(Clone, Debug, PartialEq)]
pub enum Proxies {
    /// None, whatever the environment says.
    Off,
    /// This one for all addresses, whatever the environment says.
    Set(Arc<Proxy>),
    /// By the environment.
    Environment(Variables),
}

/// The environment variables about proxies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables {
    https: Option<Arc<Proxy>>,
    http: Option<Arc<Proxy>>,
    exempt: Vec<Exempt>,
}

/// An entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exempt {
    All,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    /// A name with its subdomains, or these alone.
    Name {
        name: String,
        is_itself: bool,
        port: Option<u16>,
    },
}

impl Proxy {
    /// Address of the proxy; `https` for TLS to the proxy itself.
    pub fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// The value of `Proxy-Authorization`, if there is a user name.
    pub fn authorization(&self) -> Option<&SecretString> {
        self.credentials.as_ref().map(|credentials| &credentials.header)
    }

    fn configured(url: HttpUrl, credentials: Option<Credentials>) -> Self {
        Self { url, credentials, variable: None }
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        if !entry.value.is_table() {
            return at(entry).map(|url| Self::configured(url, None));
        }
        entry.table(|reader| {
            let url = reader.entry("url").map_or_else(
                || reader.refuse("url", "missing", HttpUrl::accepted()),
                |entry| at(&entry),
            );
            let username = reader.if_set("username", username);
            let password: Option<Secret> = reader.optional("password");
            match (username?, password) {
                (None, None) if !reader.is_set("password") => Some(Self::configured(url?, None)),
                (None, _) => reader.refuse("password", "without username", "both, or neither"),
                (Some(_), None) if !reader.is_set("password") => {
                    reader.refuse("username", "without password", "both, or neither")
                }
                (Some(name), password) => {
                    let password = password?;
                    let (value, source) = (password.expose_secret(), password.printed());
                    Some(Self::configured(url?, Some(Credentials::new(name, value, source))))
                }
            }
        })
    }
}

/// The address with its variable, without credentials.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variable {
            Some(variable) => write!(f, "{} ({variable})", self.url),
            None => write!(f, "{}", self.url),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.to_string()).finish()
    }
}

/// Faults do not quote the address, because it may hold a password.
fn at(entry: &Entry<'_>) -> Option<HttpUrl> {
    let written = entry.text::<HttpUrl>()?;
    match address(written) {
        Ok(url) => Some(url),
        Err(problem) => entry.refuse(format!("bad address of a proxy: {problem}"), ACCEPTED),
    }
}

fn address(written: &str) -> Result<HttpUrl, &'static str> {
    let url = http_url::parse(written)?;
    if url.path_prefix().is_empty() { Ok(url) } else { Err("it has a path") }
}

/// RFC 7617 §2: a user name has no colon.
fn username(entry: &Entry<'_>) -> Option<String> {
    let name = Arc::<str>::read(entry)?;
    if name.contains(':') {
        return entry.refuse("it has a colon", "a user name without a colon");
    }
    Some(name.to_string())
}

impl Proxies {
    /// Reads the key, or without it the environment, for these addresses of the upstream.
    pub(super) fn read(reader: &mut Reader<'_>, urls: &[&UpstreamUrl]) -> Option<Self> {
        let Some(entry) = reader.entry("proxy") else {
            // The environment, like secrets, is that of the gateway's machine.
            if reader.secrets() == Secrets::Presumed {
                return Some(Self::Environment(Variables::default()));
            }
            return match Variables::read(&|name| reader.variable(name), urls) {
                Ok(variables) => Some(Self::Environment(variables)),
                Err((variable, problem)) => {
                    let problem = format!(
                        "not set, so that the environment variable {variable} counts, which is no address of a proxy: {problem}"
                    );
                    reader.refuse("proxy", problem, ACCEPTED)
                }
            };
        };
        if entry.value.as_str() == Some("none") {
            return Some(Self::Off);
        }
        Proxy::read(&entry).map(|proxy| Self::Set(Arc::new(proxy)))
    }

    /// Returns the proxy for an address of the upstream; `None`: it is connected to directly.
    pub fn of(&self, url: &UpstreamUrl) -> Option<&Arc<Proxy>> {
        match self {
            Self::Off => None,
            Self::Set(proxy) => Some(proxy),
            Self::Environment(variables) => variables.of(url),
        }
    }

    pub(super) fn print(&self, printer: &mut Printer, urls: &[(&str, &UpstreamUrl)]) {
        let Self::Environment(variables) = self else {
            match self {
                Self::Set(proxy) => printer.set("proxy", printed(proxy)),
                _ => printer.set("proxy", text("none")),
            }
            return;
        };
        let Some(proxy) = urls.iter().find_map(|(_, url)| variables.of(url)) else { return };
        let mut notes = vec![format!("from {}", proxy.variable.unwrap_or_default())];
        for (key, url) in urls {
            match variables.of(url) {
                Some(other) if Arc::ptr_eq(other, proxy) => {}
                Some(other) => notes.push(format!("{key}: {other}")),
                None => notes.push(format!("{key}: none")),
            }
        }
        printer.set("proxy", format!("{} # {}", printed(proxy), notes.join("; ")));
    }
}

fn printed(proxy: &Proxy) -> String {
    match &proxy.credentials {
        None => text(&proxy.url),
        Some(Credentials { username, password, .. }) => inline(&[
            ("url", text(&proxy.url)),
            ("username", text(username)),
            ("password", password.clone()),
        ]),
    }
}

type Lookup<'e> = &'e dyn Fn(&str) -> Option<String>;

impl Variables {
    /// Reads the variables in lower case before those in upper case, as curl does. `HTTP_PROXY`
    /// counts in lower case only, because a CGI script's environment has a client's header `Proxy`
    /// there. An error names the variable of an address that needs it.
    fn read(env: Lookup<'_>, urls: &[&UpstreamUrl]) -> Result<Self, (&'static str, &'static str)> {
        let set = |names: &[&'static str]| {
            let named = |name: &&'static str| Some((*name, env(name)?));
            names.iter().filter_map(named).find(|(_, value)| !value.trim().is_empty())
        };
        let exempt = set(&["no_proxy", "NO_PROXY"]).map_or_else(Vec::new, |(_, value)| {
            value.split([',', ' ', '\t']).filter_map(Exempt::parse).collect()
        });
        let mut read = Self { https: None, http: None, exempt };
        for (scheme, names) in [
            (Scheme::Https, ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"].as_slice()),
            (Scheme::Http, &["http_proxy", "all_proxy", "ALL_PROXY"]),
        ] {
            let Some((variable, value)) = set(names) else { continue };
            let is_needed = urls.iter().any(|url| url.scheme() == scheme && !read.is_exempt(url));
            let proxy = match from_variable(variable, value.trim()) {
                Ok(proxy) => Some(Arc::new(proxy)),
                Err(problem) if is_needed => return Err((variable, problem)),
                Err(_) => None,
            };
            match scheme {
                Scheme::Https => read.https = proxy,
                Scheme::Http => read.http = proxy,
            }
        }
        Ok(read)
    }

    fn of(&self, url: &UpstreamUrl) -> Option<&Arc<Proxy>> {
        let proxy = if url.is_tls() { self.https.as_ref() } else { self.http.as_ref() };
        proxy.filter(|_| !self.is_exempt(url))
    }

    /// Loopback never needs an entry, as in Go.
    fn is_exempt(&self, url: &UpstreamUrl) -> bool {
        url.is_loopback() || self.exempt.iter().any(|entry| entry.covers(url.host(), url.port()))
    }
}

/// Reads `[scheme://][user[:password]@]host[:port][/]`, as curl does.
fn from_variable(variable: &'static str, value: &str) -> Result<Proxy, &'static str> {
    let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
    let (user, host) = match rest.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, rest),
    };
    let url = address(&format!("{scheme}://{host}"))?;
    let variable = Some(variable);
    let Some(user) = user else { return Ok(Proxy { url, credentials: None, variable }) };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(|text| Zeroizing::new(text.into_owned())).map_err(|_| "its user is no text")
    };
    let (name, password) = (decoded(name)?, decoded(password)?);
    if name.contains(':') {
        return Err("its user name has a colon");
    }
    let source = inline(&[("value", redacted())]);
    let credentials = Some(Credentials::new(name.to_string(), &password, source));
    Ok(Proxy { url, credentials, variable })
}

impl Exempt {
    /// Reads an entry in the syntax of Go, which has that of curl in it.
    fn parse(written: &str) -> Option<Self> {
        if written.is_empty() {
            return None;
        }
        if written == "*" {
            return Some(Self::All);
        }
        if let Ok(network) = written.parse() {
            return Some(Self::Network(network));
        }
        let bare = |host: &str| {
            let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            inside.unwrap_or(host).parse().ok()
        };
        if let Some(address) = bare(written) {
            return Some(Self::Address(address, None));
        }
        let (host, port) = match written.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (written, None),
        };
        if let Some(address) = bare(host) {
            return Some(Self::Address(address, port));
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(&host);
        let (name, is_itself) = match host.strip_prefix('.') {
            Some(name) => (name, false),
            None => (host, true),
        };
        (!name.is_empty()).then(|| Self::Name { name: name.to_owned(), is_itself, port })
    }

    fn covers(&self, host: &str, at_port: u16) -> bool {
        let address = host.parse::<IpAddr>().ok();
        let is_port = |port: &Option<u16>| port.is_none_or(|port| port == at_port);
        match self {
            Self::All => true,
            Self::Network(network) => address.is_some_and(|address| network.contains(&address)),
            Self::Address(exempt, port) => address == Some(*exempt) && is_port(port),
            Self::Name { name, is_itself, port } => {
                let host = host.strip_suffix('.').unwrap_or(host);
                let before = host.strip_suffix(name.as_str());
                let is_covered = match before {
                    Some("") => *is_itself,
                    Some(before) => before.ends_with('.'),
                    None => false,
                };
                is_covered && is_port(port)
            }
        }
    }
}
