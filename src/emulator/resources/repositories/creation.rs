//! Creating, forking and deleting repositories, and changing an organisation's or user's profile.

use http::StatusCode;
use serde_json::json;

use super::repository::{features, refuse_bad_name, visibility};
use crate::emulator::accounts::Level;
use crate::emulator::events::changes::{self, Change, EventContext, EventScope, WebhookEvent};
use crate::emulator::events::webhooks::organizations as organization_events;
use crate::emulator::events::webhooks::repository_of_payload;
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::routing::{Call, Need, OrganizationRole, Outcome, Role, Route, Unscoped};
use crate::emulator::seed::SEEDED_BELOW;
use crate::emulator::world::{Owner, Repository, Visibility};

/// SPECIFICATION, "Permissions".
const ADMINISTER: Need = Need::repository("administration", Level::Write, Role::Admin);
/// SPECIFICATION, "Permissions". The running service admits members with the scope `repo`.
const CREATE: Need = organization("administration", &["repo"], OrganizationRole::Member);
/// SPECIFICATION, "Permissions".
const GOVERN: Need =
    organization("organization_administration", &["admin:org"], OrganizationRole::Owner);

const fn organization(
    permission: &'static str,
    scopes: &'static [&'static str],
    role: OrganizationRole,
) -> Need {
    Need::organization(permission, Level::Write, scopes, role, Unscoped::Forbidden)
}

pub const ROUTES: &[Route] = &[
    Route::post("/orgs/{org}/repos", CREATE, create_in_organization).content(),
    Route::post("/user/repos", Need::User, create_for_me).content(),
    Route::post("/repos/{owner}/{repo}/forks", Need::Fork, fork).content(),
    Route::delete("/repos/{owner}/{repo}", ADMINISTER, delete),
    Route::patch("/orgs/{org}", GOVERN, change_organization),
    Route::delete("/orgs/{org}", GOVERN, delete_organization),
    Route::patch("/user", Need::User, change_me),
];

struct Plan {
    owner: Owner,
    name: String,
    description: String,
    visibility: Visibility,
}

fn create_in_organization(call: &mut Call<'_>) -> Outcome {
    let owner = Owner::Organization(call.organization);
    create(call, owner)
}

fn create_for_me(call: &mut Call<'_>) -> Outcome {
    let owner = Owner::User(call.me()?);
    create(call, owner)
}

fn create(call: &mut Call<'_>, owner: Owner) -> Outcome {
    let mut fields = Fields::parse("Repository", call.body)?;
    let name = fields.required_string("name");
    if !name.is_empty() {
        refuse_bad_name(&mut fields, &name);
    }
    let description = fields.nullable_string("description").value().unwrap_or_default();
    let visibility = visibility(&mut fields).unwrap_or(Visibility::Public);
    let features = features(&mut fields);
    if is_taken(call, owner, &name) {
        fields.reject("name", Code::AlreadyExists, "name already exists on this account");
    }
    fields.check()?;
    let mut repository = new(call, Plan { owner, name, description, visibility })?;
    repository.features.extend(features);
    shown(call, repository, StatusCode::CREATED)
}

fn is_taken(call: &Call<'_>, owner: Owner, name: &str) -> bool {
    call.world.repository_named(call.world.owner_login(owner), name).is_some()
}

fn new(call: &mut Call<'_>, plan: Plan) -> Result<Repository, ApiError> {
    ApiError::unless_spammed("Repository", call.world.repositories.range(SEEDED_BELOW..).count())?;
    let (id, now) = (call.world.next_id(), call.now);
    let repository = Repository::new(id, plan.owner, plan.name, plan.visibility, now);
    Ok(Repository { description: plan.description, ..repository })
}

fn shown(call: &mut Call<'_>, repository: Repository, status: StatusCode) -> Outcome {
    let id = repository.id;
    call.world.owner_changed(repository.owner, call.now);
    call.world.add_repository(repository);
    organization_events::repository(call, "created", id);
    let repository = call.world.repositories.get(&id).ok_or(ApiError::NotFound)?;
    Ok(Reply { status, ..Reply::created_at_url(call.renderer().repository(repository)) })
}

