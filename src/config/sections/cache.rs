//! `[cache]`: size of the store and age of its answers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use crate::api::{Dialect, Table, events_of};
use crate::config::input::document::quoted;
use crate::config::input::reader::{Choice, Reader};
use crate::config::input::scalars::{Size, duration_text, size_text};
use crate::config::printer::{Printer, text};

/// Default of `max_size` (SPECIFICATION, "Configuration").
const MAX_SIZE: Size = Size::mib(256);
/// Default of `max_object` (SPECIFICATION, "Configuration").
const MAX_OBJECT: Size = Size::mib(8);
/// Default of `stale_if_limited` and `stale_if_error` (SPECIFICATION, "Configuration").
const STALE: Duration = Duration::from_hours(1);

/// The section `[cache]`.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Bytes of all stored answers together.
    pub max_size: u64,
    /// Bytes of the largest stored answer; at most `max_size`.
    pub max_object: u64,
    /// Rule for answers served without a request upstream.
    pub freshness: Freshness,
    /// Greatest age of an answer served when no budget is left; zero: never.
    pub stale_if_limited: Duration,
    /// Greatest age of an answer served when the upstream fails; zero: never.
    pub stale_if_error: Duration,
    /// Computes the validator that another token would see (SPECIFICATION, "Conditional requests in
    /// practice").
    pub predicted_etags: bool,
    /// Routes with a lifetime of their own; the first match wins.
    pub rules: Vec<CacheRule>,
}

/// Rule for serving a stored answer without a request upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Never: every hit is revalidated upstream.
    Revalidate,
    /// While RFC 9111 §4.2 calls it fresh.
    Rfc9111,
}

/// One entry of `[[cache.rules]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRule {
    /// Route template from the endpoint table, such as `/repos/{owner}/{repo}/commits/{ref}`.
    pub route: Arc<str>,
    /// Lifetime of its answers; `None`: by [`Freshness`].
    pub ttl: Option<Duration>,
    /// Lifetime while a webhook covers the route.
    pub webhook_ttl: Option<Duration>,
}

impl Choice for Freshness {
    const ALL: &'static [(&'static str, Self)] =
        &[("revalidate", Self::Revalidate), ("rfc9111", Self::Rfc9111)];
}

impl Cache {
    /// Reads the section; its rules name routes of `dialect`, which is `None` when it has a fault
    /// of its own.
    pub(crate) fn read(reader: &mut Reader<'_>, dialect: Option<Dialect>) -> Option<Self> {
        let max_size = reader.positive("max_size", MAX_SIZE);
        // A small cache with the default object size is no contradiction.
        let max_object = reader.positive("max_object", MAX_OBJECT.min(max_size));
        if max_object > max_size {
            let accepted = format!("at most {}", size_text(max_size.0));
            reader.refuse::<()>("max_object", "larger than max_size", accepted);
        }
        let mut routes = HashSet::new();
        Some(Self {
            max_size: max_size.0,
            max_object: max_object.0,
            freshness: reader.or("freshness", Freshness::Revalidate),
            stale_if_limited: reader.or("stale_if_limited", STALE),
            stale_if_error: reader.or("stale_if_error", STALE),
            predicted_etags: reader.or("predicted_etags", false),
            rules: reader
                .all_entries("rules", |reader| CacheRule::read(reader, dialect, &mut routes))?,
        })
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("cache");
        printer.set("max_size", text(size_text(self.max_size)));
        printer.set("max_object", text(size_text(self.max_object)));
        printer.set("freshness", text(self.freshness.name()));
        printer.set("stale_if_limited", text(duration_text(self.stale_if_limited)));
        printer.set("stale_if_error", text(duration_text(self.stale_if_error)));
        printer.set("predicted_etags", self.predicted_etags);
        for rule in &self.rules {
            printer.entry("cache.rules");
            printer.set("route", text(&rule.route));
            for (key, ttl) in [("ttl", rule.ttl), ("webhook_ttl", rule.webhook_ttl)] {
                printer.set_some(key, ttl.map(|ttl| text(duration_text(ttl))));
            }
        }
    }
}

impl CacheRule {
    fn read(
        reader: &mut Reader<'_>,
        dialect: Option<Dialect>,
        routes: &mut HashSet<Arc<str>>,
    ) -> Option<Self> {
        let written = reader.required::<Arc<str>>("route");
        let (ttl, webhook_ttl) = (reader.optional("ttl"), reader.optional("webhook_ttl"));
        if !reader.is_set("ttl") && !reader.is_set("webhook_ttl") {
            let accepted = "a duration such as \"10m\", as ttl, webhook_ttl or both";
            reader.refuse::<()>("ttl", "missing", accepted);
        }
        let (written, dialect) = (written?, dialect?);
        let Some(route) = route_like(&written, dialect) else {
            let problem = format!("unknown route {}", quoted(&written));
            return reader.refuse(
                "route",
                problem,
                "a readable route of the upstream, such as \"/repos/{owner}/{repo}/commits/{ref}\"",
            );
        };
        if !routes.insert(route.clone()) {
            let problem = "duplicate route: an earlier rule matches first";
            reader.refuse::<()>("route", problem, "each route once");
        }
        if webhook_ttl.is_some() && events_of(&route).next().is_none() {
            let problem = "no webhook tells of changes of this route";
            reader.refuse::<()>("webhook_ttl", problem, "ttl alone");
        }
        Some(Self { route, ttl, webhook_ttl })
    }
}

/// Finds the template in the endpoint table that equals `written` up to parameter names. A rule for
/// another route would never match.
fn route_like(written: &str, dialect: Dialect) -> Option<Arc<str>> {
    let readable = Table::embedded(dialect)
        .endpoints()
        .iter()
        .filter(|endpoint| endpoint.method == Method::GET);
    readable
        .map(|endpoint| endpoint.template.as_str())
        .find(|template| is_same_route(template, written))
        .map(Into::into)
}

fn is_same_route(template: &str, written: &str) -> bool {
    let is_parameter =
        |segment: &str| segment.len() > 2 && segment.starts_with('{') && segment.ends_with('}');
    let is_rest = |segment: &str| segment.starts_with("{*");
    let (mut left, mut right) = (template.split('/'), written.split('/'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(a), Some(b))
                if a == b || (is_parameter(a) && is_parameter(b) && is_rest(a) == is_rest(b)) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_matches_its_route_by_any_parameter_names() {
        let route =
            |written: &str| route_like(written, Dialect::Service).map(|route| route.to_string());
        assert_eq!(
            route("/repos/{o}/{r}/commits/{sha}").as_deref(),
            Some("/repos/{owner}/{repo}/commits/{ref}")
        );
        assert_eq!(
            route("/repos/{owner}/{repo}/{*rest}").as_deref(),
            Some("/repos/{owner}/{repo}/{*rest}")
        );
        for unknown in [
            "",
            "repos/{owner}/{repo}",
            "/repos/acme/widgets",
            "/repos/{owner}/{}",
            "/repos/{owner}/{repo}/",
            "/no/such/{route}",
        ] {
            assert_eq!(route(unknown), None, "{unknown}");
        }
    }
}
