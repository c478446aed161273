//! Every limit and window length by name, as data that a test can change at run time.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::emulator::accounts::AccountId;

/// The resource of a budget. Only the names in this list occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(&'static str);

impl Resource {
    pub const CORE: Self = Self("core");
    pub const SEARCH: Self = Self("search");
    pub const CODE_SEARCH: Self = Self("code_search");
    pub const GRAPHQL: Self = Self("graphql");
    pub const LFS: Self = Self("lfs");

    /// In the order of `GET /rate_limit`. Git LFS has no name there.
    pub const ALL: [Self; 15] = [
        Self::CORE,
        Self::SEARCH,
        Self::CODE_SEARCH,
        Self::GRAPHQL,
        Self("integration_manifest"),
        Self("source_import"),
        Self("code_scanning_upload"),
        Self("code_scanning_autofix"),
        Self("actions_runner_registration"),
        Self("scim"),
        Self("dependency_snapshots"),
        Self("dependency_sbom"),
        Self("audit_log"),
        Self("audit_log_streaming"),
        Self::LFS,
    ];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.0 == name)
    }

    pub fn name(self) -> &'static str {
        self.0
    }
}

/// Name and default. `RESOURCE.KIND` is the primary limit of that kind of account; a bare
/// `RESOURCE` is that of all other kinds.
const DEFAULTS: &[(&str, u64)] = &[
    // SPECIFICATION, "Primary rate limits".
    ("core.user", 5_000),
    ("core.enterprise-app-user", 15_000),
    ("core.installation", 5_000),
    ("core.installation-enterprise", 15_000),
    ("core.installation-max", 12_500),
    ("core.installation-step", 50),
    ("core.installation-free", 20),
    ("core.oauth-app", 5_000),
    ("core.oauth-app-enterprise", 15_000),
    ("core.workflow", 1_000),
    ("core.workflow-enterprise", 15_000),
    ("core.anonymous", 60),
    ("lfs.anonymous", 300),
    ("lfs.authenticated", 3_000),
    // A Git LFS batch has 100 objects by default.
    ("lfs.batch", 100),
    // Observed resources (SPECIFICATION, "Limits in practice"). The limits of anonymous callers are
    // the published ones.
    ("search", 30),
    ("search.anonymous", 10),
    ("code_search", 10),
    ("code_search.anonymous", 0),
    ("graphql", 5_000),
    ("graphql.anonymous", 0),
    ("integration_manifest", 5_000),
    ("source_import", 100),
    ("code_scanning_upload", 500),
    ("code_scanning_autofix", 10),
    ("actions_runner_registration", 10_000),
    ("scim", 15_000),
    ("dependency_snapshots", 100),
    // Only their names were observed; the limits are the published ones.
    ("dependency_sbom", 100),
    ("audit_log", 1_750),
    ("audit_log_streaming", 15),
    // Seconds: an hour by default, a minute for Git LFS and searches.
    ("window.primary", 3_600),
    ("window.search", 60),
    ("window.code_search", 60),
    ("window.lfs", 60),
    // SPECIFICATION, "Secondary rate limits".
    ("concurrency", 100),
    ("points.rest", 900),
    ("points.graphql", 2_000),
    ("content.minute", 80),
    ("content.hour", 500),
    // The upstream lowers undocumented endpoints; this form gives any endpoint its own limit.
    ("content.minute@POST /repos/{owner}/{repo}/releases", 20),
    ("oauth-tokens.hour", 2_000),
    // Seconds of CPU time in a minute: total, and GraphQL alone.
    ("cpu", 90),
    ("cpu.graphql", 60),
    // Seconds of CPU time in `window.burst`; documented without figures.
    ("cpu.burst", 30),
    // The simulated cost of requests in microseconds (`compute`). Undocumented; low enough that
    // every other limit is hit first.
    ("cpu-micros.read", 1_000),
    ("cpu-micros.write", 2_000),
    ("cpu-micros.graphql", 2_000),
    ("cpu-micros.item", 10),
    // Seconds of the sliding windows.
    ("window.minute", 60),
    ("window.hour", 3_600),
    ("window.burst", 10),
    // The documented minimum wait of one minute (SPECIFICATION, "After a limit").
    ("penalty", 60),
    // The upstream may ban a client that goes on sending; the threshold is undocumented.
    ("ban.after", 1_000),
    // The upstream uses 403 or 429 (SPECIFICATION, "Errors").
    ("refusal.status", 403),
    // Presence of `retry-after` on a secondary denial: 0 never, 1 always, 2 every other time
    // (SPECIFICATION, "After a limit").
    ("refusal.retry-after", 2),
    // Seconds.
    ("poll.interval", 60),
    // The growth of the interval (`polling.rs`): a factor for everybody, the early polls for each
    // doubling, and the maximum in seconds. Undocumented.
    ("poll.load", 1),
    ("poll.patience", 10),
    ("poll.interval-max", 900),
    // `PUT /notifications`: the number of unread threads above which it answers 202, and the
    // seconds that the rest takes. Undocumented.
    ("notifications.background-above", 500),
    ("notifications.background", 5),
    // Seconds. The seven days of an archive are documented (SPECIFICATION, "User migrations"); the
    // other durations are not.
    ("migrations.pending", 2),
    ("migrations.exporting", 5),
    ("migrations.archive", 604_800),
    ("migrations.download", 300),
    // Seconds that a dispatched workflow run waits and works. Undocumented.
    ("workflows.queued", 5),
    ("workflows.running", 10),
    // Bytes. A larger archive fails; when all archives exceed the total, the oldest are evicted.
    // Undocumented.
    ("migrations.archive-bytes", 268_435_456),
    ("migrations.kept-bytes", 268_435_456),
    // Approximate bytes: a query with a larger response is refused. Undocumented.
    ("graphql.answer-bytes", 16_777_216),
];

