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

use crate::clock::Timestamp;
use crate::config::{AllowedMethod, CertificateName, Client as ClientConfig, digest};
use crate::decision::{AccountId, access::Rule};
use crate::gateway::environment::Environment;
use crate::gateway::error::Unknown;
use crate::gateway::http::headers::{Repeated, only_value};
use crate::gateway::request::certified::CertificateNames;
use crate::gateway::request::oidc::{Tokens, Verified, issuer::Issuer, signing_keys::SigningKey};

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

/// A client by its credential, as long as that is valid.
#[derive(Clone)]
pub struct Identified {
    pub client: Arc<Client>,
    /// The first moment at which the credential identifies nobody.
    until: Timestamp,
    /// The key of a token, which its issuer may take back.
    signed_by: Option<Arc<SigningKey>>,
}

impl Identified {
    /// True if the credential is still valid.
    pub fn holds(&self, now: Timestamp) -> bool {
        now < self.until && self.signed_by.as_ref().is_none_or(|key| key.is_in_force())
    }
}

/// All clients by the digests of their keys, and by tokens of issuers.
pub struct Clients {
    by_digest: HashMap<[u8; 32], Identified>,
    by_index: HashMap<usize, Arc<Client>>,
    /// By a name in their certificate.
    by_certificate: HashMap<CertificateName, Arc<Client>>,
    tokens: Tokens,
}

impl Clients {
    /// Indexes the clients of the validated config. An unparsable `allow` entry would allow
    /// nothing; the config rejects it beforehand. Keys of issuers are those of `before`.
    pub fn new(env: &Environment, before: Option<&Self>) -> Self {
        let served = env.config.clients.iter().enumerate();
        let served = served.filter(|(_, client)| !client.retired);
        let (mut by_digest, mut by_index) = (HashMap::new(), HashMap::new());
        let mut by_certificate = HashMap::new();
        for (index, config) in served {
            let client = Arc::new(Client::new(index, config));
            for key in &config.keys {
                let until = key.expires.unwrap_or(Timestamp::FAR_FUTURE);
                let client = Arc::clone(&client);
                by_digest.insert(key.sha256, Identified { client, until, signed_by: None });
            }
            if let Some(name) = &config.certificate {
                by_certificate.insert(name.clone(), Arc::clone(&client));
            }
            by_index.insert(index, client);
        }
        let tokens = Tokens::new(env, before.map(|before| &before.tokens));
        Self { by_digest, by_index, by_certificate, tokens }
    }

    pub fn named(&self, name: &str) -> Option<&Arc<Client>> {
        self.by_index.values().find(|client| &*client.name == name)
    }

    /// The issuers of tokens.
    pub fn issuers(&self) -> &[Arc<Issuer>] {
        self.tokens.issuers()
    }

    /// The issuer that the token of a request names, if the request has one.
    pub fn issuer_of(&self, headers: &HeaderMap) -> Option<Arc<Issuer>> {
        let issuer = |token: &[u8]| {
            self.tokens.issuer_of(token).filter(|_| self.tokens.could_be(token)).cloned()
        };
        if let Some(key) = only_value(headers, KEY_HEADER).ok()? {
            return issuer(key.as_bytes());
        }
        let credential = Credential::of(only_value(headers, AUTHORIZATION).ok()??)?;
        issuer(credential.first()).or_else(|| credential.second().and_then(issuer))
    }

    /// The client with one of these names. `None` if there is none, or several.
    pub fn certified(&self, names: &CertificateNames) -> Option<&Arc<Client>> {
        let mut found = names.iter().filter_map(|name| self.by_certificate.get(name));
        let first = found.next()?;
        found.all(|other| other.index == first.index).then_some(first)
    }

    /// True if these names belong to several clients.
    pub fn are_named_by(&self, names: &CertificateNames) -> bool {
        self.certified(names).is_none()
            && names.iter().any(|name| self.by_certificate.contains_key(name))
    }

    /// Identifies the client by its key or token, or by its certificate and the end of that. A key
    /// must not contradict the certificate. Beside one, an `Authorization` that is no key is the
    /// client's own.
    pub fn identify(
        &self,
        headers: &HeaderMap,
        certified: Option<(&Arc<Client>, Timestamp)>,
        now: Timestamp,
    ) -> Result<Identified, Unknown> {
        let by_key = self.identify_by_key(headers, now);
        let Some((certified, until)) = certified else { return by_key };
        match by_key {
            Ok(identified) if identified.client.index != certified.index => {
                Err(Unknown::OtherCertificate)
            }
            Err(Unknown::NoKey | Unknown::WrongKey) if !headers.contains_key(KEY_HEADER) => {
                let client = Arc::clone(certified);
                Ok(Identified { client, until, signed_by: None })
            }
            by_key => by_key,
        }
    }

    fn identify_by_key(&self, headers: &HeaderMap, now: Timestamp) -> Result<Identified, Unknown> {
        if let Some(key) = only_value(headers, KEY_HEADER)? {
            return self.by_credential(key.as_bytes(), now);
        }
        let value = only_value(headers, AUTHORIZATION)?.ok_or(Unknown::NoKey)?;
        let credential = Credential::of(value).ok_or(Unknown::WrongKey)?;
        let identified = self.by_credential(credential.first(), now);
        match (identified, credential.second()) {
            (Err(Unknown::WrongKey), Some(second)) => self.by_credential(second, now),
            (identified, _) => identified,
        }
    }

