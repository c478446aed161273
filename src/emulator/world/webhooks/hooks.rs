//! Webhooks as they exist: whose they are, where and how they deliver. What they delivered is in
//! `deliveries`, the rules are in `resources`.

use super::deliveries::DeliveryLog;
use crate::clock::Timestamp;

/// A webhook of an organisation or of an app.
#[derive(Debug)]
pub struct Hook {
    pub id: u64,
    pub target: Target,
    /// The OAuth app whose token created it, if one did.
    pub created_by_app: Option<u64>,
    pub config: Config,
    pub events: Vec<String>,
    pub active: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deliveries: DeliveryLog,
}

impl Hook {
    /// "`*` selects all" (Document 3, Events).
    pub fn wants(&self, event: &str) -> bool {
        self.active && self.events.iter().any(|wanted| wanted == event || wanted == "*")
    }

    pub fn hook_key(&self) -> HookKey {
        HookKey { target: self.target, hook: self.id }
    }
}

/// Where and how it delivers (Document 3, Webhook configuration).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub url: String,
    pub content_type: ContentType,
    pub secret: Option<String>,
    pub certificate: Certificate,
    /// "Accepted on organization webhook creation only"; sent to the receiver as Basic credentials.
    pub username: Option<String>,
    pub password: Option<String>,
}

/// The media type of payloads. "Other supported values beyond json: not shown"; `form` is the other
/// one that published clients send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    #[default]
    Json,
    Form,
}

impl ContentType {
    pub fn named(name: &str) -> Option<Self> {
        [Self::Json, Self::Form].into_iter().find(|kind| kind.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Form => "form",
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Form => "application/x-www-form-urlencoded",
        }
    }
}

/// "Whether TLS certificate of the receiver is verified" (Document 3, `insecure_ssl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificate {
    /// `insecure_ssl` is 0: it must be one that this machine trusts.
    #[default]
    Verified,
    /// `insecure_ssl` is 1: any will do.
    Any,
}

impl Certificate {
    /// The value of `insecure_ssl`.
    pub fn insecure_ssl(self) -> &'static str {
        match self {
            Self::Verified => "0",
            Self::Any => "1",
        }
    }
}

/// What a webhook is installed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Organization(u64),
    App(u64),
}

impl Target {
    pub fn id(self) -> u64 {
        match self {
            Self::Organization(id) | Self::App(id) => id,
        }
    }

    /// As the delivery header names it. Document 3 gives `repository` as an example; `integration`
    /// is the running service's word for an app.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Organization(_) => "organization",
            Self::App(_) => "integration",
        }
    }
}

/// Names one webhook among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HookKey {
    pub target: Target,
    pub hook: u64,
}
