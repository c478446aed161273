//! A config that replaces another in the same process: entries keep their indices, and some keys
//! keep their values.
//!
//! Stored answers, budgets and requests under way refer to accounts, pools, clients and rules by
//! index. An entry in both configs keeps its index, a new one is appended, and one that was removed
//! leaves a retired entry. Accounts and clients are identified by their names (an account also by
//! its kind) and return to their indices. A pool is identified by what its clients see, and never
//! returns.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::{Account, BudgetMode, Budgets, CacheRule, Client, Config, Listen, Pool, Priority};

/// A config that replaces another.
#[derive(Clone, Debug)]
pub struct Reload {
    /// The config now in force.
    pub config: Config,
    /// Changed keys that take effect at the next start; `config` has their old values.
    pub at_next_start: Vec<&'static str>,
}

impl Config {
    /// Replaces `old` by this config, which was just read.
    pub fn reloaded_over(mut self, old: &Self) -> Reload {
        let accounts = merge(
            &mut self.accounts,
            &old.accounts,
            |new, old| new.name == old.name && new.kind == old.kind,
            Account::retired,
        );
        let at = |index: &mut usize| *index = accounts.get(*index).copied().unwrap_or(usize::MAX);
        // Retired accounts spend only their own budget.
        self.accounts.iter_mut().filter_map(|account| account.also_spends.as_mut()).for_each(at);
        self.tokens.iter_mut().for_each(|token| at(&mut token.account));
        for app in &mut self.apps {
            at(&mut app.account);
            app.installations.iter_mut().for_each(|installation| at(&mut installation.account));
        }
        self.webhooks
            .iter_mut()
            .flat_map(|webhooks| &mut webhooks.hooks)
            .for_each(|hook| at(&mut hook.account));
        self.pools.iter_mut().flat_map(|pool| &mut pool.accounts).for_each(at);
        let is_same_pool = |new: &Pool, before: &Pool| {
            let same_reach = |index: &usize| {
                let reach_in = |accounts: &[Account]| Some(accounts.get(*index)?.reach.clone());
                reach_in(&self.accounts) == reach_in(&old.accounts)
            };
            !before.retired
                && new.name == before.name
                && new.accounts == before.accounts
                && new.accounts.iter().all(same_reach)
        };
        let pools = merge(&mut self.pools, &old.pools, is_same_pool, Pool::retired);
        for client in &mut self.clients {
            client.reads = pools.get(client.reads).copied().unwrap_or(usize::MAX);
            client.writes.as_mut().map(at);
        }
        merge(&mut self.clients, &old.clients, |new, old| new.name == old.name, Client::retired);
        let is_same_route = |new: &CacheRule, before: &CacheRule| new.route == before.route;
        merge(&mut self.cache.rules, &old.cache.rules, is_same_route, CacheRule::retired);
        self.account_layout = old.account_layout;
        let at_next_start = self.keep(old);
        Reload { config: self, at_next_start }
    }

    /// Adds a retired client for each of these names that the config lacks, in case a later config
    /// has it.
    pub fn remember_clients(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        for name in names {
            if self.clients.iter().all(|client| client.name != name) {
                self.clients.push(Client::gone(name));
            }
        }
    }

