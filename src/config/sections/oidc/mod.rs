//! `[[issuers]]`: issuers of OIDC tokens by which clients may be known, and `clients[].oidc`: the
//! claims of a client's tokens.

mod claims;
mod key_set;

use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use http::uri::PathAndQuery;

use super::tls::CaFile;
use crate::config::input::declared::Declared;
use crate::config::input::document::Secrets;
use crate::config::input::http_url::{HttpUrl, origin};
use crate::config::input::reader::{Entry, Read, Reader};
use crate::config::input::secret_file;
use crate::config::printer::{Printer, text};

pub use claims::OidcClient;
pub use key_set::{PublicKey, parse as parse_key_set};

/// The document below an issuer's address (OIDC Discovery 1.0 §4).
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// One entry of `[[issuers]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// Unique name, for logs and metrics.
    pub name: Arc<str>,
    /// The claim `iss` of its tokens, exactly.
    pub url: Arc<str>,
    /// The claim `aud` of tokens for this gateway.
    pub audience: Arc<str>,
    /// The source of its keys.
    pub keys: IssuerKeys,
    /// Certificates to trust instead of the system's authorities.
    pub ca_file: Option<CaFile>,
}

/// The source of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuerKeys {
    /// The document that names the address of the keys.
    Discovery(FetchUrl),
    /// The address of the keys.
    Url(FetchUrl),
    /// A file, and its content; the content is empty if the config was read without secrets.
    File(PathBuf, Arc<str>),
}

impl IssuerKeys {
    /// The address that is asked first; `None` for a file.
    pub fn address(&self) -> Option<String> {
        match self {
            Self::Discovery(url) | Self::Url(url) => Some(url.text()),
            Self::File(..) => None,
        }
    }
}

/// An address that is fetched: HTTPS, or plain HTTP of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchUrl {
    /// Scheme, host and port.
    pub base: HttpUrl,
    /// Path and query.
    pub target: PathAndQuery,
}

impl FetchUrl {
    /// Parses an address. The error is the problem.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains('#') {
            return Err("it has a fragment");
        }
        let uri: Uri = text.parse().map_err(|_| "it cannot be read as one")?;
        let (scheme, host, port) = origin(&uri)?;
        let base = HttpUrl::new(scheme, host, port, String::new());
        if !base.is_tls() && !base.is_loopback() {
            return Err("it is plain HTTP to another machine, which could name any keys");
        }
        let target = uri.path_and_query().cloned();
        Ok(Self { base, target: target.unwrap_or_else(|| PathAndQuery::from_static("/")) })
    }

    fn text(&self) -> String {
        format!("{}{}", self.base, self.target)
    }
}

impl Read for FetchUrl {
    fn accepted() -> String {
        "an https URL; plain HTTP is for this machine only".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let parsed = Self::parse(entry.text::<Self>()?);
        parsed.map_or_else(
            |problem| entry.refuse(format!("bad URL: {problem}"), Self::accepted()),
            Some,
        )
    }
}

impl Issuer {
    pub(crate) fn read_all(root: &mut Reader<'_>) -> Declared<Self> {
        let issuers = Declared::read(root, "issuers", "issuer", Self::read);
        let tokens_of = |index| {
            let issuer: &Self = issuers.get(index)?;
            Some((&issuer.url, &issuer.audience))
        };
        for index in 0..issuers.len() {
            if (0..index)
                .any(|earlier| tokens_of(earlier).is_some_and(|it| tokens_of(index) == Some(it)))
            {
                let problem = "an earlier issuer has the same url and audience: no token would be of this one";
                root.refuse_item("issuers", index, problem, "one entry for both");
            }
        }
        issuers
    }

