//! Deployments and their statuses.

use serde_json::{Value, json};

use super::{Place, raise, text};
use crate::emulator::events::changes::{Change, WebhookEvent};
use crate::emulator::generic::address::Address;
use crate::emulator::generic::{bodies, seeds};
use crate::emulator::http::{ApiError, Fields, Reply, segment};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Outcome};

const DEPLOYMENTS: &str = "deployments";
/// The running service's states.
const STATES: [&str; 7] =
    ["error", "failure", "inactive", "in_progress", "pending", "queued", "success"];
/// The running service's limit.
const DESCRIPTION_CHARS_MAX: usize = 140;

pub fn create(call: &mut Call<'_>, _: &Address) -> Outcome {
    let mut fields = Fields::parse("Deployment", call.body)?;
    let name = fields.required_string("ref");
    let history = call.history()?;
    let commit = history.named(&name);
    if commit.is_none() && !name.is_empty() {
        fields.invalid("ref", format!("No ref found for: {name}"));
    }
    let sha = commit.map(|commit| commit.sha.clone());
    let task = fields.string("task").unwrap_or_else(|| "deploy".to_owned());
    let environment = fields.string("environment").unwrap_or_else(|| "production".to_owned());
    let description = fields.nullable_string("description").value();
    let transient = fields.boolean("transient_environment").unwrap_or(false);
    let production = fields.boolean("production_environment");
    let _ = (fields.boolean("auto_merge"), fields.strings("required_contexts"));
    let payload = fields.value("payload").cloned().unwrap_or_else(|| json!({}));
    if !payload.is_object() && !payload.is_string() {
        fields.invalid("payload", "payload is neither an object nor a string");
    }
    fields.check()?;
    let url = call.renderer().repository_url(call.repository()?);
    // Other members are stored as sent.
    let mut stored = bodies::kept(bodies::object(call)?);
    stored.extend(seeds::object(json!({
        "ref": name, "sha": sha, "task": task, "environment": environment,
        "original_environment": environment, "description": description, "payload": payload,
        "transient_environment": transient, "repository_url": url,
        "production_environment": production.unwrap_or(environment == "production"),
        "creator": Renderer::of(call).user_summary(call.actor()),
    })));
    let place = Place::of(call, DEPLOYMENTS);
    let deployment = place.add(call, stored)?;
    add_environment(call, &environment)?;
    let value = place.render(call.world, &deployment);
    let shown = value.clone();
    let change = Change::of(WebhookEvent::new("deployment", "created"));
    raise(call, change, |_| json!({ "deployment": shown, "workflow": null, "workflow_run": null }));
    let location = value["url"].as_str().unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

/// The first deployment to an environment creates it.
fn add_environment(call: &mut Call<'_>, name: &str) -> Result<(), ApiError> {
    let (collection, key) = (Place::of(call, "environments").collection(), segment(name));
    if seeds::get(call, &collection, &key).is_none() && !name.is_empty() {
        let fields =
            json!({ "name": name, "protection_rules": [], "deployment_branch_policy": null });
        seeds::put(call, &collection, &key, seeds::object(fields))?;
    }
    Ok(())
}

pub fn create_status(call: &mut Call<'_>, address: &Address) -> Outcome {
    let place = Place::of(call, DEPLOYMENTS);
    let deployment = place.get(call, address.value("deployment_id").unwrap_or(""))?;
    let mut fields = Fields::parse("DeploymentStatus", call.body)?;
    let state = fields.required_string("state");
    if !state.is_empty() && !STATES.contains(&state.as_str()) {
        fields.invalid("state", format!("state must be {}", STATES.join(", ")));
    }
    let description = fields.nullable_string("description").value().unwrap_or_default();
    if description.chars().count() > DESCRIPTION_CHARS_MAX {
        fields.invalid("description", "description must have 140 characters at most");
    }
    let environment = fields.string("environment");
    let _ = fields.boolean("auto_inactive");
    let [target_url, log_url, environment_url] = ["target_url", "log_url", "environment_url"]
        .map(|name| fields.nullable_string(name).value().unwrap_or_default());
    fields.check()?;
    let environment = environment.unwrap_or_else(|| text(&deployment, "environment").to_owned());
    let mut shown_deployment = place.render(call.world, &deployment);
    let log_url = if log_url.is_empty() { target_url.clone() } else { log_url };
    // Other members are stored as sent.
    let mut stored = bodies::kept(bodies::object(call)?);
    stored.extend(seeds::object(json!({
        "state": state, "description": description, "environment": environment,
        "target_url": target_url, "log_url": log_url, "environment_url": environment_url,
        "deployment_url": shown_deployment["url"],
        "repository_url": call.renderer().repository_url(call.repository()?),
        "creator": Renderer::of(call).user_summary(call.actor()),
    })));
    let own = format!("{DEPLOYMENTS}/{}/statuses", deployment.id);
    let statuses = Place::of(call, &own);
    let status = statuses.add(call, stored)?;
    let value = Place::of(call, &own).render(call.world, &status);
    let deployment = place.change(call, &deployment, json!({ "environment": environment }))?;
    shown_deployment["updated_at"] = place.render(call.world, &deployment)["updated_at"].take();
    let shown: Value = json!({ "deployment_status": value, "deployment": shown_deployment });
    raise(call, Change::of(WebhookEvent::new("deployment_status", "created")), |_| shown);
    let location = value["url"].as_str().unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}
