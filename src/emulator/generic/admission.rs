//! Admits a caller to a route of the endpoint table: first the objects in the path must exist, then
//! the credential must fit.
//!
//! As in `access`: hidden objects are 404, a missing credential 401, a wrong kind, permission or
//! role 403.

use super::rule::{Openness, Rule, Subject};
use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Token};
use crate::emulator::auth::access::{self, REJECTED_APP, rejection, role_of_token};
use crate::emulator::auth::endpoint_permissions::Grant;
use crate::emulator::http::ApiError;
use crate::emulator::routing::Call;
use crate::emulator::world::{Organization, Team, TeamRole, Visibility};

const LACKS_SCOPE: &str = "The token lacks a scope that this needs; see X-Accepted-OAuth-Scopes.";
const LACKS_ROLE: &str = "Must be an organization owner, or have a role that allows it.";
const LACKS_RIGHTS: &str = "Must have admin rights to Repository.";
/// The seed's tokens administer it. Provisioning paths name no enterprise and mean this one.
const ENTERPRISE: &str = "initech";

/// Records the repository or organisation in the path. Public subjects are open to all reads.
pub fn admit(call: &mut Call<'_>, rule: &Rule) -> Result<(), ApiError> {
    match rule.subject {
        Subject::Repository => repository(call, rule)?,
        Subject::Organization | Subject::Team => organization(call, rule)?,
        Subject::Enterprise => enterprise(call, rule)?,
        Subject::Account => {
            call.world.owner(call.params.get("username")).ok_or(ApiError::NotFound)?;
            if rule.openness == Openness::Closed {
                token_fits(call, rule)?;
            }
        }
        Subject::Service if rule.openness == Openness::Public => {}
        Subject::Caller | Subject::Service => {
            token_fits(call, rule)?;
            access::acts_as_user(call.caller)?;
        }
        Subject::App => app(call)?,
        Subject::Installation => installation(call)?,
        Subject::OauthApp => oauth_app(call)?,
    }
    if rule.about_caller { access::acts_as_user(call.caller).map(|_| ()) } else { Ok(()) }
}

fn token_fits(call: &Call<'_>, rule: &Rule) -> Result<(), ApiError> {
    bounds_fit(token(call, rule)?, rule, ApiError::Forbidden(LACKS_SCOPE))
}

fn token<'a>(call: &Call<'a>, rule: &Rule) -> Result<&'a Token, ApiError> {
    match call.caller.token() {
        Some(token) if rule.tokens.accepts(token.kind) == Some(false) => {
            Err(ApiError::Forbidden(rejection(token)))
        }
        Some(token) => Ok(token),
        None if call.caller.app().is_some() => Err(ApiError::Forbidden(REJECTED_APP)),
        None => Err(ApiError::RequiresAuthentication),
    }
}

fn bounds_fit(token: &Token, rule: &Rule, unscoped: ApiError) -> Result<(), ApiError> {
    if token.is_scoped() {
        let has_scope =
            rule.scopes.is_empty() || rule.scopes.iter().any(|scope| token.has_scope(scope));
        return if has_scope { Ok(()) } else { Err(unscoped) };
    }
    let holds = |set: &Vec<Grant>| {
        set.iter().all(|grant| token.permissions.allow(&grant.name, grant.level))
    };
    if rule.permissions.is_empty() || rule.permissions.iter().any(holds) {
        Ok(())
    } else {
        Err(ApiError::Forbidden(rejection(token)))
    }
}

fn repository(call: &mut Call<'_>, rule: &Rule) -> Result<(), ApiError> {
    let repository = access::repository_of_path(call)?;
    let is_public_read =
        rule.openness == Openness::Public && repository.visibility == Visibility::Public;
    match call.caller.token() {
        // Anonymous callers, apps by JWT and OAuth apps read public data only.
        None if is_public_read => {}
        _ => {
            let token = token(call, rule)?;
            if !is_public_read {
                // Without the scope, the private resource is hidden, as everywhere in a repository.
                bounds_fit(token, rule, ApiError::NotFound)?;
            }
            if role_of_token(call.world, token, repository) < rule.repository_role {
                return Err(ApiError::Forbidden(LACKS_RIGHTS));
            }
        }
    }
    call.repository = repository.id;
    Ok(())
}

