//! What webhooks delivered (Document 3): summaries by cursor, details, redelivery, pings.
//!
//! Nothing is sent over a network so far: a new delivery is recorded as not sent.

use http::StatusCode;
use serde_json::{Value, json};

use super::hooks::{self, Hook, READ, WRITE};
use crate::clock::Timestamp;
use crate::emulator::call::Call;
use crate::emulator::fault::{Code, Fault};
use crate::emulator::pagination::{self, USUAL};
use crate::emulator::reply::Reply;
use crate::emulator::route::{Outcome, Route, Verb};
use crate::emulator::timestamps::iso;
use crate::emulator::validators::hex;
use crate::emulator::world::World;

/// The oldest deliveries of a hook are forgotten when there are more.
const DELIVERIES_MAX: usize = 1_000;
/// Begins every cursor, so that a made-up one is told from a real one.
const CURSOR_PREFIX: &str = "v1_";

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/orgs/{org}/hooks/{hook_id}/deliveries", READ, list),
    Route::new(Verb::Get, "/orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id}", READ, get),
    Route::new(Verb::Post, "/orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id}/attempts", WRITE, redeliver),
    Route::new(Verb::Post, "/orgs/{org}/hooks/{hook_id}/pings", WRITE, ping),
];

/// One delivery, or the record that there should be one.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: u64,
    pub guid: String,
    pub at: Timestamp,
    pub attempt: Attempt,
    pub event: &'static str,
    pub action: Option<&'static str>,
    pub repository: Option<u64>,
    pub payload: Value,
    pub receipt: Receipt,
}

/// Whether the same delivery was made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    First,
    Redelivery,
}

/// What the receiver said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    Answered { status: u16, duration_millis: u64 },
    NotSent,
}

impl Receipt {
    fn status_code(self) -> u16 {
        match self {
            Self::Answered { status, .. } => status,
            Self::NotSent => 0,
        }
    }

    /// "text outcome; OK occurs; other values: not shown".
    fn text(self) -> &'static str {
        match self {
            Self::Answered { status, .. } => {
                StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unknown")
            }
            Self::NotSent => "Not sent",
        }
    }

    fn duration_secs(self) -> f64 {
        match self {
            Self::Answered { duration_millis, .. } => std::time::Duration::from_millis(duration_millis).as_secs_f64(),
            Self::NotSent => 0.0,
        }
    }

    fn is_success(self) -> bool {
        (200..400).contains(&self.status_code())
    }
}

/// What a delivery is made of.
#[derive(Clone, Debug)]
pub struct Occasion {
    pub event: &'static str,
    pub action: Option<&'static str>,
    pub repository: Option<u64>,
    pub payload: Value,
}

/// Records a new delivery of a hook; its id.
pub fn record(world: &mut World, now: Timestamp, organization: u64, hook: u64, occasion: Occasion) -> u64 {
    let id = world.next_id();
    let Occasion { event, action, repository, payload } = occasion;
    let delivery =
        Delivery { id, guid: guid(id), at: now, attempt: Attempt::First, event, action, repository, payload, receipt: Receipt::NotSent };
    append(world, organization, hook, delivery);
    id
}

/// Adds a delivery to its hook, forgetting the oldest when there are many.
pub fn append(world: &mut World, organization: u64, hook: u64, delivery: Delivery) {
    let Some(hook) = world.organizations.get_mut(&organization).and_then(|organization| organization.hooks.get_mut(&hook)) else { return };
    if hook.deliveries.len() >= DELIVERIES_MAX {
        hook.deliveries.pop_front();
    }
    hook.deliveries.push_back(delivery);
}

/// "unique delivery identifier (UUID form)"; the same id always gets the same one.
pub fn guid(id: u64) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, &id.to_be_bytes());
    let text = hex(&digest.as_ref()[..16]);
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// Newest first, from the cursor on.
fn list(call: &mut Call<'_>) -> Outcome {
    let hook = hooks::named(call)?;
    let from = call.query.get("cursor").filter(|cursor| !cursor.is_empty()).map(cursor_id).transpose()?;
    let wanted = status_filter(call)?;
    let is_asked = |delivery: &&Delivery| {
        from.is_none_or(|from| delivery.id <= from) && wanted.is_none_or(|wanted| wanted == delivery.receipt.is_success())
    };
    let asked: Vec<&Delivery> = hook.deliveries.iter().rev().filter(is_asked).collect();
    let per_page = pagination::per_page(call, USUAL);
    let next =
        asked.get(per_page).map(|delivery| ("next", pagination::address(call, "cursor", &format!("{CURSOR_PREFIX}{}", delivery.id))));
    let mut reply = Reply::ok(asked.iter().take(per_page).map(|delivery| summary(delivery)).collect());
    reply.headers.extend(next.and_then(|next| pagination::header(&[next])));
    Ok(reply)
}

