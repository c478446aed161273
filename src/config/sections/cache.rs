//! `[cache]`: size of the store and age of its answers.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use crate::api::{Dialect, Table, events_of};
use crate::config::input::document::{Secrets, quoted};
use crate::config::input::reader::{Choice, Entry, Read, Reader};
use crate::config::input::scalars::{Size, duration_text, size_text};
use crate::config::printer::{Printer, text};

/// Default of `max_size` (SPECIFICATION, "Configuration").
const MAX_SIZE: Size = Size::mib(256);
/// Default of `max_object` (SPECIFICATION, "Configuration").
const MAX_OBJECT: Size = Size::mib(8);
/// Default of `spool_max` (SPECIFICATION, "Configuration").
const SPOOL_MAX: Size = Size::mib(4 * 1024);
/// Default of `stale_if_limited` and `stale_if_error` (SPECIFICATION, "Configuration").
const STALE: Duration = Duration::from_hours(1);

/// Default of `snapshot_interval` (SPECIFICATION, "Configuration"), and its bounds. Ours: a shorter
/// one writes all the time, and a longer one loses a day.
const SNAPSHOT_INTERVAL: Duration = Duration::from_mins(5);
const SNAPSHOT_INTERVALS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(24);

/// The operation of a rule for every query.
const EVERY_QUERY: &str = "*";

/// The section `[cache]`.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Bytes of all stored answers together.
    pub max_size: u64,
    /// Bytes of the largest stored answer; at most `max_size`.
    pub max_object: u64,
    /// Bytes of all temporary files of larger answers together; zero: none.
    pub spool_max: u64,
    /// Bytes of the largest answer that is stored in such a file; zero: none is.
    pub spool_keep: u64,
    /// Folder of these files; `None`: the system's for temporary files.
    pub spool_folder: Option<PathBuf>,
    /// Rule for answers served without a request upstream.
    pub freshness: Freshness,
    /// Time after a confirmation in which an answer is served without another one, within its own
    /// lifetime. Only with [`Freshness::Revalidate`].
    pub revalidate_at_most: Duration,
    /// Greatest age of an answer served when no budget is left; zero: never.
    pub stale_if_limited: Duration,
    /// Greatest age of an answer served when the upstream fails; zero: never.
    pub stale_if_error: Duration,
    /// Computes the validator that another token would see (SPECIFICATION, "Conditional requests in
    /// practice").
    pub predicted_etags: bool,
    /// File that keeps what is stored across a restart; `None`: nothing does.
    pub snapshot: Option<PathBuf>,
    /// Time between two snapshots.
    pub snapshot_interval: Duration,
    /// Routes with a lifetime of their own; the first match wins.
    pub rules: Vec<CacheRule>,
    /// GraphQL queries whose answers are stored; the first match wins.
    pub query_rules: Vec<QueryRule>,
}

/// Rule for serving a stored answer without a request upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Never: every hit is revalidated upstream.
    Revalidate,
    /// While RFC 9111 §4.2 calls it fresh.
    Rfc9111,
}

/// One entry of `[[cache.rules]]` with a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRule {
    /// Route template from the endpoint table, such as `/repos/{owner}/{repo}/commits/{ref}`.
    pub route: Arc<str>,
    /// Lifetime of its answers; `None`: by [`Freshness`].
    pub ttl: Option<Duration>,
    /// Lifetime while a webhook covers the route.
    pub webhook_ttl: Option<Duration>,
}

/// One entry of `[[cache.rules]]` for GraphQL queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRule {
    /// Name of the operation; `None`: every query, also one without a name.
    pub operation: Option<Arc<str>>,
    /// Lifetime of its answers.
    pub ttl: Duration,
}

/// A folder of the gateway's machine.
struct Folder(PathBuf);

impl Read for Folder {
    fn accepted() -> String {
        "the path of a folder, relative to the config file or absolute".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let path = PathBuf::read(entry)?;
        // A config that is checked elsewhere names folders of another machine.
        if entry.document.secrets == Secrets::Presumed && !path.exists() {
            entry.document.leave_out(&entry.path, format!("folder {}", path.display()));
        } else if !path.is_dir() {
            return entry.refuse(format!("{} is no folder", path.display()), Self::accepted());
        }
        Some(Self(path))
    }
}

