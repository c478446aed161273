//! `GET /api/cache/advice`: the cache rules that would have saved requests, by a replay of what was
//! sent upstream (SPECIFICATION, "Admin listener"). `weir cache advise` prints the same, also of a
//! recorded log.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::{Dialect, Table};
use crate::config::{Config, Freshness, duration_text};
use crate::decision::advice::{Advised, Advisor, Rule, Subject};
use crate::gateway::Gateway;

/// Most routes listed with what they cost.
const PAID_MAX: usize = 20;

#[derive(Debug, Serialize, Deserialize)]
pub struct Advice {
    /// Time from the first request to the last.
    pub seconds: u64,
    /// Reads sent upstream for answers without a rule.
    pub requests: u64,
    /// Units that they spent.
    pub units: u64,
    /// The same by route or operation, the dearest first.
    pub paid: Vec<Paid>,
    /// The most useful first; each counts as if it were the only one.
    pub rules: Vec<AdvisedRule>,
    /// All of them, for the config.
    pub toml: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Paid {
    /// Route template, or `query NAME`.
    pub name: String,
    pub requests: u64,
    pub units: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct AdvisedRule {
    /// `ttl`, `webhook_ttl` or `revalidate_at_most`.
    pub setting: String,
    /// Its value as in the config.
    pub value: String,
    /// Route template, if it is for one.
    pub route: Option<String>,
    /// Name of the operation, if it is for a query.
    pub graphql: Option<String>,
    /// Requests sent upstream that it is about.
    pub requests: u64,
    pub units: u64,
    pub saved_requests: u64,
    pub saved_units: u64,
    /// Answers among the saved ones that would have been outdated.
    pub outdated: u64,
    /// The risk in a few words.
    pub risk: String,
}

/// Takes the advice of the running gateway.
pub fn of(gateway: &Gateway) -> Advice {
    Advice::of(&gateway.cache.advisor(), Some(&gateway.env.config))
}

impl Advice {
    /// Describes advice. Rules that `config` has, or that it would refuse, are left out.
    pub fn of(advisor: &Advisor, config: Option<&Config>) -> Self {
        let rows = advisor.advise();
        let rules =
            rows.iter().filter(|row| is_new(row, config)).map(|row| AdvisedRule::of(row, config));
        let rules: Vec<_> = rules.collect();
        let (requests, units) = advisor.totals();
        let paid = advisor.paid().into_iter().take(PAID_MAX);
        let paid = paid.map(|(subject, requests, units)| Paid {
            name: match subject {
                Subject::Route(route) => (*route).to_owned(),
                Subject::Query(Some(name)) => format!("query {name}"),
                Subject::Query(None) => "queries without a name".to_owned(),
            },
            requests,
            units,
        });
        let toml = toml_of(&rules);
        Self {
            seconds: advisor.span().as_secs(),
            requests,
            units,
            paid: paid.collect(),
            rules,
            toml,
        }
    }
}

impl AdvisedRule {
    fn of(row: &Advised, config: Option<&Config>) -> Self {
        let webhooks = config.and_then(|config| config.webhooks.as_ref());
        let watches = webhooks.is_some_and(|webhooks| !webhooks.hooks.is_empty());
        let (setting, value) = match row.rule {
            Rule::AtMost => ("revalidate_at_most", row.rule.span()),
            Rule::Webhook => ("webhook_ttl", row.rule.span()),
            Rule::Ttl(ttl) => ("ttl", ttl),
        };
        let value = duration_text(value);
        let (route, graphql) = match &row.subject {
            Some(Subject::Route(route)) => (Some((*route).to_owned()), None),
            Some(Subject::Query(name)) => (None, name.as_deref().map(str::to_owned)),
            None => (None, None),
        };
        Self {
            setting: setting.to_owned(),
            risk: match row.rule {
                Rule::Webhook if watches => "none with webhooks".to_owned(),
                Rule::Webhook => "needs a watched webhook".to_owned(),
                Rule::AtMost | Rule::Ttl(_) => format!("stale up to {value}"),
            },
            value,
            route,
            graphql,
            requests: row.requests,
            units: row.units,
            saved_requests: row.saved_requests,
            saved_units: row.saved_units,
            outdated: row.outdated,
        }
    }
}

/// Returns false for a rule that the config has already, or cannot have.
fn is_new(row: &Advised, config: Option<&Config>) -> bool {
    let cache = config.map(|config| &config.cache);
    match &row.subject {
        None => cache.is_none_or(|cache| {
            cache.revalidate_at_most == Duration::ZERO && cache.freshness == Freshness::Revalidate
        }),
        Some(Subject::Route(route)) => {
            let dialect = config.map_or(Dialect::Github, |config| config.upstream.dialect);
            let mut endpoints = Table::embedded(dialect).endpoints().iter();
            // Not that of all unknown paths.
            route.starts_with('/')
                && endpoints.any(|one| one.method == http::Method::GET && one.template == *route)
                && !cache.is_some_and(|cache| cache.rules.iter().any(|rule| *rule.route == **route))
        }
        Some(Subject::Query(Some(name))) => {
            // A name of GraphQL needs no escapes.
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !cache.is_some_and(|cache| {
                    cache.query_rules.iter().any(|rule| rule.covers(Some(name)))
                })
        }
        Some(Subject::Query(None)) => false,
    }
}

/// Writes the rules as a part of a config; those of one route are one entry.
fn toml_of(rules: &[AdvisedRule]) -> String {
    let (mut text, mut written) = (String::new(), Vec::new());
    for rule in rules {
        let subject = (&rule.route, &rule.graphql);
        if written.contains(&subject) {
            continue;
        }
        let gap = if written.is_empty() { "" } else { "\n" };
        written.push(subject);
        // Writing to a string cannot fail.
        let _ = match subject {
            (Some(route), _) => writeln!(text, "{gap}[[cache.rules]]\nroute = \"{route}\""),
            (None, Some(name)) => writeln!(text, "{gap}[[cache.rules]]\ngraphql = \"{name}\""),
            // A config has this section already, and may not have it twice.
            (None, None) => writeln!(text, "{gap}# in the section [cache]:"),
        };
        for one in rules.iter().filter(|one| (&one.route, &one.graphql) == subject) {
            let comment = if subject == (&None, &None) { "# " } else { "" };
            let _ = writeln!(text, "{comment}{} = \"{}\" # {}", one.setting, one.value, one.risk);
        }
    }
    text
}
