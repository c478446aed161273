//! Apps and their installations (SPECIFICATION, "Credentials"). The shapes are undocumented; they
//! are the real service's, reduced. Installation requests, suspension and uninstalling are left
//! out.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Level, Permissions};
use crate::emulator::auth::{access, reach};
use crate::emulator::http::{ApiError, Body, Reply, SITE, iso, segment};
use crate::emulator::render::{extend, node_id};
use crate::emulator::routing::{Call, Need, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{App, Owner, Repository, World};

pub const ROUTES: &[Route] = &[
    Route::get("/app", Need::App, me),
    Route::get("/app/installations", Need::App, installations),
    Route::get("/app/installations/{installation_id}", Need::App, installation),
    Route::get("/apps/{app_slug}", Need::Nothing, by_slug),
    Route::get("/orgs/{org}/installation", Need::App, installation_of_organization),
    Route::get("/repos/{owner}/{repo}/installation", Need::App, installation_of_repository),
    Route::get("/installation/repositories", Need::Kind(TokenKind::Installation), repositories),
    Route::get("/user/installations", Need::Kind(TokenKind::AppUser), installations_of_user),
    Route::get(
        "/user/installations/{installation_id}/repositories",
        Need::Kind(TokenKind::AppUser),
        repositories_of_user_installation,
    ),
];

pub fn caller_app<'a>(call: &'a Call<'_>) -> Result<&'a App, ApiError> {
    call.caller.app().and_then(|id| call.world.app(id)).ok_or(ApiError::RequiresAuthentication)
}

/// It must belong to the calling app; returns its organisation too.
pub fn own_installation(call: &Call<'_>) -> Result<(u64, u64), ApiError> {
    let id = call.params.id("installation_id")?;
    Ok((id, organization_with(caller_app(call)?, id)?))
}

fn organization_with(app: &App, id: u64) -> Result<u64, ApiError> {
    let installed = app.installations.iter().find(|(installation, _)| *installation == id);
    installed.map(|(_, organization)| *organization).ok_or(ApiError::NotFound)
}

fn me(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(render_app(call, caller_app(call)?)))
}

fn by_slug(call: &mut Call<'_>) -> Outcome {
    let slug = call.params.get("app_slug");
    let mut apps = call.world.apps.iter();
    let app = apps.find(|app| app.slug.eq_ignore_ascii_case(slug)).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(render_app(call, app)))
}

fn installations(call: &mut Call<'_>) -> Outcome {
    let app = caller_app(call)?;
    let all = app.installations.iter();
    call.page(all, |_, (id, organization)| render(call, app, *id, *organization))
}

fn installation(call: &mut Call<'_>) -> Outcome {
    let (id, organization) = own_installation(call)?;
    Ok(Reply::ok(render(call, caller_app(call)?, id, organization)))
}

fn installation_of_organization(call: &mut Call<'_>) -> Outcome {
    let organization = access::organization_of_path(call)?.id;
    let app = caller_app(call)?;
    let id = call.world.installation_on(app.id, organization).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(render(call, app, id, organization)))
}

fn installation_of_repository(call: &mut Call<'_>) -> Outcome {
    let repository = call.named_repository()?;
    let Owner::Organization(organization) = repository.owner else {
        return Err(ApiError::NotFound);
    };
    let app = caller_app(call)?;
    let installed = call.world.installation_on(app.id, organization);
    let id = installed
        .filter(|id| reach::covers(call.world, *id, repository.id))
        .ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(render(call, app, id, organization)))
}

fn repositories(call: &mut Call<'_>) -> Outcome {
    let token = call.caller.token().ok_or(ApiError::RequiresAuthentication)?;
    let AccountId::Installation(id) = token.account else { return Err(ApiError::NotFound) };
    let reached =
        |repository: &&Repository| reach::reaches_repository(call.world, token, repository);
    let all = call.world.repositories.values().filter(reached).collect();
    let narrowed = token.repositories.is_some();
    let selection = if narrowed { "selected" } else { selection(call.world, id) };
    let mut reply =
        counted(call, "repositories", all, |repository| call.renderer().repository(repository));
    if let Body::Json(members) = &mut reply.body {
        extend(members, json!({ "repository_selection": selection }));
    }
    Ok(reply)
}

