//! One slot for a credential in the config: its content, the endpoints that accept it, its health.
//!
//! The parent module chooses among an account's slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use http::HeaderValue;
use zeroize::Zeroizing;

use super::app::App;
use super::bench::{BenchState, SharedBench};
use super::health::{HealthState, Source};
use super::installation::Installation;
use super::unhealthy::Usability;
use crate::api::{Endpoint, TokenKind, TokenKinds};
use crate::clock::Timestamp;

/// Identifies one credential as long as its secret stays the same. Validators belong to it
/// (SPECIFICATION D3), so a renewed token has another id. A configured token has the number of its
/// slot; a minted or signed one adds a number of its own in the upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub u64);

/// Identifies one slot for a credential, across renewals of its token. Permissions learned from
/// answers belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u64);

/// Bits of a [`TokenId`] that hold its slot.
const SLOT_BITS: u32 = 32;

/// Allocates the [`TokenId`]s of minted and signed credentials.
#[derive(Debug)]
pub struct Ids(AtomicU32);

/// Credentials that an endpoint accepts, as far as the config decides it: the same for all requests
/// of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    kinds: TokenKinds,
    /// No credential is accepted too.
    is_open: bool,
}

#[derive(Clone)]
pub(super) enum Slot {
    Configured(Configured),
    Installation(Arc<Installation>),
    App(Arc<App>),
    Anonymous(TokenId),
}

#[derive(Clone)]
pub(super) struct Configured {
    pub(super) slot: SlotId,
    /// Its [`TokenId`], which changes with its owner.
    pub(super) id: Arc<AtomicU64>,
    /// Position in the current config.
    pub(super) position: usize,
    pub(super) kind: TokenKind,
    pub(super) authorization: HeaderValue,
    pub(super) bench: SharedBench,
}

impl Configured {
    pub(super) fn id(&self) -> TokenId {
        TokenId(self.id.load(Ordering::Relaxed))
    }
}

impl TokenId {
    /// Returns the id of the `number`th credential that a client sent, which has no slot in the
    /// config.
    pub const fn of_client(number: u32) -> Self {
        Self((number as u64) << SLOT_BITS | u32::MAX as u64)
    }

    /// Returns the slot that it is or was in.
    pub const fn slot(self) -> SlotId {
        SlotId(self.0 & ((1 << SLOT_BITS) - 1))
    }
}

impl Ids {
    pub const fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    pub fn next(&self, slot: SlotId) -> TokenId {
        TokenId(u64::from(self.0.fetch_add(1, Ordering::Relaxed)) << SLOT_BITS | slot.0)
    }
}

impl Wanted {
    /// Returns what `endpoint` accepts. Reads that are not about the caller and for which the table
    /// names neither scope nor permission are open to all.
    pub fn by(endpoint: &Endpoint) -> Self {
        let is_named = endpoint.permission.is_some() || !endpoint.scopes.is_empty();
        let is_open = endpoint.method == http::Method::GET
            && endpoint.tokens.is_unknown()
            && !endpoint.about_caller
            && !is_named;
        Self { kinds: endpoint.tokens, is_open }
    }

    /// Returns true if only an app's own JWT is accepted.
    pub fn only_app(self) -> bool {
        self.kinds.accepts_app_jwt() == Some(true)
            && TokenKind::ALL.into_iter().all(|kind| self.kinds.accepts(kind) == Some(false))
    }
}

impl Slot {
    pub(super) fn id(&self) -> SlotId {
        match self {
            Self::Configured(token) => token.slot,
            Self::Installation(installation) => installation.slot,
            Self::App(app) => app.slot,
            Self::Anonymous(token) => token.slot(),
        }
    }

    /// `None` for an app's JWT and for no credential.
    pub(super) fn kind(&self) -> Option<TokenKind> {
        match self {
            Self::Configured(token) => Some(token.kind),
            Self::Installation(_) => Some(TokenKind::Installation),
            Self::App(_) | Self::Anonymous(_) => None,
        }
    }

    pub(super) fn may_carry(&self, wanted: Wanted) -> bool {
        self.fits(wanted.kinds) && (wanted.is_open || !matches!(self, Self::Anonymous(_)))
    }

    pub(super) fn fits(&self, accepted: TokenKinds) -> bool {
        let takes = |kind| accepted.accepts(kind) != Some(false);
        match self {
            Self::Configured(token) => takes(token.kind),
            Self::Installation(_) => takes(TokenKind::Installation),
            Self::App(_) => accepted.accepts_app_jwt() == Some(true),
            // An endpoint with a specified kind requires a credential.
            Self::Anonymous(_) => accepted.is_unknown(),
        }
    }

    /// Users' own tokens come before those of apps acting for them: requests with the latter also
    /// count against the app's share.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Configured(Configured {
                kind: TokenKind::AppUser | TokenKind::Oauth, ..
            }) => 1,
            _ => 0,
        }
    }

    pub(super) fn source(&self) -> Source {
        match self {
            Self::Configured(token) => Source::Configured(token.position),
            Self::Installation(installation) => Source::Installation(installation.id),
            Self::App(app) => Source::App(app.id),
            Self::Anonymous(_) => Source::Anonymous,
        }
    }

    /// Returns what tells the credential from all others in every run of the program, and its id
    /// where the same secret is in use after a restart.
    pub(super) fn identity(&self) -> (Zeroizing<Vec<u8>>, Option<TokenId>) {
        let (kind, text, id) = match self {
            Self::Configured(token) => {
                (format!("{:?} ", token.kind), token.authorization.as_bytes(), Some(token.id()))
            }
            Self::Installation(of) => (format!("installation {} {}", of.app, of.id), &[][..], None),
            Self::App(app) => (format!("app {}", app.id), &[][..], None),
            Self::Anonymous(token) => ("anonymous".to_owned(), &[][..], Some(*token)),
        };
        (Zeroizing::new([kind.as_bytes(), text].concat()), id)
    }

    pub(super) fn owns(&self, token: TokenId) -> bool {
        match self {
            Self::Configured(configured) => configured.id() == token,
            Self::Installation(installation) => installation.owns(token),
            Self::App(app) => app.owns(token),
            Self::Anonymous(own) => *own == token,
        }
    }

    /// `None` for no credential, which cannot be rejected.
    pub(super) fn bench(&self) -> Option<&SharedBench> {
        match self {
            Self::Configured(token) => Some(&token.bench),
            Self::Installation(installation) => Some(&installation.bench),
            Self::App(app) => Some(&app.bench),
            Self::Anonymous(_) => None,
        }
    }

    pub(super) fn bench_state(&self, now: Timestamp) -> BenchState {
        self.bench().map_or(BenchState::Healthy, |bench| bench.lock().bench_state(now))
    }

    pub(super) fn is_usable(&self, now: Timestamp) -> bool {
        match self {
            Self::Installation(installation) => installation.is_usable(now),
            _ => self.bench_state(now).is_open(),
        }
    }

    pub(super) fn usability(&self, now: Timestamp) -> Usability {
        match self {
            _ if !self.is_usable(now) => Usability::Unusable,
            Self::Installation(installation) => {
                installation.usable_until().map_or(Usability::Unusable, Usability::Until)
            }
            _ => Usability::Lasting,
        }
    }

    pub(super) fn health(
        &self,
        now: Timestamp,
        app: impl Fn(&Installation) -> BenchState,
    ) -> (HealthState, Option<String>) {
        match (self, self.bench()) {
            (Self::Installation(installation), _) => installation.health(now, app(installation)),
            (_, Some(bench)) => bench.lock().health(now),
            (_, None) => (HealthState::Healthy, None),
        }
    }
}
