//! The secondary windows and the delivered denials, for `/_emulator/books`.

use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::emulator::http::iso;
use crate::emulator::limits::Limits;
use crate::emulator::limits::secondary::AccountUsage;
use crate::emulator::state::State;

/// Concurrency, points and content of one account, each with usage and length.
pub fn secondary(limits: &Limits, one: &AccountUsage) -> Vec<Value> {
    let window = |limit: &str, length: Option<&str>, used: u32| {
        let seconds = length.map(|name| limits.duration(name).as_secs());
        json!({ "limit": limit, "endpoint": null, "used": used, "max": limits.get(limit), "seconds": seconds })
    };
    let mut windows = vec![
        window("concurrency", None, one.in_flight),
        window("points.graphql", Some("window.minute"), one.graphql_points),
        window("content.minute", Some("window.minute"), one.content_minute),
        window("content.hour", Some("window.hour"), one.content_hour),
    ];
    windows.extend(one.points.iter().map(|(endpoint, used)| {
        let mut window = window("points.rest", Some("window.minute"), *used);
        window["endpoint"] = json!(endpoint);
        window
    }));
    windows
}

/// Requests sent before the reset count as `sent_while_limited`.
pub fn announced(state: &State, now: Timestamp) -> Vec<Value> {
    let line = |(account, resource, until): (_, crate::emulator::control::Resource, Timestamp)| json!({ "account": state.world.account_name(account), "resource": resource.name(), "until": iso(until) });
    state.announced(now).map(line).collect()
}
