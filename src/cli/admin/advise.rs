//! `weir cache advise`: the cache rules worth having, asked of a running gateway or computed from a
//! recorded access log.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader};
use std::path::Path;
use std::time::Duration;

use http::Method;

use super::api::{AdminApi, Fault, GatewayOptions};
use crate::admin::advice::{Advice, AdvisedRule};
use crate::api::{Dialect, Table, stale_after_write};
use crate::cli::counted;
use crate::clock::Timestamp;
use crate::config::{self, Config};
use crate::decision::advice::{Advisor, Found, Subject, UpstreamRead};
use crate::gateway::InvalidationLog;
use crate::telemetry::access_log::{AskedFor, LoggedFetch, Recorded, Trace};

/// Begin of a log's time: later than all times that a shadow of an answer has at first.
const BEGINNING: Timestamp = Timestamp::from_secs(1_000_000_000);
/// A confirmation in a log counts for any time: the log has no lifetimes.
const LIFETIME: Duration = Duration::from_hours(1);

/// Takes the advice of the gateway.
pub async fn fetch(api: &AdminApi, json: bool) -> Result<String, Fault> {
    let body = api.get("/api/cache/advice").await?;
    api.printed(&body, json, "its answer is no advice", table)
}

/// Computes the advice from a log, with the rules of the config of `options` if one is named.
pub fn of_log(path: &Path, options: &GatewayOptions) -> Result<String, String> {
    let config = options.gateway.named_config().map(config::load_without_secrets).transpose();
    let config = config.map_err(|faults| faults.to_string())?;
    let trace = read(path)?;
    report(path, &trace);
    let advice = of_trace(&trace, config.as_ref());
    if !options.json {
        return Ok(table(&advice));
    }
    serde_json::to_string(&advice).map(|text| text + "\n").map_err(|fault| fault.to_string())
}

/// Computes the advice from the requests of a log.
pub fn of_trace(trace: &Trace, config: Option<&Config>) -> Advice {
    Advice::of(&replayed(trace, config), config)
}

fn read(path: &Path) -> Result<Trace, String> {
    let failed = |fault: io::Error| format!("{}: cannot be read: {fault}", path.display());
    let trace = Trace::read(BufReader::new(File::open(path).map_err(failed)?)).map_err(failed)?;
    if trace.requests.is_empty() {
        let mut problem =
            format!("{}: no line of it is a request of the gateway's JSON log", path.display());
        if let Some((line, reason)) = trace.first_bad.first() {
            let _ = write!(problem, "; line {line}: {reason}");
        }
        return Err(problem);
    }
    Ok(trace)
}

/// Reports on standard error what the log lacks.
fn report(path: &Path, trace: &Trace) {
    let path = path.display();
    for (line, problem) in &trace.first_bad {
        eprintln!("weir cache advise: {path}:{line}: {problem}");
    }
    if trace.bad > 0 {
        let bad = counted(trace.bad as u64, "line");
        eprintln!("weir cache advise: {path}: {bad} that cannot be read");
    }
    if trace.others > 0 {
        let others = counted(trace.others as u64, "line");
        eprintln!("weir cache advise: {path}: {others} of other records left out");
    }
    let asked_for = trace.requests.iter().filter_map(|request| request.asked_for.as_ref());
    if asked_for.filter(|asked_for| asked_for.key.is_none()).count() > 0 {
        eprintln!(
            "weir cache advise: {path}: lines without a cache_key, of an older gateway: requests that differ only in their queries count as the same"
        );
    }
}

/// Replays the requests of a log. Writes invalidate what they would have invalidated.
fn replayed(trace: &Trace, config: Option<&Config>) -> Advisor {
    let (mut advisor, changes) = (Advisor::default(), InvalidationLog::default());
    let mut foreign = HashMap::new();
    let dialects: &[Dialect] = match config {
        Some(config) => &[config.upstream.dialect],
        None => &[Dialect::Github, Dialect::Service],
    };
    for request in &trace.requests {
        let at = BEGINNING + request.after;
        let path = request.path.split('?').next().unwrap_or_default();
        let is_read = matches!(request.method, Method::GET | Method::HEAD);
        if request.asked_for.is_some() || (request.is_foreign && is_read) {
            let read = match &request.asked_for {
                Some(asked_for) => upstream_read(request, asked_for, dialects, config),
                None => foreign_read(request, path, dialects, config).map(|mut read| {
                    // The gateway revalidates what it has: a 304 is free.
                    let before = foreign.insert(read.key, at);
                    let is_changed = |at| changes.last_change(path, at).is_some();
                    read.cost = u32::from(before.is_none_or(is_changed));
                    read
                }),
            };
            if let Some(read) = read.filter(|_| request.status < 500) {
                advisor.note(&read, |since| changes.last_change(path, since));
            }
        } else if !is_read && !(400..500).contains(&request.status) {
            changes.note(&stale_after_write(&request.method, path), at);
        }
    }
    advisor
}

