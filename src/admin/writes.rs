//! The queue of writes for operators: `GET /api/writes`, `GET /api/writes/{id}`, `POST
//! /api/writes/{id}/cancel` and `…/retry` (SPECIFICATION, "Admin listener").
//!
//! A list shows the state and outcome of writes, never a body, a header or a query; a single write
//! is shown as its client sees it. Left out: the transitions of a write (the gateway's queue).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::pages::unprocessable;
use super::{JSON, NO_BODY, Reply, only_get, only_post, pages};
use crate::clock::Timestamp;
use crate::gateway::{Gateway, Listed, NotChanged, NotRetried, Repetition, Selection};
use crate::writes::{StoreError, WriteId, WriteState};

/// Default page size.
const LISTED: usize = 100;
/// Largest page: some 300 KiB of JSON with short paths.
pub const LISTED_MAX: usize = 1_000;
/// Most bytes read from the store for one page, because records include bodies, which are not
/// shown. Our choice: a fraction of a second.
const READ_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Message of a 503 during a takeover.
pub(super) const ELSEWHERE: &str = "another process has the queue of writes; ask again";
/// Example of an id for error messages.
pub const EXAMPLE_ID: &str = "1f-0000000000000007";

/// The queue and some of its writes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listing {
    /// Time of the snapshot by the gateway's clock.
    pub now_iso: String,
    /// True if accepted writes survive the process.
    pub durable: bool,
    /// All writes by state, whatever the page shows.
    pub counts: BTreeMap<WriteState, u64>,
    /// Wait of the oldest unfinished write; `null` when there is none.
    pub oldest_seconds: Option<f64>,
    /// The oldest first.
    pub writes: Vec<Item>,
    /// `after` of the next page; `null` on the last.
    pub next: Option<String>,
}

/// One write in a list. `null` stands for what has not happened, or cannot be read.
#[derive(Debug, Serialize, Deserialize)]
pub struct Item {
    pub id: String,
    pub state: WriteState,
    /// Client name in the config.
    pub client: Option<String>,
    /// Name in the config of the account that carries it.
    pub account: Option<String>,
    pub method: Option<String>,
    /// Path without its query.
    pub path: Option<String>,
    pub attempts: Option<u32>,
    pub accepted_at: Option<String>,
    /// Earliest time of the next attempt.
    pub not_before: Option<String>,
    pub finished_at: Option<String>,
    /// Reason of an end without an answer, from a closed set.
    pub reason: Option<String>,
    /// Status of the upstream's answer.
    pub status: Option<u16>,
}

/// A page of this part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page<'p> {
    List,
    Show(&'p str),
    Cancel(&'p str),
    Retry(&'p str),
}

/// Body of a retry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryRequest {
    #[serde(default)]
    even_if_executed: bool,
}

/// Error of an operator action.
pub(super) struct NotDone {
    pub status: StatusCode,
    write: WriteId,
    state: Option<WriteState>,
    pub message: String,
}

#[derive(Serialize)]
struct ActionError<'n> {
    message: &'n str,
    write: String,
    state: Option<WriteState>,
}

impl From<NotDone> for Reply {
    fn from(not_done: NotDone) -> Self {
        let NotDone { status, write, state, message } = not_done;
        let error = ActionError { message: &message, write: write.to_string(), state };
        pages::json(status, &error)
    }
}

impl<'p> Page<'p> {
    /// Parses a path; `None` outside this part of the API.
    pub fn of(path: &'p str) -> Option<Self> {
        let rest = path.strip_prefix("/api/writes")?;
        if rest.is_empty() {
            return Some(Self::List);
        }
        let rest = rest.strip_prefix('/')?;
        match rest.split_once('/') {
            None if rest.is_empty() => None,
            None => Some(Self::Show(rest)),
            Some((id, "cancel")) => Some(Self::Cancel(id)),
            Some((id, "retry")) => Some(Self::Retry(id)),
            Some(_) => None,
        }
    }

    pub fn is_action(self) -> bool {
        matches!(self, Self::Cancel(_) | Self::Retry(_))
    }

