//! `weir requests`: the last requests of a running gateway.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::api::{AdminApi, Fault, GatewayOptions, WatchOptions};
use super::table::table;
use super::{paint, plain};
use crate::admin::requests::{FinishedRequest, LISTED_MAX, RequestList};
use crate::cli::counted;

#[derive(Args)]
pub struct Requests {
    /// Only those of this client
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Only those that this account sent or held
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Only those of this route template
    #[arg(long, value_name = "TEMPLATE")]
    endpoint: Option<String>,
    /// Only those with this status, such as 403 or 5xx
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only those that the gateway refused, for this reason or for any
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "any")]
    refusal: Option<String>,
    /// Only those that took so long, such as 2s
    #[arg(long, value_name = "DURATION")]
    slower: Option<String>,
    /// Only those that waited in the gateway for so long
    #[arg(long, value_name = "DURATION")]
    waited: Option<String>,
    /// Most of them
    #[arg(long, value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=LISTED_MAX as u64))]
    limit: u64,
    #[command(flatten)]
    watch: WatchOptions,
    #[command(flatten)]
    options: GatewayOptions,
}

impl Requests {
    pub fn run(self) -> ExitCode {
        let path = self.path();
        let GatewayOptions { gateway, json } = self.options;
        gateway.run_watched("weir requests", self.watch, &async |api| fetch(api, &path, json).await)
    }

    fn path(&self) -> String {
        let mut path = format!("/api/requests?limit={}", self.limit);
        for (name, value) in [
            ("client", &self.client),
            ("account", &self.account),
            ("endpoint", &self.endpoint),
            ("status", &self.status),
            ("refusal", &self.refusal),
            ("slower", &self.slower),
            ("waited", &self.waited),
        ] {
            if let Some(value) = value {
                let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
                // Writing to a string cannot fail.
                let _ = write!(path, "&{name}={value}");
            }
        }
        path
    }
}

async fn fetch(api: &AdminApi, path: &str, json: bool) -> Result<String, Fault> {
    let body = api.get(path).await?;
    api.printed(&body, json, "its answer is not about requests", render)
}

fn render(answer: &RequestList) -> String {
    let mut text = String::new();
    let heading = [
        "finished",
        "client",
        "method",
        "path",
        "status",
        "cache",
        "took",
        "waited",
        "held by",
        "request id",
    ];
    let rows = answer.requests.iter().map(|request| {
        [
            plain(time_of_day(&request.finished_at)),
            plain(request.client.as_deref().unwrap_or("-")),
            plain(&request.method),
            plain(&request.path),
            status(request.status),
            plain(&request.cache),
            seconds(request.duration_ms),
            seconds(request.queue_ms),
            plain(cause(request)),
            plain(&request.request_id),
        ]
    });
    table(heading, &(6..8), rows, &mut text);
    let shown = counted(answer.requests.len() as u64, "request");
    let _ = writeln!(
        text,
        "\n{shown} of {} that are kept; `weir explain REQUEST_ID` tells the story of one",
        answer.kept
    );
    text
}

fn status(status: u16) -> String {
    let text = status.to_string();
    match status {
        500.. => paint::bad(&text),
        400.. => paint::warning(&text),
        _ => text,
    }
}

/// The cause of a refusal or a wait.
fn cause(request: &FinishedRequest) -> &str {
    let refusal = request.refusal.as_deref();
    refusal.or(request.held.by.as_deref()).or(request.shadowed_by.as_deref()).unwrap_or("-")
}

/// The time of an RFC 3339 text.
fn time_of_day(text: &str) -> &str {
    text.split_once('T').map_or(text, |(_, time)| time)
}

/// Formats milliseconds as seconds.
pub fn seconds(millis: f64) -> String {
    format!("{:.3} s", millis / 1_000.0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        requests: Requests,
    }

    #[test]
    fn options_become_the_query() {
        let line = |arguments: &[&str]| {
            let all = std::iter::once(&"weir").chain(arguments);
            Line::try_parse_from(all).unwrap().requests.path()
        };
        assert_eq!(line(&[]), "/api/requests?limit=30");
        assert_eq!(
            line(&["--client", "a b", "--refusal", "--slower", "2s", "--limit", "5"]),
            "/api/requests?limit=5&client=a%20b&refusal=any&slower=2s"
        );
        assert_eq!(line(&["--refusal", "spacing"]), "/api/requests?limit=30&refusal=spacing");
    }
}
