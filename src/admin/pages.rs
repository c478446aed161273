//! Small pages of the admin listener: health, metrics, errors.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde::Serialize;

use super::Reply;
use super::budgets::{accounts_of, token_states};
use super::clients::active_clients;
use crate::clock::{Timestamp, timer_now};
use crate::decision::AccountSnapshot;
use crate::decision::fleet::{FLOOR_FOR, HELD_FOR};
use crate::gateway::{Gateway, WithoutToken};
use crate::state::Reach;
use crate::telemetry::{Metrics, Snapshot, TextFormat};
use crate::tokens::HealthState;
use crate::writes::WriteState;

pub fn text(status: StatusCode, text: &str) -> Reply {
    page(status, HeaderValue::from_static("text/plain; charset=utf-8"), format!("{text}\n"))
}

/// `GET /readyz`: readiness for requests.
pub fn readiness(gateway: &Gateway) -> Reply {
    if let Some(reason) = unready(gateway) {
        text(StatusCode::SERVICE_UNAVAILABLE, &reason)
    } else {
        let health = gateway.dispatcher.tokens().health(gateway.env.clock.now());
        let count = |is_in: fn(&HealthState) -> bool| {
            health.iter().filter(|token| is_in(&token.state)).count()
        };
        let benched = count(|state| matches!(state, HealthState::Benched { .. }));
        let minting = count(|state| matches!(state, HealthState::Minting));
        // Only the numbers: the accounts are for holders of the admin token.
        let mut note = if benched + minting == 0 {
            String::new()
        } else {
            format!("\n{benched} of {} upstream tokens benched, {minting} minting", health.len())
        };
        // Still ready: stored answers are served, and another process would fare no better.
        if gateway.dispatcher.is_upstream_down() {
            note.push_str("\nthe upstream is down: only probes are sent");
        }
        if let Some(Reach::Out(since, reason)) = reach(gateway) {
            let seconds = gateway.env.clock.now().since(since).as_secs();
            let _ = write!(note, "\nRedis is out of reach for {seconds} s: {reason}");
        }
        note.extend(certificate_notes(gateway));
        text(StatusCode::OK, &format!("ok{note}"))
    }
}

/// The reason for which a gateway is not ready; `None`: it is.
pub fn unready(gateway: &Gateway) -> Option<String> {
    if gateway.env.active.is_leaving() {
        return Some("draining".to_owned());
    }
    if let Some(problem) = unshared(gateway) {
        return Some(problem);
    }
    if !gateway.dispatcher.has_looked() {
        return Some("the upstream has not answered about the tokens yet".to_owned());
    }
    let without = gateway.dispatcher.lacking_token();
    (!without.is_empty()).then(|| token_report(gateway, &without))
}

fn reach(gateway: &Gateway) -> Option<Reach> {
    gateway.env.replica.as_ref().map(|replica| replica.reach())
}

/// The reason for which a replica cannot use the limits that it shares; `None`: it can.
fn unshared(gateway: &Gateway) -> Option<String> {
    match reach(gateway)? {
        Reach::Never(reason) => Some(format!("Redis has not been reached yet: {reason}")),
        Reach::Out(since, reason) => (gateway.env.clock.now() >= since + HELD_FOR + FLOOR_FOR)
            .then(|| format!("Redis is out of reach, and no limit can be used: {reason}")),
        Reach::In => None,
    }
}

/// One line for each listener with TLS: the days that its certificates are still valid.
fn certificate_notes(gateway: &Gateway) -> impl Iterator<Item = String> {
    let mut left = BTreeMap::new();
    gateway.env.certificates.days_left(gateway.env.clock.now(), |listener, _, days| {
        let least = left.entry(listener).or_insert(days);
        *least = least.min(days);
    });
    left.into_iter().map(|(listener, days)| {
        if days < 0.0 {
            format!("\n{listener}: a certificate has ended")
        } else {
            format!("\n{listener}: {} days left of its certificate", days.floor())
        }
    })
}

/// Describes the pools and the writing accounts without a token, and the problem of each account,
/// one line per token.
fn token_report(gateway: &Gateway, without: &WithoutToken) -> String {
    let states = token_states(gateway, gateway.env.clock.now());
    let accounts = gateway.env.config.accounts.iter().enumerate();
    let lines = accounts.flat_map(|(index, account)| {
        let tokens = states.get(&gateway.env.config.account_id(index)).into_iter().flatten();
        tokens.filter(|token| !token.healthy).map(|token| {
            let reason = token.reason.as_deref().unwrap_or(&token.state);
            format!("\n{}, token {}: {reason}", account.name, token.token)
        })
    });
    let lacking: Vec<String> = if without.are_all {
        vec!["no upstream token can be used".to_owned()]
    } else {
        let pools = without.pools.iter().filter_map(|pool| gateway.env.config.pools.get(*pool));
        let pools = pools.map(|pool| format!("pool {}: no upstream token can be used", pool.name));
        let writers = without.writers.iter();
        let writers = writers.filter_map(|writer| gateway.env.config.accounts.get(*writer));
        let writers = writers
            .map(|account| format!("writes by {}: no upstream token can be used", account.name));
        pools.chain(writers).collect()
    };
    std::iter::once(lacking.join("\n")).chain(lines).collect()
}