/// Either kind of entry, in the order of the file.
enum Rule {
    Route(CacheRule),
    Query(QueryRule),
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
        let spool_max = reader.or("spool_max", SPOOL_MAX);
        let spool_keep = reader.or("spool_keep", Size::default());
        if spool_keep > spool_max {
            let accepted = format!("at most {}", size_text(spool_max.0));
            reader.refuse::<()>("spool_keep", "larger than spool_max", accepted);
        } else if spool_keep.0 > 0 && spool_keep <= max_object {
            let problem = "no effect: answers of that length are stored in memory";
            let accepted = format!("0B, or more than {}", size_text(max_object.0));
            reader.refuse::<()>("spool_keep", problem, accepted);
        }
        let (mut routes, mut operations) = (HashSet::new(), Vec::new());
        let read = reader.all_entries("rules", |reader| {
            if reader.is_set("graphql") {
                QueryRule::read(reader, &mut operations).map(Rule::Query)
            } else {
                CacheRule::read(reader, dialect, &mut routes).map(Rule::Route)
            }
        });
        let freshness = reader.or("freshness", Freshness::Revalidate);
        let revalidate_at_most = reader.or("revalidate_at_most", Duration::ZERO);
        if freshness == Freshness::Rfc9111 && !revalidate_at_most.is_zero() {
            let problem = "not with freshness = \"rfc9111\", which serves every fresh answer";
            reader.refuse::<()>(
                "revalidate_at_most",
                problem,
                "\"0s\", or freshness \"revalidate\"",
            );
        }
        let snapshot = reader.optional("snapshot");
        let snapshot_interval = reader.or("snapshot_interval", SNAPSHOT_INTERVAL);
        if !SNAPSHOT_INTERVALS.contains(&snapshot_interval) {
            let accepted = "a duration from \"1s\" to \"1d\"";
            reader.refuse::<()>("snapshot_interval", "out of bounds", accepted);
        }
        let mut cache = Self {
            max_size: max_size.0,
            max_object: max_object.0,
            spool_max: spool_max.0,
            spool_keep: spool_keep.0,
            spool_folder: reader.optional::<Folder>("spool_folder").map(|folder| folder.0),
            freshness,
            revalidate_at_most,
            stale_if_limited: reader.or("stale_if_limited", STALE),
            stale_if_error: reader.or("stale_if_error", STALE),
            predicted_etags: reader.or("predicted_etags", false),
            snapshot,
            snapshot_interval,
            rules: Vec::new(),
            query_rules: Vec::new(),
        };
        // After all other keys: those would seem unknown beside a faulty rule.
        for rule in read? {
            match rule {
                Rule::Route(rule) => cache.rules.push(rule),
                Rule::Query(rule) => cache.query_rules.push(rule),
            }
        }
        Some(cache)
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("cache");
        printer.set("max_size", text(size_text(self.max_size)));
        printer.set("max_object", text(size_text(self.max_object)));
        printer.set("spool_max", text(size_text(self.spool_max)));
        printer.set("spool_keep", text(size_text(self.spool_keep)));
        let folder = self.spool_folder.as_ref();
        printer.set_some("spool_folder", folder.map(|folder| text(folder.display())));
        printer.set("freshness", text(self.freshness.name()));
        printer.set("revalidate_at_most", text(duration_text(self.revalidate_at_most)));
        printer.set("stale_if_limited", text(duration_text(self.stale_if_limited)));
        printer.set("stale_if_error", text(duration_text(self.stale_if_error)));
        printer.set("predicted_etags", self.predicted_etags);
        printer.set_some("snapshot", self.snapshot.as_ref().map(|path| text(path.display())));
        printer.set("snapshot_interval", text(duration_text(self.snapshot_interval)));
        for rule in &self.rules {
            printer.entry("cache.rules");
            printer.set("route", text(&rule.route));
            for (key, ttl) in [("ttl", rule.ttl), ("webhook_ttl", rule.webhook_ttl)] {
                printer.set_some(key, ttl.map(|ttl| text(duration_text(ttl))));
            }
        }
        for rule in &self.query_rules {
            printer.entry("cache.rules");
            printer.set("graphql", text(rule.operation.as_deref().unwrap_or(EVERY_QUERY)));
            printer.set("ttl", text(duration_text(rule.ttl)));
        }
    }
}

impl QueryRule {
    /// Reads an entry after those with `earlier` operations.
    fn read(reader: &mut Reader<'_>, earlier: &mut Vec<Option<Arc<str>>>) -> Option<Self> {
        let written = reader.optional::<Arc<str>>("graphql");
        if reader.entry("route").is_some() {
            let problem = "not beside graphql, which names queries of any path";
            reader.refuse::<()>("route", problem, "route or graphql");
        }
        if reader.entry("webhook_ttl").is_some() {
            let problem = "no webhook tells of all changes of a query's answer";
            reader.refuse::<()>("webhook_ttl", problem, "ttl alone");
        }
        let ttl = reader.required("ttl");
        let written = written?;
        let accepted = "the name of an operation, such as \"OpenIssues\", or \"*\" for every query";
        if *written != *EVERY_QUERY && !is_name(&written) {
            let problem = format!("no name of an operation: {}", quoted(&written));
            return reader.refuse("graphql", problem, accepted);
        }
        let operation = (*written != *EVERY_QUERY).then_some(written);
        if earlier.contains(&operation) || earlier.contains(&None) {
            let problem = "never applies: an earlier rule matches first";
            return reader.refuse("graphql", problem, "each operation once, and \"*\" last");
        }
        earlier.push(operation.clone());
        Some(Self { operation, ttl: ttl? })
    }

    /// Returns true for a query whose only possible operation has this name.
    pub fn covers(&self, operation: Option<&str>) -> bool {
        self.operation.is_none() || self.operation.as_deref() == operation
    }
}

/// A name of GraphQL (GraphQL, section 2.1.9).
fn is_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_letter) && text.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

impl CacheRule {
    fn read(
        reader: &mut Reader<'_>,
        dialect: Option<Dialect>,
        routes: &mut HashSet<Arc<str>>,
    ) -> Option<Self> {
        // A known key, of the other kind of rule.
        _ = reader.entry("graphql");
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
