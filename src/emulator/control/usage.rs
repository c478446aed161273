//! The windows of all budgets, and the denials that were delivered.

use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::emulator::http::iso;
use crate::emulator::limits::secondary::AccountUsage;
use crate::emulator::limits::{Limits, Resource};
use crate::emulator::state::State;

pub fn usage(state: &State, now: Timestamp) -> Value {
    let name = |account| state.world.account_name(account);
    let primary = state.primary.windows(now).map(|(account, resource, used, reset)| {
        let view = state.view(now, account, resource);
        json!({ "account": name(account), "resource": resource.name(), "limit": view.limit, "used": used, "remaining": view.remaining(), "reset": reset.as_secs() })
    });
    // Requests sent before the reset count as `sent_while_limited`.
    let announced = |(account, resource, until): (_, Resource, Timestamp)| json!({ "account": name(account), "resource": resource.name(), "until": iso(until) });
    let usage = state.secondary.usage(now, &state.limits);
    let banned = usage.iter().filter(|one| one.banned).map(|one| name(one.account));
    let secondary = usage.iter().map(|one| {
        json!({
            "account": name(one.account), "in_flight": one.in_flight,
            "windows": secondary(&state.limits, one),
            "points": one.points, "graphql_points": one.graphql_points,
            "content_minute": one.content_minute, "content_hour": one.content_hour,
            "cpu_millis": one.meters.cpu_millis, "graphql_cpu_millis": one.meters.graphql_cpu_millis,
            "oauth_tokens_hour": one.meters.token_requests,
            "closed_until": one.closed_until.map(iso), "sent_while_limited": one.sent_while_limited, "banned": one.banned,
        })
    });
    json!({
        "now": iso(now),
        "windows": primary.collect::<Vec<_>>(),
        "told": state.announced(now).map(announced).collect::<Vec<_>>(),
        "secondary": secondary.collect::<Vec<_>>(),
        "refused_primary": state.denial_counts.denied_primary,
        "refused_secondary": state.denial_counts.denied_secondary,
        "sent_while_limited": state.denial_counts.sent_while_limited,
        "banned": banned.collect::<Vec<_>>(),
    })
}

/// Concurrency, points and content of one account, each with usage and length.
fn secondary(limits: &Limits, one: &AccountUsage) -> Vec<Value> {
    let window = |limit: &str, endpoint: Option<&str>, length: Option<&str>, used: u64| {
        let seconds = length.map(|name| limits.duration(name).as_secs());
        json!({ "limit": limit, "endpoint": endpoint, "used": used, "max": limits.get(limit), "seconds": seconds })
    };
    let (minute, hour) = (Some("window.minute"), Some("window.hour"));
    let mut windows = vec![
        window("concurrency", None, None, one.in_flight.into()),
        window("points.graphql", None, minute, one.graphql_points),
        window("content.minute", None, minute, one.content_minute),
        window("content.hour", None, hour, one.content_hour),
    ];
    let rest = |(endpoint, used): (&String, &u64)| {
        window("points.rest", Some(endpoint.as_str()), minute, *used)
    };
    windows.extend(one.points.iter().map(rest));
    windows
}
