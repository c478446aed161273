//! Authenticates clients: maps a key to its client in the config (SPECIFICATION, "Keys").
//!
//! Keys are stored, looked up and compared in constant time as SHA-256 digests only.
//! `decision/access.rs` decides the client's permissions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use subtle::ConstantTimeEq;

use crate::config::{AllowedMethod, Client as ClientConfig, Config, digest};
use crate::decision::{AccountId, access::Rule};
use crate::gateway::error::Unknown;
use crate::gateway::http::headers::{Repeated, only_value};
use crate::gateway::request::certified::CertificateNames;

/// The client's header for its key; `Authorization` then goes upstream (SPECIFICATION, "Keys").
pub const KEY_HEADER: &str = "x-weir-key";
/// Longer than any key that `weir key` makes, and short enough for cheap hashing.
pub(super) const KEY_BYTES_MAX: usize = 512;

pub struct Client {
    pub name: Arc<str>,
    pub index: u32,
    pub pool: usize,
    /// Its stable identity upstream.
    pub account: Option<AccountId>,
    pub allow: Vec<Rule>,
    pub max_wait: Duration,
}

/// All clients by the digest of their key.
pub struct Clients {
    by_digest: HashMap<[u8; 32], Arc<Client>>,
    /// By a name in their certificate.
    by_certificate: HashMap<Arc<str>, Arc<Client>>,
}

impl Clients {
    /// Indexes the clients of the validated config. An unparsable `allow` entry would allow
    /// nothing; the config rejects it beforehand.
    pub fn new(config: &Config) -> Self {
        let mut clients = Self { by_digest: HashMap::new(), by_certificate: HashMap::new() };
        for (index, settings) in config.clients.iter().enumerate() {
            if settings.retired {
                continue;
            }
            let client = Arc::new(Client::new(index, settings));
            if let Some(name) = &settings.certificate {
                clients.by_certificate.insert(Arc::clone(name), Arc::clone(&client));
            }
            if let Some(digest) = settings.key_sha256 {
                clients.by_digest.insert(digest, client);
            }
        }
        clients
    }

    pub fn named(&self, name: &str) -> Option<&Arc<Client>> {
        let mut all = self.by_digest.values().chain(self.by_certificate.values());
        all.find(|client| &*client.name == name)
    }

    /// The client with one of these names. `None` if there is none, or several.
    pub fn certified(&self, names: &CertificateNames) -> Option<&Arc<Client>> {
        let mut found = names.iter().filter_map(|name| self.by_certificate.get(name));
        let first = found.next()?;
        found.all(|other| other.index == first.index).then_some(first)
    }

    /// Identifies the client by its key, or by its certificate. A key must not contradict the
    /// certificate. Beside one, an `Authorization` that is no key is the client's own.
    pub fn identify<'a>(
        &'a self,
        headers: &HeaderMap,
        certified: Option<&'a Arc<Client>>,
    ) -> Result<&'a Arc<Client>, Unknown> {
        let Some(certified) = certified else { return self.identify_by_key(headers) };
        match self.identify_by_key(headers) {
            Ok(client) if client.index == certified.index => Ok(certified),
            Ok(_) => Err(Unknown::OtherCertificate),
            Err(_) if headers.contains_key(KEY_HEADER) => Err(Unknown::WrongKey),
            Err(_) => Ok(certified),
        }
    }

    fn identify_by_key(&self, headers: &HeaderMap) -> Result<&Arc<Client>, Unknown> {
        if let Some(key) = only_value(headers, KEY_HEADER)? {
            return self.by_key(key.as_bytes()).ok_or(Unknown::WrongKey);
        }
        self.identify_by(only_value(headers, AUTHORIZATION)?.ok_or(Unknown::NoKey)?)
    }

    pub fn identify_by(&self, value: &HeaderValue) -> Result<&Arc<Client>, Unknown> {
        let (scheme, credential) = split_once(value.as_bytes(), b' ').ok_or(Unknown::WrongKey)?;
        let credential = credential.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token") {
            return self.by_key(credential).ok_or(Unknown::WrongKey);
        }
        if scheme.eq_ignore_ascii_case(b"basic") {
            let pair = BASE64_STANDARD.decode(credential).map_err(|_| Unknown::WrongKey)?;
            let (user, password) = split_once(&pair, b':').ok_or(Unknown::WrongKey)?;
            // Some clients send the token as the user name (SPECIFICATION, "Client libraries" 8).
            return self.by_key(password).or_else(|| self.by_key(user)).ok_or(Unknown::WrongKey);
        }
        Err(Unknown::WrongKey)
    }

    pub fn have_key(&self, key: &[u8]) -> bool {
        self.by_key(key).is_some()
    }

    fn by_key(&self, key: &[u8]) -> Option<&Arc<Client>> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return None;
        }
        let digest = digest(key);
        let (known, client) = self.by_digest.get_key_value(&digest)?;
        bool::from(known.ct_eq(&digest)).then_some(client)
    }
}

