//! `/_emulator/limits`: limits and window lengths by name.
//!
//! A limit of one account or endpoint must name one that exists, so that a typing error does not
//! leave a test without its limit.

use serde_json::{Map, Value, json};

use super::{ControlResult, object, refuse_field, success, wrong_members};
use crate::emulator::faults::WrongMember;
use crate::emulator::limits::Resource;
use crate::emulator::state::State;
use crate::emulator::{generic, resources};

pub fn shown(state: &State) -> Value {
    let values: Map<String, Value> =
        state.limits.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    json!({ "limits": values, "resources": Resource::ALL.map(Resource::name) })
}

/// Sets limits from `{"core": 50, "window.primary": 10}`, also inside `{"limits": …}`; all or none.
pub fn set(state: &mut State, body: &[u8]) -> ControlResult {
    let given = object(body, "an object of names and numbers is needed")?;
    let inner = given.get("limits").and_then(Value::as_object);
    // The answer of GET may be sent back as it is.
    let mut beside = given.keys().filter(|name| !["limits", "resources"].contains(&name.as_str()));
    if let (Some(_), Some(name)) = (inner, beside.next()) {
        return refuse_field(name, format!("{name}: beside limits; put it inside"));
    }
    let mut changed = state.limits.clone();
    let mut wrong = Vec::new();
    for (name, value) in inner.unwrap_or(&given) {
        let (problem, accepted) = match value.as_u64() {
            None => ("wrong type".to_owned(), "a whole number".to_owned()),
            Some(value) => match named(state, name).map(|()| changed.set(name, value)) {
                Ok(Ok(())) => continue,
                Ok(Err(wrong)) => (wrong.to_string(), wrong.accepted()),
                Err((problem, accepted)) => (problem.to_owned(), accepted.to_owned()),
            },
        };
        wrong.push(WrongMember { member: name.clone(), problem, accepted });
    }
    if !wrong.is_empty() {
        return Err(wrong_members(wrong));
    }
    state.limits = changed;
    Ok(success(shown(state)))
}

/// Checks that `core@ada` names an account and `points@GET /user` an endpoint.
fn named(state: &State, name: &str) -> Result<(), (&'static str, &'static str)> {
    let Some((limit, of)) = name.split_once('@') else { return Ok(()) };
    if Resource::named(limit).is_some() {
        let is_known = state.replayer.is_some() || state.world.has_account(of);
        let accepted = "an account as the transcript names it, such as core@ada";
        return if is_known { Ok(()) } else { Err(("there is no such account", accepted)) };
    }
    let accepted = "an endpoint as the transcript names it, such as points@GET /user";
    if state.replayer.is_some() || is_endpoint(state, of) {
        Ok(())
    } else {
        Err(("there is no such endpoint", accepted))
    }
}

fn is_endpoint(state: &State, endpoint: &str) -> bool {
    let Some((method, template)) = endpoint.split_once(' ') else { return false };
    endpoint == "POST /graphql"
        || resources::all().any(|route| route.verb.name() == method && route.template == template)
        || generic::has_endpoint(state.options.dialect, method, template)
}
