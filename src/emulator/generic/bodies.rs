//! Bodies of routes with undocumented fields: any object, stored as sent. Only fields that an
//! object cannot do without are required.

use serde_json::{Map, Value, json};

use super::seeds;
use crate::emulator::http::{ApiError, Code, FieldError};
use crate::emulator::routing::Call;

/// The members of a JSON object.
pub type Members = Map<String, Value>;

/// The member that stores an array body.
pub const ITEMS: &str = "items";

/// Required texts of a new object, by the end of the list's template.
const REQUIRED: &[(&str, &[&str])] = &[
    ("/check-runs", &["name", "head_sha"]),
    ("/check-suites", &["head_sha"]),
    ("/deployments", &["ref"]),
    ("/deployments/{deployment_id}/statuses", &["state"]),
    ("/keys", &["key"]),
    ("/gpg_keys", &["armored_public_key"]),
    ("/actions/variables", &["name", "value"]),
    ("/{environment_name}/variables", &["name", "value"]),
    ("/actions/runner-groups", &["name"]),
    ("/actions/hosted-runners", &["name"]),
    ("/code-security/configurations", &["name"]),
    ("/campaigns", &["name"]),
    ("/rulesets", &["name", "enforcement"]),
    ("/deployment-branch-policies", &["name"]),
    ("/autolinks", &["key_prefix", "url_template"]),
    ("/commits/{ref}/comments", &["body"]),
    ("/pulls/{pull_number}/comments", &["body"]),
    ("/replies", &["body"]),
    ("/reactions", &["content"]),
    ("/gists/{gist_id}/comments", &["body"]),
    ("/sarifs", &["commit_sha", "ref", "sarif"]),
    ("/workflows/{workflow_id}/dispatches", &["ref"]),
];

/// An array becomes the member [`ITEMS`]. Malformed JSON and other values are 400.
pub fn members(call: &Call<'_>) -> Result<Members, ApiError> {
    if call.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(call.body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Array(items)) => Ok(Map::from_iter([(ITEMS.to_owned(), Value::Array(items))])),
        Ok(_) => Err(ApiError::BadRequest("Body should be a JSON object".to_owned())),
        Err(_) => Err(ApiError::MalformedJson),
    }
}

/// Reports all missing and mistyped fields at once.
pub fn of_new(call: &Call<'_>, template: &str) -> Result<Members, ApiError> {
    let map = object(call)?;
    let required = REQUIRED.iter().find(|(suffix, _)| template.ends_with(suffix));
    let required = required.map_or(&[][..], |(_, fields)| fields);
    let faults: Vec<FieldError> = required.iter().filter_map(|name| fault(&map, name)).collect();
    if faults.is_empty() { Ok(map) } else { Err(ApiError::Invalid(faults)) }
}

pub fn object(call: &Call<'_>) -> Result<Members, ApiError> {
    let map = members(call)?;
    if call.body.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::BadRequest("Body should be a JSON object".to_owned()));
    }
    Ok(map)
}

fn fault(map: &Members, name: &str) -> Option<FieldError> {
    let error = |code, message: String| {
        Some(FieldError { resource: "Resource", field: name.to_owned(), code, message })
    };
    match map.get(name) {
        Some(Value::String(text)) if !text.trim().is_empty() => None,
        None | Some(Value::Null | Value::String(_)) => {
            error(Code::MissingField, format!("{name} is required"))
        }
        Some(_) => error(Code::Invalid, format!("{name} is not a string")),
    }
}

/// Returns the ids of a selection: the array under a member of the list's own name.
pub fn numbers(map: &Members, is_known: impl Fn(u64) -> bool) -> Result<Vec<u64>, ApiError> {
    let Some((name, given)) = map
        .iter()
        .find(|(name, value)| value.is_array() || name.ends_with("_ids") || *name == "runners")
    else {
        return Err(ApiError::field(
            "Resource",
            "selected_repository_ids",
            Code::MissingField,
            "an array of ids is required",
        ));
    };
    let invalid = |message| ApiError::invalid("Resource", name, message);
    let ids: Vec<u64> = given
        .as_array()
        .and_then(|items| items.iter().map(Value::as_u64).collect())
        .ok_or_else(|| invalid(format!("{name} is not an array of integers")))?;
    if ids.len() > NUMBERS_MAX {
        return Err(invalid(format!("{name} has more than {NUMBERS_MAX} ids")));
    }
    match ids.iter().find(|id| !is_known(**id)) {
        Some(id) => Err(invalid(format!("there is no {id}"))),
        None => Ok(ids),
    }
}

/// Accepts an array of texts or of named objects, bare or in the only array member.
pub fn names(map: &Members, member: &str) -> Result<Vec<String>, ApiError> {
    let invalid = |message| ApiError::invalid("Resource", member, message);
    let wrong = || invalid(format!("{member} is not an array of names"));
    let Some(given) = map.get(ITEMS).or_else(|| map.get(member)).or_else(|| map.values().next())
    else {
        return Ok(Vec::new());
    };
    let items = given.as_array().ok_or_else(wrong)?;
    if items.len() > NAMES_MAX {
        return Err(invalid(format!("{member} has more than {NAMES_MAX} names")));
    }
    let named = |item: &Value| {
        ["name", "email", "login", "slug"]
            .iter()
            .find_map(|key| item.get(key)?.as_str())
            .map(str::to_owned)
    };
    let texts: Option<Vec<String>> =
        items.iter().map(|item| item.as_str().map(str::to_owned).or_else(|| named(item))).collect();
    let texts = texts.ok_or_else(wrong)?;
    if texts.iter().any(|text| text.trim().is_empty()) { Err(wrong()) } else { Ok(texts) }
}

const NAMES_MAX: usize = 100;
/// The most ids in one body; a collection must have room for all.
const NUMBERS_MAX: usize = 1_000;

/// Members that are accepted and never returned.
const WRITE_ONLY: &[&str] = &["access_token", "encrypted_value", "password", "secret", "token"];

/// Members that the service decides itself.
const DECIDED: &[&str] = &["created_at", "id", "node_id", "updated_at", "url"];

/// Drops secrets, the service's own members and those with an internal name.
pub fn kept(mut map: Members) -> Members {
    map.retain(|name, _| {
        !WRITE_ONLY.contains(&name.as_str())
            && !DECIDED.contains(&name.as_str())
            && !name.starts_with('_')
    });
    map
}

/// Returns the default fields of a new object, by the end of the list's template.
pub fn defaults(template: &str) -> Members {
    let value = match template.rsplit('/').next().unwrap_or("") {
        "check-runs" => {
            json!({ "status": "queued", "conclusion": null, "details_url": null, "output": { "annotations_count": 0 } })
        }
        "check-suites" => json!({ "status": "queued", "conclusion": null }),
        "deployments" => {
            json!({ "task": "deploy", "environment": "production", "description": null, "payload": {}, "production_environment": true })
        }
        "keys" => json!({ "title": "", "read_only": false, "verified": true }),
        "rulesets" => {
            json!({ "target": "branch", "rules": [], "bypass_actors": [], "conditions": {} })
        }
        "runner-groups" => {
            json!({ "visibility": "all", "default": false, "allows_public_repositories": false })
        }
        "campaigns" => json!({ "state": "open" }),
        _ => Value::Null,
    };
    seeds::object(value)
}