fn organization(call: &mut Call<'_>, rule: &Rule) -> Result<(), ApiError> {
    let (organization, team) = organization_of_path(call)?;
    let id = organization.id;
    if rule.openness == Openness::Closed {
        let token = token(call, rule)?;
        let has_role = match (token.user, token.installed_on) {
            (Some(user), _) if organization.members.contains(&user) => {
                let team = team.filter(|_| rule.subject == Subject::Team);
                team.is_some_and(|team| team.people.get(&user) == Some(&TeamRole::Maintainer))
                    || organization.has_role(user, rule.organization_role)
            }
            (None, Some(installed_on)) if installed_on == id => true,
            (Some(_), _) | (None, Some(_)) => return Err(ApiError::NotFound),
            (None, None) => return Err(ApiError::Forbidden(rejection(token))),
        };
        bounds_fit(token, rule, ApiError::Forbidden(LACKS_SCOPE))?;
        if !has_role {
            return Err(ApiError::Forbidden(LACKS_ROLE));
        }
    }
    call.organization = id;
    Ok(())
}

/// Finds the organisation of the path, and the team if the path names one.
pub fn organization_of_path<'a>(
    call: &'a Call<'_>,
) -> Result<(&'a Organization, Option<&'a Team>), ApiError> {
    let by_id =
        |text: &str| text.parse().ok().and_then(|id: u64| call.world.organizations.get(&id));
    let organization = match (call.params.get("org"), call.params.get("org_id")) {
        ("", "") => {
            let team = call.params.id("team_id")?;
            let mut organizations = call.world.organizations.values();
            organizations.find(|organization| organization.teams.contains_key(&team))
        }
        ("", id) => by_id(id),
        // `/organizations/{org}/…` takes a login or an id.
        (login, _) => call.world.organization_by_login(login).or_else(|| by_id(login)),
    };
    let organization = organization.ok_or(ApiError::NotFound)?;
    let team = match (call.params.get("team_slug"), call.params.get("team_id")) {
        ("", "") => return Ok((organization, None)),
        (slug, "") => organization.team_by_slug(slug),
        (_, id) => id.parse().ok().and_then(|id: u64| organization.teams.get(&id)),
    };
    Ok((organization, Some(team.ok_or(ApiError::NotFound)?)))
}

pub fn enterprise_of_path(call: &Call<'_>) -> Option<u64> {
    let slug = call.params.get("enterprise");
    let enterprise =
        call.world.enterprise_by_slug(if slug.is_empty() { ENTERPRISE } else { slug })?;
    Some(enterprise.id)
}

/// The upstream names scopes and no permissions here, so only tokens with scopes are accepted.
fn enterprise(call: &Call<'_>, rule: &Rule) -> Result<(), ApiError> {
    enterprise_of_path(call).ok_or(ApiError::NotFound)?;
    let token = token(call, rule)?;
    if !token.is_scoped() {
        return Err(ApiError::Forbidden(rejection(token)));
    }
    bounds_fit(token, rule, ApiError::Forbidden(LACKS_SCOPE))
}

fn app(call: &Call<'_>) -> Result<(), ApiError> {
    match (call.caller.app(), call.caller.token()) {
        (Some(_), _) => Ok(()),
        (None, Some(token)) => Err(ApiError::Forbidden(rejection(token))),
        (None, None) => Err(ApiError::RequiresAuthentication),
    }
}

fn installation(call: &Call<'_>) -> Result<(), ApiError> {
    match call.caller.token() {
        Some(token) if token.kind == TokenKind::Installation => Ok(()),
        Some(token) => Err(ApiError::Forbidden(rejection(token))),
        None if call.caller.app().is_some() => Err(ApiError::Forbidden(REJECTED_APP)),
        None => Err(ApiError::RequiresAuthentication),
    }
}

/// The path must name the app's client id; tokens of other apps are refused.
fn oauth_app(call: &Call<'_>) -> Result<(), ApiError> {
    let AccountId::OauthApp(id) = call.caller.account else {
        return Err(call.caller.token().map_or(ApiError::RequiresAuthentication, |token| {
            ApiError::Forbidden(rejection(token))
        }));
    };
    let client_id = call.params.get("client_id");
    let mut apps = call.world.oauth_apps.iter();
    let is_its_own = apps.any(|app| app.id == id && app.client_id == client_id);
    if is_its_own { Ok(()) } else { Err(ApiError::NotFound) }
}
