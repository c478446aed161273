//! Branch protection: one object for each branch, and its parts by routes of their own.
//!
//! It is stored and shown, but never refuses a push.

use serde_json::{Map, Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Fields, Reply, segment};
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::{StoredItem, World};

const READ: Need = Need::repository("administration", Level::Read, Role::Push);
/// SPECIFICATION, "Permissions".
const WRITE: Need = Need::repository("administration", Level::Write, Role::Admin);

const WHOLE: &str = "/repos/{owner}/{repo}/branches/{branch}/protection";
const ADMINS: &str = "/repos/{owner}/{repo}/branches/{branch}/protection/enforce_admins";
const SIGNATURES: &str = "/repos/{owner}/{repo}/branches/{branch}/protection/required_signatures";
const REVIEWS: &str =
    "/repos/{owner}/{repo}/branches/{branch}/protection/required_pull_request_reviews";
const CHECKS: &str = "/repos/{owner}/{repo}/branches/{branch}/protection/required_status_checks";
const RESTRICTIONS: &str = "/repos/{owner}/{repo}/branches/{branch}/protection/restrictions";
const CONTEXTS: &str =
    "/repos/{owner}/{repo}/branches/{branch}/protection/required_status_checks/contexts";
const APPS: &str = "/repos/{owner}/{repo}/branches/{branch}/protection/restrictions/apps";
const TEAMS: &str = "/repos/{owner}/{repo}/branches/{branch}/protection/restrictions/teams";
const USERS: &str = "/repos/{owner}/{repo}/branches/{branch}/protection/restrictions/users";

pub const ROUTES: &[Route] = &[
    Route::get(WHOLE, READ, get),
    Route::put(WHOLE, WRITE, put),
    Route::delete(WHOLE, WRITE, delete),
    Route::get(ADMINS, READ, get_part),
    Route::get(SIGNATURES, READ, get_part),
    Route::get(REVIEWS, READ, get_part),
    Route::get(CHECKS, READ, get_part),
    Route::get(RESTRICTIONS, READ, get_part),
    Route::post(ADMINS, WRITE, switch_on),
    Route::post(SIGNATURES, WRITE, switch_on),
    Route::patch(REVIEWS, WRITE, patch_part),
    Route::patch(CHECKS, WRITE, patch_part),
    Route::delete(ADMINS, WRITE, delete_part),
    Route::delete(SIGNATURES, WRITE, delete_part),
    Route::delete(REVIEWS, WRITE, delete_part),
    Route::delete(CHECKS, WRITE, delete_part),
    Route::delete(RESTRICTIONS, WRITE, delete_part),
    Route::get(CONTEXTS, READ, names),
    Route::post(CONTEXTS, WRITE, add_names),
    Route::put(CONTEXTS, WRITE, set_names),
    Route::delete(CONTEXTS, WRITE, remove_names),
    Route::get(APPS, READ, names),
    Route::post(APPS, WRITE, add_names),
    Route::put(APPS, WRITE, set_names),
    Route::delete(APPS, WRITE, remove_names),
    Route::get(TEAMS, READ, names),
    Route::post(TEAMS, WRITE, add_names),
    Route::put(TEAMS, WRITE, set_names),
    Route::delete(TEAMS, WRITE, remove_names),
    Route::get(USERS, READ, names),
    Route::post(USERS, WRITE, add_names),
    Route::put(USERS, WRITE, set_names),
    Route::delete(USERS, WRITE, remove_names),
];

/// Parts that are on or off.
const SWITCHES: [&str; 2] = ["enforce_admins", "required_signatures"];
/// Parts with settings of their own.
const OBJECTS: [&str; 3] =
    ["required_pull_request_reviews", "required_status_checks", "restrictions"];
/// Switches that only the whole object shows.
const MORE_SWITCHES: [&str; 5] = [
    "required_linear_history",
    "allow_force_pushes",
    "allow_deletions",
    "block_creations",
    "required_conversation_resolution",
];
/// The kinds of actors in a restriction.
const KINDS: [&str; 3] = ["apps", "teams", "users"];
const NAMES_MAX: usize = 100;

pub fn of(call: &Call<'_>, branch: &str) -> Option<StoredItem> {
    stored(call.world, call.repository, branch)
}

pub fn stored(world: &World, repository: u64, branch: &str) -> Option<StoredItem> {
    let collection = world.collections.collection(&protection_of(repository, branch))?;
    collection.get("protection").cloned()
}

fn protection_of(repository: u64, branch: &str) -> String {
    format!("repository/{repository}/branches/{}", segment(branch))
}

fn collection(call: &Call<'_>, branch: &str) -> String {
    protection_of(call.repository, branch)
}