    /// Answers the request. `body` is that of a POST, if it arrived whole.
    pub async fn answer(
        self,
        gateway: &Arc<Gateway>,
        request: &Parts,
        body: Option<&Bytes>,
    ) -> Reply {
        match (self.is_action(), &request.method) {
            (true, &Method::POST) | (false, &Method::GET | &Method::HEAD) => {}
            (true, _) => return only_post(),
            (false, _) => return only_get(),
        }
        let Ok(_using) = gateway.writes.queue().enter().await else {
            return pages::error(StatusCode::SERVICE_UNAVAILABLE, ELSEWHERE);
        };
        let (Self::Show(id) | Self::Cancel(id) | Self::Retry(id)) = self else {
            return list(gateway, request.uri.query().unwrap_or_default()).await;
        };
        let Ok(id) = id.parse::<WriteId>() else {
            let message = format!("that is no id of a write; an id is like {EXAMPLE_ID}");
            return unprocessable(&message);
        };
        match self {
            Self::List | Self::Show(_) => show(gateway, id).await,
            Self::Cancel(_) => match cancel(gateway, id).await {
                Ok(()) => show(gateway, id).await,
                Err(not_done) => not_done.into(),
            },
            Self::Retry(_) => match parse_retry(body) {
                Ok(repetition) => match retry(gateway, id, repetition).await {
                    Ok(()) => show(gateway, id).await,
                    Err(not_done) => not_done.into(),
                },
                Err((status, message)) => pages::error(status, &message),
            },
        }
    }
}

async fn list(gateway: &Arc<Gateway>, query: &str) -> Reply {
    let selection = match selection(gateway, query) {
        Ok(selection) => selection,
        Err(message) => return unprocessable(&message),
    };
    match listing(gateway, selection).await {
        Some(listing) => pages::json(StatusCode::OK, &listing),
        None => pages::error(StatusCode::INTERNAL_SERVER_ERROR, "the list could not be made"),
    }
}

/// The counts, and the selected writes. `None`: the search has failed.
async fn listing(gateway: &Arc<Gateway>, mut selection: Selection) -> Option<Listing> {
    let shown_max = selection.at_most;
    // One more reveals a next page.
    selection.at_most += 1;
    let queue = Arc::clone(gateway.writes.queue());
    // The scan may cover a million writes.
    let mut ids = tokio::task::spawn_blocking(move || queue.select(&selection)).await.ok()?;
    let has_more = ids.len() > shown_max;
    ids.truncate(shown_max);
    let (writes, next) = items(gateway, ids).await;
    let now = gateway.env.clock.now();
    let queue = gateway.writes.queue();
    let next = next.filter(|(_, is_last)| has_more || !is_last);
    Some(Listing {
        now_iso: now.rfc3339(),
        durable: queue.is_durable(),
        counts: queue.counts().into_iter().collect(),
        oldest_seconds: queue.oldest().map(|oldest| now.since(oldest).as_secs_f64()),
        writes,
        next: next.map(|(id, _)| id.to_string()),
    })
}

/// Looks writes up, as far as their bodies have room. Returns the last one looked up too, and true
/// if none was left out.
pub(super) async fn items(
    gateway: &Gateway,
    ids: Vec<WriteId>,
) -> (Vec<Item>, Option<(WriteId, bool)>) {
    let (mut writes, mut read_bytes, mut last) = (Vec::with_capacity(ids.len()), 0, None);
    for id in ids {
        if read_bytes > READ_BYTES_MAX {
            return (writes, last.map(|last| (last, false)));
        }
        match gateway.writes.queue().look_up(id).await {
            Ok(Some(listed)) => {
                let response = listed.progress.response.as_ref();
                let answer = response.and_then(|response| response.body.as_ref());
                read_bytes += listed.write.body.len() + answer.map_or(0, Bytes::len);
                writes.push(Item::of(listed));
            }
            // Forgotten meanwhile.
            Ok(None) => {}
            Err(fault) => writes.extend(Item::unreadable(gateway, id, &fault)),
        }
        last = Some(id);
    }
    (writes, last.map(|last| (last, true)))
}

