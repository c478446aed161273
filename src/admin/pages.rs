//! What the admin listener answers.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;

use crate::decision::Books;
use crate::gateway::Gateway;
use crate::telemetry::metrics::CONTENT_TYPE;

/// A line of text.
pub fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    page(status, HeaderValue::from_static("text/plain; charset=utf-8"), format!("{text}\n"))
}

/// `GET /readyz`: whether to send requests here.
pub fn readiness(gateway: &Gateway) -> Response<Full<Bytes>> {
    if gateway.is_draining() {
        text(StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if !gateway.has_usable_token() {
        text(StatusCode::SERVICE_UNAVAILABLE, "no upstream token can be used")
    } else {
        text(StatusCode::OK, "ok")
    }
}

/// `GET /metrics`.
pub fn metrics(gateway: &Gateway) -> Response<Full<Bytes>> {
    let (entries, bytes) = gateway.store.size();
    let snapshot = gateway.admissions.with_books(Books::snapshot);
    gateway.report_broken_invariants();
    let health = gateway.tokens.health(gateway.clock.now());
    let body = gateway.metrics.scrape(|metrics| {
        metrics.set_cache(entries, bytes);
        let on_wire = gateway.writes_on_wire.load(Ordering::Relaxed);
        metrics.set_writes("sending", on_wire);
        metrics.set_writes("queued", (gateway.turns.writes() as u64).saturating_sub(on_wire));
        for (client, waiting) in gateway.config.clients.iter().zip(&gateway.waiting) {
            metrics.set_waiting(&client.name, waiting.load(Ordering::Relaxed));
        }
        for account in &snapshot {
            for book in account.books.iter().filter(|book| book.known) {
                metrics.set_budget(
                    &account.name,
                    book.resource.as_str(),
                    book.limit.into(),
                    book.remaining.into(),
                    book.reserved.into(),
                    book.reset,
                );
            }
            for limit in &account.secondary {
                metrics.set_secondary(&account.name, limit.limit.name(), limit.in_use.into());
            }
        }
        for (account, token, usable) in health {
            metrics.set_token_healthy(gateway.account_name(account), token.0 as usize, usable);
        }
    });
    page(StatusCode::OK, HeaderValue::from_static(CONTENT_TYPE), body)
}

/// `GET /api/budgets`: the books of every account.
pub fn budgets(gateway: &Gateway) -> Response<Full<Bytes>> {
    let snapshot = gateway.admissions.with_books(Books::snapshot);
    let accounts: Vec<_> = snapshot
        .iter()
        .map(|account| {
            let resources: Vec<_> = account
                .books
                .iter()
                .map(|book| {
                    json!({
                        "resource": book.resource.as_str(),
                        "known": book.known,
                        "limit": book.limit,
                        "remaining": book.remaining,
                        "reserved": book.reserved,
                        "used": book.used,
                        "reset": book.reset.as_secs_ceil(),
                    })
                })
                .collect();
            let secondary: Vec<_> = account
                .secondary
                .iter()
                .map(|limit| json!({ "limit": limit.limit.name(), "in_use": limit.in_use, "max": limit.max }))
                .collect();
            json!({
                "account": &*account.name,
                "cooldown_until": account.cooldown_until.map(crate::clock::Timestamp::as_secs_ceil),
                "resources": resources,
                "secondary": secondary,
            })
        })
        .collect();
    let body = json!({ "accounts": accounts, "waiting": gateway.admissions.waiting() });
    page(StatusCode::OK, HeaderValue::from_static("application/json"), body.to_string())
}

fn page(status: StatusCode, content_type: HeaderValue, body: String) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(Bytes::from(body)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
