//! Gists: a few files of a user, public or reachable by id alone.
//!
//! The generic stored resource keeps comments, commits and forks of a gist as they are sent.

use serde_json::{Map, Value, json};

use crate::emulator::auth::access;
use crate::emulator::http::{ApiError, Fields, Reply, SITE, iso};
use crate::emulator::render::{node_id, object};
use crate::emulator::routing::{Call, Need, Outcome, Route};
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
const GISTS: &str = "service/gists";
const FILES_MAX: usize = 100;

fn named(call: &Call<'_>) -> Result<StoredItem, ApiError> {
    let id = call.params.id("gist_id")?;
    let collection = call.world.collections.collection(GISTS);
    let gist = collection.and_then(|collection| collection.get(&id.to_string()));
    gist.cloned().ok_or(ApiError::NotFound)
}

fn owner(gist: &StoredItem) -> Option<u64> {
    gist.fields.get("owner").and_then(Value::as_u64)
}

fn is_public(gist: &StoredItem) -> bool {
    gist.fields.get("public") == Some(&json!(true))
}

fn page(call: &Call<'_>, is_wanted: impl Fn(&StoredItem) -> bool) -> Outcome {
    let since = call.moment("Gist", "since")?;
    let gists = call.world.collections.collection(GISTS);
    let gists = gists.into_iter().flat_map(|gists| gists.in_order().into_iter().rev());
    let wanted = gists.map(|(_, gist)| gist).filter(|gist| is_wanted(gist));
    let wanted = wanted.filter(|gist| since.is_none_or(|since| gist.updated_at >= since));
    call.page(wanted, |_, gist| render(call, gist))
}

/// Lists the caller's own; for anonymous callers everyone's, as in the running service.
fn mine(call: &mut Call<'_>) -> Outcome {
    let me = call.caller.user();
    page(call, |gist| if me.is_some() { owner(gist) == me } else { is_public(gist) })
}

fn public(call: &mut Call<'_>) -> Outcome {
    page(call, is_public)
}

fn starred(call: &mut Call<'_>) -> Outcome {
    let me = access::acts_as_user(call.caller)?;
    page(call, |gist| has_star(call, gist, me))
}

fn of_user(call: &mut Call<'_>) -> Outcome {
    let (user, me) = (call.user("username")?.id, call.caller.user());
    page(call, |gist| owner(gist) == Some(user) && (is_public(gist) || me == Some(user)))
}

/// The id suffices for reading, as in the running service.
fn get(call: &mut Call<'_>) -> Outcome {
    let gist = named(call)?;
    Ok(Reply::ok(render(call, &gist)).changed_at(gist.updated_at))
}

fn render(call: &Call<'_>, gist: &StoredItem) -> Value {
    let url = format!("{}/gists/{}", call.urls.api, gist.id);
    let contents = gist.fields.get("files").and_then(Value::as_object);
    let file = |(name, content): (&String, &Value)| {
        let size = content.as_str().map_or(0, str::len);
        let raw_url = format!("{SITE}/gists/{}/raw", gist.id);
        let value = json!({ "filename": name, "type": "text/plain", "size": size, "content": content, "truncated": false, "raw_url": raw_url });
        (name.clone(), value)
    };
    let files: Map<String, Value> = contents.into_iter().flatten().map(file).collect();
    json!({
        "id": gist.id.to_string(), "node_id": node_id("Gist", gist.id), "url": url, "html_url": format!("{SITE}/gists/{}", gist.id),
        "forks_url": format!("{url}/forks"), "commits_url": format!("{url}/commits"), "comments_url": format!("{url}/comments"),
        "files": files, "public": is_public(gist), "description": gist.fields.get("description"), "comments": 0, "truncated": false,
        "owner": owner(gist).map(|user| call.renderer().user_summary(user)), "user": null,
        "created_at": iso(gist.created_at), "updated_at": iso(gist.updated_at),
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
    let id = call.world.next_id();
    let fields = object([
        ("owner", json!(me)),
        ("files", json!(files)),
        ("description", json!(description)),
        ("public", json!(public)),
    ]);
    let gist = call.store(GISTS, &id.to_string(), id, fields)?;
    Ok(Reply::created_at_url(render(call, &gist)))
}

fn mine_alone(call: &Call<'_>) -> Result<StoredItem, ApiError> {
    let gist = named(call)?;
    ApiError::not_found_unless(owner(&gist) == Some(access::acts_as_user(call.caller)?))?;
    Ok(gist)
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let mut gist = mine_alone(call)?;
    let mut fields = Fields::parse("Gist", call.body)?;
    let changed = files(&mut fields);
    let description = fields.nullable_string("description");
    fields.check()?;
    if let Some(Value::Object(files)) = gist.fields.get_mut("files") {
        files.extend(changed);
        files.retain(|_, content| !content.is_null());
    }
    let before = gist.fields.get("description").and_then(Value::as_str).map(str::to_owned);
    gist.fields.insert("description".to_owned(), json!(description.of(before)));
    gist.updated_at = call.now;
    call.world.collections.put(GISTS, &gist.id.to_string(), gist.clone())?;
    Ok(Reply::ok(render(call, &gist)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = mine_alone(call)?.id;
    call.world.collections.take(GISTS, &id.to_string(), call.now);
    Ok(Reply::no_content())
}

/// Returns the address of a gist's stars, each under its user's id.
fn stars(gist: u64) -> String {
    format!("{GISTS}/{gist}/star")
}

fn has_star(call: &Call<'_>, gist: &StoredItem, user: u64) -> bool {
    let stars = call.world.collections.collection(&stars(gist.id));
    stars.is_some_and(|stars| stars.get(&user.to_string()).is_some())
}

fn is_starred(call: &mut Call<'_>) -> Outcome {
    let (gist, me) = (named(call)?, access::acts_as_user(call.caller)?);
    let starred = has_star(call, &gist, me);
    Reply::no_content_if(starred)
}

fn star(call: &mut Call<'_>) -> Outcome {
    let (gist, me) = (named(call)?, access::acts_as_user(call.caller)?);
    call.store(&stars(gist.id), &me.to_string(), me, Map::new())?;
    Ok(Reply::no_content())
}

fn unstar(call: &mut Call<'_>) -> Outcome {
    let (gist, me, now) = (named(call)?, access::acts_as_user(call.caller)?, call.now);
    call.world.collections.take(&stars(gist.id), &me.to_string(), now);
    Ok(Reply::no_content())
}