impl Client {
    fn new(index: usize, client: &ClientConfig) -> Self {
        let rule = |allow: &crate::config::Allow| {
            let method = match &allow.method {
                AllowedMethod::Any => "*",
                AllowedMethod::Only(method) => method.as_str(),
            };
            Rule::parse(&format!("{method} {}", allow.path)).ok()
        };
        Self {
            name: Arc::clone(&client.name),
            index: u32::try_from(index).unwrap_or(u32::MAX),
            pool: client.reads,
            account: client.writes.and_then(|account| u32::try_from(account).ok()).map(AccountId),
            allow: client.allow.iter().filter_map(rule).collect(),
            max_wait: client.max_wait,
        }
    }
}

impl From<Repeated> for Unknown {
    fn from(Repeated: Repeated) -> Self {
        Self::WrongKey
    }
}

fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> Clients {
        let client = Client {
            name: "ci".into(),
            index: 0,
            pool: 0,
            account: None,
            allow: Vec::new(),
            max_wait: Duration::from_secs(30),
        };
        let by_digest = HashMap::from([(digest(b"weir_key"), Arc::new(client))]);
        Clients { by_digest, by_certificate: HashMap::new() }
    }

    fn identify(name: &'static str, value: &str) -> Result<String, Unknown> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        clients().identify(&headers, None).map(|client| client.name.to_string())
    }

    #[test]
    fn every_scheme_that_clients_use_carries_the_key() {
        for (name, value) in [
            ("authorization", "Bearer weir_key".to_owned()),
            ("authorization", "bearer weir_key".to_owned()),
            ("authorization", "token weir_key".to_owned()),
            ("authorization", format!("Basic {}", BASE64_STANDARD.encode("bot:weir_key"))),
            (
                "authorization",
                format!("Basic {}", BASE64_STANDARD.encode("weir_key:x-oauth-basic")),
            ),
            ("x-weir-key", "weir_key".to_owned()),
        ] {
            assert_eq!(identify(name, &value), Ok("ci".into()), "{value}");
        }
    }

    #[test]
    fn a_wrong_key_identifies_no_client() {
        for value in [
            "Bearer weir_keys",
            "Bearer ",
            "Bearer",
            "Digest weir_key",
            "Basic !!!",
            "Basic d2Vpcg==",
        ] {
            assert_eq!(identify("authorization", value), Err(Unknown::WrongKey), "{value}");
        }
        assert_eq!(clients().identify(&HeaderMap::new(), None).err(), Some(Unknown::NoKey));
    }

    #[test]
    fn a_key_in_its_own_header_leaves_authorization_to_the_client() {
        let mut headers = HeaderMap::new();
        headers.insert("x-weir-key", HeaderValue::from_static("weir_key"));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer something-else"));
        assert!(clients().identify(&headers, None).is_ok());
    }
}
