//! Access checks: token kinds, scopes, permissions and roles.
//!
//! A resource that the caller may not see answers 404. A visible resource that the caller may not
//! change answers 403.

use super::reach::{reaches_organization, reaches_repository};
use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Caller, Level, Token};
use crate::emulator::http::{ApiError, segment};
use crate::emulator::routing::need::{NOTIFICATION_SCOPES, enterprise_scope};
use crate::emulator::routing::{Call, Need, OrganizationNeed, OrganizationRole, Role, Unscoped};
use crate::emulator::world::{Organization, Owner, Repository, RepositoryRole, Visibility, World};

pub const REJECTED_APP: &str = "Resource not accessible by integration";
const REJECTED_PERSONAL: &str = "Resource not accessible by personal access token";
pub(super) const LACKS_SCOPE: ApiError =
    ApiError::Forbidden("The token lacks a scope that this needs; see X-Accepted-OAuth-Scopes.");

pub fn admit(call: &mut Call<'_>, need: Need) -> Result<(), ApiError> {
    // The upstream does not document a JWT elsewhere. Here it gets public routes and 403 for
    // others.
    if call.caller.app().is_some() && !matches!(need, Need::Nothing | Need::App) {
        return Err(ApiError::Forbidden(REJECTED_APP));
    }
    match need {
        Need::Nothing | Need::Git => Ok(()),
        Need::User => acts_as_user(call.caller).map(|_| ()),
        Need::Classic(scopes) => classic(call.caller, scopes),
        // The upstream names no scope for user migrations (SPECIFICATION, "User migrations").
        Need::ClassicCredential => accept(call.caller, Token::is_scoped).map(|_| ()),
        Need::Kind(kind) => accept(call.caller, |token| token.kind == kind).map(|_| ()),
        Need::App if call.caller.app().is_some() => Ok(()),
        Need::OauthApp if matches!(call.caller.account, AccountId::OauthApp(_)) => Ok(()),
        Need::App | Need::OauthApp => accept(call.caller, |_| false).map(|_| ()),
        Need::Organization(need) => organization(call, need),
        Need::Members(need) => need.admit(call),
        Need::Enterprise(level) => enterprise(call, level),
        Need::Repository { permission, level, role } => repository(call, permission, level, role),
        Need::Fork => {
            repository(call, "administration", Level::Write, Role::Take)?;
            repository(call, "contents", Level::Read, Role::Read)
        }
        Need::RepositoryNotifications => {
            classic(call.caller, NOTIFICATION_SCOPES)?;
            repository(call, "metadata", Level::Read, Role::Read)
        }
    }
}

pub fn acts_as_user(caller: &Caller) -> Result<u64, ApiError> {
    match (caller.user(), caller.token()) {
        (Some(user), _) => Ok(user),
        (None, Some(_)) => Err(ApiError::Forbidden(REJECTED_APP)),
        (None, None) => Err(ApiError::RequiresAuthentication),
    }
}

/// Rejects every other token by its kind, and callers without one.
pub(super) fn accept(
    caller: &Caller,
    is_accepted: impl FnOnce(&Token) -> bool,
) -> Result<&Token, ApiError> {
    match caller.token() {
        Some(token) if is_accepted(token) => Ok(token),
        Some(token) => Err(rejected(token)),
        // An OAuth app's id and secret are neither a token nor a JWT.
        None => Err(ApiError::RequiresAuthentication),
    }
}

pub fn rejection(token: &Token) -> &'static str {
    if token.kind == TokenKind::FineGrained { REJECTED_PERSONAL } else { REJECTED_APP }
}

pub(super) fn rejected(token: &Token) -> ApiError {
    ApiError::Forbidden(rejection(token))
}

pub(super) fn has_any(token: &Token, scopes: &[&str]) -> bool {
    scopes.iter().any(|scope| token.has_scope(scope))
}

fn classic(caller: &Caller, scopes: &[&str]) -> Result<(), ApiError> {
    let token = accept(caller, |token| token.kind == TokenKind::Classic)?;
    if has_any(token, scopes) {
        Ok(())
    } else {
        Err(ApiError::Forbidden("Missing the 'notifications' scope."))
    }
}

