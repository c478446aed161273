//! User migrations: start, list, show, download and delete the archive, unlock a repository
//! (SPECIFICATION, "User migrations").
//!
//! The paths of the last three are undocumented; they are the real service's, which published
//! clients use.

use std::collections::BTreeSet;

use http::{StatusCode, header};
use serde_json::{Value, json};
use strum::VariantArray;

use crate::emulator::auth::access;
use crate::emulator::http::validators::lists;
use crate::emulator::http::{ApiError, Body, Fields, Reply, Tag, http_date, iso};
use crate::emulator::migrations::PER_ACCOUNT_MAX;
use crate::emulator::migrations::download::{self, Refused};
use crate::emulator::render::{node_id, object};
use crate::emulator::resources::notifications::is_unchanged_since;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::{Flag, Migration, MigrationState, Repository, guid};

/// Requires the account owner with a classic credential.
const MINE: Need = Need::ClassicCredential;
/// The most repositories of one migration; undocumented, it bounds the memory of a request.
const REPOSITORIES_MAX: usize = 1_000;
/// Longer names are truncated in errors.
const SHOWN_CHARACTERS_MAX: usize = 150;
/// The only attribute that a response may omit.
const REPOSITORIES: &str = "repositories";

pub const ROUTES: &[Route] = &[
    Route::get("/user/migrations", MINE, list),
    Route::post("/user/migrations", MINE, start),
    Route::get("/user/migrations/{migration_id}", MINE, get),
    Route::get("/user/migrations/{migration_id}/archive", MINE, redirect_to_archive),
    Route::delete("/user/migrations/{migration_id}/archive", MINE, delete_archive),
    Route::get("/user/migrations/{migration_id}/repositories", MINE, list_repositories),
    Route::delete("/user/migrations/{migration_id}/repos/{repo_name}/lock", MINE, unlock),
    // Not part of the API: represents the archive host, so it takes no credential and is free.
    Route::get("/_archives/{file}", Need::Nothing, download).free(),
];