    /// Restores what cannot change while the gateway runs, and returns the keys.
    fn keep(&mut self, old: &Self) -> Vec<&'static str> {
        let mut restart = RestartKeys(Vec::new());
        let (listen, before) = (&mut self.listen, &old.listen);
        restart.keep("listen.http", &mut listen.http, &before.http);
        let at = |listen: &Listen| listen.https.as_ref().map(|https| https.address);
        if at(listen) != at(before) {
            // The certificates may change while the gateway runs, the address may not.
            restart.0.push("listen.https.address");
            listen.https.clone_from(&before.https);
        }
        if listen.admin_tls.is_some() != before.admin_tls.is_some() {
            restart.0.push("listen.admin_tls");
            listen.admin_tls.clone_from(&before.admin_tls);
        }
        restart.keep("listen.unix", &mut listen.unix, &before.unix);
        restart.keep("listen.takeover", &mut listen.takeover, &before.takeover);
        if listen.admin != before.admin {
            // The old address decided whether the token may be absent.
            listen.admin_token.clone_from(&before.admin_token);
        }
        restart.keep("listen.admin", &mut listen.admin, &before.admin);
        let (upstream, before) = (&mut self.upstream, &old.upstream);
        restart.keep("upstream.url", &mut upstream.url, &before.url);
        restart.keep("upstream.graphql_url", &mut upstream.graphql_url, &before.graphql_url);
        restart.keep("upstream.uploads_url", &mut upstream.uploads_url, &before.uploads_url);
        restart.keep("upstream.dialect", &mut upstream.dialect, &before.dialect);
        // The number of ids for clients' credentials is fixed at the start: pass-through can be
        // switched off, but not on without any.
        let (passthrough, before) = (&mut self.passthrough, &old.passthrough);
        if old.account_layout.dynamic == 0 || passthrough.enabled {
            restart.keep("passthrough.enabled", &mut passthrough.enabled, &before.enabled);
        }
        let (max, max_before) = (&mut passthrough.credentials_max, &before.credentials_max);
        restart.keep("passthrough.credentials_max", max, max_before);
        restart.keep("cache.max_size", &mut self.cache.max_size, &old.cache.max_size);
        restart.keep("cache.max_object", &mut self.cache.max_object, &old.cache.max_object);
        restart.keep("cache.snapshot", &mut self.cache.snapshot, &old.cache.snapshot);
        let (writes, before) = (&mut self.writes, &old.writes);
        restart.keep("writes.store", &mut writes.store, &before.store);
        restart.keep("writes.durability", &mut writes.durability, &before.durability);
        restart.keep("writes.retention", &mut writes.retention, &before.retention);
        restart.keep("writes.queue_max", &mut writes.queue_max, &before.queue_max);
        let (state, before) = (&mut self.state, &old.state);
        restart.keep("state.redis", &mut state.redis, &before.redis);
        restart.keep("state.replicas_max", &mut state.replicas_max, &before.replicas_max);
        let (telemetry, before) = (&mut self.telemetry, &old.telemetry);
        restart.keep("telemetry.log", &mut telemetry.log, &before.log);
        restart.keep("telemetry.otlp_*", &mut telemetry.otlp, &before.otlp);
        restart.keep("telemetry.service_name", &mut telemetry.service_name, &before.service_name);
        restart.keep("telemetry.sample_ratio", &mut telemetry.sampling, &before.sampling);
        restart.0
    }
}

