//! Releases and their assets. Of an asset only the size is stored.

use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::events::webhooks::{self, WebhookEvent};
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route, USUAL, pagination};
use crate::emulator::world::{Asset, Release, Repository};

const READ: Need = Need::repository("contents", Level::Read, Role::Read);
const CHANGE: Need = Need::repository("contents", Level::Write, Role::Push);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/releases", READ, list),
    Route::post("/repos/{owner}/{repo}/releases", CHANGE, create).content(),
    Route::get("/repos/{owner}/{repo}/releases/tags/{tag}", READ, get_by_tag),
    Route::get("/repos/{owner}/{repo}/releases/{release_id}", READ, get),
    Route::get("/repos/{owner}/{repo}/releases/{release_id}/assets", READ, list_assets),
    Route::post("/repos/{owner}/{repo}/releases/{release_id}/assets", CHANGE, upload),
    Route::get("/repos/{owner}/{repo}/releases/assets/{asset_id}", READ, get_asset),
    Route::delete("/repos/{owner}/{repo}/releases/assets/{asset_id}", CHANGE, delete_asset),
];

fn named<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<&'a Release, ApiError> {
    repository.releases.get(&call.params.id("release_id")?).ok_or(ApiError::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, repository.releases.values().rev().collect(), |release| {
        renderer.release(repository, release)
    }))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let release = named(call, repository)?;
    // Deliberate: at the running service `Last-Modified` can miss a new asset.
    Ok(Reply::ok(Renderer::of(call).release(repository, release)).changed_at(release.updated_at))
}

fn get_by_tag(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let release = repository
        .releases
        .values()
        .find(|release| release.tag == call.params.get("tag"))
        .ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).release(repository, release)).changed_at(release.updated_at))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Release", call.body)?;
    let tag = fields.required_string("tag_name");
    let name = fields.nullable_string("name").value().unwrap_or_else(|| tag.clone());
    let body = fields.nullable_string("body").value();
    if call.repository()?.releases.values().any(|release| release.tag == tag) {
        fields.taken("tag_name");
    }
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
    call.repository_mut()?.releases.insert(id, release);
    let place = call.repository;
    webhooks::publish(call, WebhookEvent::new("release", "published"), |renderer| {
        subject(renderer, place, id)
    });
    let repository = call.repository()?;
    let release = repository.releases.get(&id).ok_or(ApiError::NotFound)?;
    let location = format!("{}/releases/{id}", Renderer::of(call).repository_url(repository));
    Ok(Reply::created(Renderer::of(call).release(repository, release), &location))
}

fn subject(renderer: &Renderer<'_>, repository: u64, id: u64) -> Value {
    let repository = renderer.world.repositories.get(&repository);
    json!({ "release": repository.and_then(|repository| Some(renderer.release(repository, repository.releases.get(&id)?))) })
}

fn list_assets(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let release = named(call, repository)?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, release.assets.values().collect(), |asset| {
        renderer.asset(repository, release, asset)
    }))
}

fn upload(call: &mut Call<'_>) -> Outcome {
    let release = named(call, call.repository()?)?;
    let release_id = release.id;
    ApiError::unless_spammed("ReleaseAsset", release.assets.len())?;
    let name = call.query.get("name").filter(|name| !name.is_empty());
    let name = name
        .ok_or_else(|| {
            ApiError::field(
                "ReleaseAsset",
                "name",
                Code::MissingField,
                "name is required in the query",
            )
        })?
        .to_owned();
    if release.assets.values().any(|asset| asset.name == name) {
        return Err(ApiError::field("ReleaseAsset", "name", Code::AlreadyExists, "name is taken"));
    }
    let content_type = call
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("application/octet-stream")
        .to_owned();
    let label = call.query.get("label").map(str::to_owned);
    let (size_bytes, uploader, created_at, id) =
        (call.upload_bytes, call.actor(), call.now, call.world.next_id());
    let asset = Asset {
        id,
        name,
        label,
        content_type,
        size_bytes,
        uploader,
        created_at,
        updated_at: created_at,
    };
    call.repository_mut()?
        .releases
        .get_mut(&release_id)
        .ok_or(ApiError::NotFound)?
        .assets
        .insert(id, asset);
    let repository = call.repository()?;
    let (release, asset) = asset_by_id(repository, id)?;
    let location =
        format!("{}/releases/assets/{id}", Renderer::of(call).repository_url(repository));
    Ok(Reply::created(Renderer::of(call).asset(repository, release, asset), &location))
}

fn asset_by_id(repository: &Repository, id: u64) -> Result<(&Release, &Asset), ApiError> {
    repository
        .releases
        .values()
        .find_map(|release| Some((release, release.assets.get(&id)?)))
        .ok_or(ApiError::NotFound)
}

fn get_asset(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let (release, asset) = asset_by_id(repository, call.params.id("asset_id")?)?;
    Ok(Reply::ok(Renderer::of(call).asset(repository, release, asset)).changed_at(asset.updated_at))
}

fn delete_asset(call: &mut Call<'_>) -> Outcome {
    let id = call.params.id("asset_id")?;
    let gone = call
        .repository_mut()?
        .releases
        .values_mut()
        .any(|release| release.assets.remove(&id).is_some());
    if gone { Ok(Reply::empty(StatusCode::NO_CONTENT)) } else { Err(ApiError::NotFound) }
}