/// The users are undocumented: here members of the enterprise read and owners change
/// (SPECIFICATION, "Enterprise teams").
fn enterprise(call: &Call<'_>, level: Level) -> Result<(), ApiError> {
    let token = accept(call.caller, |token| token.kind == TokenKind::Classic)?;
    if !token.has_scope(enterprise_scope(level)) {
        return Err(LACKS_SCOPE);
    }
    let enterprise =
        call.world.enterprise_by_slug(call.params.get("enterprise")).ok_or(ApiError::NotFound)?;
    let user = token
        .user
        .filter(|user| call.world.belongs_to_enterprise(*user, enterprise))
        .ok_or(ApiError::NotFound)?;
    if level > Level::Read && !enterprise.owners.contains(&user) {
        return Err(ApiError::Forbidden("Must be an enterprise owner."));
    }
    Ok(())
}

pub fn organization(call: &mut Call<'_>, need: OrganizationNeed) -> Result<(), ApiError> {
    let organization = organization_of_path(call)?;
    let token = call.caller.token().ok_or(ApiError::RequiresAuthentication)?;
    may_in_organization(organization, token, need)?;
    if !reaches_organization(call.world, token, organization.id) {
        return Err(rejected(token));
    }
    call.organization = organization.id;
    Ok(())
}

/// Finds it by login, by id, or by the id of a team (`/teams/{team_id}/…`, deprecated).
pub fn organization_of_path<'a>(call: &'a Call<'_>) -> Result<&'a Organization, ApiError> {
    let named = match (call.params.get("org"), call.params.get("org_id")) {
        ("", "") => {
            let team = call.params.id("team_id")?;
            call.world
                .organizations
                .values()
                .find(|organization| organization.teams.contains_key(&team))
        }
        ("", _) => call.world.organizations.get(&call.params.id("org_id")?),
        (login, _) => call.world.organization_by_login(login),
    };
    named.ok_or(ApiError::NotFound)
}

fn may_in_organization(
    organization: &Organization,
    token: &Token,
    need: OrganizationNeed,
) -> Result<(), ApiError> {
    let has_role = match (token.user, token.installed_on) {
        (Some(user), _) if organization.members.contains(&user) => {
            organization.has_role(user, need.role)
        }
        (None, Some(installed_on)) if installed_on == organization.id => true,
        (Some(_), _) | (None, Some(_)) => return Err(ApiError::NotFound),
        (None, None) => return Err(rejected(token)),
    };
    let denied =
        |error| if need.unscoped == Unscoped::NotFound { ApiError::NotFound } else { error };
    if token.is_scoped() {
        if !need.scopes.is_empty() && !has_any(token, need.scopes) {
            return Err(denied(LACKS_SCOPE));
        }
    } else if !token.permissions.allow(need.permission, need.level) {
        return Err(rejected(token));
    }
    if has_role {
        return Ok(());
    }
    let message = "Must be an organization owner, or have a role that allows it.";
    Err(denied(ApiError::Forbidden(message)))
}

impl Organization {
    pub fn has_role(&self, user: u64, role: OrganizationRole) -> bool {
        let is_owner = self.owners.contains(&user);
        match role {
            OrganizationRole::Member => self.members.contains(&user),
            OrganizationRole::Owner => is_owner,
            OrganizationRole::OwnerOr(name) => {
                is_owner
                    || self.roles.get(name).is_some_and(|users| users.contains(&user))
                    || self.has_role_by_team(user, name)
            }
        }
    }
}

fn repository(
    call: &mut Call<'_>,
    permission: &str,
    level: Level,
    role: Role,
) -> Result<(), ApiError> {
    let repository = repository_of_path(call)?;
    may(call.world, call.caller, repository, permission, level, role)?;
    if !call.is_read {
        unless_locked(call.world, repository)?;
    }
    call.repository = repository.id;
    Ok(())
}

/// Finds the repository by its current name; a former name leads to a redirect.
pub fn repository_of_path<'a>(call: &'a Call<'_>) -> Result<&'a Repository, ApiError> {
    let (owner, name) = (call.params.get("owner"), call.params.get("repo"));
    let repository = call.world.repository_named(owner, name).ok_or(ApiError::NotFound)?;
    if !sees(call.world, call.caller, repository) {
        return Err(ApiError::NotFound);
    }
    if !repository.name.eq_ignore_ascii_case(name) {
        return Err(moved(call, repository.id));
    }
    Ok(repository)
}

