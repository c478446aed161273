//! A recorded access log: the requests of the clients, and what the upstream was asked for.
//!
//! The log is the gateway's own in JSON (`log`). A line is written at the end of a request, which
//! began `duration_ms` before its `time`. The log has no queries and no bodies; `cache_key` tells
//! apart the answers that were asked for. Other records are skipped; unreadable lines are counted,
//! and the first are kept.

use std::io::{self, BufRead};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

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
        let (mut line, mut number) = (Vec::new(), 0);
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
            match trace.take(&line) {
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
    fn take(&mut self, line: &[u8]) -> Result<Line, String> {
        if line.trim_ascii().is_empty() {
            return Ok(Line::Other);
        }
        let mut line: LogLine =
            serde_json::from_slice(line).map_err(|fault| unreadable(line, &fault))?;
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
        if self.requests.len() >= REQUESTS_MAX {
            return Err("there are too many requests before it".to_owned());
        }
        let place = self.clients.iter().position(|known| **known == *client).unwrap_or_else(|| {
            self.clients.push(client.into());
            self.clients.len() - 1
        });
        Ok(Line::Request(
            time.unix_timestamp_nanos() - lasted,
            Recorded {
                after: Duration::ZERO,
                client: place,
                method,
                path,
                status: line.status.unwrap_or_default(),
                asked_for,
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

/// Returns the reason why a line is none of the gateway's JSON log.
fn unreadable(line: &[u8], fault: &serde_json::Error) -> String {
    let line = line.trim_ascii_start();
    let reason = match line.split_first_chunk() {
        // The year of a line of the text log.
        Some(([b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'-'], _)) => {
            "not JSON: the gateway writes it with `log = \"json\"` in [telemetry]"
        }
        _ if line.starts_with(b"{") && fault.is_data() => {
            "it is JSON, but its fields are not those of the gateway's log"
        }
        _ => "not a JSON object",
    };
    reason.to_owned()
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
    fn an_unreadable_line_has_a_reason_in_plain_words() {
        for (line, reason) in [
            ("{", "not a JSON object"),
            ("[1]", "not a JSON object"),
            ("2026-07-01T10:00:05Z INFO weir request", "not JSON: the gateway writes it with `log"),
            (r#"{"time":5}"#, "its fields are not those of the gateway's log"),
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
