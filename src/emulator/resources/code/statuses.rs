//! Commit statuses: single, and combined for a commit.

use serde_json::{Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::events::changes::{self, Change, EventContext, WebhookEvent};
use crate::emulator::generic;
use crate::emulator::http::{ApiError, Fields, Reply, SITE, iso};
use crate::emulator::render::{Renderer, extend, node_id, object};
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
    Ok(call.history()?.named(name).ok_or(ApiError::NotFound)?.sha.clone())
}

fn create(call: &mut Call<'_>) -> Outcome {
    let sha = commit(call, call.params.get("sha"))?;
    let mut fields = Fields::parse("Status", call.body)?;
    let state = fields.required_string("state");
    if !state.is_empty() && !STATES.contains(&state.as_str()) {
        fields.invalid("state", "state must be error, failure, pending or success");
    }
    let target_url = fields.nullable_string("target_url").value();
    let description = fields.nullable_string("description").value();
    let context = fields.string("context").unwrap_or_else(|| "default".to_owned());
    fields.check()?;
    let (id, collection) = (call.world.next_id(), collection(call));
    let fields = object([
        ("state", json!(state)),
        ("target_url", json!(target_url)),
        ("description", json!(description)),
        ("context", json!(context)),
        ("sha", json!(sha)),
        ("by", json!(call.actor())),
    ]);
    generic::settle(call.world, &collection)?;
    let status = call.store(&collection, &id.to_string(), id, fields)?;
    let value = render(call, &status)?;
    let event = WebhookEvent { name: "status", action: None };
    let (mut shown, repository) = (value.clone(), call.repository);
    changes::record(call.world, EventContext::of(call), Change::of(event), |renderer| {
        extend(&mut shown, of_payload(renderer, repository, &sha));
        shown
    });
    Ok(Reply::created_at_url(value))
}

/// The commit of a status and the branches that end with it, as payloads name them.
fn of_payload(renderer: &Renderer<'_>, repository: u64, sha: &str) -> Value {
    let Some(repository) = renderer.world.repositories.get(&repository) else { return json!({}) };
    let history = renderer.world.history(repository);
    let is_head = |branch: &&str| history.head(branch).is_some_and(|head| head.sha == sha);
    let branch = |name: &str| json!({ "name": name, "commit": { "sha": sha } });
    json!({
        "sha": sha,
        "name": renderer.world.full_name(repository),
        "commit": history.commit(sha).map(|commit| renderer.commit(repository, commit)),
        "branches": history.branches().filter(is_head).map(branch).collect::<Vec<_>>(),
    })
}

fn of_commit(call: &Call<'_>) -> Result<(String, Vec<StoredItem>), ApiError> {
    let sha = commit(call, call.params.get("ref"))?;
    let statuses =
        generic::items(call.world, &collection(call)).into_iter().map(|(_, status)| status);
    Ok((sha.clone(), statuses.rev().filter(|status| text(status, "sha") == sha).collect()))
}

fn text<'t>(status: &'t StoredItem, name: &str) -> &'t str {
    status.fields.get(name).and_then(Value::as_str).unwrap_or("")
}

fn render(call: &Call<'_>, status: &StoredItem) -> Result<Value, ApiError> {
    let base = call.renderer().repository_url(call.repository()?);
    let creator =
        status.fields.get("by").and_then(Value::as_u64).unwrap_or(call.world.machine_user);
    Ok(json!({
        "id": status.id, "node_id": node_id("StatusContext", status.id), "url": format!("{base}/statuses/{}", text(status, "sha")),
        "state": status.fields.get("state"), "context": status.fields.get("context"), "description": status.fields.get("description"),
        "target_url": status.fields.get("target_url"), "avatar_url": format!("{SITE}/avatars/{creator}"),
        "created_at": iso(status.created_at), "updated_at": iso(status.updated_at), "creator": call.renderer().user_summary(creator),
    }))
}

fn list(call: &mut Call<'_>) -> Outcome {
    let (_, statuses) = of_commit(call)?;
    call.page(statuses, |_, status| render(call, &status).unwrap_or(Value::Null))
}

/// Combines the newest status of each context.
fn combined(call: &mut Call<'_>) -> Outcome {
    let (sha, statuses) = of_commit(call)?;
    let mut newest: Vec<StoredItem> = Vec::new();
    for status in statuses {
        if newest.iter().all(|known| text(known, "context") != text(&status, "context")) {
            newest.push(status);
        }
    }
    let has = |states: &[&str]| newest.iter().any(|status| states.contains(&text(status, "state")));
    let state = if has(&["error", "failure"]) {
        "failure"
    } else if newest.is_empty() || has(&["pending"]) {
        "pending"
    } else {
        "success"
    };
    let repository = call.repository()?;
    let base = call.renderer().repository_url(repository);
    let total = newest.len();
    let (shown, link) = pagination::cut(call, USUAL, newest);
    let statuses: Vec<Value> =
        shown.iter().filter_map(|status| render(call, status).ok()).collect();
    let mut reply = Reply::ok(json!({
        "state": state, "sha": sha, "total_count": total, "statuses": statuses,
        "repository": call.renderer().repository(repository),
        "commit_url": format!("{base}/commits/{sha}"), "url": format!("{base}/commits/{sha}/status"),
    }));
    reply.headers.extend(link);
    Ok(reply)
}
