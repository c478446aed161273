//! Lines of other programs' access logs: the common and the combined format of nginx and Apache,
//! HAProxy's HTTP format, Envoy's default format, JSON with the field names in use, and CSV with a
//! heading (SPECIFICATION, "Recorded logs").
//!
//! Each has a time, a method and a path, which may have a query. A client is a user if the line
//! names one, else an address.

use std::borrow::Cow;

use serde_json::{Map, Value};
use time::format_description::FormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

/// A request of another program's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its begin, in nanoseconds since the epoch.
    pub began: i128,
    pub client: String,
    pub method: String,
    /// Path and query.
    pub path: String,
    pub status: u16,
}

/// The columns of a CSV log.
#[derive(Clone, Debug, Default)]
pub struct Columns(Vec<String>);

const COMMON_TIME: &[FormatItem<'_>] = format_description!(
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
);
const HAPROXY_TIME: &[FormatItem<'_>] = format_description!(
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second].[subsecond digits:3]"
);

/// Names of the fields of JSON logs, the more exact first.
const TIMES: [&str; 11] = [
    "start_time",
    "time_iso8601",
    "@timestamp",
    "timestamp",
    "time",
    "ts",
    "time_local",
    "msec",
    "created_at",
    "datetime",
    "date",
];
const METHODS: [&str; 4] = ["request_method", "method", "http_method", "verb"];
const PATHS: [&str; 8] =
    ["request_uri", "path", "uri", "url_path", "url", "request_path", "http_path", "url-path"];
const QUERIES: [&str; 3] = ["query_string", "args", "query"];
const REQUESTS: [&str; 2] = ["request", "http_request"];
const STATUSES: [&str; 5] =
    ["status", "response_code", "status_code", "http_status", "response_status"];
const CLIENTS: [&str; 12] = [
    "client",
    "actor",
    "user",
    "remote_user",
    "x_forwarded_for",
    "xff",
    "remote_addr",
    "client_ip",
    "downstream_remote_address",
    "remote_ip",
    "user_agent",
    "http_user_agent",
];
/// Durations, with the nanoseconds of their unit.
const DURATIONS: [(&str, f64); 6] = [
    ("duration_ms", 1e6),
    ("duration", 1e6),
    ("request_time", 1e9),
    ("response_time", 1e9),
    ("elapsed_ms", 1e6),
    ("latency_ms", 1e6),
];

impl Columns {
    /// Reads the heading of a CSV log; `None` for any other line.
    pub fn of(line: &str) -> Option<Self> {
        let columns: Vec<String> =
            cells(line).into_iter().map(|cell| cell.trim().to_ascii_lowercase()).collect();
        let has = |name: &str| columns.iter().any(|column| column == name);
        (has("time") && has("method") && has("path")).then_some(Self(columns))
    }

    /// Parses a line below the heading.
    pub fn parse(&self, line: &str) -> Result<Foreign, String> {
        let cells = cells(line);
        if cells.len() != self.0.len() {
            return Err(format!("{} columns instead of {}", cells.len(), self.0.len()));
        }
        let fields = self.0.iter().cloned().zip(cells).map(|(name, cell)| (name, cell.into()));
        of_json(&fields.collect())
    }
}

/// Splits a line of CSV (RFC 4180 §2), without line breaks in cells.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            _ => cell.push(character),
        }
    }
    cells.push(cell);
    cells
}

/// Parses a line of text.
pub fn of_text(line: &str) -> Result<Foreign, String> {
    let unknown = "neither JSON nor a line of nginx, Apache, HAProxy or Envoy";
    if line.starts_with('[') {
        return envoy(line).ok_or_else(|| unknown.to_owned());
    }
    haproxy(line).or_else(|| common(line)).ok_or_else(|| unknown.to_owned())
}

/// The common or the combined format: `ADDRESS IDENTITY USER [TIME] "REQUEST" STATUS BYTES …`.
fn common(line: &str) -> Option<Foreign> {
    let (before, rest) = line.split_once(" [")?;
    let (time, rest) = rest.split_once(']')?;
    let mut before = before.split(' ');
    let (address, _, user) = (before.next()?, before.next()?, before.next()?);
    let (request, rest) = quoted(rest.trim_start())?;
    let (method, path) = request_line(request)?;
    let status = rest.trim_start().split(' ').next()?.parse().ok()?;
    let time = OffsetDateTime::parse(time, COMMON_TIME).ok()?;
    let client = if user == "-" || user.is_empty() { address } else { user };
    Some(Foreign {
        began: time.unix_timestamp_nanos(),
        client: client.into(),
        method,
        path,
        status,
    })
}

