//! The two sets of names that the upstream uses. The specification puts a neutral word where the
//! maker's brand stands.

use http::HeaderName;
use serde::{Deserialize, Serialize};

/// Each request looks them up, and a parsed name costs less.
static SERVICE_VERSION: HeaderName = HeaderName::from_static("x-service-api-version");
static GITHUB_VERSION: HeaderName = HeaderName::from_static("x-github-api-version");

/// Set of names for identifiers that carry the maker's brand (SPECIFICATION, "Dialects").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Neutral names of the specification.
    #[default]
    Service,
    /// Names of the running service.
    Github,
}

impl Dialect {
    /// Request header that selects the API version.
    pub const fn version_header(self) -> &'static HeaderName {
        match self {
            Self::Service => &SERVICE_VERSION,
            Self::Github => &GITHUB_VERSION,
        }
    }

    /// Recommended media type, for `Accept`.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Service => "application/vnd.service+json",
            Self::Github => "application/vnd.github+json",
        }
    }

    /// Response header that names the permissions an endpoint requires of app and fine-grained
    /// tokens.
    pub const fn accepted_permissions_header(self) -> &'static str {
        match self {
            Self::Service => "x-accepted-service-permissions",
            Self::Github => "x-accepted-github-permissions",
        }
    }

    /// Header of a webhook delivery, in lower case. `name` is `delivery`, `event`, `hook-id`,
    /// `hook-installation-target-id` or `hook-installation-target-type`.
    pub fn delivery_header(self, name: &str) -> String {
        let brand = match self {
            Self::Service => "service",
            Self::Github => "github",
        };
        format!("x-{brand}-{name}").to_ascii_lowercase()
    }

    /// Route segment that carries a product name.
    pub const fn assistant_segment(self) -> &'static str {
        match self {
            Self::Service => "assistant",
            Self::Github => "copilot",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_its_own_names() {
        assert_eq!(Dialect::Service.delivery_header("Hook-ID"), "x-service-hook-id");
        assert_eq!(Dialect::Github.delivery_header("delivery"), "x-github-delivery");
        assert_eq!(Dialect::Github.version_header(), "x-github-api-version");
        assert_eq!(Dialect::Service.media_type(), "application/vnd.service+json");
        assert_eq!(Dialect::Github.accepted_permissions_header(), "x-accepted-github-permissions");
        assert_eq!(
            (Dialect::Service.assistant_segment(), Dialect::Github.assistant_segment()),
            ("assistant", "copilot")
        );
    }

    #[test]
    fn a_config_names_a_dialect_in_lower_case() {
        assert_eq!(serde_json::from_str::<Dialect>("\"service\"").ok(), Some(Dialect::Service));
        assert_eq!(serde_json::from_str::<Dialect>("\"github\"").ok(), Some(Dialect::Github));
        assert!(serde_json::from_str::<Dialect>("\"GitHub\"").is_err());
    }
}
