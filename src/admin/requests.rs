//! `GET /api/requests` and `GET /api/requests/{id}`: the last requests, and the story of one
//! (SPECIFICATION, "Admin listener").
//!
//! Shown is what the log line shows: no query, no header but the `User-Agent`, no body.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::pages::unprocessable;
use super::{Reply, only_get, pages};
use crate::clock::Timestamp;
use crate::config::parse_duration;
use crate::gateway::Gateway;
use crate::telemetry::{Chosen, Event, LogText, Step, Story, WaitCause};

/// Default length of a list.
const LISTED: usize = 100;
/// Longest list.
pub const LISTED_MAX: usize = 1_000;

/// Some of the last requests.
#[derive(Debug, Serialize, Deserialize)]
pub struct RequestList {
    /// Time of the answer by the gateway's clock.
    pub now_iso: String,
    /// Requests that the gateway still knows.
    pub kept: usize,
    /// The latest first.
    pub requests: Vec<FinishedRequest>,
}

/// One request, as its log line has it.
#[derive(Debug, Serialize, Deserialize)]
pub struct FinishedRequest {
    /// End of the request.
    pub finished_at: String,
    /// `X-Request-Id`.
    pub request_id: String,
    /// Client name in the config.
    pub client: Option<String>,
    pub method: String,
    /// Route template.
    pub endpoint: String,
    /// Path without its query.
    pub path: String,
    pub user_agent: Option<String>,
    /// Status of the answer; 0 if the client left before.
    pub status: u16,
    /// Outcome at the cache.
    pub cache: String,
    pub account: Option<String>,
    pub resource: Option<String>,
    pub upstream_attempts: u32,
    /// Units spent, or perhaps spent.
    pub cost: u32,
    pub upstream_request_id: Option<String>,
    pub duration_ms: f64,
    pub queue_ms: f64,
    pub upstream_ms: f64,
    /// Reason of a gateway error.
    pub refusal: Option<String>,
    /// Rule in shadow mode that would have refused or held it.
    pub shadowed_by: Option<String>,
    /// Cause of the longest wait, or of the denial.
    #[serde(flatten)]
    pub held: Held,
    pub error: Option<String>,
    pub trace_id: Option<String>,
    /// Its way, for a single request; `null` in a list.
    pub steps: Option<Vec<StepShown>>,
}

/// Cause of a wait or a denial.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    #[serde(rename = "held_by")]
    pub by: Option<String>,
    #[serde(rename = "held_account")]
    pub account: Option<String>,
    /// End of the limit as known when the wait began.
    #[serde(rename = "held_until")]
    pub until: Option<String>,
}

/// A step on the way of a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepShown {
    /// Time since its head had come.
    pub after_ms: f64,
    #[serde(flatten)]
    pub event: EventShown,
}

/// Kinds of steps.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum EventShown {
    /// It was held for so long.
    Held {
        #[serde(flatten)]
        held: Held,
        took_ms: f64,
    },
    /// A limit denied it.
    Denied {
        #[serde(flatten)]
        held: Held,
    },
    /// It was accepted as a queued write.
    Queued { write: String },
    /// It was sent upstream.
    Sent {
        account: String,
        resource: String,
        /// `only`, `validator` (it owns the `ETag` of the stored answer) or `most_left`.
        chosen: String,
        /// Number of accounts that it was chosen from.
        of: u32,
    },
    /// The upstream answered.
    Answered { status: u16, took_ms: f64, upstream_request_id: Option<String> },
    /// No answer came.
    Failed { error: String, took_ms: f64 },
}

/// Choice of requests for a list.
#[derive(Debug, Default)]
struct Filter {
    client: Option<String>,
    endpoint: Option<String>,
    account: Option<String>,
    /// Statuses from and to.
    status: Option<(u16, u16)>,
    /// Reason of a refusal, or `any`.
    refusal: Option<String>,
    /// Least duration.
    slower: Option<Duration>,
    /// Least wait.
    waited: Option<Duration>,
    limit: Option<usize>,
}

