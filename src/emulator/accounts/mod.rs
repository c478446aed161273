//! The identity behind a request: the account that owns the budget, the token and its rights.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use strum::{EnumString, IntoStaticStr};

use crate::api::TokenKind;
use crate::clock::Timestamp;

/// The owner of a budget (SPECIFICATION, "Primary rate limits").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountId {
    /// A person or bot; all its tokens share the budget.
    User(u64),
    /// A member of an enterprise-cloud organisation, through an app or OAuth app of it.
    AppUser { app: u64, user: u64 },
    /// One installation of an app.
    Installation(u64),
    /// An app acting as itself, by its JWT.
    App(u64),
    /// An OAuth app with its client id and secret.
    OauthApp(u64),
    /// A workflow in one repository.
    Workflow(u64),
    /// All callers without a credential at one address.
    Anonymous(IpAddr),
    /// A credential in replay mode; only its digest is kept.
    Replayed(u64),
}

impl AccountId {
    /// A user's lower budget is charged too (SPECIFICATION, "Primary rate limits").
    pub fn also_spends(self) -> Option<Self> {
        if let Self::AppUser { user, .. } = self { Some(Self::User(user)) } else { None }
    }
}

/// The level of a fine-grained permission; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Level {
    Read,
    Write,
    /// Manages the definitions (SPECIFICATION, "Custom properties").
    Admin,
}

/// The fine-grained permissions of a token, by their API names (`organization_hooks`, `issues`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permissions {
    /// Classic and OAuth tokens, which have scopes instead.
    NotApplicable,
    /// Every permission at its highest level.
    All,
    Only(BTreeMap<&'static str, Level>),
}

impl Permissions {
    pub fn allow(&self, name: &str, level: Level) -> bool {
        match self {
            Self::NotApplicable => false,
            Self::All => true,
            Self::Only(granted) => granted.get(name).is_some_and(|has| *has >= level),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenStatus {
    Valid,
    ValidUntil(Timestamp),
    Revoked,
}

impl TokenStatus {
    pub fn is_good_at(self, now: Timestamp) -> bool {
        match self {
            Self::Valid => true,
            Self::ValidUntil(end) => end > now,
            Self::Revoked => false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Token {
    /// The secret, recognisably fake.
    pub value: String,
    pub kind: TokenKind,
    pub account: AccountId,
    pub user: Option<u64>,
    pub scopes: Vec<&'static str>,
    pub permissions: Permissions,
    /// The organisation of an installation: the only private resources it sees are there.
    pub installed_on: Option<u64>,
    pub workflow_of: Option<u64>,
    /// The OAuth app that issued an OAuth token.
    pub oauth_app: Option<u64>,
    /// The app of a user or installation token.
    pub app: Option<u64>,
    /// The only repositories it reaches beyond public reading; `None` for all of the owner's.
    pub repositories: Option<BTreeSet<u64>>,
    pub status: TokenStatus,
    /// Tells a human reader why this token exists.
    pub note: &'static str,
}

impl Token {
    #[must_use]
    pub fn noted(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// Returns true when the token has this scope or one that includes it.
    pub fn has_scope(&self, scope: &str) -> bool {
        let wider = match scope {
            "read:org" => "admin:org",
            "read:enterprise" => "admin:enterprise",
            other => other,
        };
        self.scopes.iter().any(|has| *has == scope || *has == wider)
    }

    /// Returns true for classic and OAuth tokens: scopes limit them, permissions limit all others.
    pub fn is_scoped(&self) -> bool {
        matches!(self.kind, TokenKind::Classic | TokenKind::Oauth)
    }
}

#[derive(Clone, Debug)]
pub struct Caller {
    pub account: AccountId,
    /// With its position. `None` for anonymous callers, basic authentication and replay.
    pub token: Option<(usize, Arc<Token>)>,
}

impl Caller {
    pub fn anonymous(peer: IpAddr) -> Self {
        Self { account: AccountId::Anonymous(peer), token: None }
    }

    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref().map(|(_, token)| &**token)
    }

    pub fn app(&self) -> Option<u64> {
        if let AccountId::App(id) = self.account { Some(id) } else { None }
    }

    pub fn is_anonymous(&self) -> bool {
        matches!(self.account, AccountId::Anonymous(_))
    }

    pub fn user(&self) -> Option<u64> {
        self.token().and_then(|token| token.user)
    }
}

pub fn kind_name(kind: TokenKind) -> &'static str {
    match kind {
        TokenKind::Classic => "classic",
        TokenKind::FineGrained => "fine-grained",
        TokenKind::Oauth => "oauth",
        TokenKind::AppUser => "app-user",
        TokenKind::Installation => "installation",
        TokenKind::Workflow => "workflow",
        TokenKind::Basic => "basic",
    }
}

/// Formats the account as limit errors name it: `API rate limit exceeded for user ID 1.`
impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) | Self::AppUser { user: id, .. } => write!(f, "user ID {id}"),
            Self::Installation(id) => write!(f, "installation ID {id}"),
            Self::App(id) => write!(f, "app ID {id}"),
            Self::OauthApp(id) => write!(f, "OAuth app ID {id}"),
            Self::Workflow(id) => write!(f, "repository ID {id}"),
            Self::Anonymous(address) => write!(f, "{address}"),
            Self::Replayed(digest) => write!(f, "recorded user ID {digest}"),
        }
    }
}