/// HAProxy's HTTP format, with or without a syslog header: `… ADDRESS:PORT [TIME] FRONTEND
/// BACKEND/SERVER TIMERS STATUS BYTES … "REQUEST"`. Its time is that of the begin.
fn haproxy(line: &str) -> Option<Foreign> {
    let (before, rest) = line.split_once(" [").and_then(|split| {
        // A syslog header may have brackets too: `haproxy[14389]:` has no space before them.
        Some(split).filter(|(before, _)| before.contains(':'))
    })?;
    let address = before.rsplit(' ').next()?;
    let (client, _port) = address.rsplit_once(':')?;
    let (time, rest) = rest.split_once("] ")?;
    let time = PrimitiveDateTime::parse(time, HAPROXY_TIME).ok()?.assume_utc();
    let mut words = rest.split(' ');
    let timers = words.nth(2)?;
    if timers.split('/').count() < 4 {
        return None;
    }
    let status = words.next()?.parse().ok()?;
    let (method, path) = request_line(rest.rsplit('"').nth(1)?)?;
    Some(Foreign {
        began: time.unix_timestamp_nanos(),
        client: client.into(),
        method,
        path,
        status,
    })
}

/// Envoy's default format: `[START] "REQUEST" STATUS FLAGS …`, with the forwarded address and the
/// agent as quoted words.
fn envoy(line: &str) -> Option<Foreign> {
    let (time, rest) = line.strip_prefix('[')?.split_once(']')?;
    let time = OffsetDateTime::parse(time, &Rfc3339).ok()?;
    let (request, rest) = quoted(rest.trim_start())?;
    let (method, path) = request_line(request)?;
    let status = rest.trim_start().split(' ').next()?.parse().ok()?;
    let mut words = rest.split('"').skip(1).step_by(2).filter(|word| !matches!(*word, "-" | ""));
    let client = words.next().unwrap_or("unknown");
    let client = client.split(',').next().unwrap_or(client).trim();
    Some(Foreign {
        began: time.unix_timestamp_nanos(),
        client: client.into(),
        method,
        path,
        status,
    })
}

/// The first quoted word, and the rest behind it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('"')?.split_once('"')
}

/// Splits `GET /path HTTP/1.1`.
fn request_line(line: &str) -> Option<(String, String)> {
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    words.next().filter(|version| version.starts_with("HTTP/"))?;
    Some((method.to_owned(), target.to_owned()))
}

/// Parses an object of a JSON log.
pub fn of_json(fields: &Map<String, Value>) -> Result<Foreign, String> {
    let request = first(fields, &REQUESTS).and_then(|line| request_line(&line));
    let (method, path) = if let Some(request) = request {
        request
    } else {
        let method = first(fields, &METHODS).ok_or("no method")?;
        let path = first(fields, &PATHS).ok_or("no path")?;
        (method.into_owned(), path.into_owned())
    };
    let query = first(fields, &QUERIES).filter(|_| !path.contains('?'));
    let path = match query.as_deref().map(|query| query.trim_start_matches('?')) {
        Some(query) if !query.is_empty() => format!("{path}?{query}"),
        _ => path,
    };
    let (name, written) =
        TIMES.iter().find_map(|name| Some((*name, text(fields.get(*name)?)?))).ok_or("no time")?;
    let time = moment(&written).ok_or_else(|| format!("its `{name}` is no time"))?;
    // Only a name of the begin is one; all others are written at the end.
    let lasted = if name == "start_time" { 0 } else { duration(fields)? };
    let status = first(fields, &STATUSES).and_then(|status| status.parse().ok()).unwrap_or(0);
    let client = CLIENTS.iter().find_map(|name| {
        let found = text(fields.get(*name)?)?;
        let found = found.split(',').next().unwrap_or_default().trim();
        (!matches!(found, "" | "-")).then(|| found.to_owned())
    });
    let client = client.unwrap_or_else(|| "unknown".to_owned());
    Ok(Foreign { began: time - lasted, client, method, path, status })
}

fn first<'f>(fields: &'f Map<String, Value>, names: &[&str]) -> Option<Cow<'f, str>> {
    names.iter().find_map(|name| text(fields.get(*name)?))
}

fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

