//! `weir explain REQUEST_ID`: the story of one request of a running gateway, in words.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::api::{AdminApi, Fault, GatewayOptions};
use super::plain;
use super::requests::seconds;
use crate::admin::requests::{EventShown, FinishedRequest, Held, RequestList, StepShown};
use crate::cli::counted;

/// Stories shown for one id, which a client may use more than once.
const SHOWN_MAX: usize = 10;

#[derive(Args)]
pub struct Explain {
    /// The `X-Request-Id` of the request, from its answer or the log
    request_id: String,
    #[command(flatten)]
    options: GatewayOptions,
}

impl Explain {
    pub fn run(self) -> ExitCode {
        let GatewayOptions { gateway, json } = self.options;
        let id = utf8_percent_encode(&self.request_id, NON_ALPHANUMERIC).to_string();
        gateway.run("weir explain", async |api| fetch(api, &id, json).await)
    }
}

async fn fetch(api: &AdminApi, id: &str, json: bool) -> Result<String, Fault> {
    let body = api.get(&format!("/api/requests/{id}")).await?;
    api.printed(&body, json, "its answer is not about requests", render)
}

fn render(answer: &RequestList) -> String {
    let stories = answer.requests.iter().take(SHOWN_MAX).map(story);
    let mut text = stories.collect::<Vec<_>>().join("\n");
    if answer.requests.len() > 1 {
        let count = answer.requests.len();
        let _ = writeln!(text, "\n{count} requests have this id; the latest came first");
    }
    text
}

fn story(request: &FinishedRequest) -> String {
    let mut text = format!(
        "{} {} of {}: {}, {}, cache {}\n",
        plain(&request.method),
        plain(&request.path),
        plain(request.client.as_deref().unwrap_or("no known client")),
        status(request.status),
        seconds(request.duration_ms),
        plain(&request.cache),
    );
    let _ = writeln!(
        text,
        "finished at {}, request id {}",
        plain(&request.finished_at),
        plain(&request.request_id)
    );
    text.push('\n');
    let steps = request.steps.as_deref().unwrap_or_default();
    let _ = writeln!(text, "{:>10}  its head had come", seconds(0.0));
    for StepShown { after_ms, event } in steps {
        let _ = writeln!(text, "{:>10}  {}", seconds(*after_ms), sentence(event));
    }
    let end = match (request.refusal.as_deref(), &*request.cache) {
        (Some(reason), _) => format!("the gateway refused it: {}", plain(reason)),
        (None, "hit") => "answered from the cache; the upstream was not asked".to_owned(),
        (None, "collapsed") => "answered with the fetch of another request for the same".to_owned(),
        (None, _) if request.status == 0 => "the client had left".to_owned(),
        (None, _) => "its answer ended".to_owned(),
    };
    let _ = writeln!(text, "{:>10}  {end}", seconds(request.duration_ms));
    text.push('\n');
    let resource = request.resource.as_deref().unwrap_or("any budget");
    let _ = writeln!(text, "spent {} of {}", counted(request.cost.into(), "unit"), plain(resource));
    if let Some(rule) = &request.shadowed_by {
        let _ = writeln!(text, "a rule in shadow mode would have stopped it: {}", plain(rule));
    }
    if let Some(error) = &request.error {
        let _ = writeln!(text, "error: {}", plain(error));
    }
    if let Some(trace) = &request.trace_id {
        let _ = writeln!(text, "trace {}", plain(trace));
    }
    text
}

fn status(status: u16) -> String {
    if status == 0 { "without an answer".to_owned() } else { status.to_string() }
}

fn sentence(event: &EventShown) -> String {
    match event {
        EventShown::Held { held, took_ms } => {
            format!("held for {} by {}", seconds(*took_ms), cause(held))
        }
        EventShown::Denied { held } => format!("denied by {}", cause(held)),
        EventShown::Queued { write } => {
            let write = plain(write);
            format!("accepted as a queued write: `weir writes show {write}` has the rest")
        }
        EventShown::Sent { account, resource, chosen, of } => {
            let why = match chosen.as_str() {
                "validator" => "it owns the ETag of the stored answer, so a 304 is free".to_owned(),
                "most_left" => format!("of {of} accounts it had most left"),
                _ => "no other account may send it now".to_owned(),
            };
            format!("sent by {} for {}: {why}", plain(account), plain(resource))
        }
        EventShown::Answered { status, took_ms, upstream_request_id } => {
            let id = upstream_request_id.as_deref();
            let id = id.map(|id| format!(", its id there {}", plain(id))).unwrap_or_default();
            format!("the upstream answered {status} after {}{id}", seconds(*took_ms))
        }
        EventShown::Failed { error, took_ms } => {
            format!("no answer after {}: {}", seconds(*took_ms), plain(error))
        }
    }
}