/// Parses the query, or returns the problem.
fn selection(gateway: &Gateway, query: &str) -> Result<Selection, String> {
    let mut selection = Selection { at_most: LISTED, ..Selection::default() };
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = value.replace('+', " ");
        let value = percent_decode_str(&value).decode_utf8_lossy();
        if seen.contains(&name) {
            return Err(format!("{} is given twice", shortened(name)));
        }
        seen.push(name);
        match name {
            "state" if !value.is_empty() => {
                let state = WriteState::ALL.into_iter().find(|state| state.name() == value);
                let names = || WriteState::ALL.map(WriteState::name).join(", ");
                selection.state =
                    Some(state.ok_or_else(|| format!("state is one of {}", names()))?);
            }
            "client" if !value.is_empty() => {
                let mut clients = gateway.env.config.clients.iter();
                let place = clients.position(|client| *client.name == *value);
                let place = place.and_then(|place| u32::try_from(place).ok());
                let unknown = || format!("the config has no client {}", shortened(&value));
                selection.client = Some(place.ok_or_else(unknown)?);
            }
            "limit" if !value.is_empty() => {
                let limit = value.parse().ok().filter(|limit| (1..=LISTED_MAX).contains(limit));
                selection.at_most = limit.ok_or_else(|| format!("limit is 1 to {LISTED_MAX}"))?;
            }
            "after" if !value.is_empty() => {
                let bad = |_| format!("after is the id of a write; an id is like {EXAMPLE_ID}");
                selection.after = Some(value.parse().map_err(bad)?);
            }
            _ => {
                let known =
                    "a list can be asked for by state, client, limit and after, each with a value";
                return Err(known.into());
            }
        }
    }
    Ok(selection)
}

/// Shortens a word of the request for the answer.
fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

async fn show(gateway: &Gateway, id: WriteId) -> Reply {
    match gateway.writes.queue().look_up(id).await {
        Ok(Some(listed)) => {
            pages::page(StatusCode::OK, JSON, gateway.responder.write_status(listed, None).whole())
        }
        Ok(None) => no_such_write(id).into(),
        Err(fault) => store_failed(id, &fault).into(),
    }
}

/// Cancels a write that is still queued.
pub(super) async fn cancel(gateway: &Arc<Gateway>, id: WriteId) -> Result<(), NotDone> {
    match gateway.writes.queue().cancel(id, "an operator").await {
        Ok(()) => {
            tracing::info!(write = %id, "an operator has cancelled a write");
            Ok(())
        }
        Err(NotChanged::State(state)) => {
            let message = format!(
                "only a write that is queued, and may not have been executed, can be cancelled; this one is {}",
                state.name()
            );
            Err(conflict(id, Some(state), message))
        }
        Err(why) => Err(not_changed(id, why)),
    }
}

/// Parses the body of a retry, or returns status and message of an error.
fn parse_retry(body: Option<&Bytes>) -> Result<Repetition, (StatusCode, String)> {
    const EXAMPLE: &str = "the body may be empty, or like {\"even_if_executed\": true}";
    let Some(body) = body else {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, NO_BODY.into()));
    };
    if body.is_empty() {
        return Ok(Repetition::IfNotExecuted);
    }
    if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err() {
        return Err((StatusCode::BAD_REQUEST, format!("the body is not JSON; {EXAMPLE}")));
    }
    // Rejects a list, whose items would be taken for the fields.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    match serde_json::from_slice(body) {
        Ok(RetryRequest { even_if_executed: true }) if is_object => Ok(Repetition::EvenIfExecuted),
        Ok(RetryRequest { even_if_executed: false }) if is_object => Ok(Repetition::IfNotExecuted),
        _ => Err((StatusCode::UNPROCESSABLE_ENTITY, EXAMPLE.into())),
    }
}