/// Nanoseconds that a request lasted; 0 if the line does not say.
fn duration(fields: &Map<String, Value>) -> Result<i128, String> {
    for (name, unit) in DURATIONS {
        let Some(written) = fields.get(name).and_then(text) else { continue };
        let Ok(amount) = written.parse::<f64>() else { continue };
        if !(0.0..1e9).contains(&amount) {
            return Err(format!("its `{name}` is no duration"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
        return Ok((amount * unit) as i128);
    }
    Ok(0)
}

/// A time in RFC 3339, in the common format, or in seconds or milliseconds since the epoch.
fn moment(text: &str) -> Option<i128> {
    if let Ok(number) = text.parse::<f64>() {
        // Milliseconds since 2001 are more than seconds until 5138.
        let seconds = if number >= 1e11 { number / 1e3 } else { number };
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the range below")]
        return (0.0..1e11).contains(&seconds).then_some((seconds * 1e9) as i128);
    }
    let time = OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| OffsetDateTime::parse(text, COMMON_TIME))
        .ok()?;
    Some(time.unix_timestamp_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-07-01T10:00:00Z.
    const TEN: i128 = 1_782_900_000_000_000_000;

    fn foreign(client: &str, method: &str, path: &str, status: u16) -> Foreign {
        Foreign {
            began: TEN,
            client: client.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            status,
        }
    }

    #[test]
    fn the_formats_of_common_programs_are_read() {
        let combined = r#"10.0.0.7 - ci [01/Jul/2026:12:00:00 +0200] "GET /repos/a/b?page=2 HTTP/1.1" 200 512 "-" "octokit/1""#;
        assert_eq!(of_text(combined), Ok(foreign("ci", "GET", "/repos/a/b?page=2", 200)));
        let common = r#"10.0.0.7 - - [01/Jul/2026:10:00:00 +0000] "POST /graphql HTTP/2.0" 502 0"#;
        assert_eq!(of_text(common), Ok(foreign("10.0.0.7", "POST", "/graphql", 502)));
        let haproxy = r#"Jul  1 10:00:00 lb haproxy[14389]: 10.0.0.7:33317 [01/Jul/2026:10:00:00.000] api github/s1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {ci} {} "GET /user HTTP/1.1""#;
        assert_eq!(of_text(haproxy), Ok(foreign("10.0.0.7", "GET", "/user", 200)));
        let envoy = r#"[2026-07-01T10:00:00.000Z] "GET /user HTTP/2" 200 - 0 226 100 98 "10.0.0.7, 10.1.1.1" "bot/2" "cc21" "api" "10.0.2.1:443""#;
        assert_eq!(of_text(envoy), Ok(foreign("10.0.0.7", "GET", "/user", 200)));
    }

    #[test]
    fn json_is_read_by_the_names_that_programs_use() {
        for (line, expected) in [
            (
                r#"{"time_iso8601":"2026-07-01T10:00:01+00:00","request":"GET /user HTTP/1.1","status":"200","remote_user":"ci","remote_addr":"10.0.0.7","request_time":"1.000"}"#,
                foreign("ci", "GET", "/user", 200),
            ),
            (
                r#"{"msec":"1782900000.000","request_method":"GET","request_uri":"/user?a=1","status":304,"remote_user":"","remote_addr":"10.0.0.7"}"#,
                foreign("10.0.0.7", "GET", "/user?a=1", 304),
            ),
            (
                r#"{"start_time":"2026-07-01T10:00:00.000Z","method":"GET","path":"/user","response_code":200,"duration":55,"x_forwarded_for":"10.0.0.7"}"#,
                foreign("10.0.0.7", "GET", "/user", 200),
            ),
            (
                r#"{"@timestamp":1782900000000,"action":"api.request","actor":"ci-bot","request_method":"GET","url_path":"/user","query_string":"?a=1","status_code":200}"#,
                foreign("ci-bot", "GET", "/user?a=1", 200),
            ),
        ] {
            assert_eq!(of_json(&serde_json::from_str(line).unwrap()), Ok(expected), "{line}");
        }
        for (line, problem) in [
            (r#"{"time":"now","method":"GET","path":"/"}"#, "its `time` is no time"),
            (r#"{"time":1,"path":"/"}"#, "no method"),
            (r#"{"time":1,"method":"GET"}"#, "no path"),
            (r#"{"method":"GET","path":"/"}"#, "no time"),
            (
                r#"{"time":1,"method":"GET","path":"/","duration_ms":-1}"#,
                "its `duration_ms` is no duration",
            ),
        ] {
            let found = of_json(&serde_json::from_str(line).unwrap());
            assert_eq!(found, Err(problem.to_owned()), "{line}");
        }
    }

    #[test]
    fn csv_has_a_heading() {
        let columns = Columns::of("time,client,method,path,status").unwrap();
        let line = r#"2026-07-01T10:00:00Z,"ci, the first",GET,"/search/code?q=""a""",200"#;
        let expected = foreign("ci", "GET", "/search/code?q=\"a\"", 200);
        assert_eq!(columns.parse(line), Ok(expected));
        assert_eq!(columns.parse("1,2"), Err("2 columns instead of 5".to_owned()));
        assert!(Columns::of("when,who,what").is_none());
        assert!(
            Columns::of(r#"10.0.0.7 - - [01/Jul/2026:10:00:00 +0000] "GET / HTTP/1.1" 2"#)
                .is_none()
        );
    }

    #[test]
    fn a_line_of_no_known_format_is_refused() {
        for line in [
            "",
            "hello",
            "[",
            "a - - [x] \"GET / HTTP/1.1\" 200 0",
            "a - - [01/Jul/2026:10:00:00 +0000] \"GET /\" 200 0",
            "a - - [01/Jul/2026:10:00:00 +0000] \"GET / HTTP/1.1\" abc 0",
        ] {
            assert!(of_text(line).is_err(), "{line}");
        }
    }
}