/// They scale an installation's limit and are no limits themselves.
const SCALING: [&str; 2] = ["core.installation-step", "core.installation-free"];

/// The most limits of single accounts or endpoints, which bounds the memory.
const OWN_MAX: usize = 1_000;

#[derive(Clone, Debug)]
pub struct Limits {
    values: BTreeMap<String, u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { values: DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect() }
    }
}

impl Limits {
    /// Returns the value of a name in the table; 0 for any other.
    pub fn get(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// In seconds; never zero, because an empty window would never end.
    pub fn duration(&self, name: &str) -> Duration {
        Duration::from_secs(self.get(name).max(1))
    }

    /// An endpoint's own value (`POST /repos/{owner}/{repo}/issues`), stored as `NAME@ENDPOINT`.
    pub fn of_endpoint(&self, name: &str, endpoint: &str) -> Option<u64> {
        self.values.get(&format!("{name}@{endpoint}")).copied()
    }

    /// Sets one value. A bare `core` sets it for every kind of account, `core@NAME` for the account
    /// of that name alone. `points@ENDPOINT` is the cost of a request there;
    /// `content.minute@ENDPOINT` and `content.hour@ENDPOINT` are its own lower limits. An endpoint
    /// is named as in the transcript.
    ///
    /// # Errors
    /// When the name is unknown, the value is out of its bounds, or too many of the forms with `@`
    /// are in use.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), WrongLimit> {
        let (limit, of) = name.split_once('@').unwrap_or((name, ""));
        let bounds = bounds(limit);
        if !bounds.contains(&value) && !matches!(limit, "refusal.status" if value == 429) {
            return Err(WrongLimit::OutOfBounds(accepted(limit)));
        }
        let is_endpoints =
            ["points", "content.minute", "content.hour"].contains(&limit) && of.contains(" /");
        if !of.is_empty() && (Resource::named(limit).is_some() || is_endpoints) {
            if self.values.len() >= DEFAULTS.len() + OWN_MAX && !self.values.contains_key(name) {
                return Err(WrongLimit::TooMany);
            }
            self.values.insert(name.to_owned(), value);
        } else if name == Resource::CORE.name() {
            let kinds = self
                .values
                .iter_mut()
                .filter(|(name, _)| name.starts_with("core.") && !SCALING.contains(&name.as_str()));
            kinds.for_each(|(_, limit)| *limit = value);
        } else if let Some(known) = self.values.get_mut(name) {
            *known = value;
        } else {
            return Err(WrongLimit::Unknown);
        }
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    pub fn primary_window(&self, resource: Resource) -> Duration {
        match resource {
            Resource::SEARCH => self.duration("window.search"),
            Resource::CODE_SEARCH => self.duration("window.code_search"),
            Resource::LFS => self.duration("window.lfs"),
            _ => self.duration("window.primary"),
        }
    }

    /// `name` is the account's name in the world.
    pub fn primary(&self, account: AccountId, name: &str, resource: Resource, scale: Scale) -> u32 {
        let own = self.values.get(&format!("{}@{name}", resource.name())).copied();
        let value = own.unwrap_or_else(|| match (resource, account) {
            (Resource::CORE, AccountId::Installation(_)) if scale.plan == Plan::Usual => {
                self.installation(scale)
            }
            (Resource::CORE, _) => self.get(match (account, scale.plan) {
                (AccountId::Installation(_), _) => "core.installation-enterprise",
                (AccountId::AppUser { .. }, _) => "core.enterprise-app-user",
                (AccountId::OauthApp(_), Plan::Usual) => "core.oauth-app",
                (AccountId::OauthApp(_), Plan::EnterpriseCloud) => "core.oauth-app-enterprise",
                (AccountId::Workflow(_), Plan::Usual) => "core.workflow",
                (AccountId::Workflow(_), Plan::EnterpriseCloud) => "core.workflow-enterprise",
                (AccountId::Anonymous(_), _) => "core.anonymous",
                // No limit is known for an app as itself; the minimum of an installation applies.
                (AccountId::App(_), _) => "core.installation",
                (AccountId::User(_) | AccountId::Replayed(_), _) => "core.user",
            }),
            (
                Resource::SEARCH | Resource::CODE_SEARCH | Resource::GRAPHQL | Resource::LFS,
                AccountId::Anonymous(_),
            ) => self.get(&format!("{}.anonymous", resource.name())),
            (Resource::LFS, _) => self.get("lfs.authenticated"),
            (other, _) => self.get(other.name()),
        });
        u32::try_from(value).unwrap_or(u32::MAX)
    }

    /// +50 for each repository and user beyond 20 (SPECIFICATION, "Primary rate limits").
    fn installation(&self, scale: Scale) -> u64 {
        let beyond = |count: u64| count.saturating_sub(self.get("core.installation-free"));
        let extra = beyond(scale.repositories)
            .saturating_add(beyond(scale.users))
            .saturating_mul(self.get("core.installation-step"));
        let scaled = self.get("core.installation").saturating_add(extra);
        scaled.min(self.get("core.installation-max").max(self.get("core.installation")))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Scale {
    pub repositories: u64,
    pub users: u64,
    pub plan: Plan,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    #[default]
    Usual,
    EnterpriseCloud,
}

/// The reason why a limit cannot be set.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongLimit {
    /// No limit has this name.
    #[error("there is no such limit")]
    Unknown,
    /// The limits of single accounts and endpoints are bounded in number.
    #[error("there are too many limits of single accounts and endpoints")]
    TooMany,
    /// The value; with the accepted ones.
    #[error("out of bounds")]
    OutOfBounds(String),
}

impl WrongLimit {
    /// The accepted names or values.
    #[must_use]
    pub fn accepted(self) -> String {
        match self {
            Self::OutOfBounds(accepted) => accepted,
            Self::Unknown | Self::TooMany => {
                "a name that GET /_emulator/limits shows, such as core.user or points.rest"
                    .to_owned()
            }
        }
    }
}

/// A year: longer times are typing errors.
const SECONDS_MAX: u64 = 366 * 24 * 3_600;
/// The largest integer that every JSON reader keeps (RFC 8259 §6).
const COUNT_MAX: u64 = (1 << 53) - 1;
/// A pebibyte.
const BYTES_MAX: u64 = 1 << 50;

/// The smallest and the largest value. The second value of `refusal.status` is 429.
fn bounds(limit: &str) -> RangeInclusive<u64> {
    const LENGTHS: [&str; 8] = [
        "penalty",
        "poll.interval",
        "poll.interval-max",
        "notifications.background",
        "migrations.pending",
        "migrations.exporting",
        "migrations.archive",
        "migrations.download",
    ];
    match limit {
        "refusal.status" => 403..=403,
        "refusal.retry-after" => 0..=2,
        // An empty window would never end.
        _ if limit.starts_with("window.") => 1..=SECONDS_MAX,
        _ if LENGTHS.contains(&limit) => 0..=SECONDS_MAX,
        _ if limit.ends_with("-bytes") => 0..=BYTES_MAX,
        _ => 0..=COUNT_MAX,
    }
}

fn accepted(limit: &str) -> String {
    let bounds = bounds(limit);
    match limit {
        "refusal.status" => "403 or 429".to_owned(),
        _ => format!("a whole number from {} to {}", bounds.start(), bounds.end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(repositories: u64, users: u64) -> u32 {
        Limits::default().primary(
            AccountId::Installation(1),
            "app",
            Resource::CORE,
            Scale { repositories, users, plan: Plan::Usual },
        )
    }

    #[test]
    fn an_installation_limit_scales_by_50_up_to_12500() {
        assert_eq!(installation(20, 20), 5_000);
        assert_eq!(installation(21, 20), 5_050);
        assert_eq!(installation(21, 22), 5_150);
        assert_eq!(installation(10_000, 22), 12_500);
    }

    #[test]
    fn a_bare_core_limit_applies_to_every_kind_of_account() {
        let mut limits = Limits::default();
        limits.set("core", 50).expect("core is a limit");
        limits.set("core@ada", 7).expect("an account may have its own");
        let scale = Scale { repositories: 900, users: 3, plan: Plan::Usual };
        assert_eq!(limits.primary(AccountId::User(1), "ben", Resource::CORE, scale), 50);
        assert_eq!(limits.primary(AccountId::User(2), "ada", Resource::CORE, scale), 7);
        assert_eq!(limits.primary(AccountId::Installation(2), "app", Resource::CORE, scale), 50);
        assert_eq!(limits.set("cores", 1), Err(WrongLimit::Unknown));
        assert_eq!(limits.set("cores@ada", 1), Err(WrongLimit::Unknown));
    }

    #[test]
    fn each_kind_of_caller_has_its_documented_limit() {
        let limits = Limits::default();
        let of = |account| limits.primary(account, "x", Resource::CORE, Scale::default());
        assert_eq!(of(AccountId::User(1)), 5_000);
        assert_eq!(of(AccountId::OauthApp(1)), 5_000);
        assert_eq!(of(AccountId::Workflow(1)), 1_000);
        assert_eq!(of(AccountId::Anonymous(std::net::Ipv4Addr::LOCALHOST.into())), 60);
        assert_eq!(limits.primary(AccountId::User(1), "x", Resource::SEARCH, Scale::default()), 30);
    }

    #[test]
    fn enterprise_cloud_apps_and_workflows_have_15000() {
        let limits = Limits::default();
        let of = |account| {
            limits.primary(
                account,
                "x",
                Resource::CORE,
                Scale { plan: Plan::EnterpriseCloud, ..Scale::default() },
            )
        };
        assert_eq!(of(AccountId::AppUser { app: 1, user: 2 }), 15_000);
        assert_eq!(of(AccountId::Installation(1)), 15_000);
        assert_eq!(of(AccountId::OauthApp(1)), 15_000);
        assert_eq!(of(AccountId::Workflow(1)), 15_000);
        assert_eq!(of(AccountId::User(1)), 5_000, "a member's own tokens have what every user has");
    }

    #[test]
    fn every_resource_of_the_endpoint_table_has_a_budget() {
        let table = crate::api::Table::embedded(crate::api::Dialect::Service);
        for endpoint in table.endpoints() {
            let name = endpoint.resource.as_str();
            let resource =
                Resource::named(name).unwrap_or_else(|| panic!("{name} of {}", endpoint.template));
            assert!(
                Limits::default().primary(AccountId::User(1), "x", resource, Scale::default()) > 0,
                "{name}"
            );
        }
    }

    #[test]
    fn a_limit_out_of_its_bounds_is_refused() {
        let mut limits = Limits::default();
        for (name, value, accepted) in [
            ("refusal.status", 404, "403 or 429"),
            ("refusal.retry-after", 3, "a whole number from 0 to 2"),
            ("window.primary", 0, "a whole number from 1 to 31622400"),
            ("core@ada", u64::MAX, "a whole number from 0 to 9007199254740991"),
            ("migrations.kept-bytes", u64::MAX, "a whole number from 0 to 1125899906842624"),
        ] {
            let refused = limits.set(name, value).map_err(WrongLimit::accepted);
            assert_eq!(refused, Err(accepted.to_owned()), "{name}");
        }
        for (name, value) in [("refusal.status", 429), ("refusal.status", 403), ("penalty", 0)] {
            assert_eq!(limits.set(name, value), Ok(()), "{name}");
        }
    }

    #[test]
    fn limits_of_one_endpoint_are_bounded_in_number_and_form() {
        let mut limits = Limits::default();
        limits.set("points@GET /user", 17).expect("an endpoint may cost something else");
        assert_eq!(limits.of_endpoint("points", "GET /user"), Some(17));
        for name in ["points@", "points@user", "ban.after@GET /user", "content.day@GET /user", "@"]
        {
            assert_eq!(limits.set(name, 1), Err(WrongLimit::Unknown), "{name}");
        }
        let taken = (0..5_000)
            .filter(|number| limits.set(&format!("points@GET /{number}"), 1).is_ok())
            .count();
        assert!(taken <= OWN_MAX);
        assert_eq!(
            limits.set("points@GET /user", 18),
            Ok(()),
            "what is there can still be changed"
        );
    }
}
