//! The effective config: its text with all defaults, and its warnings.

use std::net::SocketAddr;
use std::time::Duration;

use super::printer::Printer;
use super::{CaFile, ClientKey, Config, OidcClient};
use crate::api::{AccountKind, Dialect, TokenKind};
use crate::clock::Timestamp;

/// The time before the end of a key from which it is warned of.
const KEY_WARNING: Duration = Duration::from_hours(7 * 24);

/// Hosts of the public service, and the parents of those that it runs for single customers. They
/// speak the dialect `github`.
const PUBLIC_HOSTS: [&str; 1] = ["github.com"];
const PUBLIC_PARENTS: [&str; 2] = [".github.com", ".ghe.com"];

/// An accepted value that is probably a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Full key, such as `upstream.url`.
    pub key: String,
    /// The likely consequence.
    pub problem: String,
}

fn is_public_service(host: &str) -> bool {
    PUBLIC_HOSTS.contains(&host) || PUBLIC_PARENTS.iter().any(|parent| host.ends_with(parent))
}

impl Config {
    /// Lists accepted values that are probably mistakes.
    pub fn warnings(&self) -> Vec<Warning> {
        let upstream = &self.upstream;
        let urls = [
            ("url", &upstream.url),
            ("graphql_url", &upstream.graphql_url),
            ("uploads_url", &upstream.uploads_url),
        ];
        let in_clear = urls.into_iter().filter(|(_, url)| !url.is_tls() && !url.is_loopback()).map(
            |(key, url)| Warning {
                key: format!("upstream.{key}"),
                problem: format!(
                    "{url} is plain HTTP to another machine: tokens are sent in clear"
                ),
            },
        );
        let is_open = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        let open = self.listen.http.iter().filter(is_open).map(|address| Warning {
            key: "listen.http".into(),
            problem: format!(
                "{address} is plain HTTP for other machines: keys are sent in clear, unless a proxy beside the gateway speaks TLS"
            ),
        });
        let admin = self.listen.admin.iter().filter(|_| self.listen.admin_tls.is_none());
        let open_admin = admin.filter(is_open).map(|address| Warning {
            key: "listen.admin".into(),
            problem: format!(
                "{address} is plain HTTP for other machines: admin_token is sent in clear, unless a proxy beside the gateway speaks TLS"
            ),
        });
        let foreign = (upstream.dialect == Dialect::Service).then(|| {
            urls.into_iter().filter(|(_, url)| is_public_service(url.host())).map(|(key, url)| {
                let problem = format!(
                    "{url} is the public service, which speaks `dialect = \"github\"`: with \"service\" its headers, media types and events are not understood"
                );
                Warning { key: format!("upstream.{key}"), problem }
            })
        });
        let foreign = foreign.into_iter().flatten();
        let unused = self.accounts.iter().enumerate().filter(|(index, _)| !self.uses_account(*index)).map(|(index, account)| Warning {
            key: format!("accounts[{index}]"),
            problem: format!("account `{}` is in no pool and writes for no client: its budget is never spent", account.name),
        });
        let questionable = self.accounts.iter().enumerate().filter_map(|(index, account)| {
            let problem = self.budget_problem(index)?;
            Some(Warning {
                key: format!("accounts[{index}]"),
                problem: format!("account `{}` {problem}", account.name),
            })
        });
        let is_useless = self.cache.predicted_etags && upstream.dialect != Dialect::Github;
        let unpredictable = is_useless.then(|| Warning {
            key: "cache.predicted_etags".into(),
            problem: "is used with `dialect = \"github\"` only: of other upstreams no form of ETags is known".into(),
        });
        let proxies =
            self.listen.trusted_proxies.iter().filter(|network| network.prefix_len() == 0);
        let all_trusted = proxies.map(|network| Warning {
            key: "listen.trusted_proxies".into(),
            problem: format!("{network} is every machine: each may name any address as its own"),
        });
        let open_claims = self.clients.iter().enumerate().flat_map(|(index, client)| {
            let patterns = client.oidc.iter().flat_map(OidcClient::open_patterns);
            patterns.map(move |pattern| Warning {
                key: format!("clients[{index}].oidc.claims"),
                problem: format!(
                    "{pattern:?} fits all names that begin so, those of strangers too: end the fixed part with a separator, as \"acme/*\" does"
                ),
            })
        });
        let shared_authorities = self.listen.has_clients_as_administrators().then(|| Warning {
            key: "listen.admin_tls".into(),
            problem: "an authority of its client_ca is one of listen.https too, and there is no admin_token: each client with a certificate is an administrator".into(),
        });
        let https = self.listen.https.as_ref().map(|https| ("https", &https.tls));
        let admin_tls = self.listen.admin_tls.as_ref().map(|tls| ("admin_tls", tls));
        let powerless = https.into_iter().chain(admin_tls).flat_map(|(key, tls)| {
            let numbers = tls.client_ca.iter().flat_map(CaFile::end_entities);
            numbers.map(move |number| Warning {
                key: format!("listen.{key}.client_ca"),
                problem: format!(
                    "certificate {number} of the file belongs to no authority: no other client's certificate is accepted by it"
                ),
            })
        });
        let notices = self.notices.iter().cloned();
        notices
            .chain(in_clear)
            .chain(open)
            .chain(open_admin)
            .chain(foreign)
            .chain(unused)
            .chain(questionable)
            .chain(unpredictable)
            .chain(all_trusted)
            .chain(open_claims)
            .chain(shared_authorities)
            .chain(powerless)
            .collect()
    }

