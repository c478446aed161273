//! Gists: a few files of a user, public or reachable by id alone.
//!
//! The generic stored resource keeps comments, commits and forks of a gist as they are sent.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::emulator::auth::access;
use crate::emulator::http::{ApiError, Fields, Reply, SITE, iso};
use crate::emulator::render::{Renderer, node_id};
use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::StoredItem;

pub const ROUTES: &[Route] = &[
    Route::get("/gists", Need::Nothing, mine),
    Route::post("/gists", Need::User, create).content(),
    Route::get("/gists/public", Need::Nothing, public),
    Route::get("/gists/starred", Need::User, starred),
    Route::get("/users/{username}/gists", Need::Nothing, of_user),
    Route::get("/gists/{gist_id}", Need::Nothing, get),
    Route::patch("/gists/{gist_id}", Need::User, patch),
    Route::delete("/gists/{gist_id}", Need::User, delete),
    Route::get("/gists/{gist_id}/star", Need::User, is_starred),
    Route::put("/gists/{gist_id}/star", Need::User, star),
    Route::delete("/gists/{gist_id}/star", Need::User, unstar),
];

/// The address that the generic routes below a gist expect.
const SHELF: &str = "service/gists";
const FILES_MAX: usize = 100;

fn all(call: &Call<'_>) -> Vec<StoredItem> {
    let collection = call.world.collections.collection(SHELF);
    collection
        .map(|collection| {
            collection.in_order().into_iter().rev().map(|(_, thing)| thing.clone()).collect()
        })
        .unwrap_or_default()
}

fn named(call: &Call<'_>) -> Result<StoredItem, ApiError> {
    let id = call.params.id("gist_id")?;
    call.world
        .collections
        .collection(SHELF)
        .and_then(|collection| collection.get(&id.to_string()))
        .cloned()
        .ok_or(ApiError::NotFound)
}

fn owner(thing: &StoredItem) -> Option<u64> {
    thing.fields.get("owner").and_then(Value::as_u64)
}

fn is_public(thing: &StoredItem) -> bool {
    thing.fields.get("public") == Some(&json!(true))
}

fn page(call: &Call<'_>, wanted: impl Fn(&StoredItem) -> bool) -> Reply {
    let shown = all(call).into_iter().filter(wanted).collect();
    pagination::page(call, USUAL, shown, |thing| render(call, &thing))
}

/// Lists the caller's own; for anonymous callers everyone's, as in the running service.
#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn mine(call: &mut Call<'_>) -> Outcome {
    let me = call.caller.user();
    Ok(page(call, |thing| if me.is_some() { owner(thing) == me } else { is_public(thing) }))
}

#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn public(call: &mut Call<'_>) -> Outcome {
    Ok(page(call, is_public))
}

fn starred(call: &mut Call<'_>) -> Outcome {
    let me = access::acts_as_user(call.caller)?;
    Ok(page(call, |thing| {
        call.world
            .collections
            .collection(&stars(thing.id))
            .is_some_and(|collection| collection.get(&me.to_string()).is_some())
    }))
}

fn of_user(call: &mut Call<'_>) -> Outcome {
    let user = crate::emulator::resources::repositories::people::user(call, "username")?;
    let me = call.caller.user();
    Ok(page(call, |thing| owner(thing) == Some(user) && (is_public(thing) || me == Some(user))))
}

/// The id suffices for reading, as in the running service.
fn get(call: &mut Call<'_>) -> Outcome {
    let thing = named(call)?;
    Ok(Reply::ok(render(call, &thing)).changed_at(thing.updated_at))
}

fn render(call: &Call<'_>, thing: &StoredItem) -> Value {
    let url = format!("{}/gists/{}", call.urls.api, thing.id);
    let contents =
        thing.fields.get("files").and_then(Value::as_object).cloned().unwrap_or_default();
    let file = |(name, content): (String, Value)| {
        let size = content.as_str().map_or(0, str::len);
        let raw_url = format!("{SITE}/gists/{}/raw", thing.id);
        (
            name.clone(),
            json!({ "filename": name, "type": "text/plain", "size": size, "content": content, "truncated": false, "raw_url": raw_url }),
        )
    };
    let files: Map<String, Value> = contents.into_iter().map(file).collect();
    json!({
        "id": thing.id.to_string(), "node_id": node_id("Gist", thing.id), "url": url, "html_url": format!("{SITE}/gists/{}", thing.id),
        "forks_url": format!("{url}/forks"), "commits_url": format!("{url}/commits"), "comments_url": format!("{url}/comments"),
        "files": files, "public": is_public(thing), "description": thing.fields.get("description"), "comments": 0, "truncated": false,
        "owner": owner(thing).map(|user| Renderer::of(call).user_summary(user)), "user": null,
        "created_at": iso(thing.created_at), "updated_at": iso(thing.updated_at),
    })
}

