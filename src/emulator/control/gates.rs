//! `/_emulator/gates`: `{"match": {"method": "GET", "path": "/repos/*"}}` shuts a gate; method and
//! path match anything by default.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{JsonReply, members, refuse, refuse_field, refuse_members};
use crate::emulator::faults::Members;
use crate::emulator::faults::gates::GateId;
use crate::emulator::http::Query;
use crate::emulator::state::State;

pub fn respond(
    state: &mut State,
    method: &str,
    rest: &[&str],
    query: &Query,
    body: &[u8],
) -> JsonReply {
    match (method, rest) {
        ("POST", []) => shut(state, body),
        ("GET", [id]) => show(state, id, query),
        ("DELETE", [id]) => open(state, id),
        ("DELETE", _) => (StatusCode::OK, json!({ "released": state.gates.open_all() })),
        _ => (StatusCode::OK, list(state)),
    }
}

fn list(state: &State) -> Value {
    let list: Vec<Value> = state
        .gates
        .list()
        .map(|(id, method, path, held)| json!({ "id": id.0, "method": method.map(Method::as_str), "path": path, "held": held }))
        .collect();
    json!({ "gates": list })
}

fn shut(state: &mut State, body: &[u8]) -> JsonReply {
    let given = match members(body) {
        Ok(given) => given,
        Err(refusal) => return refusal,
    };
    let mut members = Members::of(&given);
    let mut wanted = members.inner("match");
    let (method, path) = (wanted.method("method"), wanted.path("path"));
    members.absorb(wanted);
    let wrong = members.finish();
    if !wrong.is_empty() {
        return refuse_members(wrong);
    }
    match state.gates.shut(method, path) {
        Some(GateId(id)) => (StatusCode::CREATED, json!({ "id": id })),
        None => refuse(StatusCode::UNPROCESSABLE_ENTITY, "there are too many gates; delete some"),
    }
}

fn id_of(id: &str) -> Option<GateId> {
    id.parse().ok().map(GateId)
}

/// With `?held=N` the server has already waited for N held requests.
fn show(state: &State, id: &str, query: &Query) -> JsonReply {
    if query.get("held").is_some_and(|count| count.parse::<usize>().is_err()) {
        return refuse_field("held", "held must be a whole number");
    }
    match id_of(id).filter(|gate| !state.gates.is_open(*gate)) {
        Some(gate) => (StatusCode::OK, json!({ "id": gate.0, "held": state.gates.held(gate) })),
        None => refuse(StatusCode::NOT_FOUND, "there is no such gate"),
    }
}

fn open(state: &mut State, id: &str) -> JsonReply {
    match id_of(id).and_then(|gate| state.gates.open(gate)) {
        Some(released) => (StatusCode::OK, json!({ "released": released })),
        None => refuse(StatusCode::NOT_FOUND, "there is no such gate"),
    }
}
