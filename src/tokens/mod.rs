//! The configured upstream credentials: which token may carry a request for an account, and which ones the upstream has stopped accepting.
//!
//! App keys and renewed installation tokens will live here too; limits and budgets belong to accounts, not to tokens, and are kept in `decision/`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use secrecy::ExposeSecret;

use crate::api::{TokenKind, TokenKinds};
use crate::clock::Timestamp;
use crate::config::Config;
use crate::decision::AccountId;

/// How long a token that the upstream answered 401 is not used. Ours: a revoked token must not be tried for every request, a mended one should come back.
const BENCH: Duration = Duration::from_secs(300);

/// A token's position in the config, which is also its name in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub u32);

/// All tokens, by account.
pub struct Tokens {
    by_account: Vec<Vec<Slot>>,
}

struct Slot {
    id: TokenId,
    kind: TokenKind,
    authorization: HeaderValue,
    /// Not used before this time, in milliseconds since the epoch; 0 when healthy.
    benched_until: AtomicU64,
}

/// A token chosen for one request.
#[derive(Clone)]
pub struct Credential {
    /// Which token it is.
    pub token: TokenId,
    /// The `Authorization` header, marked sensitive.
    pub authorization: HeaderValue,
}

impl Tokens {
    /// From the validated config.
    ///
    /// # Panics
    /// Never: the config refuses secrets with characters that a header cannot hold.
    pub fn new(config: &Config) -> Self {
        let mut by_account: Vec<Vec<Slot>> = config.accounts.iter().map(|_| Vec::new()).collect();
        for (position, token) in config.tokens.iter().enumerate() {
            let secret = token.secret.expose_secret();
            let text = match token.kind {
                TokenKind::Basic => format!("Basic {}", BASE64_STANDARD.encode(secret)),
                _ => format!("Bearer {secret}"),
            };
            let Ok(mut authorization) = HeaderValue::from_str(&text) else { continue };
            authorization.set_sensitive(true);
            let id = TokenId(u32::try_from(position).unwrap_or(u32::MAX));
            by_account[token.account].push(Slot { id, kind: token.kind, authorization, benched_until: AtomicU64::new(0) });
        }
        Self { by_account }
    }

    /// A usable token of `account` of an accepted kind; `preferred` when it is one of them.
    pub fn pick(&self, account: AccountId, accepted: TokenKinds, preferred: Option<TokenId>, now: Timestamp) -> Option<Credential> {
        let usable = || self.slots(account).iter().filter(|slot| slot.is_usable(now) && accepted.accepts(slot.kind) != Some(false));
        let slot = usable().find(|slot| Some(slot.id) == preferred).or_else(|| usable().next())?;
        Some(Credential { token: slot.id, authorization: slot.authorization.clone() })
    }

    /// Whether `account` has a token of an accepted kind at all, working or not.
    pub fn has_kind(&self, account: AccountId, accepted: TokenKinds) -> bool {
        self.slots(account).iter().any(|slot| accepted.accepts(slot.kind) != Some(false))
    }

    /// The account that a token belongs to.
    pub fn account_of(&self, token: TokenId) -> Option<AccountId> {
        let holds = |slots: &Vec<Slot>| slots.iter().any(|slot| slot.id == token);
        self.by_account.iter().position(holds).and_then(|index| u32::try_from(index).ok()).map(AccountId)
    }

    /// The upstream answered 401 to this token.
    pub fn bench(&self, token: TokenId, now: Timestamp) {
        for slot in self.by_account.iter().flatten().filter(|slot| slot.id == token) {
            slot.benched_until.store((now + BENCH).as_millis(), Ordering::Relaxed);
        }
    }

    /// Every token with its account and whether it is in use.
    pub fn health(&self, now: Timestamp) -> Vec<(AccountId, TokenId, bool)> {
        let accounts = (0_u32..).map(AccountId).zip(&self.by_account);
        accounts.flat_map(|(account, slots)| slots.iter().map(move |slot| (account, slot.id, slot.is_usable(now)))).collect()
    }

    fn slots(&self, account: AccountId) -> &[Slot] {
        self.by_account.get(account.0 as usize).map_or(&[], Vec::as_slice)
    }
}

impl Slot {
    fn is_usable(&self, now: Timestamp) -> bool {
        self.benched_until.load(Ordering::Relaxed) <= now.as_millis()
    }
}
