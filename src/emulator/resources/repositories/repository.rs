//! Repositories: get, change, rename.

use crate::emulator::accounts::Level;
use crate::emulator::events::webhooks::repositories as repository_events;
use crate::emulator::events::webhooks::repositories::Before;
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::{FEATURES, Visibility};

const READ: Need = Need::repository("metadata", Level::Read, Role::Read);
/// SPECIFICATION, "Permissions".
const ADMINISTER: Need = Need::repository("administration", Level::Write, Role::Admin);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}", READ, get),
    Route::patch("/repos/{owner}/{repo}", ADMINISTER, patch),
];

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let renderer = call.renderer();
    Ok(Reply::ok(renderer.repository(repository))
        .changed_at(renderer.repository_changed_at(repository)))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Repository", call.body)?;
    let name = fields.string("name");
    if let Some(name) = &name {
        refuse_bad_name(&mut fields, name);
    }
    let visibility = visibility(&mut fields);
    let description = fields.nullable_string("description");
    let homepage = fields.nullable_string("homepage");
    let default_branch = fields.string("default_branch");
    let features = features(&mut fields);
    fields.check()?;

    let id = call.repository;
    let before = Before::of(call.repository()?);
    if let Some(name) = name
        && !call.world.rename_repository(id, &name)
    {
        let message = "name already exists on this account";
        return Err(ApiError::field("Repository", "name", Code::AlreadyExists, message));
    }
    let now = call.now;
    if let Some(visibility) = visibility {
        call.world.set_visibility(id, visibility);
        call.world.owner_changed(call.repository()?.owner, now);
    }
    let repository = call.repository_mut()?;
    repository.features.extend(features);
    repository.description =
        description.of(Some(std::mem::take(&mut repository.description))).unwrap_or_default();
    repository.homepage = homepage.of(repository.homepage.take());
    repository.default_branch =
        default_branch.unwrap_or_else(|| std::mem::take(&mut repository.default_branch));
    repository.updated_at = now;
    repository_events::publish_changes(call, &before)?;
    Ok(Reply::ok(call.renderer().repository(call.repository()?)))
}

/// `visibility`, the newer field, overrides `private`.
pub fn visibility(fields: &mut Fields) -> Option<Visibility> {
    let private = fields
        .boolean("private")
        .map(|private| if private { Visibility::Private } else { Visibility::Public });
    let named = |name: &str| match name {
        "public" => Some(Visibility::Public),
        "private" => Some(Visibility::Private),
        _ => None,
    };
    fields.choice("visibility", named, "visibility must be public or private").or(private)
}

pub fn features(fields: &mut Fields) -> Vec<(&'static str, bool)> {
    FEATURES.iter().filter_map(|(name, _)| Some((*name, fields.boolean(name)?))).collect()
}

pub fn refuse_bad_name(fields: &mut Fields, name: &str) {
    if !is_name(name) {
        fields.invalid("name", "name may only contain letters, digits, `.`, `-` and `_`");
    }
}

/// The running service's rule.
fn is_name(name: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=100).contains(&name.len()) && name.chars().all(is_usual) && !matches!(name, "." | "..")
        // The API expects names without `.git`.
        && !name.to_ascii_lowercase().ends_with(".git")
}