/// The limit with its meaning, its account and its end.
fn cause(held: &Held) -> String {
    let by = held.by.as_deref().unwrap_or("an unknown limit");
    let mut text = plain(by);
    if let Some(account) = &held.account {
        let _ = write!(text, " of {}", plain(account));
    }
    if let Some(meaning) = meaning(by) {
        let _ = write!(text, " ({meaning})");
    }
    if let Some(until) = &held.until {
        let _ = write!(text, ", which ends at {}", plain(until));
    }
    text
}

/// The meaning of a limit's name (SPECIFICATION, "Limit refusals").
fn meaning(by: &str) -> Option<&'static str> {
    Some(match by {
        "primary" => "the budget is spent or reserved until its reset",
        "probe" => "one request finds out the unknown budget first",
        "cooldown" => "the upstream had refused a request and named a pause",
        "concurrency" => "as many requests as the upstream allows were under way",
        "client_share" => "the client's own requests hold its share of the slots",
        "points" => "the points of this endpoint in a minute are taken",
        "graphql_points" => "the GraphQL points of a minute are taken",
        "content_per_minute" => "the content of a minute is created",
        "content_per_hour" => "the content of an hour is created",
        "cpu" => "the upstream's CPU time of a minute is taken",
        "graphql_cpu" => "the CPU time of a minute for GraphQL is taken",
        "oauth_tokens" => "the token requests of an hour are made",
        "spacing" => "writes of an account keep a distance",
        "pace" => "the budget is spread evenly over its window",
        "batch_floor" => "what is left is for clients of a higher priority",
        "client_budget" => "the client's own budget is spent",
        "queue_full" => "too many requests wait already",
        "no_account" => "no account may send it",
        "turn" => "an earlier write to the same resource goes first",
        "mint" => "an installation token was being minted",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story_of(steps: &serde_json::Value, more: &serde_json::Value) -> String {
        let mut request = serde_json::json!({
            "finished_at": "2026-11-28T03:12:00Z", "request_id": "r-1", "client": "ci",
            "method": "GET", "endpoint": "/repos/{owner}/{repo}", "path": "/repos/acme/widgets",
            "user_agent": null, "status": 200, "cache": "revalidated", "account": "bot-1",
            "resource": "core", "upstream_attempts": 1, "cost": 0,
            "upstream_request_id": "U1", "duration_ms": 12_300.0, "queue_ms": 12_000.0,
            "upstream_ms": 299.0, "refusal": null, "shadowed_by": null, "held_by": null,
            "held_account": null, "held_until": null, "error": null, "trace_id": null,
        });
        let request = request.as_object_mut().unwrap();
        request.extend(more.as_object().unwrap().clone());
        request.insert("steps".to_owned(), steps.clone());
        story(&serde_json::from_value(serde_json::json!(request)).unwrap())
    }

    #[test]
    fn a_story_says_why_it_waited_and_why_this_account() {
        let steps = serde_json::json!([
            { "after_ms": 1.0, "step": "held", "held_by": "concurrency", "held_account": "bot-1",
              "held_until": null, "took_ms": 12_000.0 },
            { "after_ms": 12_001.0, "step": "sent", "account": "bot-1", "resource": "core",
              "chosen": "validator", "of": 1 },
            { "after_ms": 12_300.0, "step": "answered", "status": 304, "took_ms": 299.0,
              "upstream_request_id": "U1" },
        ]);
        let expected = "GET /repos/acme/widgets of ci: 200, 12.300 s, cache revalidated\n\
            finished at 2026-11-28T03:12:00Z, request id r-1\n\
            \n   \
               0.000 s  its head had come\n   \
               0.001 s  held for 12.000 s by concurrency of bot-1 (as many requests as the upstream allows were under way)\n  \
              12.001 s  sent by bot-1 for core: it owns the ETag of the stored answer, so a 304 is free\n  \
              12.300 s  the upstream answered 304 after 0.299 s, its id there U1\n  \
              12.300 s  its answer ended\n\
            \n\
            spent 0 units of core\n";
        assert_eq!(story_of(&steps, &serde_json::json!({})), expected);
    }

    #[test]
    fn a_refused_request_names_the_limit_and_its_end() {
        let steps = serde_json::json!([
            { "after_ms": 0.1, "step": "denied", "held_by": "primary", "held_account": "bot-1",
              "held_until": "2026-11-28T04:00:00Z" },
        ]);
        let more = serde_json::json!({
            "status": 403, "refusal": "primary", "cache": "none", "duration_ms": 0.2,
        });
        let text = story_of(&steps, &more);
        assert!(
            text.contains("denied by primary of bot-1 (the budget is spent or reserved until its reset), which ends at 2026-11-28T04:00:00Z"),
            "{text}"
        );
        assert!(text.contains("0.000 s  the gateway refused it: primary"), "{text}");
    }

    #[test]
    fn every_limit_has_a_meaning() {
        for limit in crate::decision::LimitKind::ALL {
            assert!(meaning(limit.name()).is_some(), "{limit:?}");
        }
    }
}
