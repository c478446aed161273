//! Releases and their assets. Of an asset only the size is stored.

use http::header;
use serde_json::json;

use crate::emulator::events::webhooks::{self, WebhookEvent};
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::render::extend;
use crate::emulator::resources::code::contents::{READ, WRITE as CHANGE};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{Asset, Release, Repository};

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/releases", READ, list),
    Route::post("/repos/{owner}/{repo}/releases", CHANGE, create).content(),
    Route::get("/repos/{owner}/{repo}/releases/tags/{tag}", READ, get_by_tag),
    Route::get("/repos/{owner}/{repo}/releases/latest", READ, get_latest),
    Route::get("/repos/{owner}/{repo}/releases/{release_id}", READ, get),
    Route::patch("/repos/{owner}/{repo}/releases/{release_id}", CHANGE, patch),
    Route::delete("/repos/{owner}/{repo}/releases/{release_id}", CHANGE, delete),
    Route::get("/repos/{owner}/{repo}/releases/{release_id}/assets", READ, list_assets),
    Route::post("/repos/{owner}/{repo}/releases/{release_id}/assets", CHANGE, upload),
    Route::get("/repos/{owner}/{repo}/releases/assets/{asset_id}", READ, get_asset),
    Route::patch("/repos/{owner}/{repo}/releases/assets/{asset_id}", CHANGE, patch_asset),
    Route::delete("/repos/{owner}/{repo}/releases/assets/{asset_id}", CHANGE, delete_asset),
];

fn named<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<&'a Release, ApiError> {
    repository.releases.get(&call.params.id("release_id")?).ok_or(ApiError::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    call.page(repository.releases.values().rev(), |renderer, release| {
        renderer.release(repository, release)
    })
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let release = named(call, repository)?;
    // Deliberate: at the running service `Last-Modified` can miss a new asset.
    Ok(Reply::ok(call.renderer().release(repository, release)).changed_at(release.updated_at))
}

fn get_by_tag(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let tagged = repository.releases.values().find(|one| one.tag == call.params.get("tag"));
    let release = tagged.ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(call.renderer().release(repository, release)).changed_at(release.updated_at))
}

fn get_latest(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let latest = repository.releases.values().max_by_key(|one| (one.created_at, one.id));
    let release = latest.ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(call.renderer().release(repository, release)))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Release", call.body)?;
    let tag = fields.required_string("tag_name");
    let name = fields.nullable_string("name").value().unwrap_or_else(|| tag.clone());
    let body = fields.nullable_string("body").value();
    refuse_taken_tag(call, &mut fields, &tag, None)?;
    fields.check()?;
    ApiError::unless_spammed("Release", call.repository()?.releases.len())?;
    let (now, author, id) = (call.now, call.actor(), call.world.next_id());
    let release = Release {
        id,
        tag,
        name,
        body,
        author,
        created_at: now,
        updated_at: now,
        assets: std::collections::BTreeMap::new(),
    };
    let value = call.renderer().release(call.repository()?, &release);
    call.repository_mut()?.releases.insert(id, release);
    let objects = json!({ "release": value });
    webhooks::publish(call, WebhookEvent::new("release", "published"), |_| objects);
    Ok(Reply::created_at_url(value))
}

fn refuse_taken_tag(
    call: &Call<'_>,
    fields: &mut Fields,
    tag: &str,
    except: Option<u64>,
) -> Result<(), ApiError> {
    let mut releases = call.repository()?.releases.values();
    if releases.any(|release| release.tag == tag && Some(release.id) != except) {
        fields.taken("tag_name");
    }
    Ok(())
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let id = named(call, call.repository()?)?.id;
    let mut fields = Fields::parse("Release", call.body)?;
    let tag = fields.has("tag_name").then(|| fields.required_string("tag_name"));
    let (name, body) = (fields.nullable_string("name"), fields.nullable_string("body"));
    if let Some(tag) = &tag {
        refuse_taken_tag(call, &mut fields, tag, Some(id))?;
    }
    fields.check()?;
    let now = call.now;
    let release = call.repository_mut()?.releases.get_mut(&id).ok_or(ApiError::NotFound)?;
    let before = (release.tag.clone(), release.name.clone(), release.body.clone());
    release.tag = tag.unwrap_or_else(|| std::mem::take(&mut release.tag));
    release.name = name.of(Some(std::mem::take(&mut release.name))).unwrap_or_default();
    release.body = body.of(release.body.take());
    release.updated_at = now;
    let mut changes = json!({});
    if release.tag != before.0 {
        extend(&mut changes, json!({ "tag_name": { "from": before.0 } }));
    }
    if release.name != before.1 {
        extend(&mut changes, json!({ "name": { "from": before.1 } }));
    }
    if release.body != before.2 {
        extend(&mut changes, json!({ "body": { "from": before.2 } }));
    }
    let repository = call.repository()?;
    let value = call.renderer().release(repository, named(call, repository)?);
    if changes != json!({}) {
        let objects = json!({ "release": value, "changes": changes });
        webhooks::publish(call, WebhookEvent::new("release", "edited"), |_| objects);
    }
    Ok(Reply::ok(value))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let release = named(call, repository)?;
    // Rendered while it is there.
    let (id, objects) =
        (release.id, json!({ "release": call.renderer().release(repository, release) }));
    call.repository_mut()?.releases.remove(&id);
    webhooks::publish(call, WebhookEvent::new("release", "deleted"), |_| objects);
    Ok(Reply::no_content())
}