fn upstream_read(
    request: &Recorded,
    asked_for: &AskedFor,
    dialects: &[Dialect],
    config: Option<&Config>,
) -> Option<UpstreamRead> {
    let subject = if asked_for.found == LoggedFetch::Query {
        Subject::Query(asked_for.operation.clone())
    } else {
        let mut endpoints =
            dialects.iter().flat_map(|dialect| Table::embedded(*dialect).endpoints());
        let endpoint = endpoints.find(|endpoint| endpoint.template == asked_for.endpoint)?;
        let rules = config.map_or(&[][..], |config| &config.cache.rules);
        if rules.iter().any(|rule| *rule.route == *endpoint.template) {
            return None;
        }
        Subject::Route(endpoint.template.as_str())
    };
    let key = asked_for.key.unwrap_or_else(|| key_of(&request.path));
    Some(UpstreamRead {
        subject,
        key,
        at: BEGINNING + request.after,
        cost: asked_for.cost,
        found: match asked_for.found {
            LoggedFetch::New => Found::New,
            // A log does not say if the answer of a query was another one.
            LoggedFetch::Unchanged | LoggedFetch::Query => Found::Unchanged,
            LoggedFetch::Changed => Found::Changed,
        },
        is_forced: false,
        lifetime: Some(LIFETIME).filter(|_| asked_for.found != LoggedFetch::Query),
    })
}

/// The read of a client without this gateway, each of which asks the upstream. The log does not say
/// if the answer was another one.
fn foreign_read(
    request: &Recorded,
    path: &str,
    dialects: &[Dialect],
    config: Option<&Config>,
) -> Option<UpstreamRead> {
    let dialect = dialects.first().filter(|_| (200..400).contains(&request.status))?;
    let route =
        Table::embedded(*dialect).classify(&request.method, path).endpoint.template.as_str();
    if config.is_some_and(|config| config.cache.rules.iter().any(|rule| *rule.route == *route)) {
        return None;
    }
    Some(UpstreamRead {
        subject: Subject::Route(route),
        key: key_of(&request.path),
        at: BEGINNING + request.after,
        cost: 1,
        found: Found::Unchanged,
        is_forced: false,
        lifetime: Some(LIFETIME),
    })
}

fn key_of(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

fn table(advice: &Advice) -> String {
    let mut text = format!(
        "{} sent upstream for reads without a rule in {}, {} spent\n",
        counted(advice.requests, "request"),
        counted(advice.seconds, "second"),
        counted(advice.units, "unit")
    );
    // Writing to a string cannot fail.
    if !advice.paid.is_empty() {
        let _ = writeln!(text, "\n{:>9}  {:>9}  route", "requests", "units");
    }
    for paid in &advice.paid {
        let name = super::visible(&paid.name);
        let _ = writeln!(text, "{:>9}  {:>9}  {name}", paid.requests, paid.units);
    }
    if advice.rules.is_empty() {
        text.push_str("\nno rule is worth having: none would have saved a tenth of its requests\n");
        return text;
    }
    let _ = writeln!(
        text,
        "\nrules worth having, each as if it were alone:\n{:>9}  {:>9}  {:>9}  {:<20}  {:<28}  route",
        "requests", "units", "outdated", "risk", "rule"
    );
    for rule in &advice.rules {
        let _ = writeln!(
            text,
            "{:>9}  {:>9}  {:>9}  {:<20}  {:<28}  {}",
            rule.saved_requests,
            rule.saved_units,
            rule.outdated,
            super::visible(&rule.risk),
            super::visible(&format!("{} = \"{}\"", rule.setting, rule.value)),
            super::visible(&subject_of(rule)),
        );
    }
    let _ = write!(text, "\nfor the config:\n\n{}", advice.toml);
    text
}

pub fn subject_of(rule: &AdvisedRule) -> String {
    match (&rule.route, &rule.graphql) {
        (Some(route), _) => route.clone(),
        (None, Some(name)) => format!("query {name}"),
        (None, None) => "all routes".to_owned(),
    }
}

/// Prints the advice of a log, and returns it as a fault of usage if there is none.
pub fn print_of_log(path: &Path, options: &GatewayOptions) -> std::process::ExitCode {
    use io::Write as _;
    match of_log(path, options) {
        Ok(text) if io::stdout().lock().write_all(text.as_bytes()).is_ok() => {
            std::process::ExitCode::SUCCESS
        }
        Ok(_) => crate::cli::process::FAILED.into(),
        Err(problem) => {
            eprintln!("weir cache advise: {problem}");
            crate::cli::process::BAD_CONFIG.into()
        }
    }
}