/// The upstream does not document what a migration's lock refuses; here it refuses all changes.
pub fn unless_locked(world: &World, repository: &Repository) -> Result<(), ApiError> {
    if world.migrations.is_locked(repository.id) {
        return Err(ApiError::Forbidden("Repository has been locked for migration."));
    }
    Ok(())
}

fn moved(call: &Call<'_>, id: u64) -> ApiError {
    // `/repos/{owner}/{repo}/rest` has its rest after the fourth slash.
    let rest = call
        .requested_path
        .match_indices('/')
        .nth(3)
        .map_or("", |(at, _)| &call.requested_path[at..]);
    let query = call.raw_query.map_or_else(String::new, |query| format!("?{query}"));
    let address = format!("{}/repositories/{id}{rest}{query}", call.urls.api);
    if call.is_read { ApiError::MovedRead(address) } else { ApiError::MovedWrite(address) }
}

pub fn sees(world: &World, caller: &Caller, repository: &Repository) -> bool {
    if repository.visibility == Visibility::Public {
        return true;
    }
    let Some(token) = caller.token() else { return false };
    if token.is_scoped() {
        return token.has_scope("repo")
            && token.user.is_some_and(|user| role_of(world, user, repository).is_some());
    }
    let within_reach = match (token.user, token.installed_on, token.workflow_of) {
        (Some(user), ..) => role_of(world, user, repository).is_some(),
        (None, Some(organization), _) => repository.owner == Owner::Organization(organization),
        (None, None, workflow_of) => workflow_of == Some(repository.id),
    };
    within_reach
        && reaches_repository(world, token, repository)
        && token.permissions.allow("metadata", Level::Read)
}

pub fn may(
    world: &World,
    caller: &Caller,
    repository: &Repository,
    permission: &str,
    level: Level,
    role: Role,
) -> Result<(), ApiError> {
    let Some(token) = caller.token() else {
        // Anonymous callers may read public data only.
        return if role == Role::Read { Ok(()) } else { Err(ApiError::RequiresAuthentication) };
    };
    let is_public_read = role == Role::Read && repository.visibility == Visibility::Public;
    let is_granted =
        token.permissions.allow(permission, level) && reaches_repository(world, token, repository);
    if token.is_scoped() {
        if !is_public_read && !token.has_scope("repo") {
            return Err(ApiError::NotFound);
        }
    } else if !is_public_read && !is_granted {
        return Err(rejected(token));
    }
    if role_of_token(world, token, repository) < role {
        return Err(ApiError::Forbidden("Must have admin rights to Repository."));
    }
    Ok(())
}

/// Returns the role of the token's owner, apart from the token's own restrictions.
pub fn role_of_token(world: &World, token: &Token, repository: &Repository) -> Role {
    match (token.user, token.installed_on, token.workflow_of) {
        (Some(user), ..) => role_of(world, user, repository).unwrap_or(Role::Take),
        (None, Some(organization), _) if repository.owner == Owner::Organization(organization) => {
            Role::Admin
        }
        (None, None, Some(id)) if repository.id == id => Role::Push,
        _ => Role::Read,
    }
}

/// `None` for outsiders.
pub fn role_of(world: &World, user: u64, repository: &Repository) -> Option<Role> {
    match repository.owner {
        Owner::User(owner) if owner == user => return Some(Role::Admin),
        Owner::Organization(id) => {
            let organization = world.organizations.get(&id)?;
            if organization.owners.contains(&user)
                || organization.administers_by_team(user, repository.id)
            {
                return Some(Role::Admin);
            }
            if organization.members.contains(&user) {
                return Some(Role::Push);
            }
        }
        Owner::User(_) => {}
    }
    repository.collaborators.get(&user).copied().map(role_of_collaborator)
}

pub fn role_of_collaborator(held: RepositoryRole) -> Role {
    match held {
        RepositoryRole::Pull | RepositoryRole::Triage => Role::Take,
        RepositoryRole::Push | RepositoryRole::Maintain => Role::Push,
        RepositoryRole::Admin => Role::Admin,
    }
}

pub fn path_of(world: &World, repository: &Repository) -> String {
    format!("/repos/{}/{}", segment(world.owner_login(repository.owner)), segment(&repository.name))
}

impl Call<'_> {
    pub fn may_push(&self) -> Result<bool, ApiError> {
        let repository = self.repository()?;
        let may_push = |token| role_of_token(self.world, token, repository) >= Role::Push;
        Ok(self.caller.token().is_some_and(may_push))
    }
}
