//! `/_emulator/faults`: `{"match": {"method", "path", "account", "token", "nth", "times"}, "fault":
//! "status", …}` arms a fault.

use http::StatusCode;
use serde_json::{Value, json};

use super::{JsonReply, members, refuse, refuse_field, refuse_members};
use crate::emulator::faults::{FaultId, FaultSpec};
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
        ("POST", []) => arm(state, body),
        ("GET", [id]) => show(state, id, query),
        ("DELETE", [id]) => disarm(state, id),
        ("DELETE", _) => disarm_all(state),
        _ => (StatusCode::OK, list(state)),
    }
}

fn arm(state: &mut State, body: &[u8]) -> JsonReply {
    let given = match members(body) {
        Ok(given) => given,
        Err(refusal) => return refusal,
    };
    match FaultSpec::read(&given) {
        Err(wrong) => refuse_members(wrong),
        Ok(spec) => match state.faults.arm(spec) {
            Some(id) => (StatusCode::CREATED, state.faults.show(id).unwrap_or(Value::Null)),
            None => {
                refuse(StatusCode::UNPROCESSABLE_ENTITY, "there are too many faults; delete some")
            }
        },
    }
}

fn list(state: &State) -> Value {
    json!({ "faults": state.faults.ids().into_iter().filter_map(|id| state.faults.show(id)).collect::<Vec<_>>() })
}

fn id_of(id: &str) -> Option<FaultId> {
    id.parse().ok().map(FaultId)
}

/// With `?struck=N` the server has already waited for N strikes.
fn show(state: &State, id: &str, query: &Query) -> JsonReply {
    if query.get("struck").is_some_and(|count| count.parse::<u64>().is_err()) {
        return refuse_field("struck", "struck must be a whole number");
    }
    match id_of(id).and_then(|id| state.faults.show(id)) {
        Some(shown) => (StatusCode::OK, shown),
        None => refuse(StatusCode::NOT_FOUND, "there is no such fault"),
    }
}

fn disarm(state: &mut State, id: &str) -> JsonReply {
    match id_of(id).and_then(|id| state.faults.disarm(id)) {
        Some((struck, released)) => {
            (StatusCode::OK, json!({ "struck": struck, "released": released }))
        }
        None => refuse(StatusCode::NOT_FOUND, "there is no such fault"),
    }
}

fn disarm_all(state: &mut State) -> JsonReply {
    let gone: Vec<(u64, usize)> =
        state.faults.ids().into_iter().filter_map(|id| state.faults.disarm(id)).collect();
    (
        StatusCode::OK,
        json!({ "deleted": gone.len(), "released": gone.iter().map(|(_, released)| released).sum::<usize>() }),
    )
}
