//! Installation access tokens (SPECIFICATION, "Credentials"): created with the app's JWT for an
//! hour, with the installation's rights or fewer, and revoked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::app::{caller_app, own_installation};
use crate::api::TokenKind;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Level, Permissions, Token, TokenStatus};
use crate::emulator::auth::{permission_names, reach};
use crate::emulator::http::{ApiError, Fields, Reply, iso};
use crate::emulator::render::extend;
use crate::emulator::routing::{Call, Need, Outcome, Route};
use crate::emulator::world::Owner;

pub const ROUTES: &[Route] = &[
    Route::post("/app/installations/{installation_id}/access_tokens", Need::App, mint)
        .about_tokens(),
    Route::delete("/installation/token", Need::Kind(TokenKind::Installation), revoke),
];

const LIFETIME: Duration = Duration::from_hours(1);
/// The real service's maximum of names in one body.
const NAMED_MAX: usize = 500;
/// Every permission on a repository implies reading its metadata; the real service adds it too.
const METADATA: &str = "metadata";

fn mint(call: &mut Call<'_>) -> Outcome {
    let (installation, organization) = own_installation(call)?;
    let app = caller_app(call)?.id;
    let mut fields = Fields::parse("Installation", call.body)?;
    let chosen = repositories(call, &mut fields, installation, organization);
    let narrowed = narrowed(call, &mut fields, installation);
    fields.check()?;
    let installation_grant = call.world.installation_grant(installation);
    let repositories = chosen.or_else(|| installation_grant.repositories.clone());
    let permissions =
        narrowed.map_or_else(|| installation_grant.permissions.clone(), Permissions::Only);
    // The API has whole seconds, so the expiry has too.
    let end = Timestamp::from_secs((call.now + LIFETIME).as_secs());
    let value = format!("emu_installation_{installation}_{}", call.world.next_id());
    let renderer = call.renderer();
    let mut answer = json!({
        "token": value,
        "expires_at": iso(end),
        "permissions": permissions.wire(),
        "repository_selection": if repositories.is_some() { "selected" } else { "all" },
    });
    if let Some(chosen) = &repositories {
        let chosen = chosen.iter().filter_map(|id| call.world.repositories.get(id));
        let shown: Value = chosen.map(|repository| renderer.repository(repository)).collect();
        extend(&mut answer, json!({ "repositories": shown }));
    }
    let token = Token {
        value,
        kind: TokenKind::Installation,
        account: AccountId::Installation(installation),
        user: None,
        scopes: Vec::new(),
        permissions,
        installed_on: Some(organization),
        workflow_of: None,
        oauth_app: None,
        app: Some(app),
        repositories,
        status: TokenStatus::ValidUntil(end),
        note: "made with the app's JWT",
    };
    call.world.mint(token, call.now)?;
    Ok(Reply::json(StatusCode::CREATED, answer))
}

/// `None` without a selection. An empty list is refused, because the token would have no use.
fn repositories(
    call: &Call<'_>,
    fields: &mut Fields,
    installation: u64,
    organization: u64,
) -> Option<BTreeSet<u64>> {
    let names = fields.strings("repositories");
    let ids = fields.value("repository_ids").cloned();
    let mut chosen = BTreeSet::new();
    if let Some(names) = &names {
        let login = call.world.owner_login(Owner::Organization(organization));
        let found = names.iter().map(|name| Some(call.world.repository_named(login, name)?.id));
        choose(call, fields, "repositories", installation, &mut chosen, found.collect());
    }
    if let Some(ids) = &ids {
        let owned = |id: u64| {
            let repository = call.world.repositories.get(&id)?;
            (repository.owner == Owner::Organization(organization)).then_some(id)
        };
        let ids: Option<Vec<u64>> =
            ids.as_array().and_then(|ids| ids.iter().map(Value::as_u64).collect());
        if let Some(ids) = ids {
            let found = ids.into_iter().map(owned).collect();
            choose(call, fields, "repository_ids", installation, &mut chosen, found);
        } else {
            fields.invalid("repository_ids", "repository_ids is not an array of integers");
        }
    }
    (names.is_some() || ids.is_some()).then_some(chosen)
}

/// The installation must have been granted all of them.
fn choose(
    call: &Call<'_>,
    fields: &mut Fields,
    name: &str,
    installation: u64,
    chosen: &mut BTreeSet<u64>,
    found: Vec<Option<u64>>,
) {
    if found.is_empty() || found.len() > NAMED_MAX {
        fields.invalid(name, format!("{name} must name 1 to {NAMED_MAX} repositories"));
    } else if found
        .iter()
        .any(|id| id.is_none_or(|id| !reach::covers(call.world, installation, id)))
    {
        fields.invalid(name, "There is at least one repository that does not exist or is not accessible to the installation.");
    } else {
        chosen.extend(found.into_iter().flatten());
    }
}

/// They may not exceed the installation's.
fn narrowed(
    call: &Call<'_>,
    fields: &mut Fields,
    installation: u64,
) -> Option<BTreeMap<&'static str, Level>> {
    let given = match fields.value("permissions")?.as_object() {
        // Published clients send an empty object for no restriction.
        Some(given) if given.is_empty() => return None,
        Some(given) => given.clone(),
        None => {
            fields.invalid("permissions", "permissions is not an object");
            return None;
        }
    };
    let granted = &call.world.installation_grant(installation).permissions;
    let mut requested = BTreeMap::new();
    if granted.allow(METADATA, Level::Read) {
        requested.insert(METADATA, Level::Read);
    }
    for (name, level) in &given {
        let level = level.as_str().and_then(permission_names::level_named);
        let fault = match (permission_names::named(name), level) {
            (Some(name), Some(level)) if granted.include(&BTreeMap::from([(name, level)])) => {
                requested.insert(name, level);
                continue;
            }
            (None, _) => "there is no such permission",
            (_, None) => "a permission is read, write or admin",
            _ => "The permissions requested are not granted to this installation.",
        };
        fields.invalid(&format!("permissions.{name}"), fault);
    }
    Some(requested)
}

fn revoke(call: &mut Call<'_>) -> Outcome {
    let (position, _) = call.caller.token.as_ref().ok_or(ApiError::RequiresAuthentication)?;
    call.world.revoke(*position);
    Ok(Reply::no_content())
}