    fn read(reader: &mut Reader<'_>, name: Option<Arc<str>>) -> Option<Self> {
        let url = match reader.entry("url") {
            Some(entry) => read_url(&entry),
            None => reader.refuse("url", "missing", FetchUrl::accepted()),
        };
        let audience = reader.required::<Arc<str>>("audience");
        let jwks_url = reader.if_set("jwks_url", FetchUrl::read);
        let jwks_file = reader.if_set("jwks_file", read_file);
        let ca_file = reader.if_set("ca_file", CaFile::read);
        let (url, discovery) = url?;
        let keys = match (jwks_url?, jwks_file?) {
            (None, None) => IssuerKeys::Discovery(discovery),
            (Some(url), None) => IssuerKeys::Url(url),
            (None, Some(file)) => file,
            (Some(_), Some(_)) => {
                let problem = "not beside jwks_url, which says where the keys are";
                return reader.refuse("jwks_file", problem, "jwks_url, jwks_file or neither");
            }
        };
        Some(Self { name: name?, url, audience: audience?, keys, ca_file: ca_file? })
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.entry("issuers");
        printer.set("name", text(&self.name));
        printer.set("url", text(&self.url));
        printer.set("audience", text(&self.audience));
        match &self.keys {
            IssuerKeys::Discovery(_) => {}
            IssuerKeys::Url(url) => printer.set("jwks_url", text(url.text())),
            IssuerKeys::File(path, _) => printer.set("jwks_file", text(path.display())),
        }
        printer.set_some("ca_file", self.ca_file.as_ref().map(|file| text(file.path().display())));
    }
}

/// Reads the address of an issuer, as its tokens write it, with that of its discovery document.
fn read_url(entry: &Entry<'_>) -> Option<(Arc<str>, FetchUrl)> {
    let url = FetchUrl::read(entry)?;
    if url.target.query().is_some() {
        return entry.refuse("bad URL: it has a query", FetchUrl::accepted());
    }
    let path = format!("{}{DISCOVERY}", url.target.path().trim_end_matches('/'));
    let target = PathAndQuery::try_from(path).ok()?;
    Some((entry.text::<FetchUrl>()?.into(), FetchUrl { target, ..url }))
}

fn read_file(entry: &Entry<'_>) -> Option<IssuerKeys> {
    const ACCEPTED: &str = "a JSON file with keys: {\"keys\": [{\"kty\": …}]}";
    let path = PathBuf::read(entry)?;
    // The file belongs to the machine of the gateway, like its secrets.
    if entry.document.secrets == Secrets::Presumed && !path.exists() {
        entry.document.leave_out(&entry.path, format!("file {}", path.display()));
        return Some(IssuerKeys::File(path, Arc::default()));
    }
    let accept = |text: &str| {
        let fault = |problem| {
            (format!("the file named here has no key of use: {problem}"), ACCEPTED.to_owned())
        };
        key_set::parse(text.as_bytes()).map(|_| text.into()).map_err(fault)
    };
    match secret_file::read(entry.document, &entry.path, path.clone(), ACCEPTED, accept) {
        Ok(text) => Some(IssuerKeys::File(path, text)),
        Err((problem, accepted)) => entry.refuse(problem, accepted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_fetched_has_a_host_and_a_port() {
        for (written, text) in [
            ("https://Token.example.com", "https://token.example.com/"),
            ("https://[2001:DB8::1]:8443/k?v=1", "https://[2001:db8::1]:8443/k?v=1"),
            ("http://127.0.0.1:8080/keys", "http://127.0.0.1:8080/keys"),
        ] {
            let url = FetchUrl::parse(written).unwrap();
            assert_eq!(url.text(), text);
            assert_eq!(FetchUrl::parse(text).unwrap(), url);
        }
        for refused in [
            "https://token.example.com[listen]/keys",
            "https://[listen]/keys",
            "https://token..example.com/keys",
            "https://token.example.com:0/keys",
            "https://token.example.com:70000/keys",
            "https://user@token.example.com/keys",
            "http://token.example.com/keys",
            "ftp://token.example.com/keys",
            "/keys",
        ] {
            assert!(FetchUrl::parse(refused).is_err(), "{refused}");
        }
    }
}
