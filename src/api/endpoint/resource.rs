//! Names of the upstream's primary limits, with their known sizes and windows.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Resources with a documented or observed limit per window (SPECIFICATION, "Limits in practice").
/// The limit is `None` where only the name is known.
const KNOWN: [(&str, Option<u32>); 14] = [
    ("core", Some(5000)),
    ("search", Some(30)),
    ("code_search", Some(10)),
    ("graphql", Some(5000)),
    ("integration_manifest", Some(5000)),
    ("source_import", Some(100)),
    ("code_scanning_upload", Some(500)),
    ("code_scanning_autofix", Some(10)),
    ("actions_runner_registration", Some(10_000)),
    ("scim", Some(15_000)),
    ("dependency_snapshots", Some(100)),
    ("dependency_sbom", None),
    ("audit_log", None),
    ("audit_log_streaming", None),
];

/// Limit of an authenticated account where nothing else is known (SPECIFICATION, "Primary rate
/// limits").
const LIMIT_UNKNOWN: u32 = 5000;

/// Longest name taken from a header; the longest known one has 27 characters.
const NAME_BYTES_MAX: usize = 64;

/// Name of a primary limit, as `x-ratelimit-resource` spells it. Clones, comparisons and hashes are
/// cheap; known names need no allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceName(Name);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    /// Index in [`KNOWN`].
    Known(u8),
    /// Never a name of [`KNOWN`].
    Other(Arc<str>),
}

const _: () = assert!(KNOWN.len() <= u8::MAX as usize);

impl ResourceName {
    /// Creates a name, known or not.
    pub fn new(name: &str) -> Self {
        let known = (0..).zip(KNOWN).find(|(_, (known, _))| *known == name);
        Self(known.map_or_else(|| Name::Other(Arc::from(name)), |(place, _)| Name::Known(place)))
    }

    /// Parses a name from an answer's header: 1 to 64 lower-case letters, digits, `_` or `-`.
    /// Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
        (fits && text.bytes().all(plain)).then(|| Self::new(text))
    }

    /// The resources with a documented or observed limit.
    pub fn known() -> impl Iterator<Item = Self> {
        (0..).map(Name::Known).map(Self).take(KNOWN.len())
    }

    /// REST routes without a limit of their own.
    pub const fn core() -> Self {
        Self(Name::Known(0))
    }

    /// `/search/…` except code.
    pub const fn search() -> Self {
        Self(Name::Known(1))
    }

    /// `/search/code`.
    pub const fn code_search() -> Self {
        Self(Name::Known(2))
    }

    /// `/graphql`, counted by query cost.
    pub const fn graphql() -> Self {
        Self(Name::Known(3))
    }

    /// Name as the upstream spells it.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Known(place) => KNOWN[usize::from(*place)].0,
            Name::Other(name) => name,
        }
    }
}

impl PartialOrd for ResourceName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Returns the units per window of an authenticated user until an answer shows them; 5000 for an
/// unknown resource.
pub fn default_limit(resource: &ResourceName) -> u32 {
    let known = match resource.0 {
        Name::Known(place) => KNOWN[usize::from(place)].1,
        Name::Other(_) => None,
    };
    known.unwrap_or(LIMIT_UNKNOWN)
}

/// Returns the length of a window: a minute for the two search resources, else an hour
/// (SPECIFICATION, "Limits in practice").
pub fn window(resource: &ResourceName) -> Duration {
    match resource.as_str() {
        "search" | "code_search" => Duration::from_mins(1),
        _ => Duration::from_hours(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_windows_are_the_documented_ones() {
        assert_eq!(
            (default_limit(&ResourceName::core()), window(&ResourceName::core())),
            (5000, Duration::from_hours(1))
        );
        assert_eq!(
            (default_limit(&ResourceName::search()), window(&ResourceName::search())),
            (30, Duration::from_mins(1))
        );
        assert_eq!(
            (default_limit(&ResourceName::code_search()), window(&ResourceName::code_search())),
            (10, Duration::from_mins(1))
        );
        assert_eq!(default_limit(&ResourceName::new("scim")), 15_000);
        assert_eq!(default_limit(&ResourceName::new("dependency_sbom")), 5000);
    }

    #[test]
    fn each_known_name_is_its_own() {
        for (name, _) in KNOWN {
            assert_eq!(ResourceName::new(name).as_str(), name);
        }
        let named = [
            ResourceName::core(),
            ResourceName::search(),
            ResourceName::code_search(),
            ResourceName::graphql(),
        ];
        assert_eq!(
            named.map(|name| name.to_string()),
            ["core", "search", "code_search", "graphql"]
        );
    }

    #[test]
    fn an_unknown_resource_is_a_resource_of_its_own() {
        let unseen = ResourceName::new("time_travel");
        assert_eq!((default_limit(&unseen), window(&unseen)), (5000, Duration::from_hours(1)));
        assert_ne!(unseen, ResourceName::core());
        assert_eq!(unseen, ResourceName::new("time_travel"));
        assert_eq!(unseen.to_string(), "time_travel");
    }

    #[test]
    fn a_name_that_is_no_plain_word_is_not_taken_from_a_header() {
        assert_eq!(ResourceName::parse("core"), Some(ResourceName::core()));
        for bad in ["", "Core", "a b", "core,core", "é", &"x".repeat(65)] {
            assert_eq!(ResourceName::parse(bad), None, "{bad}");
        }
    }
}
