//! Actions: their effect on the target object and their response.
//!
//! An action with an effect that no route shows answers and changes nothing.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::address::Address;
use super::answers::choose;
use super::bodies::Members;
use super::{Facts, bodies, seeds};
use crate::emulator::http::{ApiError, Reply, hex, iso};
use crate::emulator::routing::{Call, Outcome};
use crate::emulator::world::{Owner, StoredItem};

/// The lifetime of the running service's registration tokens.
const REGISTRATION_FOR: Duration = Duration::from_hours(1);

/// Returns the changes to the target object, by the action's name.
fn outcome(action: &str) -> Value {
    match action {
        "cancel" | "force-cancel" => json!({ "status": "completed", "conclusion": "cancelled" }),
        "rerun" | "rerun-failed-jobs" | "approve" | "rerequest" => {
            json!({ "status": "queued", "conclusion": null })
        }
        "enable" => json!({ "state": "active" }),
        "disable" => json!({ "state": "disabled_manually" }),
        "dismissals" => json!({ "state": "DISMISSED" }),
        _ => Value::Null,
    }
}

pub fn act(call: &mut Call<'_>, facts: &Facts, address: &Address, status: StatusCode) -> Outcome {
    let method = &facts.endpoint.method;
    let sent = if *method == Method::POST {
        bodies::of_new(call, facts.template)?
    } else {
        bodies::members(call)?
    };
    change_parent(call, address, address.name())?;
    match facts.template.rsplit('/').next().unwrap_or("") {
        "attach" => attach(call, address, &sent)?,
        "detach" => detach(call, address, &sent)?,
        "defaults" => make_default(call, address, &sent)?,
        "generate-jitconfig" => return register(call, address, &sent),
        _ => {}
    }
    Ok(match status {
        StatusCode::NO_CONTENT => Reply::empty(status),
        _ => Reply::json(status, answer(call, method, address.name(), &sent)),
    })
}

fn change_parent(call: &mut Call<'_>, address: &Address, action: &str) -> Result<(), ApiError> {
    let Value::Object(changes) = outcome(action) else { return Ok(()) };
    let [before @ .., target, _] = address.steps.as_slice() else { return Ok(()) };
    if target.param.is_empty() {
        return Ok(());
    }
    let collection = address.leading(before.len());
    let found = seeds::get(call, &collection, &target.text);
    let Some(StoredItem { mut fields, .. }) = found else { return Ok(()) };
    fields.extend(changes);
    let attempt = fields.get("run_attempt").and_then(Value::as_u64);
    if let Some(attempt) = attempt.filter(|_| action.starts_with("rerun")) {
        fields.insert("run_attempt".to_owned(), json!(attempt + 1));
    }
    seeds::put(call, &collection, &target.text, fields).map(|_| ())
}

/// Attaches a configuration to the repositories in the body, or to all of the organisation's.
fn attach(call: &mut Call<'_>, address: &Address, sent: &Members) -> Result<(), ApiError> {
    let owner = Owner::Organization(call.organization);
    let is_ours = |id: u64| {
        call.world.repositories.get(&id).is_some_and(|repository| repository.owner == owner)
    };
    let ids = if sent.contains_key("selected_repository_ids") {
        bodies::numbers(sent, is_ours)?
    } else {
        let ours = call.world.repositories_of(owner);
        ours.map(|repository| repository.id).take(ATTACHED_MAX).collect()
    };
    let collection = format!("{}/repositories", address.parent());
    ids.into_iter().try_for_each(|id| choose(call, &collection, &id.to_string(), "repository_id"))
}

const ATTACHED_MAX: usize = 250;

fn detach(call: &mut Call<'_>, address: &Address, sent: &Members) -> Result<(), ApiError> {
    let ids = bodies::numbers(sent, |_| true)?;
    for (name, _) in seeds::items(call.world, &address.parent()) {
        let collection = format!("{}/{name}/repositories", address.parent());
        for id in &ids {
            call.world.collections.take(&collection, &id.to_string(), call.now);
        }
    }
    Ok(())
}

fn make_default(call: &mut Call<'_>, address: &Address, sent: &Members) -> Result<(), ApiError> {
    let Some(configuration) = address.value("configuration_id") else { return Ok(()) };
    let mut fields = bodies::kept(sent.clone());
    fields.insert("configuration_id".to_owned(), json!(configuration.parse::<u64>().unwrap_or(0)));
    let item = StoredItem::new(call.world.next_id(), fields, call.now);
    let defaults = address.sibling("/code-security/configurations/defaults");
    Ok(call.world.collections.put(&defaults, configuration, item)?)
}

/// Returns the body of an action that has one.
fn answer(call: &Call<'_>, method: &Method, action: &str, sent: &Members) -> Value {
    let text = |name: &str| sent.get(name).and_then(Value::as_str).unwrap_or("");
    match action {
        "registration-token" | "remove-token" => {
            let secret = ring::digest::digest(
                &ring::digest::SHA256,
                format!("{action} {}", call.now.as_millis()).as_bytes(),
            );
            json!({ "token": format!("EMU{}", hex(&secret.as_ref()[..12]).to_uppercase()), "expires_at": iso(call.now + REGISTRATION_FOR) })
        }
        "generate-notes" => {
            json!({ "name": text("tag_name"), "body": format!("## What changed in {}\n", text("tag_name")) })
        }
        "selected_teams" | "selected_users" => {
            let names = sent.values().find_map(Value::as_array).map_or(0, Vec::len);
            let member =
                if *method == Method::DELETE { "seats_cancelled" } else { "seats_created" };
            json!({ member: names })
        }
        "merge-upstream" => {
            json!({ "message": "This branch is not behind the upstream.", "merge_type": "none", "base_branch": text("branch") })
        }
        "snapshots" => {
            json!({ "id": call.now.as_secs(), "created_at": iso(call.now), "result": "SUCCESS", "message": "Dependency results for the repository have been updated." })
        }
        _ => json!({}),
    }
}

/// Adds a runner that was configured just in time.
fn register(call: &mut Call<'_>, address: &Address, sent: &Members) -> Outcome {
    let id = call.world.next_id();
    let name = sent.get("name").and_then(Value::as_str).unwrap_or("runner");
    let mut fields = seeds::object(
        json!({ "name": name, "os": "unknown", "status": "offline", "busy": false, "runner_group_id": sent.get("runner_group_id") }),
    );
    let item = StoredItem::new(id, fields.clone(), call.now);
    call.world.collections.put(&address.parent(), &id.to_string(), item)?;
    fields.insert("id".to_owned(), json!(id));
    let encoded = STANDARD.encode(format!("{{\"runner\":{id}}}"));
    Ok(Reply::json(StatusCode::CREATED, json!({ "runner": fields, "encoded_jit_config": encoded })))
}