/// Keys whose old values were restored.
struct RestartKeys(Vec<&'static str>);

impl RestartKeys {
    fn keep<T: Clone + PartialEq>(&mut self, key: &'static str, new: &mut T, old: &T) {
        if new != old {
            self.0.push(key);
            new.clone_from(old);
        }
    }
}

impl Account {
    fn retired(&self) -> Self {
        Self { also_spends: None, retired: true, ..self.clone() }
    }
}

impl Pool {
    fn retired(&self) -> Self {
        Self { accounts: Vec::new(), retired: true, ..self.clone() }
    }
}

impl Client {
    /// Creates a client of which only the name is known.
    fn gone(name: Arc<str>) -> Self {
        Self {
            name,
            keys: Vec::new(),
            oidc: None,
            certificate: None,
            reads: usize::MAX,
            writes: None,
            weight: NonZeroU32::MIN,
            priority: Priority::default(),
            budgets: Budgets::default(),
            budget_mode: BudgetMode::default(),
            allow: Vec::new(),
            max_wait: Duration::ZERO,
            retired: true,
        }
    }

    fn retired(&self) -> Self {
        Self {
            writes: None,
            keys: Vec::new(),
            oidc: None,
            allow: Vec::new(),
            retired: true,
            ..self.clone()
        }
    }
}

impl CacheRule {
    /// A rule without lifetimes has no effect.
    fn retired(&self) -> Self {
        Self { ttl: None, webhook_ttl: None, ..self.clone() }
    }
}

/// Moves entries of `new` that are in `old` to their old indices, fills the other old indices by
/// `retired`, and appends the rest. Returns the index of each entry of `new`.
fn merge<T: Clone>(
    new: &mut Vec<T>,
    old: &[T],
    is_same: impl Fn(&T, &T) -> bool,
    retired: impl Fn(&T) -> T,
) -> Vec<usize> {
    let mut merged: Vec<Option<T>> = old.iter().map(|_| None).collect();
    let mut indices = Vec::with_capacity(new.len());
    for item in new.drain(..) {
        let mut slots = old.iter().zip(&merged);
        let index = slots.position(|(before, taken)| taken.is_none() && is_same(&item, before));
        let index = index.unwrap_or_else(|| {
            merged.push(None);
            merged.len() - 1
        });
        merged[index] = Some(item);
        indices.push(index);
    }
    let old = old.iter().map(Some).chain(std::iter::repeat(None));
    let merged = merged.into_iter().zip(old);
    new.extend(merged.filter_map(|(item, before)| item.or_else(|| before.map(&retired))));
    indices
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use secrecy::ExposeSecret;

    use super::super::{digest_hex, parse};
    use super::*;
    use crate::decision::AccountId;

    /// `bots`: name, reach and secret of each account; `clients`: the name of each, its pool and
    /// account; `more`: further sections.
    fn config(
        bots: &[(&str, &str, &str)],
        pools: &[(&str, &str)],
        clients: &[(&str, &str, &str)],
        more: &str,
    ) -> Config {
        use std::fmt::Write as _;
        let mut text = format!("[upstream]\nurl = \"http://127.0.0.1:9\"\n{more}\n");
        for (name, reach, secret) in bots {
            let _ = writeln!(
                text,
                "[[accounts]]\nname = \"{name}\"\nkind = \"user\"\nreach = [\"{reach}\"]"
            );
            let _ = writeln!(
                text,
                "[[tokens]]\naccount = \"{name}\"\nkind = \"classic\"\nsecret = {{ value = \"{secret}\" }}"
            );
        }
        for (name, account) in pools {
            let _ = writeln!(text, "[[pools]]\nname = \"{name}\"\naccounts = [\"{account}\"]");
        }
        for (name, pool, account) in clients {
            let key = digest_hex(name.as_bytes());
            let _ = writeln!(
                text,
                "[[clients]]\nname = \"{name}\"\nkey_sha256 = \"{key}\"\nreads = \"{pool}\"\nwrites = \"{account}\""
            );
        }
        parse(&text, "test", &|_| None, Path::new(".")).unwrap_or_else(|faults| panic!("{faults}"))
    }

    fn two() -> Config {
        config(
            &[("a", "acme", "s1"), ("b", "acme", "s2")],
            &[("one", "a"), ("two", "b")],
            &[("x", "one", "a"), ("y", "two", "b")],
            "",
        )
    }

    fn names<'c>(
        accounts: impl IntoIterator<Item = (&'c std::sync::Arc<str>, bool)>,
    ) -> Vec<(&'c str, bool)> {
        accounts.into_iter().map(|(name, retired)| (&**name, retired)).collect()
    }

    #[test]
    fn a_kept_entry_keeps_its_index_and_a_new_one_is_appended() {
        let old = two();
        let bots = [("new", "acme", "s3"), ("b", "acme", "s2")];
        let Reload { config, at_next_start } = config(
            &bots,
            &[("three", "new"), ("two", "b")],
            &[("z", "three", "new"), ("y", "two", "b")],
            "",
        )
        .reloaded_over(&old);
        assert_eq!(at_next_start, [""; 0]);
        assert_eq!(
            names(config.accounts.iter().map(|a| (&a.name, a.retired))),
            [("a", true), ("b", false), ("new", false)]
        );
        assert_eq!(
            names(config.pools.iter().map(|p| (&p.name, p.retired))),
            [("one", true), ("two", false), ("three", false)]
        );
        assert_eq!(
            names(config.clients.iter().map(|c| (&c.name, c.retired))),
            [("x", true), ("y", false), ("z", false)]
        );
        assert_eq!((config.clients[2].reads, config.clients[2].writes), (2, Some(2)));
        assert_eq!((config.clients[1].reads, config.clients[1].writes), (1, Some(1)));
        assert_eq!(
            (config.pools[2].accounts.as_slice(), config.pools[1].accounts.as_slice()),
            ([2].as_slice(), [1].as_slice())
        );
        assert_eq!(config.tokens.iter().map(|token| token.account).collect::<Vec<_>>(), [2, 1]);
        let back = two().reloaded_over(&config).config;
        assert_eq!(
            names(back.accounts.iter().map(|a| (&a.name, a.retired))),
            [("a", false), ("b", false), ("new", true)]
        );
        assert_eq!(
            names(back.clients.iter().map(|c| (&c.name, c.retired))),
            [("x", false), ("y", false), ("z", true)]
        );
        assert_eq!(
            back.clients[0].reads, 3,
            "what was stored for a pool that was taken out is nobody's"
        );
    }

    #[test]
    fn a_pool_with_another_view_is_a_new_pool() {
        let old = two();
        let other_reach = config(
            &[("a", "corp", "s1"), ("b", "acme", "s2")],
            &[("one", "a"), ("two", "b")],
            &[("x", "one", "a")],
            "",
        );
        let other_reach = other_reach.reloaded_over(&old).config;
        assert_eq!(
            (
                other_reach.clients[0].reads,
                other_reach.pools[0].retired,
                other_reach.pools[1].retired
            ),
            (2, true, false)
        );
        let other_account = config(
            &[("a", "acme", "s1"), ("b", "acme", "s2")],
            &[("one", "b")],
            &[("x", "one", "a")],
            "",
        );
        let other_account = other_account.reloaded_over(&old).config;
        assert_eq!((other_account.clients[0].reads, other_account.accounts.len()), (2, 2));
        assert_eq!(two().reloaded_over(&old).config.clients[0].reads, 0);
    }

    #[test]
    fn account_ids_skip_those_reserved_for_passthrough() {
        let old = config(
            &[("a", "acme", "s1")],
            &[("one", "a")],
            &[("x", "one", "a")],
            "[passthrough]\nenabled = true\ncredentials_max = 7",
        );
        let more = "[passthrough]\nenabled = true\ncredentials_max = 9";
        let Reload { config, at_next_start } = config(
            &[("a", "acme", "s1"), ("b", "acme", "s2")],
            &[("one", "a")],
            &[("x", "one", "a")],
            more,
        )
        .reloaded_over(&old);
        assert_eq!(at_next_start, ["passthrough.credentials_max"]);
        assert_eq!((config.account_id(0), config.account_id(1)), (AccountId(0), AccountId(8)));
        assert_eq!(config.account(AccountId(8)).map(|account| &*account.name), Some("b"));
        assert!(config.account(AccountId(1)).is_none() && config.passthrough.reserved_ids() == 7);
    }

    #[test]
    fn a_restart_key_keeps_its_value_and_is_reported() {
        let old = two();
        let more = "graphql_url = \"http://127.0.0.1:9/q\"\n[listen]\nhttp = [\"127.0.0.1:1\"]\nheader_timeout = \"3s\"\n[cache]\nmax_size = \"1MiB\"\nsnapshot = \"a\"\nsnapshot_interval = \"9s\"\n\
                    stale_if_error = \"0s\"\n[writes]\nqueue_max = 3\n[telemetry]\nsample_ratio = 0.5\n[passthrough]\nenabled = true";
        let new = config(&[("a", "acme", "s1")], &[("one", "a")], &[("x", "one", "a")], more);
        let Reload { config, at_next_start } = new.reloaded_over(&old);
        let expected = [
            "listen.http",
            "upstream.graphql_url",
            "passthrough.enabled",
            "cache.max_size",
            "cache.max_object",
            "cache.snapshot",
            "writes.queue_max",
            "telemetry.sample_ratio",
        ];
        assert_eq!(at_next_start, expected);
        assert_eq!(
            (&config.listen.http, config.writes.queue_max),
            (&old.listen.http, old.writes.queue_max)
        );
        assert_eq!(config.listen.header_timeout.as_secs(), 3);
        assert!(config.cache.stale_if_error.is_zero() && !config.passthrough.enabled);
    }

    #[test]
    fn an_admin_listener_with_the_same_address_keeps_its_token() {
        let admin = |text: &str| {
            config(
                &[("a", "acme", "s1")],
                &[("one", "a")],
                &[("x", "one", "a")],
                &format!("[listen]\nadmin = {text}"),
            )
        };
        let token = |config: &Config| {
            config.listen.admin_token.as_ref().map(|token| token.expose_secret().to_owned())
        };
        let old = admin("\"0.0.0.0:9\"\nadmin_token = { value = \"guarded\" }");
        let moved = admin("\"127.0.0.1:9\"").reloaded_over(&old);
        assert_eq!(
            (token(&moved.config).as_deref(), moved.at_next_start.as_slice()),
            (Some("guarded"), ["listen.admin"].as_slice())
        );
        let another =
            admin("\"0.0.0.0:9\"\nadmin_token = { value = \"other\" }").reloaded_over(&old);
        assert_eq!(
            (token(&another.config).as_deref(), another.at_next_start.as_slice()),
            (Some("other"), [""; 0].as_slice())
        );
    }

    #[test]
    fn a_rule_keeps_its_index_and_loses_effect_when_removed() {
        let rules = |rules: &[(&str, &str)]| {
            let rules: Vec<_> = rules
                .iter()
                .map(|(route, ttl)| {
                    format!("[[cache.rules]]\nroute = \"{route}\"\nttl = \"{ttl}\"\n")
                })
                .collect();
            config(&[("a", "acme", "s1")], &[("one", "a")], &[("x", "one", "a")], &rules.concat())
        };
        let old = rules(&[("/meta", "1h"), ("/zen", "2h")]);
        let config = rules(&[("/emojis", "3h"), ("/zen", "4h")]).reloaded_over(&old).config;
        let lifetimes: Vec<_> = config
            .cache
            .rules
            .iter()
            .map(|rule| (&*rule.route, rule.ttl.map(|ttl| ttl.as_secs() / 3_600)))
            .collect();
        assert_eq!(lifetimes, [("/meta", None), ("/zen", Some(4)), ("/emojis", Some(3))]);
    }

    #[test]
    fn an_account_of_another_kind_is_another_account() {
        let old = two();
        let text = "[upstream]\nurl = \"http://127.0.0.1:9\"\n[[accounts]]\nname = \"a\"\nkind = \"anonymous\"\n[[clients]]\nname = \"x\"\nkey_sha256 = \"";
        let text = format!("{text}{}\"", digest_hex(b"x"));
        let config =
            parse(&text, "test", &|_| None, Path::new(".")).unwrap().reloaded_over(&old).config;
        assert_eq!(
            names(config.accounts.iter().map(|a| (&a.name, a.retired))),
            [("a", true), ("b", true), ("a", false)]
        );
    }
}
