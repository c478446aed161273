//! Webhooks: target, configuration and events. `deliveries` holds their logs, `resources` the
//! rules.

use strum::{EnumString, IntoStaticStr};

use super::deliveries::DeliveryLog;
use crate::clock::Timestamp;

#[derive(Debug)]
pub struct Hook {
    pub id: u64,
    pub target: Target,
    /// The OAuth app that created it through a token, if any.
    pub created_by_app: Option<u64>,
    pub config: Config,
    pub events: Vec<String>,
    pub active: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deliveries: DeliveryLog,
}

impl Hook {
    pub fn wants(&self, event: &str) -> bool {
        self.active && self.events.iter().any(|wanted| wanted == event || wanted == "*")
    }

    pub fn hook_key(&self) -> HookKey {
        HookKey { target: self.target, hook: self.id }
    }
}

/// Address and form of deliveries (SPECIFICATION, "Webhooks").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub url: String,
    pub content_type: ContentType,
    pub secret: Option<String>,
    pub certificate: Certificate,
    /// Sent to the receiver as basic credentials; settable on creation only.
    pub username: Option<String>,
    pub password: Option<String>,
}

/// The media type of payloads. Only `json` is documented; published clients also send `form`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ContentType {
    #[default]
    Json,
    Form,
}

impl ContentType {
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Form => "application/x-www-form-urlencoded",
        }
    }
}

/// The check of the receiver's TLS certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificate {
    /// `insecure_ssl` 0: the machine must trust it.
    #[default]
    Verified,
    /// `insecure_ssl` 1: any certificate is accepted.
    Any,
}

impl Certificate {
    /// Returns the value of `insecure_ssl`.
    pub fn insecure_ssl(self) -> &'static str {
        match self {
            Self::Verified => "0",
            Self::Any => "1",
        }
    }
}

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

    /// `integration` is the running service's word for an app.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Organization(_) => "organization",
            Self::App(_) => "integration",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HookKey {
    pub target: Target,
    pub hook: u64,
}
