//! The simulated CPU time of a request. The real service measures it; here it follows from the
//! request and the response size, so it is reproducible. A test raises the costs through the limits
//! `cpu-micros.*`.

use serde_json::Value;

use crate::emulator::http::{ApiError, Body, Reply};
use crate::emulator::limits::Limits;
use crate::emulator::limits::secondary::Style;
use crate::emulator::routing::Verb;

/// Microseconds: a base by kind, plus a share for each item or GraphQL object of the response.
pub fn micros(
    limits: &Limits,
    style: Style,
    verb: Option<Verb>,
    outcome: &Result<Reply, ApiError>,
) -> u64 {
    let body = outcome.as_ref().ok().map(|reply| &reply.body);
    let (base, items) = match (style, verb) {
        // Other machines serve files.
        (Style::Transfer, _) => return 0,
        (Style::Graphql, _) => ("cpu-micros.graphql", body.map_or(0, objects_of)),
        (Style::Rest, Some(Verb::Get) | None) => ("cpu-micros.read", body.map_or(0, items_of)),
        (Style::Rest, Some(_)) => ("cpu-micros.write", body.map_or(0, items_of)),
    };
    limits.get(base).saturating_add(limits.get("cpu-micros.item").saturating_mul(items))
}

/// Returns the length of a list response, or of the longest list in it (`repositories`, `items`).
fn items_of(body: &Body) -> u64 {
    let items = match body {
        Body::Json(Value::Array(items)) => items.len(),
        Body::Json(Value::Object(members)) => {
            members.values().filter_map(Value::as_array).map(Vec::len).max().unwrap_or(0)
        }
        Body::Json(_) | Body::Empty | Body::Raw(..) => 0,
    };
    items as u64
}

fn objects_of(body: &Body) -> u64 {
    fn objects(value: &Value) -> u64 {
        match value {
            Value::Object(members) => 1 + members.values().map(objects).sum::<u64>(),
            Value::Array(items) => items.iter().map(objects).sum(),
            _ => 0,
        }
    }
    if let Body::Json(value) = body { objects(value) } else { 0 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cost(style: Style, verb: Verb, answer: Value) -> u64 {
        micros(&Limits::default(), style, Some(verb), &Ok(Reply::ok(answer)))
    }

    #[test]
    fn a_longer_list_costs_more_and_a_write_more_than_a_read() {
        assert_eq!(cost(Style::Rest, Verb::Get, json!([1, 2, 3])), 1_030);
        assert_eq!(
            cost(Style::Rest, Verb::Get, json!({ "total_count": 2, "items": [1, 2] })),
            1_020
        );
        assert_eq!(cost(Style::Rest, Verb::Post, json!({})), 2_000);
    }

    #[test]
    fn graphql_costs_by_its_objects_and_a_transfer_nothing() {
        assert_eq!(
            cost(Style::Graphql, Verb::Post, json!({ "data": { "viewer": { "login": "ada" } } })),
            2_030
        );
        assert_eq!(cost(Style::Transfer, Verb::Post, json!({})), 0);
    }

    #[test]
    fn a_failed_request_costs_its_base() {
        assert_eq!(
            micros(&Limits::default(), Style::Rest, Some(Verb::Get), &Err(ApiError::NotFound)),
            1_000
        );
    }
}
