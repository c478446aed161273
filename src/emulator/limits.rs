//! Every limit and window length by name, as data that a test can change while the emulator runs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::accounts::AccountId;

/// What a budget is counted for. Only names from this list occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(&'static str);

impl Resource {
    pub const CORE: Self = Self("core");
    pub const SEARCH: Self = Self("search");
    pub const CODE_SEARCH: Self = Self("code_search");
    pub const GRAPHQL: Self = Self("graphql");

    /// All of them, in the order of `GET /rate_limit` (the names are those of UPSTREAM.md, Limits).
    pub const ALL: [Self; 10] = [
        Self::CORE,
        Self::SEARCH,
        Self::CODE_SEARCH,
        Self::GRAPHQL,
        Self("integration_manifest"),
        Self("source_import"),
        Self("code_scanning_upload"),
        Self("actions_runner_registration"),
        Self("scim"),
        Self("dependency_snapshots"),
    ];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.0 == name)
    }

    pub fn name(self) -> &'static str {
        self.0
    }
}

/// Name, default. A name `RESOURCE.KIND` is the primary limit of that kind of account, a bare `RESOURCE` that of all other kinds.
const DEFAULTS: &[(&str, u64)] = &[
    // Document 1, Primary rate limits.
    ("core.user", 5_000),
    ("core.enterprise-app-user", 15_000),
    ("core.installation", 5_000),
    ("core.installation-enterprise", 15_000),
    ("core.installation-max", 12_500),
    ("core.installation-step", 50),
    ("core.installation-free", 20),
    ("core.oauth-app", 5_000),
    ("core.workflow", 1_000),
    ("core.workflow-enterprise", 15_000),
    ("core.anonymous", 60),
    ("lfs.anonymous", 300),
    ("lfs.authenticated", 3_000),
    // UPSTREAM.md, Limits: observed resources. Their limits for anonymous callers are the real service's published ones.
    ("search", 30),
    ("search.anonymous", 10),
    ("code_search", 10),
    ("code_search.anonymous", 0),
    ("graphql", 5_000),
    ("graphql.anonymous", 0),
    ("integration_manifest", 5_000),
    ("source_import", 100),
    ("code_scanning_upload", 500),
    ("actions_runner_registration", 10_000),
    ("scim", 15_000),
    ("dependency_snapshots", 100),
    // Seconds. Document 1: "per hour unless stated"; UPSTREAM.md gives searches a minute.
    ("window.primary", 3_600),
    ("window.search", 60),
    ("window.code_search", 60),
    // Document 1, Secondary rate limits.
    ("concurrency", 100),
    ("points.rest", 900),
    ("points.graphql", 2_000),
    ("content.minute", 80),
    ("content.hour", 500),
    // Seconds of the two sliding windows.
    ("window.minute", 60),
    ("window.hour", 3_600),
    // Document 1, Client behavior after a limit, rule 4: "at least one minute".
    ("penalty", 60),
    // Rule 5: "continued requests while limited may lead to the integration being banned". How many is not shown.
    ("ban.after", 1_000),
    // Document 1, Errors: 403 or 429.
    ("refusal.status", 403),
    // Seconds; Document 1, Poll interval.
    ("poll.interval", 60),
    // Document 2, PUT /notifications: above how many unread threads it answers 202, and how many seconds the rest then takes. Not shown.
    ("notifications.background-above", 500),
    ("notifications.background", 5),
    // Seconds. Document 3, User migrations: how long one is pending and how long exporting is not shown; "archive age reaches 7 days" is.
    // How long the address of a download is good is not shown.
    ("migrations.pending", 2),
    ("migrations.exporting", 5),
    ("migrations.archive", 604_800),
    ("migrations.download", 300),
    // Bytes: an archive that would unpack to more fails; when all that are kept are more, the oldest go early. Not shown.
    ("migrations.archive-bytes", 268_435_456),
    ("migrations.kept-bytes", 268_435_456),
    // Bytes, about: a query whose answer would be larger is refused. Not shown.
    ("graphql.answer-bytes", 16_777_216),
];