/// Answers a request for this part of the API; `None` outside it.
pub fn answer(gateway: &Gateway, method: &Method, path: &str, query: &str) -> Option<Reply> {
    let rest = path.strip_prefix("/api/requests")?;
    let id = match rest.strip_prefix('/') {
        None if rest.is_empty() => None,
        Some(id) if !id.is_empty() && !id.contains('/') => Some(id),
        _ => return None,
    };
    if method != Method::GET && method != Method::HEAD {
        return Some(only_get());
    }
    let now = gateway.env.clock.now();
    let all = gateway.env.active.ended.all();
    Some(match id {
        None => list(&all, query, now),
        Some(id) => one(&all, &percent_decode_str(id).decode_utf8_lossy(), now),
    })
}

fn list(all: &[Arc<Story>], query: &str, now: Timestamp) -> Reply {
    let filter = match Filter::parse(query) {
        Ok(filter) => filter,
        Err(problem) => return unprocessable(&problem),
    };
    let limit = filter.limit.unwrap_or(LISTED);
    let fitting = all.iter().filter(|story| filter.fits(story)).take(limit);
    let requests = fitting.map(|story| FinishedRequest::of(story, false)).collect();
    pages::json(StatusCode::OK, &RequestList { now_iso: now.rfc3339(), kept: all.len(), requests })
}

fn one(all: &[Arc<Story>], id: &str, now: Timestamp) -> Reply {
    let fitting = all.iter().filter(|story| story.outcome.request_id.as_str() == id);
    let requests: Vec<_> =
        fitting.take(LISTED_MAX).map(|story| FinishedRequest::of(story, true)).collect();
    if requests.is_empty() {
        let message = format!(
            "no request with this id is known: it has not ended, or was before the last {} that are kept",
            all.len()
        );
        let answer = serde_json::json!({ "message": message, "request": id });
        return pages::json(StatusCode::NOT_FOUND, &answer);
    }
    pages::json(StatusCode::OK, &RequestList { now_iso: now.rfc3339(), kept: all.len(), requests })
}

impl Filter {
    fn parse(query: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8_lossy().into_owned();
            match name {
                "client" => filter.client = Some(value),
                "endpoint" => filter.endpoint = Some(value),
                "account" => filter.account = Some(value),
                "refusal" => filter.refusal = Some(value),
                "status" => filter.status = Some(statuses(&value)?),
                "slower" => filter.slower = Some(parse_duration(&value)?),
                "waited" => filter.waited = Some(parse_duration(&value)?),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LISTED_MAX).contains(limit));
                    let accepted = || format!("`limit` is a number from 1 to {LISTED_MAX}");
                    filter.limit = Some(limit.ok_or_else(accepted)?);
                }
                _ => {
                    return Err("known are `client`, `endpoint`, `account`, `status`, `refusal`, `slower`, `waited` and `limit`".to_owned());
                }
            }
        }
        Ok(filter)
    }

    fn fits(&self, story: &Story) -> bool {
        let outcome = &story.outcome;
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let refusal = match self.refusal.as_deref() {
            None => true,
            Some("any") => outcome.refusal.is_some(),
            Some(reason) => outcome.refusal == Some(reason),
        };
        refusal
            && is(&self.client, outcome.client.as_deref())
            && is(&self.endpoint, Some(outcome.endpoint))
            && is(&self.account, outcome.account.as_deref())
            && self.status.is_none_or(|(from, to)| (from..=to).contains(&outcome.status))
            && self.slower.is_none_or(|least| outcome.total >= least)
            && self.waited.is_none_or(|least| outcome.queue >= least)
    }
}

/// Parses a status, or a class such as `5xx`.
fn statuses(text: &str) -> Result<(u16, u16), String> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
    if let Some(class) = class.filter(|class| (1..=5).contains(class)) {
        return Ok((class * 100, class * 100 + 99));
    }
    let status = text.parse().map_err(|_| "`status` is like 403 or 5xx".to_owned());
    status.map(|status| (status, status))
}

