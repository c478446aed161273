//! Kinds of credentials and of the accounts they act for (SPECIFICATION, "Credentials").
//!
//! An app's signed JWT is not a [`TokenKind`]: it is made from the app's key for each use and is
//! never configured as a token.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of a configured or minted token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// Personal access token with scopes.
    Classic,
    /// Personal access token with permissions.
    FineGrained,
    /// Token issued to an OAuth app, acting as a user.
    Oauth,
    /// App user access token (UAT): a user, limited by the app's permissions.
    AppUser,
    /// App installation access token (IAT).
    Installation,
    /// Built-in token of a workflow run.
    Workflow,
    /// Client id and secret of an OAuth app as Basic credentials; reads public data.
    Basic,
}

impl TokenKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Classic,
        Self::FineGrained,
        Self::Oauth,
        Self::AppUser,
        Self::Installation,
        Self::Workflow,
        Self::Basic,
    ];

    /// Name in configs and in the endpoint table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::FineGrained => "fine-grained",
            Self::Oauth => "oauth",
            Self::AppUser => "app-user",
            Self::Installation => "installation",
            Self::Workflow => "workflow",
            Self::Basic => "basic",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Owner of a budget (SPECIFICATION, "Primary rate limits").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountKind {
    /// User; all tokens of the user share one budget.
    User,
    /// Installation of an app.
    Installation,
    /// App that acts by its JWT.
    App,
    /// OAuth app that acts by its client id and secret.
    OauthApp,
    /// Workflow token of a repository.
    Workflow,
    /// No credential; the budget belongs to the address.
    Anonymous,
}

/// Credentials that an endpoint takes: each kind is accepted, rejected, or not specified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenKinds {
    accepted: u8,
    rejected: u8,
}

/// Bit of an app's JWT, beside those of the token kinds.
const JWT: u8 = 1 << 7;

impl TokenKinds {
    /// No kind is specified.
    pub const UNKNOWN: Self = Self { accepted: 0, rejected: 0 };

    /// Returns true where the endpoint takes this kind, and `None` where the specification does not
    /// say.
    pub const fn accepts(self, kind: TokenKind) -> Option<bool> {
        self.accepts_bit(kind.bit())
    }

    /// Returns true where the endpoint takes an app's JWT, and `None` where the specification does
    /// not say.
    pub const fn accepts_app_jwt(self) -> Option<bool> {
        self.accepts_bit(JWT)
    }

    /// Returns true where no kind is specified.
    pub const fn is_unknown(self) -> bool {
        self.accepted == 0 && self.rejected == 0
    }

    const fn accepts_bit(self, bit: u8) -> Option<bool> {
        if self.accepted & bit != 0 {
            Some(true)
        } else if self.rejected & bit != 0 {
            Some(false)
        } else {
            None
        }
    }

    /// The same set, with `kind` accepted.
    #[must_use]
    pub const fn accepting(self, kind: TokenKind) -> Self {
        Self { accepted: self.accepted | kind.bit(), rejected: self.rejected & !kind.bit() }
    }

    /// The same set, with `kind` rejected.
    #[must_use]
    pub const fn rejecting(self, kind: TokenKind) -> Self {
        Self { accepted: self.accepted & !kind.bit(), rejected: self.rejected | kind.bit() }
    }

    /// Parses the table's form: kinds and `jwt` separated by commas, `!kind` for a rejected kind.
    /// `!*` rejects every kind that is not named. Returns `None` for an unknown word.
    pub fn parse(text: &str) -> Option<Self> {
        let mut kinds = Self::UNKNOWN;
        let mut only = false;
        for word in text.split(',') {
            let (name, rejected) =
                word.strip_prefix('!').map_or((word, false), |name| (name, true));
            let bit = match name {
                "*" if rejected => {
                    only = true;
                    continue;
                }
                "jwt" => JWT,
                name => TokenKind::ALL.into_iter().find(|kind| kind.as_str() == name)?.bit(),
            };
            if rejected { kinds.rejected |= bit } else { kinds.accepted |= bit }
        }
        if only {
            kinds.rejected = !kinds.accepted;
        }
        (kinds.accepted & kinds.rejected == 0).then_some(kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_token_kind_stays_unknown() {
        let kinds = TokenKinds::parse("app-user,!installation").unwrap_or_default();
        assert_eq!(kinds.accepts(TokenKind::AppUser), Some(true));
        assert_eq!(kinds.accepts(TokenKind::Installation), Some(false));
        assert_eq!(kinds.accepts(TokenKind::Classic), None);
        assert_eq!(kinds.accepts_app_jwt(), None);
        assert!(TokenKinds::UNKNOWN.is_unknown());
    }

    #[test]
    fn an_endpoint_for_one_kind_only_rejects_every_other() {
        let kinds = TokenKinds::parse("jwt,!*").unwrap_or_default();
        assert_eq!(kinds.accepts_app_jwt(), Some(true));
        assert!(TokenKind::ALL.into_iter().all(|kind| kinds.accepts(kind) == Some(false)));
    }

    #[test]
    fn a_contradictory_or_misspelt_kind_is_rejected() {
        assert_eq!(TokenKinds::parse("classic,!classic"), None);
        assert_eq!(TokenKinds::parse("clasic"), None);
        assert_eq!(TokenKinds::parse("*"), None);
    }

    #[test]
    fn kinds_are_written_in_kebab_case() {
        for kind in TokenKind::ALL {
            assert_eq!(serde_json::to_string(&kind).ok(), Some(format!("\"{kind}\"")));
        }
        assert_eq!(
            serde_json::from_str::<AccountKind>("\"oauth-app\"").ok(),
            Some(AccountKind::OauthApp)
        );
    }
}
