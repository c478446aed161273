//! A recorded access log: the requests of the clients, and what the upstream was asked for.
//!
//! The log is the gateway's own in JSON (`log`), or that of another program (`foreign`). A line of
//! the own one is written at the end of a request, which began `duration_ms` before its `time`. It
//! has no queries and no bodies; `cache_key` tells apart the answers that were asked for. Other
//! records are skipped; unreadable lines are counted, and the first are kept.

mod foreign;
mod scaled;

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use foreign::{Columns, Foreign};

/// Longest line: the log cuts its fields far shorter.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Most requests of one log: some gigabytes of it.
const REQUESTS_MAX: usize = 5_000_000;
/// Most bad lines kept.
const SHOWN_MAX: usize = 5;
/// Time after the last request for its answer.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// The requests of a log.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// In the order of their times.
    pub requests: Vec<Recorded>,
    /// Names of the clients in the order of their first requests.
    pub clients: Vec<Arc<str>>,
    /// Lines that record no request.
    pub others: usize,
    /// Requests that never went upstream: without an accepted key, or at an address of the gateway
    /// itself.
    pub free: usize,
    /// Unreadable lines, plus requests beyond the maximum.
    pub bad: usize,
    /// The first of them: line number from 1, and problem.
    pub first_bad: Vec<(usize, String)>,
    /// Places of the clients, by name.
    places: HashMap<Arc<str>, usize>,
    requests_taken: usize,
}

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Time since the first request.
    pub after: Duration,
    /// Index of its client in [`Trace::clients`].
    pub client: usize,
    /// Method as logged.
    pub method: Method,
    /// Path without a query, which the log lacks.
    pub path: String,
    /// Status of the answer; 0 if there was none.
    pub status: u16,
    /// The answer that the upstream was asked for.
    pub asked_for: Option<Box<AskedFor>>,
    /// True if another program logged it, which has no cache of the gateway's.
    pub is_foreign: bool,
}

/// An answer that the upstream was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedFor {
    /// Route template.
    pub endpoint: String,
    /// Number that stands for its key; older gateways logged none.
    pub key: Option<u64>,
    /// Name of a GraphQL query's operation.
    pub operation: Option<Arc<str>>,
    /// Units spent.
    pub cost: u32,
    /// Result of the fetch.
    pub found: LoggedFetch,
}

/// Result of a fetch, by its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedFetch {
    /// Fetched and stored.
    New,
    /// The stored answer was still right.
    Unchanged,
    /// Another answer than the stored one.
    Changed,
    /// The answer of a GraphQL query, which no rule stores.
    Query,
}

#[derive(Deserialize)]
struct LogLine {
    time: String,
    message: Option<String>,
    client: Option<String>,
    method: Option<String>,
    path: Option<String>,
    duration_ms: Option<f64>,
    status: Option<u16>,
    endpoint: Option<String>,
    cache: Option<String>,
    cache_key: Option<String>,
    operation: Option<String>,
    cost: Option<u32>,
}

/// A readable line of a log.
enum Line {
    /// A request with its time in nanoseconds since the epoch.
    Request(i128, Recorded),
    /// A request that never went upstream.
    Free,
    /// Another record.
    Other,
}