impl FinishedRequest {
    fn of(story: &Story, has_steps: bool) -> Self {
        let outcome = &story.outcome;
        let text = |text: &LogText| text.as_str().to_owned();
        Self {
            finished_at: story.finished_at.rfc3339_past(),
            request_id: text(&outcome.request_id),
            client: outcome.client.as_deref().map(str::to_owned),
            method: outcome.method.as_str().to_owned(),
            endpoint: outcome.endpoint.to_owned(),
            path: text(&outcome.path),
            user_agent: outcome.user_agent.as_ref().map(|raw| text(&LogText::user_agent(raw))),
            status: outcome.status,
            cache: outcome.cache.label().to_owned(),
            account: outcome.account.as_deref().map(str::to_owned),
            resource: outcome.resource.as_deref().map(str::to_owned),
            upstream_attempts: outcome.upstream_attempts,
            cost: outcome.cost,
            upstream_request_id: outcome.upstream_request_id.as_ref().map(text),
            duration_ms: millis(outcome.total),
            queue_ms: millis(outcome.queue),
            upstream_ms: millis(outcome.upstream),
            refusal: outcome.refusal.map(str::to_owned),
            shadowed_by: outcome.shadowed.map(str::to_owned),
            held: outcome.held.as_ref().map(Held::from).unwrap_or_default(),
            error: outcome.error.as_ref().map(text),
            trace_id: outcome.trace.as_ref().map(|trace| trace.trace_id().to_string()),
            steps: has_steps.then(|| story.steps.iter().map(StepShown::from).collect()),
        }
    }
}

impl From<&WaitCause> for Held {
    fn from(cause: &WaitCause) -> Self {
        Self {
            by: Some(cause.by.to_owned()),
            account: cause.account.as_deref().map(str::to_owned),
            until: cause.until.map(Timestamp::rfc3339),
        }
    }
}

impl From<&Step> for StepShown {
    fn from(step: &Step) -> Self {
        let event = match &step.event {
            Event::Held(cause, took) => {
                EventShown::Held { held: cause.into(), took_ms: millis(*took) }
            }
            Event::Denied(cause) => EventShown::Denied { held: cause.into() },
            Event::Queued(write) => EventShown::Queued { write: write.clone() },
            Event::Sent { account, resource, chosen } => {
                let (chosen, of) = match chosen {
                    Chosen::Only => ("only", 1),
                    Chosen::Validator => ("validator", 1),
                    Chosen::MostLeft(of) => ("most_left", *of),
                };
                EventShown::Sent {
                    account: account.to_string(),
                    resource: resource.to_string(),
                    chosen: chosen.to_owned(),
                    of,
                }
            }
            Event::Answered { status, took, upstream_request_id } => EventShown::Answered {
                status: *status,
                took_ms: millis(*took),
                upstream_request_id: upstream_request_id.as_ref().map(|id| id.as_str().to_owned()),
            },
            Event::Failed { error, took } => {
                EventShown::Failed { error: error.as_str().to_owned(), took_ms: millis(*took) }
            }
        };
        Self { after_ms: millis(step.after), event }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_what_it_does_not_know() {
        for (query, problem) in [
            ("clinet=ci", "known are `client`"),
            ("status=6xx", "`status` is like"),
            ("status=abc", "`status` is like"),
            ("slower=5", "accepted: a whole number and a unit"),
            ("limit=0", "`limit` is a number"),
            ("limit=1001", "`limit` is a number"),
        ] {
            let found = Filter::parse(query).unwrap_err();
            assert!(found.contains(problem), "{query}: {found}");
        }
        let filter = Filter::parse("client=a%20b&status=5xx&slower=1s&limit=1000").unwrap();
        assert_eq!(filter.client.as_deref(), Some("a b"));
        assert_eq!((filter.status, filter.limit), (Some((500, 599)), Some(1_000)));
    }
}
