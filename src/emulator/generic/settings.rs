//! Routes that set a value: settings that exist from the start, switches that are off by default,
//! and sets of names.

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::address::Address;
use super::answers::{change, delete, render_current};
use super::bodies::Members;
use super::shape::Wrapping;
use super::{Facts, bodies, seeds};
use crate::emulator::http::{ApiError, Reply, segment};
use crate::emulator::routing::{Call, Outcome};
use crate::emulator::world::StoredItem;

/// Settings with a PUT that answers their new value; the others answer no body.
const ANSWERED: &[&str] =
    &["/interaction-limits", "/content_exclusion", "/subscription", "/memberships/orgs/{org}"];

/// GET shows, PUT and POST replace, PATCH merges, DELETE clears.
pub fn answer(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    let kept = seeds::current(call, address).ok();
    match facts.endpoint.method {
        Method::GET => {
            let mut shown = begins_as(facts.template, address);
            let Some(item) = kept else { return Ok(Reply::ok(Value::Object(shown))) };
            shown.extend(item.fields);
            Ok(Reply::ok(Value::Object(shown)).changed_at(item.updated_at))
        }
        Method::DELETE => {
            call.world.collections.take(&address.parent(), address.name(), call.now);
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        Method::PATCH => {
            let mut fields = kept.map(|item| item.fields).unwrap_or_default();
            fields.extend(bodies::kept(bodies::object(call)?));
            seeds::put(call, &address.parent(), address.name(), fields.clone())?;
            let mut shown = begins_as(facts.template, address);
            shown.extend(fields);
            Ok(Reply::ok(Value::Object(shown)))
        }
        _ => {
            let mut fields = turned_on(facts.template);
            fields.extend(bodies::kept(bodies::object(call)?));
            seeds::put(call, &address.parent(), address.name(), fields.clone())?;
            let is_answered = ANSWERED.iter().any(|suffix| facts.template.ends_with(suffix));
            Ok(if is_answered {
                Reply::ok(Value::Object(fields))
            } else {
                Reply::empty(StatusCode::NO_CONTENT)
            })
        }
    }
}

/// Replaces the object that the address names by the sent one.
fn replace(call: &mut Call<'_>, address: &Address) -> Result<StoredItem, ApiError> {
    let sent = bodies::kept(bodies::object(call)?);
    seeds::put(call, &address.parent(), address.name(), sent)
}

/// Answers 404 until PUT or POST creates it, and after DELETE.
pub fn switch(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    match facts.endpoint.method {
        Method::GET => {
            let item = seeds::current(call, address)?;
            Ok(Reply::ok(render_current(call, address, &item)).changed_at(item.updated_at))
        }
        Method::DELETE => delete(call, address),
        Method::PATCH => {
            let sent = bodies::kept(bodies::object(call)?);
            Ok(Reply::ok(change(call, address, |fields| fields.extend(sent))?))
        }
        _ => {
            let item = replace(call, address)?;
            let is_post = facts.endpoint.method == Method::POST;
            let status = if is_post { StatusCode::CREATED } else { StatusCode::OK };
            Ok(Reply::json(status, render_current(call, address, &item)))
        }
    }
}

/// Answers only 204 or 404.
pub fn check(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    match facts.endpoint.method {
        Method::GET => seeds::current(call, address)?,
        Method::DELETE => return delete(call, address),
        _ => replace(call, address)?,
    };
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// POST adds, PUT replaces, DELETE removes the given names, or all without any.
pub fn names(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    let (member, collection) = (address.name().to_owned(), address.whole());
    let given = bodies::names(&bodies::members(call)?, &member)?;
    let method = &facts.endpoint.method;
    if *method == Method::PUT || (*method == Method::DELETE && given.is_empty()) {
        call.world.collections.clear_below(&collection);
    }
    for name in &given {
        if *method == Method::DELETE {
            call.world.collections.take(&collection, &segment(name), call.now);
        } else if call
            .world
            .collections
            .collection(&collection)
            .is_none_or(|collection| collection.get(&segment(name)).is_none())
        {
            let fields = Map::from_iter([
                ("name".to_owned(), json!(name)),
                (member.trim_end_matches('s').to_owned(), json!(name)),
            ]);
            let item = StoredItem::new(call.world.next_id(), fields, call.now);
            call.world.collections.put(&collection, &segment(name), item)?;
        }
    }
    let stored = seeds::items(call.world, &collection);
    let total = stored.len();
    let items = stored.into_iter().map(|(_, item)| Value::Object(item.fields)).collect();
    let value = facts.wrapping.wrap(items, total);
    Ok(match facts.wrapping {
        Wrapping::Member(_) => Reply::ok(value),
        Wrapping::Bare if *method == Method::DELETE => Reply::empty(StatusCode::NO_CONTENT),
        Wrapping::Bare => Reply::json(StatusCode::CREATED, value),
    })
}

/// Returns the value that a PUT without a body sets.
fn turned_on(template: &str) -> Members {
    let enables = template.ends_with("/immutable-releases")
        || template.ends_with("/automated-security-fixes");
    if enables { Map::from_iter([("enabled".to_owned(), json!(true))]) } else { Map::new() }
}

/// Returns the initial value, in the running service's fields.
fn begins_as(template: &str, address: &Address) -> Members {
    let is_of_repository = template.starts_with("/repos/");
    let value = match template.rsplit('/').next().unwrap_or("") {
        _ if address.name() == "public-key" => {
            json!({ "key_id": "1", "key": "ZW11bGF0ZWQtcHVibGljLWtleS1vZi0zMi1ieXRlcyE=" })
        }
        "permissions" if is_of_repository => json!({ "enabled": true, "allowed_actions": "all" }),
        "permissions" => json!({ "enabled_repositories": "all", "allowed_actions": "all" }),
        "workflow" => {
            json!({ "default_workflow_permissions": "read", "can_approve_pull_request_reviews": false })
        }
        "access" => json!({ "access_level": "none" }),
        "selected-actions" => {
            json!({ "github_owned_allowed": true, "verified_allowed": false, "patterns_allowed": [] })
        }
        "artifact-and-log-retention" => json!({ "days": 90, "maximum_allowed_days": 400 }),
        "fork-pr-contributor-approval" => json!({ "approval_policy": "first_time_contributors" }),
        "fork-pr-workflows-private-repos" => {
            json!({ "run_workflows_from_fork_pull_requests": false })
        }
        "self-hosted-runners" => json!({ "enabled_repositories": "all" }),
        "retention-limit" => json!({ "max_cache_retention_days": 7 }),
        "storage-limit" => json!({ "max_cache_size_gb": 10 }),
        "sub" => json!({ "use_default": true, "include_claim_keys": [] }),
        "automated-security-fixes" => json!({ "enabled": false, "paused": false }),
        "immutable-releases" => json!({ "enabled": false, "enforced_by_owner": false }),
        "default-setup" => json!({ "state": "not-configured", "languages": [] }),
        "timing" => json!({ "billable": {}, "run_duration_ms": 0 }),
        "clones" => json!({ "count": 0, "uniques": 0, "clones": [] }),
        "views" => json!({ "count": 0, "uniques": 0, "views": [] }),
        "errors" => json!({ "errors": [] }),
        "participation" => json!({ "all": [], "owner": [] }),
        "profile" => {
            json!({ "health_percentage": 28, "description": null, "documentation": null, "files": {} })
        }
        "sbom" => {
            json!({ "sbom": { "spdxVersion": "SPDX-2.3", "SPDXID": "SPDXRef-DOCUMENT", "packages": [] } })
        }
        "billing" => {
            json!({ "seat_breakdown": { "total": 0 }, "seat_management_setting": "unconfigured" })
        }
        "usage" if template.ends_with("/cache/usage") => {
            json!({ "active_caches_size_in_bytes": 0, "active_caches_count": 0, "total_active_caches_size_in_bytes": 0, "total_active_caches_count": 0 })
        }
        "usage" | "summary" => json!({ "usageItems": [] }),
        "repository-access" => json!({ "default_level": null, "accessible_repositories": [] }),
        "pattern-configurations" => {
            json!({ "provider_pattern_overrides": [], "custom_pattern_overrides": [] })
        }
        _ => Value::Null,
    };
    seeds::object(value)
}
