//! `/_emulator/gates` and `/_emulator/faults`: what a test arms and removes again.
//!
//! `{"match": {"method": "GET", "path": "/repos/*"}}` shuts a gate; method and path match anything
//! by default. `{"match": {"method", "path", "account", "token", "nth", "times"}, "fault":
//! "status", …}` arms a fault.

use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};

use super::{
    ControlResult, JsonReply, check, members, refuse, refuse_field, success, unprocessable,
    wrong_members,
};
use crate::emulator::faults::gates::GateId;
use crate::emulator::faults::{FaultId, FaultSpec, Members, WrongMember};
use crate::emulator::http::path::canonical;
use crate::emulator::http::{ApiArea, Query};
use crate::emulator::state::State;

pub fn gates(
    state: &mut State,
    method: &str,
    rest: &[&str],
    query: &Query,
    body: &[u8],
) -> ControlResult {
    let gates = &mut state.gates;
    let gate = |id: &str| id.parse().ok().map(GateId);
    match (method, rest) {
        ("POST", []) => shut(state, body),
        ("GET", [id]) => {
            // With `?held=N` the server has already waited for N held requests.
            check_count(query, "held")?;
            let gate = gate(id).filter(|gate| !gates.is_open(*gate));
            let shown = gate.map(|gate| json!({ "id": gate.0, "held": gates.held(gate) }));
            found(shown, "there is no such gate")
        }
        ("DELETE", [id]) => {
            let released = gate(id).and_then(|gate| gates.open(gate));
            found(released.map(|count| json!({ "released": count })), "there is no such gate")
        }
        ("DELETE", _) => Ok(success(json!({ "released": gates.open_all() }))),
        _ => {
            let shown = gates.list().map(|(id, method, path, held)| {
                let method = method.map(Method::as_str);
                json!({ "id": id.0, "method": method, "path": path, "held": held })
            });
            Ok(success(json!({ "gates": shown.collect::<Vec<_>>() })))
        }
    }
}

fn shut(state: &mut State, body: &[u8]) -> ControlResult {
    let given = members(body)?;
    let mut members = Members::of(&given);
    let mut wanted = members.inner("match");
    let (method, path) = (wanted.method("method"), wanted.path("path"));
    members.absorb(wanted);
    check(members)?;
    match state.gates.shut(method, path) {
        Some(GateId(id)) => Ok((StatusCode::CREATED, json!({ "id": id }))),
        None => unprocessable("there are too many gates; delete some"),
    }
}

pub fn faults(
    state: &mut State,
    method: &str,
    rest: &[&str],
    query: &Query,
    body: &[u8],
) -> ControlResult {
    let faults = &mut state.faults;
    let fault = |id: &str| id.parse().ok().map(FaultId);
    match (method, rest) {
        ("POST", []) => arm(state, body),
        ("GET", [id]) => {
            // With `?struck=N` the server has already waited for N strikes.
            check_count(query, "struck")?;
            found(fault(id).and_then(|id| faults.show(id)), "there is no such fault")
        }
        ("DELETE", [id]) => {
            let gone = fault(id).and_then(|id| faults.disarm(id));
            let shown = |(struck, released)| json!({ "struck": struck, "released": released });
            found(gone.map(shown), "there is no such fault")
        }
        ("DELETE", _) => {
            let gone: Vec<(u64, usize)> =
                faults.ids().into_iter().filter_map(|id| faults.disarm(id)).collect();
            let released: usize = gone.iter().map(|(_, released)| released).sum();
            Ok(success(json!({ "deleted": gone.len(), "released": released })))
        }
        _ => {
            let shown = faults.ids().into_iter().filter_map(|id| faults.show(id));
            Ok(success(json!({ "faults": shown.collect::<Vec<_>>() })))
        }
    }
}

fn arm(state: &mut State, body: &[u8]) -> ControlResult {
    let spec = FaultSpec::read(&members(body)?).map_err(wrong_members)?;
    let wrong = unknown_names(state, &spec);
    if !wrong.is_empty() {
        return Err(wrong_members(wrong));
    }
    match state.faults.arm(spec) {
        Some(id) => Ok((StatusCode::CREATED, json!(state.faults.show(id)))),
        None => unprocessable("there are too many faults; delete some"),
    }
}

/// Lists the account or token of a fault that no request can have. Recorded exchanges accept any.
fn unknown_names(state: &State, spec: &FaultSpec) -> Vec<WrongMember> {
    let (account, token) = spec.named();
    let (world, is_replay) = (&state.world, state.replayer.is_some());
    let unknown = |member: &str, accepted: &str| WrongMember {
        member: format!("match.{member}"),
        problem: "unknown value".to_owned(),
        accepted: accepted.to_owned(),
    };
    let account = account
        .filter(|name| !is_replay && !world.has_account(name))
        .map(|_| unknown("account", "an account as the transcript names it"));
    let token = token
        .filter(|secret| is_replay || !world.token_positions.contains_key(*secret))
        .map(|_| unknown("token", "a token of the world; a replay has none"));
    account.into_iter().chain(token).collect()
}

fn check_count(query: &Query, name: &str) -> Result<(), JsonReply> {
    match query.get(name).map(str::parse::<u64>) {
        Some(Err(_)) => refuse_field(name, format!("{name} must be a whole number")),
        None | Some(Ok(_)) => Ok(()),
    }
}

fn found(shown: Option<Value>, otherwise: &str) -> ControlResult {
    match shown {
        Some(value) => Ok(success(value)),
        None => refuse(StatusCode::NOT_FOUND, otherwise),
    }
}

/// Parses `GET /_emulator/gates/{id}?held=N` or `GET /_emulator/faults/{id}?struck=N`, which wait
/// for N held requests or strikes, into the id and N.
pub fn parse_wait(
    method: &Method,
    uri: &Uri,
    collection: &str,
    counted: &str,
) -> Option<(u64, u64)> {
    let canonical = canonical(uri.path());
    if method != Method::GET || canonical.area != ApiArea::Control {
        return None;
    }
    let id = canonical.path.strip_prefix(collection)?.parse().ok()?;
    let count = Query::parse(uri.query()).get(counted)?.parse().ok()?;
    Some((id, count))
}