/// The limits in force.
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
    /// The value of a name of the table; 0 for any other.
    pub fn get(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// A length of time that the table gives in seconds; never zero, a window without length would have no end.
    pub fn duration(&self, name: &str) -> Duration {
        Duration::from_secs(self.get(name).max(1))
    }

    /// Sets one value. `core`, without a kind, sets it for every kind of account; `core@NAME` for the account of that name alone.
    ///
    /// # Errors
    /// When nothing has that name.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), UnknownLimit> {
        let resource_part = name.split_once('@').map_or(name, |(resource, _)| resource);
        if name.contains('@') && Resource::named(resource_part).is_some() {
            self.values.insert(name.to_owned(), value);
        } else if name == Resource::CORE.name() {
            for kind in [
                "user",
                "enterprise-app-user",
                "installation",
                "installation-enterprise",
                "installation-max",
                "oauth-app",
                "workflow",
                "anonymous",
            ] {
                self.values.insert(format!("core.{kind}"), value);
            }
        } else if let Some(known) = self.values.get_mut(name) {
            *known = value;
        } else {
            return Err(UnknownLimit);
        }
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The window's length of a resource's primary budget.
    pub fn primary_window(&self, resource: Resource) -> Duration {
        match resource {
            Resource::SEARCH => self.duration("window.search"),
            Resource::CODE_SEARCH => self.duration("window.code_search"),
            _ => self.duration("window.primary"),
        }
    }

    /// The primary limit of an account that is named `name` in the world and, for installations, reaches this much.
    pub fn primary(&self, account: AccountId, name: &str, resource: Resource, reach: InstallationReach) -> u32 {
        let own = self.values.get(&format!("{}@{name}", resource.name())).copied();
        let value = own.unwrap_or_else(|| match (resource, account) {
            (Resource::CORE, AccountId::Installation(_)) => self.installation(reach),
            (Resource::CORE, _) => self.get(match account {
                AccountId::OauthApp(_) => "core.oauth-app",
                AccountId::Workflow(_) => "core.workflow",
                AccountId::Anonymous(_) => "core.anonymous",
                // What an app does as itself is not in the table; the least of an installation is taken.
                AccountId::App(_) => "core.installation",
                AccountId::User(_) | AccountId::Replayed(_) | AccountId::Installation(_) => "core.user",
            }),
            (Resource::SEARCH, AccountId::Anonymous(_)) => self.get("search.anonymous"),
            (Resource::CODE_SEARCH, AccountId::Anonymous(_)) => self.get("code_search.anonymous"),
            (Resource::GRAPHQL, AccountId::Anonymous(_)) => self.get("graphql.anonymous"),
            (other, _) => self.get(other.name()),
        });
        u32::try_from(value).unwrap_or(u32::MAX)
    }

    /// Document 1: +50 for each repository beyond 20 and +50 for each organization user beyond 20; never above 12,500.
    fn installation(&self, reach: InstallationReach) -> u64 {
        let beyond = |count: u64| count.saturating_sub(self.get("core.installation-free"));
        let extra = beyond(reach.repositories).saturating_add(beyond(reach.users)).saturating_mul(self.get("core.installation-step"));
        let scaled = self.get("core.installation").saturating_add(extra);
        scaled.min(self.get("core.installation-max").max(self.get("core.installation")))
    }
}

/// What an installation's limit is scaled by.
#[derive(Clone, Copy, Debug, Default)]
pub struct InstallationReach {
    pub repositories: u64,
    pub users: u64,
}

/// There is no limit of that name.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownLimit;

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(repositories: u64, users: u64) -> u32 {
        Limits::default().primary(AccountId::Installation(1), "app", Resource::CORE, InstallationReach { repositories, users })
    }

    #[test]
    fn an_installation_gains_50_for_each_repository_and_user_beyond_20_and_never_passes_12500() {
        assert_eq!(installation(20, 20), 5_000);
        assert_eq!(installation(21, 20), 5_050);
        assert_eq!(installation(21, 22), 5_150);
        assert_eq!(installation(10_000, 22), 12_500);
    }

    #[test]
    fn core_without_a_kind_sets_every_kind_and_an_account_can_have_its_own() {
        let mut limits = Limits::default();
        limits.set("core", 50).expect("core is a limit");
        limits.set("core@ada", 7).expect("an account may have its own");
        let reach = InstallationReach { repositories: 900, users: 3 };
        assert_eq!(limits.primary(AccountId::User(1), "ben", Resource::CORE, reach), 50);
        assert_eq!(limits.primary(AccountId::User(2), "ada", Resource::CORE, reach), 7);
        assert_eq!(limits.primary(AccountId::Installation(2), "app", Resource::CORE, reach), 50);
        assert_eq!(limits.set("cores", 1), Err(UnknownLimit));
        assert_eq!(limits.set("cores@ada", 1), Err(UnknownLimit));
    }

    #[test]
    fn each_caller_has_the_limit_of_document_1() {
        let limits = Limits::default();
        let of = |account| limits.primary(account, "x", Resource::CORE, InstallationReach::default());
        assert_eq!(of(AccountId::User(1)), 5_000);
        assert_eq!(of(AccountId::OauthApp(1)), 5_000);
        assert_eq!(of(AccountId::Workflow(1)), 1_000);
        assert_eq!(of(AccountId::Anonymous(std::net::Ipv4Addr::LOCALHOST.into())), 60);
        assert_eq!(limits.primary(AccountId::User(1), "x", Resource::SEARCH, InstallationReach::default()), 30);
    }
}