    /// True if a value of `Authorization` holds a key, or a token of an issuer, in a form that
    /// identifies a client, expired or not.
    pub fn have_place_in(&self, value: &HeaderValue) -> bool {
        let Some(credential) = Credential::of(value) else { return false };
        let is_ours = |text: &[u8]| self.have_key(text) || self.tokens.are_named_by(text);
        is_ours(credential.first()) || credential.second().is_some_and(is_ours)
    }

    /// True if clients may be known by tokens.
    pub fn have_issuers(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// True for a token that names one of the issuers, valid or not.
    pub fn have_issuer_of(&self, token: &[u8]) -> bool {
        self.tokens.are_named_by(token)
    }

    /// True for a key of a client, expired or not.
    pub fn have_key(&self, key: &[u8]) -> bool {
        self.by_key(key).is_some()
    }

    fn by_credential(&self, credential: &[u8], now: Timestamp) -> Result<Identified, Unknown> {
        match self.by_key(credential) {
            Some(known) if known.holds(now) => Ok(known.clone()),
            Some(expired) => Err(Unknown::ExpiredKey(expired.until)),
            None if self.tokens.could_be(credential) => self.by_token(credential, now),
            None => Err(Unknown::WrongKey),
        }
    }

    fn by_token(&self, token: &[u8], now: Timestamp) -> Result<Identified, Unknown> {
        let Verified { client, until, signed_by } = self.tokens.identify(token, now)?;
        let client = self.by_index.get(&client).ok_or(Unknown::WrongClaims)?;
        Ok(Identified { client: Arc::clone(client), until, signed_by: Some(signed_by) })
    }

    fn by_key(&self, key: &[u8]) -> Option<&Identified> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return None;
        }
        let digest = digest(key);
        let (known, identified) = self.by_digest.get_key_value(&digest)?;
        bool::from(known.ct_eq(&digest)).then_some(identified)
    }
}

/// The credential in a value of `Authorization`.
enum Credential<'v> {
    Token(&'v [u8]),
    /// User and password of Basic, with the length of the user.
    Pair(Vec<u8>, usize),
}

impl<'v> Credential<'v> {
    fn of(value: &'v HeaderValue) -> Option<Self> {
        let (scheme, credential) = split_once(value.as_bytes(), b' ')?;
        let credential = credential.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token") {
            return Some(Self::Token(credential));
        }
        if scheme.eq_ignore_ascii_case(b"basic") {
            let pair = BASE64_STANDARD.decode(credential).ok()?;
            let user_bytes = split_once(&pair, b':')?.0.len();
            return Some(Self::Pair(pair, user_bytes));
        }
        None
    }

    /// The token, or the password.
    fn first(&self) -> &[u8] {
        match self {
            Self::Token(token) => token,
            Self::Pair(pair, user_bytes) => &pair[user_bytes + 1..],
        }
    }

    /// The user: some clients send the key as such (SPECIFICATION, "Client libraries" 8).
    fn second(&self) -> Option<&[u8]> {
        match self {
            Self::Token(_) => None,
            Self::Pair(pair, user_bytes) => Some(&pair[..*user_bytes]),
        }
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
    use crate::config::fixture;

    const UPSTREAM: &str = "[upstream]\nurl = \"http://127.0.0.1:9\"\n";
    const OLD: Timestamp = Timestamp::from_secs(1_000);

    fn clients() -> Clients {
        let client = Client {
            name: "ci".into(),
            index: 0,
            pool: 0,
            account: None,
            allow: Vec::new(),
            max_wait: Duration::from_secs(30),
        };
        let client = Arc::new(client);
        let keys = [(b"weir_key".as_slice(), Timestamp::FAR_FUTURE), (b"weir_old", OLD)];
        let identified = |until| Identified { client: Arc::clone(&client), until, signed_by: None };
        Clients {
            by_digest: keys.map(|(key, until)| (digest(key), identified(until))).into(),
            by_index: HashMap::new(),
            by_certificate: HashMap::new(),
            tokens: Tokens::new(&Environment::of_test(&fixture::text(UPSTREAM)), None),
        }
    }

    fn identify(name: &'static str, value: &str) -> Result<String, Unknown> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        let identified = clients().identify(&headers, None, OLD);
        identified.map(|identified| identified.client.name.to_string())
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
        assert_eq!(clients().identify(&HeaderMap::new(), None, OLD).err(), Some(Unknown::NoKey));
    }

    #[test]
    fn an_expired_key_identifies_no_client_and_keeps_its_place() {
        for scheme in ["Bearer weir_old", "Basic Ym90OndlaXJfb2xk", "Basic d2Vpcl9vbGQ6eA=="] {
            assert_eq!(identify("authorization", scheme), Err(Unknown::ExpiredKey(OLD)));
            assert!(clients().have_place_in(&HeaderValue::from_static(scheme)));
        }
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer weir_old"));
        let earlier = Timestamp::from_secs(999);
        assert!(clients().identify(&headers, None, earlier).is_ok_and(|known| !known.holds(OLD)));
    }

    #[test]
    fn a_key_in_its_own_header_leaves_authorization_to_the_client() {
        let mut headers = HeaderMap::new();
        headers.insert("x-weir-key", HeaderValue::from_static("weir_key"));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer something-else"));
        assert!(clients().identify(&headers, None, OLD).is_ok());
    }
}
