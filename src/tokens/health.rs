//! Health of the credentials as operators see it in `/readyz`, metrics and `weir budgets`. Shows no
//! secret.
//!
//! A credential is *benched* after the upstream rejected it; every credential that cannot be used
//! is *unhealthy*.

use std::fmt;

use crate::clock::Timestamp;
use crate::decision::AccountId;

/// Origin of a credential, which is its name in logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// An entry of `[[tokens]]`, by its position.
    Configured(usize),
    /// Minted for the installation with this id.
    Installation(u64),
    /// Signed by the app with this id.
    App(u64),
    /// No credential.
    Anonymous,
    /// A client's own credential.
    Client,
}

/// Health of one credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum HealthState {
    /// Usable.
    Healthy,
    /// Rejected by the upstream: unused until `until`, then probed by one request.
    Benched {
        /// End of the pause.
        until: Timestamp,
    },
    /// No token yet: a mint is under way, or the next attempt waits.
    Minting,
    /// Ended while idle; the next request triggers a mint.
    Expired,
}

/// One credential with its health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The account it belongs to.
    pub account: AccountId,
    /// Its origin.
    pub token: Source,
    /// Its health.
    pub state: HealthState,
    /// Time of the first rejection since it worked last; `None` if it works.
    pub since: Option<Timestamp>,
    /// The last problem, in the upstream's words if it sent any.
    pub message: Option<String>,
}

impl Health {
    /// Returns true if a request may find it usable: it works, is minted on demand, or its pause is
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
    /// Returns true if operators need not act: the credential works, or is minted on demand.
    pub const fn is_healthy(self) -> bool {
        matches!(self, Self::Healthy | Self::Expired)
    }

    /// Returns its name from a closed set.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
