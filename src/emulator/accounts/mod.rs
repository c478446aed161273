//! Who a request belongs to: the account that owns the budget, the token that was sent, and what
//! that token may do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::api::TokenKind;
use crate::clock::Timestamp;

/// Who owns a budget (Document 1, Primary rate limits: the column "Caller").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountId {
    /// A person or bot; shared by all tokens that act for it.
    User(u64),
    /// A member of an enterprise-cloud organisation, acted for by an app or OAuth app that the
    /// organisation owns. What it spends, the user spends too.
    AppUser { app: u64, user: u64 },
    /// One installation of an app.
    Installation(u64),
    /// An app acting as itself, by its JWT.
    App(u64),
    /// An OAuth app with its client id and secret.
    OauthApp(u64),
    /// A workflow's budget in one repository.
    Workflow(u64),
    /// Everyone without a credential at one address.
    Anonymous(IpAddr),
    /// A credential seen while replaying; only a digest of it is known.
    Replayed(u64),
}

impl AccountId {
    /// Whose lower budget is spent too: "Requests made by a higher-limit app also consume the
    /// lower-limit budget of the user" (Document 1).
    pub fn also_spends(self) -> Option<Self> {
        if let Self::AppUser { user, .. } = self { Some(Self::User(user)) } else { None }
    }
}

/// How much a fine-grained permission allows; each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Read,
    Write,
    /// Rules themselves (Document 2, Custom properties).
    Admin,
}

impl Level {
    /// As the wire writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

/// The fine-grained permissions of a token, by their name on the wire (`organization_hooks`,
/// `issues`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permissions {
    /// Not limited by permissions: classic and OAuth tokens have scopes instead.
    NotApplicable,
    /// Every permission at its highest level.
    All,
    /// These and no others.
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

/// Whether a token still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenStatus {
    Valid,
    ValidUntil(Timestamp),
    /// Somebody took it back.
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

/// A token of the world.
#[derive(Clone, Debug)]
pub struct Token {
    /// The secret itself; obviously made up.
    pub value: String,
    pub kind: TokenKind,
    /// Who pays.
    pub account: AccountId,
    /// The user it acts as, if any.
    pub user: Option<u64>,
    /// Classic and OAuth tokens only.
    pub scopes: Vec<&'static str>,
    pub permissions: Permissions,
    /// The organisation of an installation; the only private things it sees are there.
    pub installed_on: Option<u64>,
    /// The repository of a workflow token.
    pub workflow_of: Option<u64>,
    /// The OAuth app that an OAuth token was issued to.
    pub oauth_app: Option<u64>,
    /// The app that a user or installation token was made for.
    pub app: Option<u64>,
    /// The only repositories it reaches beyond public reading; none for all that its bearer
    /// reaches.
    pub repositories: Option<BTreeSet<u64>>,
    pub status: TokenStatus,
    /// For people: what the token is there for.
    pub note: &'static str,
}

impl Token {
    /// Whether it has this scope, or one that includes it.
    pub fn has_scope(&self, scope: &str) -> bool {
        let wider = match scope {
            "read:org" => "admin:org",
            "read:enterprise" => "admin:enterprise",
            other => other,
        };
        self.scopes.iter().any(|has| *has == scope || *has == wider)
    }

    /// Classic and OAuth tokens are limited by scopes, all others by permissions.
    pub fn is_scoped(&self) -> bool {
        matches!(self.kind, TokenKind::Classic | TokenKind::Oauth)
    }
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Caller {
    pub account: AccountId,
    /// The token and its position in the world's list; none for anonymous callers, OAuth apps by
    /// basic, and replay.
    pub token: Option<(usize, Arc<Token>)>,
}

impl Caller {
    pub fn anonymous(peer: IpAddr) -> Self {
        Self { account: AccountId::Anonymous(peer), token: None }
    }

    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref().map(|(_, token)| &**token)
    }

    /// The app that acts as itself, by its JWT.
    pub fn app(&self) -> Option<u64> {
        if let AccountId::App(id) = self.account { Some(id) } else { None }
    }

    pub fn is_anonymous(&self) -> bool {
        matches!(self.account, AccountId::Anonymous(_))
    }

    /// The user it acts as.
    pub fn user(&self) -> Option<u64> {
        self.token().and_then(|token| token.user)
    }
}

/// The wire's name of a token kind.
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

/// How a refusal names the account: `API rate limit exceeded for user ID 1.` (UPSTREAM.md, Limits).
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
