//! Webhook deliveries: summaries by cursor, details, redelivery, pings (SPECIFICATION,
//! "Deliveries").

use http::StatusCode;
use serde_json::{Value, json};

use super::hooks::{self, READ, WRITE};
use crate::emulator::events::delivery::{envelope, queue};
use crate::emulator::events::webhooks::{self, EventPayload, WebhookEvent};
use crate::emulator::http::{ApiError, Reply, iso};
use crate::emulator::render::extend;
use crate::emulator::routing::{Call, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Attempt, DELIVERIES_MAX, Delivery, Hook, HookKey, Receipt};

/// The prefix of every cursor, which exposes invented ones.
const CURSOR_PREFIX: &str = "v1_";

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/hooks/{hook_id}/deliveries", READ, list),
    Route::get("/orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id}", READ, get),
    Route::post("/orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id}/attempts", WRITE, attempt),
    Route::post("/orgs/{org}/hooks/{hook_id}/pings", WRITE, ping),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let hook = hooks::named(call)?;
    page(call, hook, status_filter(call)?)
}

fn get(call: &mut Call<'_>) -> Outcome {
    let hook = hooks::named(call)?;
    detail(call, hook)
}

fn attempt(call: &mut Call<'_>) -> Outcome {
    let redelivery = redelivery(call, hooks::named(call)?)?;
    redeliver(call, redelivery)
}

/// Lists deliveries newest first, starting at the cursor from the previous page's link.
pub fn page(call: &Call<'_>, hook: &Hook, wanted: Option<OutcomeFilter>) -> Outcome {
    let per_page = call.query.get("per_page").filter(|given| !given.is_empty());
    if per_page.is_some_and(|given| given.parse::<u64>().is_err()) {
        return Err(ApiError::invalid("HookDelivery", "per_page", "per_page is not an integer"));
    }
    let from =
        call.query.get("cursor").filter(|cursor| !cursor.is_empty()).map(cursor_id).transpose()?;
    let is_wanted = |one: &&Delivery| wanted.is_none_or(|wanted| wanted.accepts(&one.receipt));
    let listed: Vec<&Delivery> = hook.deliveries.iter().rev().filter(is_wanted).collect();
    let per_page = pagination::per_page(call, USUAL);
    let first =
        listed.iter().take_while(|delivery| from.is_some_and(|from| delivery.id > from)).count();
    let link = |relation, at: usize| {
        let cursor = format!("{CURSOR_PREFIX}{}", listed.get(at)?.id);
        Some((relation, pagination::address(call, "cursor", &cursor)))
    };
    let previous = (first > 0).then(|| link("prev", first.saturating_sub(per_page))).flatten();
    let next = link("next", first.saturating_add(per_page));
    let links: Vec<(&str, String)> = previous.into_iter().chain(next).collect();
    let shown = listed.iter().skip(first).take(per_page);
    let mut reply = Reply::ok(shown.map(|delivery| summary(delivery)).collect());
    reply.headers.extend(pagination::header(&links));
    Ok(reply)
}

