//! Repositories: get, change, rename.

use crate::emulator::accounts::Level;
use crate::emulator::events::webhooks::repositories as repository_events;
use crate::emulator::events::webhooks::repositories::Before;
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::render::Renderer;
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
    let renderer = Renderer::of(call);
    Ok(Reply::ok(renderer.repository(repository))
        .changed_at(renderer.repository_changed_at(repository)))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Repository", call.body)?;
    let name = fields.string("name");
    if name.as_deref().is_some_and(|name| !is_name(name)) {
        fields.invalid("name", "name may only contain letters, digits, `.`, `-` and `_`");
    }
    let visibility = visibility(&mut fields);
    let description = fields.nullable_string("description");
    let homepage = fields.nullable_string("homepage");
    let default_branch = fields.string("default_branch");
    let features: Vec<(&'static str, bool)> =
        FEATURES.iter().filter_map(|(name, _)| Some((*name, fields.boolean(name)?))).collect();
    fields.check()?;

    let id = call.repository;
    let before = Before::of(call.repository()?);
    if let Some(name) = name
        && !call.world.rename_repository(id, &name)
    {
        return Err(ApiError::field(
            "Repository",
            "name",
            Code::AlreadyExists,
            "name already exists on this account",
        ));
    }
    let now = call.now;
    if let Some(visibility) = visibility {
        call.world.set_visibility(id, visibility);
        let owner = call.repository()?.owner;
        call.world.owner_changed(owner, call.now);
    }
    let repository = call.repository_mut()?;
    repository.features.extend(features);
    repository.description =
        description.of(Some(std::mem::take(&mut repository.description))).unwrap_or_default();
    repository.homepage = homepage.of(repository.homepage.take());
    repository.default_branch =
        default_branch.unwrap_or_else(|| std::mem::take(&mut repository.default_branch));
    repository.updated_at = now;
    repository_events::tell(call, &before)?;
    let repository = call.repository()?;
    Ok(Reply::ok(Renderer::of(call).repository(repository)))
}

/// `visibility`, the newer field, overrides `private`.
fn visibility(fields: &mut Fields) -> Option<Visibility> {
    let private = fields
        .boolean("private")
        .map(|private| if private { Visibility::Private } else { Visibility::Public });
    match fields.string("visibility").as_deref() {
        Some("public") => Some(Visibility::Public),
        Some("private") => Some(Visibility::Private),
        Some(_) => {
            fields.invalid("visibility", "visibility must be public or private");
            None
        }
        None => private,
    }
}

/// The running service's rule.
pub fn is_name(name: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=100).contains(&name.len()) && name.chars().all(is_usual) && !matches!(name, "." | "..")
        // The API expects names without `.git`.
        && !name.to_ascii_lowercase().ends_with(".git")
}