/// `GET /metrics`, in the format that the header `Accept` asks for.
pub fn metrics(gateway: &Gateway, accept: Option<&HeaderValue>) -> Reply {
    let format = TextFormat::accepted(accept.and_then(|accept| accept.to_str().ok()));
    let content_type = HeaderValue::from_static(format.content_type());
    page(StatusCode::OK, content_type, figures(gateway).text(format))
}

/// All metrics at this moment.
pub fn figures(gateway: &Gateway) -> Snapshot {
    let (entries, bytes) = gateway.cache.store().size();
    let spools = gateway.env.spool_space.figures();
    let (now, snapshot) = accounts_of(gateway);
    gateway.audit.report_broken_invariants();
    let health = gateway.dispatcher.tokens().health(now);
    gateway.env.metrics.read(|metrics| {
        metrics.set_cache(entries, bytes);
        metrics.set_spools(spools.files, spools.bytes);
        if let Some(reach) = reach(gateway) {
            metrics.set_redis_up(reach == Reach::In);
            metrics.set_replicas_heard(heard(gateway));
        }
        for (listener, state, open) in gateway.env.connections.figures() {
            metrics.set_connections(listener.name(), state.name(), open);
        }
        for (state, writes) in gateway.writes.queue().counts() {
            metrics.set_writes(state.name(), writes);
        }
        let oldest = gateway.writes.queue().oldest();
        metrics.set_oldest_write(oldest.map(|oldest| now.since(oldest)).unwrap_or_default());
        // Writes with a waiting connection pass through the queue too, and are forgotten at their
        // end.
        let on_wire = gateway.dispatcher.writes_on_wire();
        metrics.set_writes(WriteState::Sending.name(), on_wire);
        let queued = (gateway.writes.turns().writes() as u64).saturating_sub(on_wire);
        metrics.set_writes(WriteState::Queued.name(), queued);
        set_clients(gateway, metrics);
        for account in &snapshot {
            for window in account.windows.iter().filter(|window| window.known) {
                metrics.set_budget(
                    &account.name,
                    window.resource.as_str(),
                    window.limit.into(),
                    window.remaining.into(),
                    window.reserved.into(),
                    window.reset,
                );
            }
        }
        set_parts(metrics, &snapshot);
        // With thousands of accounts not every series has room: used limits come before unused
        // ones.
        for is_used in [true, false] {
            for account in &snapshot {
                let limits = account.secondary.iter();
                for limit in limits.filter(|limit| (limit.in_use > 0) == is_used) {
                    let name = limit.limit.name();
                    metrics.set_secondary(&account.name, name, limit.in_use.into());
                }
            }
        }
        for breaker in gateway.dispatcher.breakers().all() {
            metrics.set_upstream_down(&breaker.name, breaker.outage().is_some());
        }
        gateway.env.certificates.days_left(now, |listener, certificate, days| {
            metrics.set_certificate(listener, certificate, days);
        });
        for (client, key, _, end) in gateway.env.config.expiring_keys() {
            let seconds = |at: Timestamp| i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
            metrics.set_client_key_expiry(client, key, seconds(end) - seconds(now));
        }
        for issuer in gateway.issuers() {
            metrics.set_issuer_keys(&issuer.config.name, issuer.fetched_at());
        }
        for token in &health {
            let (account, name) =
                (gateway.env.account_name(token.account), token.token.to_string());
            metrics.set_token_healthy(account, &name, token.state.is_healthy());
        }
    })
}

pub fn json(status: StatusCode, content: &impl Serialize) -> Reply {
    match serde_json::to_vec(content) {
        Ok(body) => page(status, super::JSON, body),
        // Only a map with keys that are no text could fail; no page has one.
        Err(fault) => text(StatusCode::INTERNAL_SERVER_ERROR, &fault.to_string()),
    }
}

/// Answers with an error in JSON.
pub fn error(status: StatusCode, message: &str) -> Reply {
    json(status, &serde_json::json!({ "message": message }))
}

pub fn unprocessable(message: &str) -> Reply {
    error(StatusCode::UNPROCESSABLE_ENTITY, message)
}

pub fn page(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()).boxed_unsync());
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// Sets what clients wait for and have left.
fn set_clients(gateway: &Gateway, metrics: &Metrics) {
    for (client, waiting) in active_clients(gateway) {
        metrics.set_waiting(&client.name, waiting);
    }
    for budget in gateway.dispatcher.admissions().client_budgets().1 {
        let (client, resource) = (&budget.client, budget.resource.as_str());
        let (limit, used) = (budget.limit.into(), budget.used.into());
        metrics.set_client_budget(client, resource, limit, used, budget.reset);
    }
}

/// Replicas that were heard, with this one.
fn heard(gateway: &Gateway) -> u64 {
    let replica = gateway.env.replica.as_ref();
    replica.map_or(1, |replica| replica.peers.count(timer_now())) as u64
}

fn set_parts(metrics: &Metrics, accounts: &[AccountSnapshot]) {
    for account in accounts {
        for (limit, held) in &account.parts {
            metrics.set_part(&account.name, limit, (*held).into());
        }
    }
}
