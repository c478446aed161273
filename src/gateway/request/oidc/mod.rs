//! Clients by OIDC tokens (SPECIFICATION, "Tokens of an issuer"): JSON Web Tokens that an issuer
//! signs, such as those of CI jobs.
//!
//! A token is verified once, and then known by its digest until it ends or its key is taken back.
//! No token is kept, logged or sent upstream.

pub mod fetch;
pub mod issuer;
pub mod signing_keys;

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use moka::sync::Cache;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::issuer::Issuer;
use self::signing_keys::{SigningKey, install_provider};
use crate::clock::Timestamp;
use crate::config::{OidcClient, digest};
use crate::gateway::environment::Environment;
use crate::gateway::error::Unknown;
use crate::telemetry::{Metrics, begins_object};

/// The longest token. Chosen here: those of public issuers have 2 KiB.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Verified tokens that are known. Chosen here: with their digests they take 2 MB.
const KNOWN_MAX: u64 = 10_000;
/// The accepted difference of clocks.
const LEEWAY: Duration = Duration::from_secs(30);

/// A verified token.
#[derive(Clone)]
pub struct Verified {
    /// The client: an index into `Config::clients`.
    pub client: usize,
    /// The first moment at which the token identifies nobody.
    pub until: Timestamp,
    pub signed_by: Arc<SigningKey>,
}

/// The issuers of one config, and the clients that are known by their tokens.
pub struct Tokens {
    issuers: Vec<Arc<Issuer>>,
    rules: Vec<(usize, OidcClient)>,
    known: Cache<[u8; 32], Verified>,
    metrics: Arc<Metrics>,
}

/// The issuer that a token names, before anything of it is verified.
#[derive(Deserialize)]
struct Named {
    iss: String,
    #[serde(default)]
    aud: Value,
}

impl Named {
    fn is_for(&self, audience: &str) -> bool {
        self.aud == audience
            || self.aud.as_array().is_some_and(|all| all.iter().any(|one| one == audience))
    }
}

impl Tokens {
    /// Keeps the issuers of `before` that are the same, and the keys of those that have them from
    /// the same place.
    pub fn new(env: &Environment, before: Option<&Self>) -> Self {
        let before = before.map_or(&[][..], |before| &before.issuers[..]);
        let issuer = |config: &crate::config::Issuer| {
            let same = before.iter().find(|issuer| issuer.is_same(config, &env.config.upstream));
            let with_keys = || before.iter().find(|issuer| issuer.has_keys_of(config));
            same.map_or_else(
                || Arc::new(Issuer::new(config, env, with_keys().map(|before| &**before))),
                Arc::clone,
            )
        };
        let clients = env.config.clients.iter().enumerate();
        install_provider();
        Self {
            issuers: env.config.issuers.iter().map(issuer).collect(),
            rules: clients
                .filter_map(|(index, client)| Some((index, client.oidc.clone()?)))
                .collect(),
            known: Cache::new(KNOWN_MAX),
            metrics: Arc::clone(&env.metrics),
        }
    }

    pub fn issuers(&self) -> &[Arc<Issuer>] {
        &self.issuers
    }

    pub fn is_empty(&self) -> bool {
        self.issuers.is_empty()
    }

    /// True for a text in the form of a token, if there are issuers.
    pub fn could_be(&self, text: &[u8]) -> bool {
        !self.is_empty()
            && memchr::memchr_iter(b'.', text).count() == 2
            && text.split(|byte| *byte == b'.').next().is_some_and(begins_object)
    }

    /// True for a token that names one of the issuers, valid or not.
    pub fn are_named_by(&self, text: &[u8]) -> bool {
        self.could_be(text) && self.issuer_of(text).is_some()
    }

    /// The issuer that a token names: of several with one address, the first of its audience.
    pub fn issuer_of(&self, token: &[u8]) -> Option<&Arc<Issuer>> {
        let (_, issuer) = *self.issuers_of(token).first()?;
        Some(issuer)
    }

    /// The issuers that a token names, with their positions. Of several with one address, those of
    /// the token's audiences, else the first.
    fn issuers_of(&self, token: &[u8]) -> Vec<(usize, &Arc<Issuer>)> {
        let named: Option<Named> = jsonwebtoken::dangerous::insecure_decode_claims(token).ok();
        let Some(named) = named else { return Vec::new() };
        let of_address =
            self.issuers.iter().enumerate().filter(|(_, it)| *it.config.url == *named.iss);
        let of_audience = of_address.clone().filter(|(_, it)| named.is_for(&it.config.audience));
        let found: Vec<_> = of_audience.collect();
        if found.is_empty() { of_address.take(1).collect() } else { found }
    }