/// 202, because the running service copies in the background. Here the copy is immediate.
fn fork(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Repository", call.body)?;
    let (organization, name) = (fields.string("organization"), fields.string("name"));
    let me = call.caller.user();
    let installed_on = call.caller.token().and_then(|token| token.installed_on);
    let mine = |login: &str| {
        let id = call.world.organization_by_login(login)?.id;
        let is_mine = installed_on == Some(id) || me.is_some_and(|me| call.is_member(id, me));
        is_mine.then_some(Owner::Organization(id))
    };
    let owner = organization.as_deref().map_or(me.map(Owner::User), mine);
    if organization.is_some() && owner.is_none() {
        fields.invalid("organization", "organization must be one that you are a member of");
    }
    let origin = call.repository()?;
    let name = name.unwrap_or_else(|| origin.name.clone());
    refuse_bad_name(&mut fields, &name);
    if owner.is_some_and(|owner| is_taken(call, owner, &name)) {
        fields.reject("name", Code::AlreadyExists, "name already exists on this account");
    }
    fields.check()?;
    let owner = owner.ok_or(ApiError::Forbidden("Resource not accessible by integration"))?;
    let origin = call.repository()?;
    let (description, visibility) = (origin.description.clone(), origin.visibility);
    let plan = Plan { owner, name, description, visibility };
    let mut copy = new(call, plan)?;
    let now = call.now;
    let origin = call.repository_mut()?;
    copy.readme.clone_from(&origin.readme);
    copy.language = origin.language;
    copy.default_branch.clone_from(&origin.default_branch);
    copy.fork_of = Some(origin.id);
    origin.forks.insert(copy.id);
    origin.updated_at = now;
    let (origin, fork) = (origin.id, copy.id);
    call.world.copy_history(origin, fork);
    let reply = shown(call, copy, StatusCode::ACCEPTED)?;
    let context = EventContext { scope: EventScope::Repository(origin), ..EventContext::of(call) };
    let change = Change::of(WebhookEvent { name: "fork", action: None });
    changes::record(call.world, context, change, |renderer| {
        let fork = renderer.world.repositories.get(&fork);
        json!({ "forkee": fork.map(|fork| repository_of_payload(renderer, fork)) })
    });
    Ok(reply)
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let owner = call.repository()?.owner;
    // Raised while the repository can still be rendered.
    organization_events::repository(call, "deleted", call.repository);
    call.world.remove_repository(call.repository);
    call.world.owner_changed(owner, call.now);
    Ok(Reply::no_content())
}

/// Stores only those of the running service's fields that this world has.
fn change_organization(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Organization", call.body)?;
    let description = fields.nullable_string("description");
    for name in ["name", "company", "blog", "location", "email", "billing_email"] {
        let _ = fields.nullable_string(name);
    }
    let _ = fields.nullable_string("default_repository_permission");
    fields.check()?;
    let now = call.now;
    let organization = call.organization_mut()?;
    organization.description =
        description.of(Some(std::mem::take(&mut organization.description))).unwrap_or_default();
    organization.updated_at = now;
    Ok(Reply::ok(call.renderer().organization(call.organization()?)))
}

/// 202, because the running service deletes in the background. Here it is immediate.
#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn delete_organization(call: &mut Call<'_>) -> Outcome {
    call.world.remove_organization(call.organization);
    call.world.feed.shifted_at = Some(call.now);
    Ok(Reply::json(StatusCode::ACCEPTED, json!({})))
}

fn change_me(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("User", call.body)?;
    let given = fields.nullable_string("name");
    for name in ["email", "blog", "company", "location", "bio", "twitter_username"] {
        let _ = fields.nullable_string(name);
    }
    let _ = fields.boolean("hireable");
    fields.check()?;
    let (me, now) = (call.me()?, call.now);
    let user = call.world.users.get_mut(&me).ok_or(ApiError::NotFound)?;
    user.name = given.of(Some(std::mem::take(&mut user.name))).unwrap_or_default();
    user.updated_at = now;
    let user = call.world.users.get(&me).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(call.renderer().user(user)))
}