fn named(call: &Call<'_>) -> Result<StoredItem, ApiError> {
    of(call, branch(call)?).ok_or(ApiError::NotFound)
}

fn branch<'a>(call: &'a Call<'_>) -> Result<&'a str, ApiError> {
    let name = call.params.get("branch");
    call.history()?.head(name).map(|_| name).ok_or(ApiError::NotFound)
}

fn keep(call: &mut Call<'_>, fields: Map<String, Value>) -> Result<StoredItem, ApiError> {
    let branch = branch(call)?.to_owned();
    let before = of(call, &branch);
    let (id, created_at) =
        before.map_or_else(|| (call.world.next_id(), call.now), |item| (item.id, item.created_at));
    let item = StoredItem { id, fields, created_at, updated_at: call.now };
    let collection = collection(call, &branch);
    call.world.collections.put(&collection, "protection", item.clone())?;
    Ok(item)
}

fn address(call: &Call<'_>) -> Result<String, ApiError> {
    let base = call.renderer().repository_url(call.repository()?);
    Ok(format!("{base}/branches/{}/protection", segment(call.params.get("branch"))))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let item = named(call)?;
    Ok(Reply::ok(render(call, &item)?).changed_at(item.updated_at))
}

fn render(call: &Call<'_>, item: &StoredItem) -> Result<Value, ApiError> {
    let mut shown = Map::from_iter([("url".to_owned(), json!(address(call)?))]);
    for name in OBJECTS.into_iter().chain(SWITCHES) {
        if let Some(value) = item.fields.get(name) {
            shown.insert(name.to_owned(), render_part(call, name, value)?);
        }
    }
    shown.extend(MORE_SWITCHES.map(|name| {
        (name.to_owned(), json!({ "enabled": item.fields.get(name) == Some(&json!(true)) }))
    }));
    Ok(Value::Object(shown))
}

fn render_part(call: &Call<'_>, name: &str, value: &Value) -> Result<Value, ApiError> {
    let url = format!("{}/{name}", address(call)?);
    let Value::Object(fields) = value else { return Ok(json!({ "url": url, "enabled": value })) };
    let mut shown = fields.clone();
    if name == "required_status_checks" {
        shown.insert("contexts_url".to_owned(), json!(format!("{url}/contexts")));
    }
    for kind in KINDS.into_iter().filter(|_| name == "restrictions") {
        shown.insert(format!("{kind}_url"), json!(format!("{url}/{kind}")));
        shown.insert(kind.to_owned(), render_names(call, kind, &texts(fields.get(kind))));
    }
    shown.insert("url".to_owned(), json!(url));
    Ok(Value::Object(shown))
}

/// Contexts are plain names; actors are rendered in full if they exist.
fn render_names(call: &Call<'_>, kind: &str, names: &[String]) -> Value {
    let shown = |name: &String| match (kind, call.world.user_by_login(name)) {
        ("users", Some(user)) => call.renderer().user_summary(user.id),
        ("users", None) => json!({ "login": name }),
        ("contexts", _) => json!(name),
        _ => json!({ "slug": name, "name": name }),
    };
    names.iter().map(shown).collect()
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Replaces the protection; null and absent parts are off.
fn put(call: &mut Call<'_>) -> Outcome {
    branch(call)?;
    let mut fields = Fields::parse("ProtectedBranch", call.body)?;
    let mut kept = Map::new();
    for name in SWITCHES.into_iter().chain(MORE_SWITCHES) {
        let is_given = fields.value(name).is_some_and(|value| !value.is_null());
        let is_on = is_given && fields.boolean(name).unwrap_or(false);
        kept.insert(name.to_owned(), json!(is_on));
    }
    for name in OBJECTS {
        if fields.value(name).is_some_and(|value| !value.is_null()) {
            let Some(mut inner) = fields.object(name) else { continue };
            kept.insert(name.to_owned(), part(name, &mut inner));
            fields.absorb(inner, name);
        }
    }
    fields.check()?;
    let item = keep(call, kept)?;
    Ok(Reply::ok(render(call, &item)?))
}

fn part(name: &str, inner: &mut Fields) -> Value {
    match name {
        "required_status_checks" => {
            let contexts = inner.names("contexts").unwrap_or_default();
            json!({ "strict": inner.boolean("strict").unwrap_or(false), "contexts": contexts, "checks": [] })
        }
        "restrictions" => KINDS
            .map(|kind| (kind.to_owned(), json!(inner.names(kind).unwrap_or_default())))
            .into_iter()
            .collect(),
        _ => {
            let count = inner.nullable_integer("required_approving_review_count").value();
            let mut is_on = |name: &str| inner.boolean(name).unwrap_or(false);
            json!({
                "dismiss_stale_reviews": is_on("dismiss_stale_reviews"),
                "require_code_owner_reviews": is_on("require_code_owner_reviews"),
                "required_approving_review_count": count.unwrap_or(1),
            })
        }
    }
}

fn delete(call: &mut Call<'_>) -> Outcome {
    named(call)?;
    let collection = collection(call, call.params.get("branch"));
    call.world.collections.take(&collection, "protection", call.now);
    Ok(Reply::no_content())
}

fn last_word<'a>(call: &Call<'a>) -> &'a str {
    call.requested_path.rsplit('/').next().unwrap_or("")
}