/// Lists installations of the token's app in organisations of its user.
fn installations_of_user(call: &mut Call<'_>) -> Outcome {
    let (app, user) = app_and_user(call)?;
    let mine = app.installations.iter();
    let mine = mine.filter(|(_, organization)| call.is_member(*organization, user)).collect();
    Ok(counted(call, "installations", mine, |(id, organization)| {
        render(call, app, *id, *organization)
    }))
}

fn repositories_of_user_installation(call: &mut Call<'_>) -> Outcome {
    let (app, user) = app_and_user(call)?;
    let id = call.params.id("installation_id")?;
    let organization = organization_with(app, id)?;
    ApiError::not_found_unless(call.is_member(organization, user))?;
    let reached = |repository: &&Repository| {
        repository.owner == Owner::Organization(organization)
            && reach::covers(call.world, id, repository.id)
    };
    let all = call.visible_repositories().filter(reached).collect();
    Ok(counted(call, "repositories", all, |repository| call.renderer().repository(repository)))
}

fn app_and_user<'a>(call: &'a Call<'_>) -> Result<(&'a App, u64), ApiError> {
    let token = call.caller.token().ok_or(ApiError::RequiresAuthentication)?;
    let app = token.app.and_then(|id| call.world.app(id)).ok_or(ApiError::NotFound)?;
    Ok((app, token.user.ok_or(ApiError::NotFound)?))
}

/// Renders a page inside an object with the total count.
fn counted<T>(call: &Call<'_>, name: &str, items: Vec<T>, render: impl Fn(T) -> Value) -> Reply {
    let total = items.len();
    let (shown, link) = pagination::cut(call, USUAL, items);
    let shown: Vec<Value> = shown.into_iter().map(render).collect();
    let mut reply = Reply::ok(json!({ "total_count": total, name: shown }));
    reply.headers.extend(link);
    reply
}

fn render_app(call: &Call<'_>, app: &App) -> Value {
    let owner_created_at = match app.owner {
        Owner::User(id) => call.world.users.get(&id).map(|user| user.created_at),
        Owner::Organization(id) => call.world.organizations.get(&id).map(|one| one.created_at),
    };
    json!({
        "id": app.id,
        "slug": app.slug,
        "node_id": node_id("Integration", app.id),
        "owner": call.renderer().owner_summary(app.owner),
        "name": app.slug,
        "description": "",
        "external_url": format!("{SITE}/apps/{}", app.slug),
        "html_url": format!("{SITE}/apps/{}", app.slug),
        // An app has its owner's date of creation, because its own is unknown.
        "created_at": owner_created_at.map(iso),
        "updated_at": owner_created_at.map(iso),
        "permissions": permissions_of(call.world, app).wire(),
        "events": [],
        "installations_count": app.installations.len(),
    })
}

/// Returns the union of the permissions granted to its installations.
fn permissions_of(world: &World, app: &App) -> Permissions {
    let mut union: BTreeMap<&'static str, Level> = BTreeMap::new();
    for (installation, _) in &app.installations {
        match &world.installation_grant(*installation).permissions {
            Permissions::All => return Permissions::All,
            Permissions::NotApplicable => {}
            Permissions::Only(granted) => {
                for (name, level) in granted {
                    let highest = union.entry(name).or_insert(*level);
                    *highest = (*highest).max(*level);
                }
            }
        }
    }
    Permissions::Only(union)
}

fn selection(world: &World, installation: u64) -> &'static str {
    if world.installation_grant(installation).repositories.is_some() { "selected" } else { "all" }
}

fn render(call: &Call<'_>, app: &App, id: u64, organization: u64) -> Value {
    let owner = Owner::Organization(organization);
    let installed_at =
        call.world.organizations.get(&organization).map(|found| iso(found.created_at));
    let login = call.world.owner_login(owner);
    json!({
        "id": id,
        "account": call.renderer().owner_summary(owner),
        "repository_selection": selection(call.world, id),
        "access_tokens_url": format!("{}/app/installations/{id}/access_tokens", call.urls.api),
        "repositories_url": format!("{}/installation/repositories", call.urls.api),
        "html_url": format!("{SITE}/organizations/{}/settings/installations/{id}", segment(login)),
        "app_id": app.id,
        "app_slug": app.slug,
        "target_id": organization,
        "target_type": "Organization",
        "permissions": call.world.installation_grant(id).permissions.wire(),
        "events": [],
        "single_file_name": null,
        "has_multiple_single_files": false,
        "created_at": installed_at,
        "updated_at": installed_at,
        "suspended_by": null,
        "suspended_at": null,
    })
}
