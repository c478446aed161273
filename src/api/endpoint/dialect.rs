//! The two sets of names that the upstream is spoken to in. Documents 1 to 3 put a neutral word
//! where the maker's brand stands.

use serde::{Deserialize, Serialize};

/// Which names the upstream uses for identifiers that carry its maker's brand (Document 1, Naming;
/// UPSTREAM.md, Dialects).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// The neutral names of the specification.
    #[default]
    Service,
    /// The names of the service as it runs.
    Github,
}

impl Dialect {
    /// The request header that selects the API version.
    pub const fn version_header(self) -> &'static str {
        match self {
            Self::Service => "x-service-api-version",
            Self::Github => "x-github-api-version",
        }
    }

    /// The recommended media type, for `Accept`.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Service => "application/vnd.service+json",
            Self::Github => "application/vnd.github+json",
        }
    }

    /// The response header that names the permissions an endpoint wants from app and fine-grained
    /// tokens.
    pub const fn accepted_permissions_header(self) -> &'static str {
        match self {
            Self::Service => "x-accepted-service-permissions",
            Self::Github => "x-accepted-github-permissions",
        }
    }

    /// A header of a webhook delivery, in lower case: `delivery`, `event`, `hook-id`,
    /// `hook-installation-target-id` or `hook-installation-target-type` (Document 3, Events).
    pub fn delivery_header(self, name: &str) -> String {
        let brand = match self {
            Self::Service => "service",
            Self::Github => "github",
        };
        format!("x-{brand}-{name}").to_ascii_lowercase()
    }

    /// The one route segment that carries a product name.
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