/// Reads files by name and content; null deletes one in an update.
fn files(fields: &mut Fields) -> Map<String, Value> {
    let given = match fields.value("files") {
        Some(Value::Object(files)) => files.clone(),
        Some(_) => {
            fields.invalid("files", "files is not an object");
            Map::new()
        }
        None => Map::new(),
    };
    let content = |(name, file): (String, Value)| match file {
        Value::Null => Some((name, Value::Null)),
        file => Some((name, file.get("content").filter(|content| content.is_string())?.clone())),
    };
    let read: Map<String, Value> = given.clone().into_iter().filter_map(content).collect();
    if read.len() != given.len() || read.len() > FILES_MAX {
        fields.invalid("files", "files must be at most 100, each null or with a content");
    }
    read
}

fn create(call: &mut Call<'_>) -> Outcome {
    let me = access::acts_as_user(call.caller)?;
    let mut fields = Fields::parse("Gist", call.body)?;
    let files = files(&mut fields);
    if files.values().all(Value::is_null) && fields.value("files").is_none_or(Value::is_object) {
        fields.missing("files");
    }
    let description = fields.nullable_string("description").value();
    let public = fields.boolean("public").unwrap_or(false);
    fields.check()?;
    let kept = json!({ "owner": me, "files": files, "description": description, "public": public });
    let (id, now) = (call.world.next_id(), call.now);
    let thing = StoredItem {
        id,
        fields: kept.as_object().cloned().unwrap_or_default(),
        created_at: now,
        updated_at: now,
    };
    call.world.collections.put(SHELF, &id.to_string(), thing.clone())?;
    let location = format!("{}/gists/{id}", call.urls.api);
    Ok(Reply::created(render(call, &thing), &location))
}

fn mine_alone(call: &Call<'_>) -> Result<StoredItem, ApiError> {
    let thing = named(call)?;
    if owner(&thing) == Some(access::acts_as_user(call.caller)?) {
        Ok(thing)
    } else {
        Err(ApiError::NotFound)
    }
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let mut thing = mine_alone(call)?;
    let mut fields = Fields::parse("Gist", call.body)?;
    let changed = files(&mut fields);
    let description = fields.nullable_string("description");
    fields.check()?;
    if let Some(Value::Object(files)) = thing.fields.get_mut("files") {
        files.extend(changed);
        files.retain(|_, content| !content.is_null());
    }
    let before = thing.fields.get("description").and_then(Value::as_str).map(str::to_owned);
    thing.fields.insert("description".to_owned(), json!(description.of(before)));
    thing.updated_at = call.now;
    call.world.collections.put(SHELF, &thing.id.to_string(), thing.clone())?;
    Ok(Reply::ok(render(call, &thing)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = mine_alone(call)?.id;
    call.world.collections.take(SHELF, &id.to_string(), call.now);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Returns the address of a gist's stars, each under its user's id.
fn stars(gist: u64) -> String {
    format!("{SHELF}/{gist}/star")
}

fn is_starred(call: &mut Call<'_>) -> Outcome {
    let (thing, me) = (named(call)?, access::acts_as_user(call.caller)?);
    let starred = call
        .world
        .collections
        .collection(&stars(thing.id))
        .is_some_and(|collection| collection.get(&me.to_string()).is_some());
    if starred { Ok(Reply::empty(StatusCode::NO_CONTENT)) } else { Err(ApiError::NotFound) }
}

fn star(call: &mut Call<'_>) -> Outcome {
    let (gist, me, now) = (named(call)?, access::acts_as_user(call.caller)?, call.now);
    let thing = StoredItem { id: me, fields: Map::new(), created_at: now, updated_at: now };
    call.world.collections.put(&stars(gist.id), &me.to_string(), thing)?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn unstar(call: &mut Call<'_>) -> Outcome {
    let (gist, me, now) = (named(call)?, access::acts_as_user(call.caller)?, call.now);
    call.world.collections.take(&stars(gist.id), &me.to_string(), now);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