/// Tries a write again that ended without being done.
pub(super) async fn retry(
    gateway: &Arc<Gateway>,
    id: WriteId,
    repetition: Repetition,
) -> Result<(), NotDone> {
    match gateway.writes.retry_write(id, repetition).await {
        Ok(()) => {
            tracing::info!(write = %id, even_if_executed = repetition == Repetition::EvenIfExecuted, "an operator has a write tried again");
            Ok(())
        }
        Err(NotRetried::NotChanged(NotChanged::State(WriteState::Unknown))) => {
            let message = "this one is unknown: it may have been executed, and trying it again may execute it a second time; \
                who wants that all the same says so with {\"even_if_executed\": true}";
            Err(conflict(id, Some(WriteState::Unknown), message.to_owned()))
        }
        Err(NotRetried::NotChanged(NotChanged::State(state))) => {
            let message = format!(
                "only a write that is failed, unknown or cancelled can be tried again; this one is {}",
                state.name()
            );
            Err(conflict(id, Some(state), message))
        }
        Err(NotRetried::NotChanged(why)) => Err(not_changed(id, why)),
        Err(NotRetried::NotAllowed(message)) => {
            let state = gateway.writes.queue().write_status(id).map(|status| status.state);
            let message = format!("the config in force has no place for it: {message}");
            Err(conflict(id, state, message))
        }
    }
}

fn not_changed(id: WriteId, why: NotChanged) -> NotDone {
    match why {
        NotChanged::NoSuchWrite => no_such_write(id),
        NotChanged::State(state) => {
            conflict(id, Some(state), format!("this one is {}", state.name()))
        }
        NotChanged::Full => {
            let message = "as many writes are queued as may be (queue_max in [writes]); try again when there are fewer";
            not_done(StatusCode::SERVICE_UNAVAILABLE, id, None, message.to_owned())
        }
        NotChanged::Store(fault) => store_failed(id, &fault),
    }
}

fn no_such_write(id: WriteId) -> NotDone {
    let message = format!(
        "there is no write {id}; a finished one is forgotten after `retention` in [writes]"
    );
    not_done(StatusCode::NOT_FOUND, id, None, message)
}

fn store_failed(id: WriteId, fault: &StoreError) -> NotDone {
    tracing::error!(write = %id, error = %fault, "what an operator asked about a write could not be done");
    not_done(StatusCode::SERVICE_UNAVAILABLE, id, None, fault.to_string())
}

fn conflict(id: WriteId, state: Option<WriteState>, message: String) -> NotDone {
    not_done(StatusCode::CONFLICT, id, state, message)
}

fn not_done(
    status: StatusCode,
    write: WriteId,
    state: Option<WriteState>,
    message: String,
) -> NotDone {
    NotDone { status, write, state, message }
}

impl Item {
    fn of(Listed { write, progress }: Listed) -> Self {
        Self {
            id: write.id.to_string(),
            state: progress.state,
            client: Some(write.client.to_string()),
            account: Some(write.account.to_string()),
            method: Some(write.method.to_string()),
            path: Some(write.path),
            attempts: Some(progress.attempts),
            accepted_at: Some(write.accepted.rfc3339_past()),
            not_before: (!progress.state.is_final()).then(|| progress.not_before.rfc3339()),
            finished_at: progress.finished.map(Timestamp::rfc3339_past),
            reason: progress.reason.map(|reason| reason.word),
            status: progress.response.map(|response| response.status.as_u16()),
        }
    }

    /// Returns what is known without the store: one unreadable record must not hide all others.
    fn unreadable(gateway: &Gateway, id: WriteId, fault: &StoreError) -> Option<Self> {
        tracing::error!(write = %id, error = %fault, "a write of the queue could not be read");
        let status = gateway.writes.queue().write_status(id)?;
        let client = gateway.env.config.clients.get(status.client as usize);
        Some(Self {
            id: id.to_string(),
            state: status.state,
            client: client.map(|client| client.name.to_string()),
            account: None,
            method: None,
            path: None,
            attempts: status.progress.map(|progress| progress.attempts),
            accepted_at: None,
            not_before: None,
            finished_at: None,
            reason: Some("unreadable".into()),
            status: None,
        })
    }
}
