//! What a valid config amounts to: its text with every default filled in, what of it is not active yet, and what is worth a second look.

use super::limits::{BATCH_FLOOR, CPU_SECONDS, GRAPHQL_CPU_SECONDS, OAUTH_TOKENS_PER_HOUR};
use super::printer::Printer;
use super::state::REPLICAS_MAX;
use super::writes::RETENTION;
use super::{Config, Pace, Priority, WriteStore};

/// A key that is accepted although its feature is not active yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// The full key, such as `listen.https`.
    pub key: &'static str,
    /// What does not happen yet.
    pub why: &'static str,
}

/// Something that is accepted but worth a second look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The full key, such as `upstream.url`.
    pub key: String,
    /// What may go wrong.
    pub problem: String,
}

impl Config {
    /// The keys that are set to something else than their default although their feature is not active yet, in the order of the contract.
    pub fn inactive(&self) -> Vec<Inactive> {
        let limits = &self.limits;
        let features = [
            ("listen.https", self.listen.https.is_some(), "the gateway does not listen for TLS"),
            ("apps", !self.apps.is_empty(), "no installation tokens are minted"),
            ("clients.weight", self.clients.iter().any(|client| client.weight.get() != 1), "whoever has waited longest goes first"),
            (
                "clients.priority",
                self.clients.iter().any(|client| client.priority != Priority::Normal),
                "whoever has waited longest goes first",
            ),
            ("passthrough.enabled", self.passthrough.enabled, "clients' own credentials are not used"),
            ("cache.predicted_etags", self.cache.predicted_etags, "only ETags that a token has received are used"),
            ("limits.cpu_seconds_per_minute", limits.cpu_seconds_per_minute != CPU_SECONDS, "CPU time is not counted"),
            (
                "limits.graphql_cpu_seconds_per_minute",
                limits.graphql_cpu_seconds_per_minute != GRAPHQL_CPU_SECONDS,
                "CPU time is not counted",
            ),
            ("limits.oauth_tokens_per_hour", limits.oauth_tokens_per_hour != OAUTH_TOKENS_PER_HOUR, "these requests are not counted apart"),
            ("limits.pace", limits.pace == Pace::Even, "budgets are spent as requests come"),
            ("limits.batch_floor", limits.batch_floor != BATCH_FLOOR, "batch clients are not stopped at a floor"),
            ("writes.store", self.writes.store != WriteStore::Memory, "queued writes are kept in memory"),
            ("writes.retention", self.writes.retention != RETENTION, "finished writes cannot be looked up"),
            ("state.redis", self.state.redis.is_some(), "nothing is shared with other replicas"),
            ("state.replicas_max", self.state.replicas_max != REPLICAS_MAX, "nothing is shared with other replicas"),
            ("webhooks", self.webhooks.is_some(), "deliveries are not accepted"),
        ];
        features.into_iter().filter(|(_, set, _)| *set).map(|(key, _, why)| Inactive { key, why }).collect()
    }

    /// What is accepted but worth a second look.
    pub fn warnings(&self) -> Vec<Warning> {
        let upstream = &self.upstream;
        let urls = [("url", &upstream.url), ("graphql_url", &upstream.graphql_url), ("uploads_url", &upstream.uploads_url)];
        let in_clear = urls.into_iter().filter(|(_, url)| !url.is_tls() && !url.is_loopback()).map(|(key, url)| Warning {
            key: format!("upstream.{key}"),
            problem: format!("{url} is plain HTTP to another machine: tokens are sent in clear"),
        });
        let unused = self.accounts.iter().enumerate().filter(|(index, _)| !self.uses_account(*index)).map(|(index, account)| Warning {
            key: format!("accounts[{index}]"),
            problem: format!("account `{}` is in no pool and writes for no client: its budget is never spent", account.name),
        });
        in_clear.chain(unused).collect()
    }

    fn uses_account(&self, index: usize) -> bool {
        self.pools.iter().any(|pool| pool.accounts.contains(&index)) || self.clients.iter().any(|client| client.writes == Some(index))
    }

    /// The effective config as TOML: all defaults filled in, every secret and every key's hash as `"<redacted>"`.
    pub fn redacted_toml(&self) -> String {
        let mut printer = Printer::default();
        self.listen.print(&mut printer);
        self.upstream.print(&mut printer);
        self.accounts.iter().for_each(|account| account.print(&mut printer));
        self.tokens.iter().for_each(|token| token.print(&self.accounts, &mut printer));
        self.apps.iter().for_each(|app| app.print(&self.accounts, &mut printer));
        self.pools.iter().for_each(|pool| pool.print(&self.accounts, &mut printer));
        self.clients.iter().for_each(|client| client.print(&self.accounts, &self.pools, &mut printer));
        self.passthrough.print(&mut printer);
        self.cache.print(&mut printer);
        self.limits.print(&mut printer);
        self.writes.print(&mut printer);
        self.state.print(&mut printer);
        if let Some(webhooks) = &self.webhooks {
            webhooks.print(&mut printer);
        }
        self.telemetry.print(&mut printer);
        printer.finish()
    }
}