fn cursor_id(cursor: &str) -> Result<u64, Fault> {
    let id = cursor.strip_prefix(CURSOR_PREFIX).and_then(|id| id.parse().ok());
    id.ok_or_else(|| Fault::BadRequest("Invalid cursor".to_owned()))
}

/// "string filter on delivery outcome classification"; its values are not shown.
fn status_filter(call: &Call<'_>) -> Result<Option<bool>, Fault> {
    match call.query.get("status") {
        None => Ok(None),
        Some("success") => Ok(Some(true)),
        Some("failure") => Ok(Some(false)),
        Some(_) => Err(Fault::field("HookDelivery", "status", Code::Invalid, "status must be success or failure")),
    }
}

fn named<'a>(call: &Call<'_>, hook: &'a Hook) -> Result<&'a Delivery, Fault> {
    // Document 1, 400: "malformed delivery".
    let id: u64 = call.params.get("delivery_id").parse().map_err(|_| Fault::BadRequest("Invalid delivery id".to_owned()))?;
    hook.deliveries.iter().find(|delivery| delivery.id == id).ok_or(Fault::NotFound)
}

fn get(call: &mut Call<'_>) -> Outcome {
    let hook = hooks::named(call)?;
    let delivery = named(call, hook)?;
    Ok(Reply::ok(detail(call, hook, delivery)))
}

/// "Resends that delivery with `redelivery` true"; it keeps its guid (UPSTREAM.md, Webhooks).
fn redeliver(call: &mut Call<'_>) -> Outcome {
    let hook = hooks::named(call)?;
    let hook_id = hook.id;
    let again = Delivery { at: call.now, attempt: Attempt::Redelivery, receipt: Receipt::NotSent, ..named(call, hook)?.clone() };
    let id = call.world.next_id();
    append(call.world, call.organization, hook_id, Delivery { id, ..again });
    Ok(Reply::json(StatusCode::ACCEPTED, json!({})))
}

fn ping(call: &mut Call<'_>) -> Outcome {
    let hook = hooks::named(call)?;
    let hook_id = hook.id;
    let payload = json!({ "zen": "Keep it logically awesome.", "hook_id": hook_id, "hook": { "type": "Organization", "id": hook_id, "name": "web", "active": hook.active, "events": hook.events } });
    record(call.world, call.now, call.organization, hook_id, Occasion { event: "ping", action: None, repository: None, payload });
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Document 3, Delivery summary.
fn summary(delivery: &Delivery) -> Value {
    json!({
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": iso(delivery.at),
        "redelivery": delivery.attempt == Attempt::Redelivery,
        "duration": delivery.receipt.duration_secs(),
        "status": delivery.receipt.text(),
        "status_code": delivery.receipt.status_code(),
        "event": delivery.event,
        "action": delivery.action,
        "installation_id": null,
        "repository_id": delivery.repository,
        "throttled_at": null,
    })
}

/// Document 3: detail adds `url`, `request` and `response`.
fn detail(call: &Call<'_>, hook: &Hook, delivery: &Delivery) -> Value {
    let mut value = summary(delivery);
    let named = |name: &str| call.dialect.delivery_header(name);
    let request_headers = json!({
        named("delivery"): delivery.guid,
        named("event"): delivery.event,
        named("hook-id"): hook.id.to_string(),
        named("hook-installation-target-id"): call.organization.to_string(),
        named("hook-installation-target-type"): "organization",
        "content-type": "application/json",
        "accept": "*/*",
    });
    let answered = matches!(delivery.receipt, Receipt::Answered { .. });
    let response_headers = if answered { json!({ "content-type": "text/plain" }) } else { json!({}) };
    crate::emulator::render::extend(
        &mut value,
        json!({
            "url": hook.config.url,
            "request": { "headers": request_headers, "payload": delivery.payload },
            "response": { "headers": response_headers, "payload": if answered { "ok" } else { "" } },
        }),
    );
    value
}