/// A malformed cursor answers 400.
fn cursor_id(cursor: &str) -> Result<u64, ApiError> {
    let id = cursor.strip_prefix(CURSOR_PREFIX).filter(|id| is_number(id));
    id.and_then(|id| id.parse().ok())
        .ok_or_else(|| ApiError::BadRequest("Invalid cursor".to_owned()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeFilter {
    Successes,
    Failures,
}

impl OutcomeFilter {
    /// A pending delivery has neither outcome.
    fn accepts(self, receipt: &Receipt) -> bool {
        receipt.is_success() == Some(self == Self::Successes)
    }
}

/// The values are undocumented.
fn status_filter(call: &Call<'_>) -> Result<Option<OutcomeFilter>, ApiError> {
    let named = |name: &str| match name {
        "success" => Some(OutcomeFilter::Successes),
        "failure" => Some(OutcomeFilter::Failures),
        _ => None,
    };
    call.choice("HookDelivery", "status", named, "status must be success or failure")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// 400 for anything but a number, 422 for an impossible id, 404 for an unknown one.
fn named<'a>(call: &Call<'_>, hook: &'a Hook) -> Result<&'a Delivery, ApiError> {
    let given = call.params.get("delivery_id");
    if !is_number(given) {
        return Err(ApiError::BadRequest("Invalid delivery id".to_owned()));
    }
    let id: i64 = given.parse().map_err(|_| {
        ApiError::invalid("HookDelivery", "delivery_id", "delivery_id is too large")
    })?;
    u64::try_from(id).ok().and_then(|id| hook.deliveries.get(id)).ok_or(ApiError::NotFound)
}

#[derive(Debug)]
pub struct RedeliveryRequest {
    hook_key: HookKey,
    delivery: Delivery,
}

/// 422 when the log is full of waiting deliveries.
pub fn redelivery(call: &Call<'_>, hook: &Hook) -> Result<RedeliveryRequest, ApiError> {
    let delivery = named(call, hook)?.clone();
    if hook.deliveries.waiting() >= DELIVERIES_MAX {
        let message = "too many deliveries are waiting already";
        return Err(ApiError::invalid("HookDelivery", "base", message));
    }
    Ok(RedeliveryRequest { hook_key: hook.hook_key(), delivery })
}

/// Redelivers with `redelivery` true and the same GUID (SPECIFICATION, "Webhooks in practice").
pub fn redeliver(call: &mut Call<'_>, redelivery: RedeliveryRequest) -> Outcome {
    let (id, at) = (call.world.next_id(), call.now);
    let delivery = Delivery {
        id,
        at,
        attempt: Attempt::Redelivery,
        posted: None,
        receipt: Receipt::Pending,
        ..redelivery.delivery
    };
    call.world.hook_mut(redelivery.hook_key).ok_or(ApiError::NotFound)?.deliveries.append(delivery);
    queue::queue(call.world, redelivery.hook_key);
    Ok(Reply::json(StatusCode::ACCEPTED, json!({})))
}

/// Sends a ping, even to an inactive webhook, because the caller requests it.
fn ping(call: &mut Call<'_>) -> Outcome {
    let hook = hooks::named(call)?;
    let hook_key = hook.hook_key();
    let organization = call.organization()?;
    let renderer = call.renderer();
    // The payload is undocumented; it is the running service's.
    let payload = json!({
        "zen": "Say what you do, do what you say.",
        "hook_id": hook.id,
        "hook": hooks::render(call, hook),
        "organization": renderer.organization_summary(organization),
        "sender": renderer.user_summary(call.actor()),
    });
    let payload = payload.to_string().into();
    let event_payload = EventPayload { repository: None, installation: None, payload };
    let event = WebhookEvent { name: "ping", action: None };
    webhooks::deliver(call.world, call.now, hook_key, event, event_payload);
    Ok(Reply::no_content())
}

fn summary(delivery: &Delivery) -> Value {
    json!({
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": iso(delivery.at),
        "redelivery": delivery.attempt == Attempt::Redelivery,
        "duration": delivery.receipt.duration_secs(),
        "status": delivery.receipt.text(),
        "status_code": delivery.receipt.status_code(),
        "event": &*delivery.event,
        // The documented types of these three exclude null; a ping has no repository.
        "action": delivery.action.as_deref().unwrap_or(""),
        "installation_id": delivery.installation.unwrap_or(0),
        "repository_id": delivery.repository.unwrap_or(0),
        // The meaning is undocumented; no delivery here is throttled.
        "throttled_at": null,
    })
}

/// Renders the delivery in the path: a summary with `url`, `request` and `response`.
pub fn detail(call: &Call<'_>, hook: &Hook) -> Outcome {
    let delivery = named(call, hook)?;
    // A waiting delivery shows the request as it would be sent now.
    let posted =
        delivery.posted.clone().unwrap_or_else(|| envelope::posted(&hook.config, delivery));
    let (headers, payload) = match &delivery.receipt {
        Receipt::Answered { headers, payload, .. } => (object(headers), payload.as_str()),
        Receipt::Pending | Receipt::Failed { .. } => (json!({}), ""),
    };
    let sent: Value = serde_json::from_str(&delivery.payload).unwrap_or_default();
    let mut value = summary(delivery);
    extend(
        &mut value,
        json!({
            "url": posted.url,
            "request": { "headers": object(&envelope::headers(call.dialect, hook.hook_key(), delivery, &posted)), "payload": sent },
            "response": { "headers": headers, "payload": payload },
        }),
    );
    Ok(Reply::ok(value))
}

fn object(headers: &[(String, String)]) -> Value {
    let pairs = headers.iter().map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(pairs.collect())
}
