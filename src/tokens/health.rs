//! What operators see of the credentials: for `/readyz`, metrics and `weir budgets`. Never a
//! secret.

use std::fmt;

use crate::clock::Timestamp;
use crate::decision::AccountId;

/// Where a credential comes from; its name in logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// An entry of `[[tokens]]`, by its position.
    Configured(usize),
    /// Minted for an installation.
    Installation(u64),
    /// Signed by an app.
    App(u64),
    /// None at all.
    Anonymous,
    /// A client's own.
    Client,
}

/// How a credential is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// In use.
    Healthy,
    /// The upstream refused it. It is not used before `until`; after that one request tries it.
    Benched {
        /// The end of the pause.
        until: Timestamp,
    },
    /// There is none yet: one is being minted, or the next try waits.
    Minting,
    /// It ended while nobody used it; the next request has another one minted.
    Expired,
}

/// One credential as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whose it is.
    pub account: AccountId,
    /// Which one.
    pub token: Source,
    /// How it is.
    pub state: HealthState,
    /// What went wrong last, in the upstream's words where it had any.
    pub said: Option<String>,
}

impl Health {
    /// Whether a request may find it usable: it works, it is minted when asked for, or its pause is
    /// over.
    pub fn may_serve(&self, now: Timestamp) -> bool {
        match self.state {
            HealthState::Healthy | HealthState::Expired => true,
            HealthState::Benched { until } => until <= now,
            HealthState::Minting => false,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured(position) => write!(f, "{position}"),
            Self::Installation(id) => write!(f, "installation {id}"),
            Self::App(id) => write!(f, "app {id}"),
            Self::Anonymous => f.write_str("anonymous"),
            Self::Client => f.write_str("passthrough"),
        }
    }
}

impl HealthState {
    /// Whether operators have nothing to do about it: it works, or is minted when it is asked for.
    pub const fn is_healthy(self) -> bool {
        matches!(self, Self::Healthy | Self::Expired)
    }

    /// A word for it, out of a closed set.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Benched { .. } => "benched",
            Self::Minting => "minting",
            Self::Expired => "expired",
        }
    }
}