    /// Lists the keys that end within `KEY_WARNING` or have ended: the client's name, the key's
    /// position among the client's, the key, and its end.
    pub fn ending_keys(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (&str, usize, &ClientKey, Timestamp)> {
        self.expiring_keys().filter(move |(.., end)| *end <= now + KEY_WARNING)
    }

    /// Lists the keys that have an end, as [`Config::ending_keys`] does.
    pub fn expiring_keys(&self) -> impl Iterator<Item = (&str, usize, &ClientKey, Timestamp)> {
        let clients = self.clients.iter().filter(|client| !client.retired);
        clients.flat_map(|client| {
            let keys = client.keys.iter().enumerate();
            keys.filter_map(|(index, key)| Some((&*client.name, index, key, key.expires?)))
        })
    }

    /// Lists the keys of clients that have ended, or will soon.
    pub fn key_warnings(&self, now: Timestamp) -> Vec<Warning> {
        let warning = |(client, index, _, end): (&str, usize, &ClientKey, Timestamp)| {
            let position = self.clients.iter().position(|other| &*other.name == client);
            let verb = if end <= now { "has expired" } else { "expires" };
            Warning {
                key: format!("clients[{}].keys[{index}]", position.unwrap_or_default()),
                problem: format!("a key of client `{client}` {verb} at {}", end.rfc3339_past()),
            }
        };
        self.ending_keys(now).map(warning).collect()
    }

    /// Returns a likely mistake about the budget of an account.
    fn budget_problem(&self, index: usize) -> Option<&'static str> {
        let account = self.accounts.get(index)?;
        let kinds =
            || self.tokens.iter().filter(|token| token.account == index).map(|token| token.kind);
        match account.kind {
            AccountKind::Workflow if !account.is_of_one_repository() => Some(
                "has no reach that names exactly one repository, but a workflow token's budget is that repository's own: say `reach = [\"owner/name\"]`",
            ),
            AccountKind::User
                if kinds().any(|kind| matches!(kind, TokenKind::AppUser | TokenKind::Oauth))
                    && kinds().any(|kind| {
                        matches!(kind, TokenKind::Classic | TokenKind::FineGrained)
                    }) =>
            {
                Some(
                    "has tokens of an app and tokens of its own. If the app belongs to an enterprise, its tokens have a larger budget and spend the user's as well: \
                     give them an account of their own with `also_spends` naming this one",
                )
            }
            _ => None,
        }
    }

    fn uses_account(&self, index: usize) -> bool {
        self.pools.iter().any(|pool| pool.accounts.contains(&index))
            || self.clients.iter().any(|client| client.writes == Some(index))
            || self.apps.iter().any(|app| app.account == index)
            || self.accounts.iter().any(|account| account.also_spends == Some(index))
    }

    /// Formats the effective config as TOML, with the source of every secret in place of it, and
    /// `"<redacted>"` for every key's hash and every secret in the config itself.
    pub fn redacted_toml(&self) -> String {
        let mut printer = Printer::default();
        self.listen.print(&mut printer);
        self.upstream.print(&mut printer);
        self.accounts.iter().for_each(|account| account.print(&self.accounts, &mut printer));
        self.tokens.iter().for_each(|token| token.print(&self.accounts, &mut printer));
        self.apps.iter().for_each(|app| app.print(&self.accounts, &mut printer));
        self.pools.iter().for_each(|pool| pool.print(&self.accounts, &mut printer));
        self.issuers.iter().for_each(|issuer| issuer.print(&mut printer));
        for client in &self.clients {
            client.print(&self.accounts, &self.pools, &self.issuers, &mut printer);
        }
        self.passthrough.print(&mut printer);
        self.cache.print(&mut printer);
        self.limits.print(&mut printer);
        self.shadow.print(&mut printer);
        self.writes.print(&mut printer);
        self.state.print(&mut printer);
        if let Some(webhooks) = &self.webhooks {
            webhooks.print(&self.accounts, &mut printer);
        }
        self.telemetry.print(&mut printer);
        printer.finish()
    }
}