fn part_of(
    call: &Call<'_>,
    known: &[&'static str],
) -> Result<(StoredItem, &'static str), ApiError> {
    let name = known.iter().find(|known| **known == last_word(call)).ok_or(ApiError::NotFound)?;
    Ok((named(call)?, name))
}

fn get_part(call: &mut Call<'_>) -> Outcome {
    let (item, name) = part_of(call, &[&SWITCHES[..], &OBJECTS[..]].concat())?;
    let value = item.fields.get(name).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(render_part(call, name, value)?).changed_at(item.updated_at))
}

fn switch_on(call: &mut Call<'_>) -> Outcome {
    let (mut item, name) = part_of(call, &SWITCHES)?;
    item.fields.insert(name.to_owned(), json!(true));
    keep_part(call, item, name)
}

fn keep_part(call: &mut Call<'_>, changed: StoredItem, name: &str) -> Outcome {
    let item = keep(call, changed.fields)?;
    Ok(Reply::ok(render_part(call, name, &json!(item.fields.get(name)))?))
}

fn patch_part(call: &mut Call<'_>) -> Outcome {
    let (mut item, name) = part_of(call, &OBJECTS[..2])?;
    let mut fields = Fields::parse("ProtectedBranch", call.body)?;
    let Value::Object(given) = part(name, &mut fields) else { return Err(ApiError::NotFound) };
    let changed: Vec<(String, Value)> =
        given.into_iter().filter(|(name, _)| fields.has(name)).collect();
    fields.check()?;
    let Some(Value::Object(kept)) = item.fields.get_mut(name) else {
        return Err(ApiError::NotFound);
    };
    kept.extend(changed);
    keep_part(call, item, name)
}

fn delete_part(call: &mut Call<'_>) -> Outcome {
    let (mut item, name) = part_of(call, &[&SWITCHES[..], &OBJECTS[..]].concat())?;
    if SWITCHES.contains(&name) {
        item.fields.insert(name.to_owned(), json!(false));
    } else {
        item.fields.remove(name).ok_or(ApiError::NotFound)?;
    }
    keep(call, item.fields)?;
    Ok(Reply::no_content())
}

/// Finds a list of names inside the protection: its object, its member and its items.
fn list_of(
    call: &Call<'_>,
) -> Result<(StoredItem, &'static str, &'static str, Vec<String>), ApiError> {
    let kind = KINDS.into_iter().find(|known| *known == last_word(call));
    let (object, member) =
        kind.map_or(("required_status_checks", "contexts"), |kind| ("restrictions", kind));
    let item = named(call)?;
    let names = item.fields.get(object).and_then(|part| part.get(member));
    let names = texts(Some(names.ok_or(ApiError::NotFound)?));
    Ok((item, object, member, names))
}

fn names(call: &mut Call<'_>) -> Outcome {
    let (item, _, member, names) = list_of(call)?;
    Ok(Reply::ok(render_names(call, member, &names)).changed_at(item.updated_at))
}

fn add_names(call: &mut Call<'_>) -> Outcome {
    change_names(call, |names, mut given| {
        given.retain(|name| !names.contains(name));
        names.extend(given);
    })
}

fn set_names(call: &mut Call<'_>) -> Outcome {
    change_names(call, |names, given| *names = given)
}

fn remove_names(call: &mut Call<'_>) -> Outcome {
    change_names(call, |names, given| names.retain(|name| !given.contains(name)))
}

/// The names are a bare array, or under the list's own name.
fn change_names(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut Vec<String>, Vec<String>),
) -> Outcome {
    let (mut item, object, member, mut names) = list_of(call)?;
    let mut fields = Fields::parse_list("ProtectedBranch", member, call.body)?;
    fields.require(member);
    let given = fields.names(member);
    fields.check()?;
    change(&mut names, given.unwrap_or_default());
    names.truncate(NAMES_MAX);
    if let Some(Value::Object(part)) = item.fields.get_mut(object) {
        part.insert(member.to_owned(), json!(names));
    }
    keep(call, item.fields)?;
    Ok(Reply::ok(render_names(call, member, &names)))
}
