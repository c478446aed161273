//! Commit statuses: single, and combined for a commit.

use serde_json::{Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::generic;
use crate::emulator::http::{ApiError, Fields, Reply, SITE, iso};
use crate::emulator::render::{Renderer, extend, node_id};
use crate::emulator::routing::{Call, Need, Outcome, Role, Route, USUAL, pagination};
use crate::emulator::world::StoredItem;

const READ: Need = Need::repository("statuses", Level::Read, Role::Read);
const WRITE: Need = Need::repository("statuses", Level::Write, Role::Push);

pub const ROUTES: &[Route] = &[
    Route::post("/repos/{owner}/{repo}/statuses/{sha}", WRITE, create),
    Route::get("/repos/{owner}/{repo}/commits/{ref}/statuses", READ, list),
    Route::get("/repos/{owner}/{repo}/commits/{ref}/status", READ, combined),
];

/// The running service's states.
const STATES: [&str; 4] = ["error", "failure", "pending", "success"];

fn collection(call: &Call<'_>) -> String {
    format!("repository/{}/statuses", call.repository)
}

/// Resolves a branch or commit to the commit's full id.
fn commit(call: &Call<'_>, name: &str) -> Result<String, ApiError> {
    call.world
        .history(call.repository()?)
        .named(name)
        .map(|commit| commit.sha.clone())
        .ok_or(ApiError::NotFound)
}

fn create(call: &mut Call<'_>) -> Outcome {
    let sha = commit(call, call.params.get("sha"))?;
    let mut fields = Fields::parse("Status", call.body)?;
    let state = fields.required_string("state");
    if !state.is_empty() && !STATES.contains(&state.as_str()) {
        fields.invalid("state", "state must be error, failure, pending or success");
    }
    let (target_url, description) = (
        fields.nullable_string("target_url").value(),
        fields.nullable_string("description").value(),
    );
    let context = fields.string("context").unwrap_or_else(|| "default".to_owned());
    fields.check()?;
    let (id, now, collection) = (call.world.next_id(), call.now, collection(call));
    let kept = json!({
        "state": state, "target_url": target_url, "description": description, "context": context, "sha": sha, "by": call.actor(),
    });
    let fields = kept.as_object().cloned().unwrap_or_default();
    let thing = StoredItem { id, fields, created_at: now, updated_at: now };
    generic::settle(call.world, &collection)?;
    call.world.collections.put(&collection, &id.to_string(), thing.clone())?;
    let value = render(call, &thing)?;
    let location = value.get("url").and_then(Value::as_str).unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

fn of_commit(call: &Call<'_>) -> Result<(String, Vec<StoredItem>), ApiError> {
    let sha = commit(call, call.params.get("ref"))?;
    let things = generic::items(call.world, &collection(call)).into_iter().map(|(_, thing)| thing);
    let mut things: Vec<StoredItem> = things.filter(|thing| text(thing, "sha") == sha).collect();
    things.reverse();
    Ok((sha, things))
}

fn text<'t>(thing: &'t StoredItem, name: &str) -> &'t str {
    thing.fields.get(name).and_then(Value::as_str).unwrap_or("")
}

fn render(call: &Call<'_>, thing: &StoredItem) -> Result<Value, ApiError> {
    let base = Renderer::of(call).repository_url(call.repository()?);
    let creator = thing.fields.get("by").and_then(Value::as_u64).unwrap_or(call.world.machine_user);
    Ok(json!({
        "id": thing.id, "node_id": node_id("StatusContext", thing.id), "url": format!("{base}/statuses/{}", text(thing, "sha")),
        "state": thing.fields.get("state"), "context": thing.fields.get("context"), "description": thing.fields.get("description"),
        "target_url": thing.fields.get("target_url"), "avatar_url": format!("{SITE}/avatars/{creator}"),
        "created_at": iso(thing.created_at), "updated_at": iso(thing.updated_at), "creator": Renderer::of(call).user_summary(creator),
    }))
}

fn list(call: &mut Call<'_>) -> Outcome {
    let (_, things) = of_commit(call)?;
    Ok(pagination::page(call, USUAL, things, |thing| render(call, &thing).unwrap_or(Value::Null)))
}

/// Combines the newest status of each context.
fn combined(call: &mut Call<'_>) -> Outcome {
    let (sha, things) = of_commit(call)?;
    let mut newest: Vec<StoredItem> = Vec::new();
    for thing in things {
        if newest.iter().all(|known| text(known, "context") != text(&thing, "context")) {
            newest.push(thing);
        }
    }
    let has = |states: &[&str]| newest.iter().any(|thing| states.contains(&text(thing, "state")));
    let state = if has(&["error", "failure"]) {
        "failure"
    } else if newest.is_empty() || has(&["pending"]) {
        "pending"
    } else {
        "success"
    };
    let repository = call.repository()?;
    let base = Renderer::of(call).repository_url(repository);
    let total = newest.len();
    let (shown, link) = pagination::cut(call, USUAL, newest);
    let statuses: Vec<Value> = shown.iter().filter_map(|thing| render(call, thing).ok()).collect();
    let mut value =
        json!({ "state": state, "sha": sha, "total_count": total, "statuses": statuses });
    extend(
        &mut value,
        json!({
            "repository": Renderer::of(call).repository(repository),
            "commit_url": format!("{base}/commits/{sha}"),
            "url": format!("{base}/commits/{sha}/status"),
        }),
    );
    let mut reply = Reply::ok(value);
    reply.headers.extend(link);
    Ok(reply)
}