fn list_assets(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let release = named(call, repository)?;
    call.page(release.assets.values(), |renderer, asset| renderer.asset(repository, release, asset))
}

fn upload(call: &mut Call<'_>) -> Outcome {
    let release = named(call, call.repository()?)?;
    let release_id = release.id;
    ApiError::unless_spammed("ReleaseAsset", release.assets.len())?;
    let name = call.query.get("name").filter(|name| !name.is_empty());
    let Some(name) = name.map(str::to_owned) else {
        let message = "name is required in the query";
        return Err(ApiError::field("ReleaseAsset", "name", Code::MissingField, message));
    };
    if release.assets.values().any(|asset| asset.name == name) {
        return Err(ApiError::field("ReleaseAsset", "name", Code::AlreadyExists, "name is taken"));
    }
    let content_type = call.header(header::CONTENT_TYPE).unwrap_or("application/octet-stream");
    let content_type = content_type.to_owned();
    let id = call.world.next_id();
    let asset = Asset {
        id,
        name,
        label: call.query.get("label").map(str::to_owned),
        content_type,
        size_bytes: call.upload_bytes,
        uploader: call.actor(),
        created_at: call.now,
        updated_at: call.now,
    };
    let releases = &mut call.repository_mut()?.releases;
    releases.get_mut(&release_id).ok_or(ApiError::NotFound)?.assets.insert(id, asset);
    let repository = call.repository()?;
    let (release, asset) = asset_by_id(repository, id)?;
    Ok(Reply::created_at_url(call.renderer().asset(repository, release, asset)))
}

fn asset_by_id(repository: &Repository, id: u64) -> Result<(&Release, &Asset), ApiError> {
    let mut releases = repository.releases.values();
    let found = releases.find_map(|release| Some((release, release.assets.get(&id)?)));
    found.ok_or(ApiError::NotFound)
}

fn get_asset(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let (release, asset) = asset_by_id(repository, call.params.id("asset_id")?)?;
    Ok(Reply::ok(call.renderer().asset(repository, release, asset)).changed_at(asset.updated_at))
}

fn patch_asset(call: &mut Call<'_>) -> Outcome {
    let id = call.params.id("asset_id")?;
    let release_id = asset_by_id(call.repository()?, id)?.0.id;
    let mut fields = Fields::parse("ReleaseAsset", call.body)?;
    let name = fields.has("name").then(|| fields.required_string("name"));
    let label = fields.nullable_string("label");
    fields.check()?;
    let now = call.now;
    let release = call.repository_mut()?.releases.get_mut(&release_id);
    let asset = release.and_then(|release| release.assets.get_mut(&id));
    let asset = asset.ok_or(ApiError::NotFound)?;
    asset.name = name.unwrap_or_else(|| std::mem::take(&mut asset.name));
    asset.label = label.of(asset.label.take());
    asset.updated_at = now;
    let repository = call.repository()?;
    let (release, asset) = asset_by_id(repository, id)?;
    Ok(Reply::ok(call.renderer().asset(repository, release, asset)))
}

fn delete_asset(call: &mut Call<'_>) -> Outcome {
    let id = call.params.id("asset_id")?;
    let mut releases = call.repository_mut()?.releases.values_mut();
    Reply::no_content_if(releases.any(|release| release.assets.remove(&id).is_some()))
}