    /// Verifies a token and finds its client.
    pub fn identify(&self, token: &[u8], now: Timestamp) -> Result<Verified, Unknown> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(self.counted(None, Unknown::MalformedToken("it is too long")));
        }
        let key = digest(token);
        if let Some(known) = self.known.get(&key)
            && now < known.until
            && known.signed_by.is_in_force()
        {
            return Ok(known);
        }
        let issuers = self.issuers_of(token);
        let Some((_, first)) = issuers.first() else {
            return Err(self.counted(None, Unknown::WrongIssuer));
        };
        let verified = issuers
            .iter()
            .map(|(index, issuer)| Ok((issuer, self.verify(token, *index, issuer, now)?)));
        match only(verified) {
            Ok((issuer, verified)) => {
                self.metrics.issuer_token(Some(&issuer.config.name), "accepted");
                self.known.insert(key, verified.clone());
                Ok(verified)
            }
            Err(unknown) => Err(self.counted(Some(first), unknown)),
        }
    }

    fn counted(&self, issuer: Option<&Arc<Issuer>>, unknown: Unknown) -> Unknown {
        let name = issuer.map(|issuer| &issuer.config.name);
        self.metrics.issuer_token(name, (&unknown).into());
        unknown
    }

    fn verify(
        &self,
        token: &[u8],
        index: usize,
        issuer: &Issuer,
        now: Timestamp,
    ) -> Result<Verified, Unknown> {
        // Fails for `none` too, which is no algorithm here.
        let header = decode_header(token)
            .map_err(|_| Unknown::MalformedToken("its header is of an unknown form"))?;
        if header.crit.is_some() || header.enc.is_some() || header.zip.is_some() {
            return Err(Unknown::MalformedToken("its header asks for what is not supported"));
        }
        let name = header.kid.ok_or(Unknown::MalformedToken("it does not name its key (kid)"))?;
        let keys = issuer.keys();
        if keys.is_empty() {
            return Err(Unknown::IssuerUnavailable);
        }
        let (key, claims) = signed(token, keys.named(&name), issuer)?;
        let until = check_times(&claims, now)?;
        let mut clients =
            self.rules.iter().filter(|(_, rule)| rule.issuer == index && rule.fits(&claims));
        let (client, _) = clients.next().ok_or(Unknown::WrongClaims)?;
        if clients.next().is_some() {
            return Err(Unknown::AmbiguousToken);
        }
        Ok(Verified { client: *client, until, signed_by: key })
    }
}

/// The client by one of a token's audiences, which must not be several. The error is the first.
fn only<I>(
    mut verified: impl Iterator<Item = Result<(I, Verified), Unknown>>,
) -> Result<(I, Verified), Unknown> {
    let first = verified.next().unwrap_or(Err(Unknown::WrongIssuer));
    verified.fold(first, |found, next| match (found, next) {
        (Err(Unknown::AmbiguousToken), _) | (_, Err(Unknown::AmbiguousToken)) => {
            Err(Unknown::AmbiguousToken)
        }
        (Ok((_, one)), Ok((_, other))) if one.client != other.client => {
            Err(Unknown::AmbiguousToken)
        }
        (Err(_), Ok(next)) => Ok(next),
        (found, _) => found,
    })
}

/// The key of those with a token's key name that has signed it, and its claims.
fn signed(
    token: &[u8],
    keys: &[Arc<SigningKey>],
    issuer: &Issuer,
) -> Result<(Arc<SigningKey>, Map<String, Value>), Unknown> {
    let mut validation = Validation::default();
    validation.set_issuer(&[&issuer.config.url]);
    validation.set_audience(&[&issuer.config.audience]);
    validation.required_spec_claims = ["exp", "aud", "iss"].map(str::to_owned).into();
    // By the gateway's clock, later.
    (validation.validate_exp, validation.validate_nbf) = (false, false);
    let mut unknown = Unknown::WrongSigner;
    for key in keys {
        validation.algorithms.clone_from(&key.algorithms);
        match decode(token, &key.key, &validation) {
            Ok(decoded) => return Ok((Arc::clone(key), decoded.claims)),
            Err(error) => unknown = problem(error.kind()),
        }
        if !matches!(unknown, Unknown::ForgedToken) {
            break;
        }
    }
    Err(unknown)
}

/// Checks `exp`, `nbf` and `iat` (RFC 7519 §4.1), and returns the end of the token.
fn check_times(claims: &Map<String, Value>, now: Timestamp) -> Result<Timestamp, Unknown> {
    const NO_TIME: Unknown = Unknown::MalformedToken("exp, nbf or iat is no time");
    let time = |name: &str| claims.get(name).map(|value| seconds(value).ok_or(NO_TIME));
    let expires = time("exp").unwrap_or(Err(Unknown::MalformedToken("it has no end (exp)")))?;
    if now >= expires + LEEWAY {
        return Err(Unknown::ExpiredToken(expires));
    }
    for name in ["nbf", "iat"] {
        if let Some(from) = time(name).transpose()?
            && now + LEEWAY < from
        {
            return Err(Unknown::EarlyToken);
        }
    }
    Ok(expires + LEEWAY)
}

/// A time of RFC 7519 §2, rounded down to seconds.
fn seconds(value: &Value) -> Option<Timestamp> {
    let fraction = || Some(Duration::try_from_secs_f64(value.as_f64()?).ok()?.as_secs());
    value.as_u64().or_else(fraction).map(Timestamp::from_secs)
}

fn problem(error: &ErrorKind) -> Unknown {
    match error {
        ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => Unknown::ForgedToken,
        ErrorKind::InvalidAudience => Unknown::WrongAudience,
        ErrorKind::InvalidIssuer => Unknown::WrongIssuer,
        ErrorKind::MissingRequiredClaim(_) => Unknown::MalformedToken("it lacks exp, aud or iss"),
        _ => Unknown::MalformedToken("its parts are no JSON in Base64"),
    }
}