/// Migrations of others are hidden.
fn named<'a>(call: &'a Call<'_>) -> Result<&'a Migration, ApiError> {
    let (id, me) = (call.params.id("migration_id")?, call.me()?);
    let migration = call.world.migrations.get(id);
    migration.filter(|migration| migration.owner == me).ok_or(ApiError::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let mine = call.world.migrations.of(call.me()?);
    call.page(mine, |_, migration| render(call, migration, Attributes::All))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let migration = named(call)?;
    let attributes = requested_attributes(call);
    let repositories = shown(call, migration).map(|repository| repository.updated_at);
    let changed_at =
        repositories.filter(|_| attributes == Attributes::All).chain([migration.updated_at]).max();
    Ok(Reply { changed_at, ..Reply::ok(render(call, migration, attributes)) })
}

/// Accepts any array syntax of clients. Other names are ignored, because this route documents no
/// 422.
fn requested_attributes(call: &Call<'_>) -> Attributes {
    let given = call.query.clone().sorted();
    let mut values = given
        .iter()
        .filter(|(name, _)| matches!(name.as_str(), "exclude" | "exclude[]"))
        .flat_map(|(_, value)| value.split(','));
    if values.any(|value| value.trim() == REPOSITORIES) {
        Attributes::WithoutRepositories
    } else {
        Attributes::All
    }
}

fn start(call: &mut Call<'_>) -> Outcome {
    let me = call.me()?;
    let mut fields = Fields::parse("Migration", call.body)?;
    let flags: BTreeSet<Flag> = Flag::VARIANTS
        .iter()
        .copied()
        .filter(|flag| fields.boolean(flag.into_str()) == Some(true))
        .collect();
    let attributes = exclude(&mut fields);
    let names = repository_names(&mut fields);
    let (flags, repositories) = if flags.contains(&Flag::OrgMetadataOnly) {
        if !names.is_empty() {
            fields
                .invalid(REPOSITORIES, "repositories must be empty when org_metadata_only is true");
        }
        // Other flags are ignored.
        (BTreeSet::from([Flag::OrgMetadataOnly]), Vec::new())
    } else {
        let repositories = repositories(call, &mut fields, &names, &flags);
        (flags, repositories)
    };
    fields.check()?;
    if call.world.migrations.of(me).count() >= PER_ACCOUNT_MAX {
        return Err(ApiError::invalid("Migration", "base", "there are too many already"));
    }
    let (id, now) = (call.world.next_id(), call.now);
    call.world.migrations.add(Migration::new(id, guid(id), me, repositories, flags, now));
    let migration = call.world.migrations.get(id).ok_or(ApiError::NotFound)?;
    Ok(Reply::created_at_url(render(call, migration, attributes)))
}

fn exclude(fields: &mut Fields) -> Attributes {
    let names = fields.strings("exclude").unwrap_or_default();
    if names.iter().any(|name| name != REPOSITORIES) {
        fields.invalid("exclude", "exclude may only name repositories");
    }
    if names.is_empty() { Attributes::All } else { Attributes::WithoutRepositories }
}

fn repository_names(fields: &mut Fields) -> Vec<String> {
    fields.require(REPOSITORIES);
    let names = fields.strings(REPOSITORIES).unwrap_or_default();
    if names.len() > REPOSITORIES_MAX {
        fields.invalid(REPOSITORIES, format!("repositories may name at most {REPOSITORIES_MAX}"));
        return Vec::new();
    }
    names
}

/// The caller must see them, and administer those to be locked; the upstream does not document
/// this.
fn repositories(
    call: &Call<'_>,
    fields: &mut Fields,
    names: &[String],
    flags: &BTreeSet<Flag>,
) -> Vec<u64> {
    let locks = flags.contains(&Flag::LockRepositories);
    let mut ids = Vec::new();
    for name in names {
        let found =
            name.split_once('/').and_then(|(owner, name)| call.world.repository_named(owner, name));
        let shown: String = name.chars().take(SHOWN_CHARACTERS_MAX).collect();
        let fault = match found.filter(|repository| call.sees(repository)) {
            None => "is not a repository that can be migrated",
            Some(repository) if locks && !administers(call, repository) => {
                "can only be locked by its administrator"
            }
            Some(repository) => {
                if !ids.contains(&repository.id) {
                    ids.push(repository.id);
                }
                continue;
            }
        };
        fields.invalid(REPOSITORIES, format!("{shown} {fault}"));
    }
    if names.is_empty() && fields.value(REPOSITORIES).is_some_and(|given| *given == json!([])) {
        fields
            .invalid(REPOSITORIES, "repositories may only be empty when org_metadata_only is true");
    }
    ids
}

fn administers(call: &Call<'_>, repository: &Repository) -> bool {
    let role = |token| access::role_of_token(call.world, token, repository);
    call.caller.token().is_some_and(|token| role(token) >= Role::Admin)
}

/// 403 before the export, the only documented refusal, and 404 for a deleted archive.
fn redirect_to_archive(call: &mut Call<'_>) -> Outcome {
    let migration = named(call)?;
    if migration.state != MigrationState::Exported {
        return Err(ApiError::Forbidden(
            "The archive can be downloaded once the migration is exported.",
        ));
    }
    ApiError::not_found_unless(migration.archive.is_some())?;
    let hides =
        |id: &u64| call.world.repositories.get(id).is_some_and(|repository| !call.sees(repository));
    if migration.repositories.iter().any(hides) {
        return Err(ApiError::Forbidden(
            "The archive has repositories that the token may not see.",
        ));
    }
    // The archive never changes, so its GUID is its tag. The address differs every time.
    let tag = format!("\"{}\"", migration.guid);
    let tags = call.headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = tags.filter_map(|value| value.to_str().ok()).peekable();
    let unchanged = if tags.peek().is_none() {
        is_unchanged_since(call, migration.since)
    } else {
        tags.any(|list| lists(list, &migration.guid))
    };
    let reply = if unchanged {
        Reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        let expires = call.now + call.limits.duration("migrations.download");
        let address = format!("{}{}", call.urls.api, download::path(&migration.guid, expires));
        // A client that does not follow the redirect reads the address from the body.
        let body = Body::Raw(Some("text/plain; charset=utf-8".to_owned()), address.clone().into());
        Reply::new(StatusCode::FOUND, body).with(header::LOCATION, &address)
    };
    Ok(reply.with(header::ETAG, &tag).with(header::LAST_MODIFIED, &http_date(migration.since)))
}

/// Serves the archive for a signed address that has not expired.
fn download(call: &mut Call<'_>) -> Outcome {
    let guid = call.params.get("file").strip_suffix(".tar.gz").ok_or(ApiError::NotFound)?;
    download::verify(guid, &call.query, call.now).map_err(|error| {
        ApiError::Forbidden(match error {
            Refused::WrongSignature => "The address is not one that was handed out.",
            Refused::Expired => "The address has expired; ask the migration for another one.",
        })
    })?;
    let migration = call.world.migrations.by_guid(guid).ok_or(ApiError::NotFound)?;
    let archive = migration.archive.clone().ok_or(ApiError::NotFound)?;
    let named = format!("attachment; filename=\"{guid}.tar.gz\"");
    let reply = Reply::new(StatusCode::OK, Body::Raw(Some("application/gzip".to_owned()), archive));
    let tag = Tag::Recorded(format!("\"{guid}\""));
    Ok(Reply {
        tag,
        changed_at: Some(migration.since),
        ..reply.with(header::CONTENT_DISPOSITION, &named)
    })
}

fn delete_archive(call: &mut Call<'_>) -> Outcome {
    let id = named(call)?.id;
    Reply::no_content_if(call.world.migrations.delete_archive(id))
}

fn list_repositories(call: &mut Call<'_>) -> Outcome {
    let repositories = shown(call, named(call)?);
    call.page(repositories, |renderer, repository| renderer.repository(repository))
}

/// 403 before the export, and 404 for a repository that is not locked.
fn unlock(call: &mut Call<'_>) -> Outcome {
    let migration = named(call)?;
    let name = call.params.get("repo_name");
    let is_named = |id: &&u64| {
        let repository = call.world.repositories.get(id);
        repository.is_some_and(|repository| repository.name.eq_ignore_ascii_case(name))
    };
    let repository = *migration.locked.iter().find(is_named).ok_or(ApiError::NotFound)?;
    if matches!(migration.state, MigrationState::Pending | MigrationState::Exporting) {
        return Err(ApiError::Forbidden(
            "A repository can be unlocked once its migration has ended.",
        ));
    }
    let (id, now) = (migration.id, call.now);
    call.world.migrations.unlock(id, repository, now);
    Ok(Reply::no_content())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attributes {
    All,
    WithoutRepositories,
}

fn shown<'a>(call: &'a Call<'_>, migration: &'a Migration) -> impl Iterator<Item = &'a Repository> {
    let repositories = migration.repositories.iter();
    let repositories = repositories.filter_map(|id| call.world.repositories.get(id));
    repositories.filter(|repository| call.sees(repository))
}

/// Renders a migration; two flags are added for published clients.
fn render(call: &Call<'_>, migration: &Migration, attributes: Attributes) -> Value {
    let renderer = call.renderer();
    let mut map = object([
        ("id", json!(migration.id)),
        ("node_id", json!(node_id("Migration", migration.id))),
        ("owner", renderer.user_summary(migration.owner)),
        ("guid", json!(migration.guid)),
        ("state", json!(migration.state.into_str())),
        ("url", json!(format!("{}/user/migrations/{}", call.urls.api, migration.id))),
        ("created_at", json!(iso(migration.created_at))),
        ("updated_at", json!(iso(migration.updated_at))),
    ]);
    map.extend(object(
        Flag::VARIANTS.iter().map(|flag| (flag.into_str(), json!(migration.wants(*flag)))),
    ));
    if attributes == Attributes::All {
        let shown = shown(call, migration).map(|repository| renderer.repository(repository));
        map.insert(REPOSITORIES.to_owned(), shown.collect());
    }
    Value::Object(map)
}