impl Trace {
    /// Reads a log.
    ///
    /// # Errors
    /// An unreadable file. A bad line is no error.
    pub fn read(mut log: impl BufRead) -> io::Result<Self> {
        let mut trace = Self::default();
        let mut times = Vec::new();
        let (mut line, mut number, mut columns) = (Vec::new(), 0, None);
        loop {
            line.clear();
            let read = io::Read::take(&mut log, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            number += 1;
            if line.last() != Some(&b'\n') && read as u64 == LINE_BYTES_MAX {
                log.skip_until(b'\n')?;
                trace.note(number, "it is longer than any line of the log".to_owned());
                continue;
            }
            if number == 1 {
                columns = str::from_utf8(&line).ok().and_then(|line| Columns::of(line.trim_end()));
                if columns.is_some() {
                    continue;
                }
            }
            match trace.take(&line, columns.as_ref()) {
                Ok(Line::Request(at, recorded)) => times.push((at, recorded)),
                Ok(Line::Free) => trace.free += 1,
                Ok(Line::Other) => trace.others += 1,
                Err(problem) => trace.note(number, problem),
            }
        }
        times.sort_by_key(|(at, _)| *at);
        let first = times.first().map_or(0, |(at, _)| *at);
        let since =
            |at: i128| Duration::from_millis(u64::try_from((at - first) / 1_000_000).unwrap_or(0));
        let placed = |(at, recorded)| Recorded { after: since(at), ..recorded };
        trace.requests = times.into_iter().map(placed).collect();
        Ok(trace)
    }

    /// Returns the time from the first request until a minute after the last.
    pub fn length(&self) -> Duration {
        self.requests.last().map_or(Duration::ZERO, |last| last.after) + AFTERWARDS
    }

    /// Parses a line.
    fn take(&mut self, line: &[u8], columns: Option<&Columns>) -> Result<Line, String> {
        let line = str::from_utf8(line).map_err(|_| "not UTF-8")?.trim();
        if line.is_empty() {
            return Ok(Line::Other);
        }
        if let Some(columns) = columns {
            return self.take_foreign(columns.parse(line)?);
        }
        if !line.starts_with('{') {
            return self.take_foreign(foreign::of_text(line).map_err(|fault| reason(line, fault))?);
        }
        let fields: Map<String, Value> =
            serde_json::from_str(line).map_err(|_| "not a JSON object")?;
        let message = fields.get("message").and_then(Value::as_str);
        let foreign = foreign::of_json(&fields);
        let is_own = message == Some("request") || fields.contains_key("level");
        if message.is_some() && (is_own || foreign.is_err()) {
            self.take_own(fields)
        } else {
            self.take_foreign(foreign?)
        }
    }

    /// Takes a line of another program.
    fn take_foreign(&mut self, line: Foreign) -> Result<Line, String> {
        let Foreign { began, client, method, path, status } = line;
        let method: Method = method.parse().map_err(|_| "no method")?;
        // They are for the program itself.
        if matches!(method, Method::CONNECT | Method::OPTIONS | Method::TRACE) {
            return Ok(Line::Other);
        }
        let path = below_the_host(&path);
        if !path.starts_with('/') || path.parse::<http::Uri>().is_err() {
            return Err("no path".to_owned());
        }
        if path == "/rate_limit" {
            return Ok(Line::Free);
        }
        let (client, path) = (self.place_of(&client)?, path.to_owned());
        let after = Duration::ZERO;
        let recorded =
            Recorded { after, client, method, path, status, asked_for: None, is_foreign: true };
        Ok(Line::Request(began, recorded))
    }

    /// Returns the place of a client.
    fn place_of(&mut self, client: &str) -> Result<usize, String> {
        if self.requests_taken >= REQUESTS_MAX {
            return Err("there are too many requests before it".to_owned());
        }
        self.requests_taken += 1;
        if let Some(place) = self.places.get(client) {
            return Ok(*place);
        }
        let (place, name) = (self.clients.len(), Arc::<str>::from(client));
        self.clients.push(Arc::clone(&name));
        self.places.insert(name, place);
        Ok(place)
    }

    /// Takes a line of the gateway.
    fn take_own(&mut self, fields: Map<String, Value>) -> Result<Line, String> {
        let mut line: LogLine = serde_json::from_value(Value::Object(fields))
            .map_err(|_| "it is JSON, but its fields are not those of the gateway's log")?;
        if line.message.as_deref() != Some("request") {
            return Ok(Line::Other);
        }
        // Without an accepted key no request went upstream.
        let Some(client) = line.client.take() else { return Ok(Line::Free) };
        let path = line
            .path
            .take()
            .filter(|path| path.starts_with('/') && path.parse::<http::Uri>().is_ok())
            .ok_or("no path")?;
        // The gateway's own answers cost nothing.
        if path.starts_with("/_weir/") || path == "/rate_limit" {
            return Ok(Line::Free);
        }
        let method = line
            .method
            .as_ref()
            .and_then(|method| method.parse::<Method>().ok())
            .ok_or("no method")?;
        let time =
            OffsetDateTime::parse(&line.time, &Rfc3339).map_err(|_| "its time is not RFC 3339")?;
        let asked_for = AskedFor::of(&line).map(Box::new);
        let lasted = line.duration_ms.unwrap_or(0.0);
        if !(0.0..1e9).contains(&lasted) {
            return Err("its duration_ms is not a duration".to_owned());
        }
        #[expect(clippy::cast_possible_truncation, reason = "below 1e15 after the bounds above")]
        let lasted = (lasted * 1e6) as i128;
        let place = self.place_of(&client)?;
        Ok(Line::Request(
            time.unix_timestamp_nanos() - lasted,
            Recorded {
                after: Duration::ZERO,
                client: place,
                method,
                path,
                status: line.status.unwrap_or_default(),
                asked_for,
                is_foreign: false,
            },
        ))
    }

    fn note(&mut self, line: usize, problem: String) {
        self.bad += 1;
        if self.first_bad.len() < SHOWN_MAX {
            self.first_bad.push((line, problem));
        }
    }
}

impl AskedFor {
    /// Reads the answer that a request had the upstream asked for; `None` for a hit, a waiter of
    /// another request's fetch, an answer that may not be stored, and a write.
    fn of(line: &LogLine) -> Option<Self> {
        let key = line.cache_key.as_deref().and_then(|key| u64::from_str_radix(key, 16).ok());
        let is_read = matches!(line.method.as_deref(), Some("GET" | "HEAD"));
        let found = match line.cache.as_deref()? {
            "stored" | "empty_list" if is_read => LoggedFetch::New,
            "revalidated" if is_read => LoggedFetch::Unchanged,
            "changed" if is_read => LoggedFetch::Changed,
            "bypass" if key.is_some() && !is_read => LoggedFetch::Query,
            _ => return None,
        };
        Some(Self {
            endpoint: line.endpoint.clone()?,
            key,
            operation: line.operation.as_deref().map(Into::into),
            cost: line.cost.unwrap_or_default(),
            found,
        })
    }
}

/// Returns the reason why a line of text is not readable.
fn reason(line: &str, otherwise: String) -> String {
    // The year of a line of the gateway's own text log.
    let has_year = line.len() > 5
        && line.bytes().take(4).all(|byte| byte.is_ascii_digit())
        && line.as_bytes()[4] == b'-';
    if has_year {
        "not JSON: the gateway writes it with `log = \"json\"` in [telemetry]".to_owned()
    } else {
        otherwise
    }
}

/// Removes scheme, host and the prefix of a self-hosted service.
fn below_the_host(path: &str) -> &str {
    let after_scheme = path.split_once("://").map(|(_, rest)| rest);
    let path = after_scheme.map_or(path, |rest| rest.find('/').map_or("/", |slash| &rest[slash..]));
    match path.strip_prefix("/api/v3") {
        Some(rest) if rest.starts_with('/') => rest,
        _ if path == "/api/graphql" => "/graphql",
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Trace {
        Trace::read(text.as_bytes()).unwrap()
    }

    const FIRST: &str = r#"{"time":"2026-07-01T10:00:05.000000Z","level":"INFO","message":"request","client":"ci","method":"GET","path":"/repos/a/b","duration_ms":2000.0}"#;
    const SECOND: &str = r#"{"time":"2026-07-01T10:00:04.500000Z","level":"INFO","message":"request","client":"scan","method":"POST","path":"/graphql","duration_ms":500.0}"#;

    #[test]
    fn requests_are_replayed_at_their_start_times() {
        let trace = read(&format!("{FIRST}\n{SECOND}\n"));
        let seen: Vec<_> = trace
            .requests
            .iter()
            .map(|one| (one.after.as_millis(), one.client, one.path.as_str()))
            .collect();
        assert_eq!(seen, [(0, 0, "/repos/a/b"), (1_000, 1, "/graphql")]);
        assert_eq!(trace.clients.iter().map(|name| &**name).collect::<Vec<_>>(), ["ci", "scan"]);
        assert_eq!(trace.length(), Duration::from_secs(61));
    }

    #[test]
    fn bad_lines_are_counted_and_skipped() {
        let long = "x".repeat(200_000);
        let other = r#"{"time":"2026-07-01T10:00:00Z","level":"INFO","message":"listening"}"#;
        let timeless = FIRST.replace("2026-07-01T10", "yesterday");
        let text = format!("\u{feff}{{\n{FIRST}\n{long}\n{other}\n\n{timeless}\n[1]\n{SECOND}");
        let trace = read(&text);
        assert_eq!((trace.requests.len(), trace.bad, trace.others), (2, 4, 2));
        assert_eq!(trace.first_bad.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 6, 7]);
    }

    #[test]
    fn logs_of_other_programs_are_read_too() {
        let text = r#"10.0.0.7 - ci [01/Jul/2026:10:00:00 +0000] "GET /api/v3/repos/a/b HTTP/1.1" 200 5 "-" "-"
10.0.0.8 - - [01/Jul/2026:10:00:03 +0000] "GET https://api.example.com/user HTTP/1.1" 200 5 "-" "-"
10.0.0.8 - - [01/Jul/2026:10:00:04 +0000] "OPTIONS / HTTP/1.1" 200 5 "-" "-"
10.0.0.8 - - [01/Jul/2026:10:00:05 +0000] "GET /rate_limit HTTP/1.1" 200 5 "-" "-"
{"msec":1782900006,"request":"POST /api/graphql HTTP/1.1","status":200,"remote_user":"ci"}
"#;
        let trace = read(text);
        let seen: Vec<_> = trace
            .requests
            .iter()
            .map(|one| (one.after.as_secs(), &*trace.clients[one.client], one.path.as_str()))
            .collect();
        assert_eq!(
            seen,
            [(0, "ci", "/repos/a/b"), (3, "10.0.0.8", "/user"), (6, "ci", "/graphql")]
        );
        assert_eq!((trace.bad, trace.others, trace.free), (0, 1, 1));
        let csv = "time,client,method,path\n2026-07-01T10:00:00Z,ci,GET,/user\n\nx,ci,GET,/user\n";
        let trace = read(csv);
        assert_eq!((trace.requests.len(), trace.bad), (1, 1));
        assert_eq!(trace.first_bad, [(4, "its `time` is no time".to_owned())]);
    }

    #[test]
    fn an_unreadable_line_has_a_reason_in_plain_words() {
        for (line, reason) in [
            ("{", "not a JSON object"),
            ("[1]", "neither JSON nor a line of nginx"),
            ("2026-07-01T10:00:05Z INFO weir request", "not JSON: the gateway writes it with `log"),
            (
                r#"{"time":5,"level":"INFO","message":"request"}"#,
                "its fields are not those of the gateway's log",
            ),
            (&FIRST.replace("2000.0", "-1"), "its duration_ms is not a duration"),
            (&FIRST.replace("/repos", "repos"), "no path"),
        ] {
            let trace = read(line);
            let [(1, problem)] = trace.first_bad.as_slice() else { panic!("{line}: {trace:?}") };
            assert!(problem.contains(reason) && !problem.contains("column"), "{line}: {problem}");
        }
    }

    #[test]
    fn an_answer_that_was_asked_for_has_its_key_and_cost() {
        let line =
            |fields: &str| FIRST.replace(r#""duration_ms""#, &format!("{fields},\"duration_ms\""));
        let endpoint = r#""status":200,"endpoint":"/repos/{owner}/{repo}""#;
        let text = [
            line(&format!(
                r#"{endpoint},"cache":"changed","cache_key":"00000000000000ff","cost":1"#
            )),
            line(&format!(r#"{endpoint},"cache":"hit""#)),
            line(&format!(r#"{endpoint},"cache":"revalidated""#)),
        ];
        let trace = read(&text.join("\n"));
        let asked_for: Vec<_> = trace
            .requests
            .iter()
            .map(|one| one.asked_for.as_ref().map(|asked| (asked.key, asked.cost, asked.found)))
            .collect();
        assert_eq!(
            asked_for,
            [
                Some((Some(255), 1, LoggedFetch::Changed)),
                None,
                Some((None, 0, LoggedFetch::Unchanged))
            ]
        );
        assert_eq!(trace.requests[0].status, 200);
    }

    #[test]
    fn requests_that_never_went_upstream_are_counted_apart() {
        let keyless = FIRST.replace(r#""client":"ci","#, "");
        let own = FIRST.replace("/repos/a/b", "/_weir/writes/1");
        let trace = read(&format!("{FIRST}\n{keyless}\n{own}\n"));
        assert_eq!((trace.requests.len(), trace.free, trace.others, trace.bad), (1, 2, 0, 0));
    }

    #[test]
    fn a_file_without_requests_makes_an_empty_trace() {
        assert!(read("").requests.is_empty());
        assert!(Trace::read(&[0xFF, 0xFE, b'\n', 0, 1][..]).unwrap().requests.is_empty());
    }
}
