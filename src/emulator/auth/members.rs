//! Access rules of the permission 'Members' beyond [`OrganizationNeed`] (SPECIFICATION,
//! "Permissions").

use super::access::{
    LACKS_SCOPE, acts_as_user, has_any, may, organization, organization_of_path, rejected, sees,
};
use crate::emulator::accounts::{Level, Token};
use crate::emulator::http::ApiError;
use crate::emulator::routing::need::scopes;
use crate::emulator::routing::{
    Call, MembersNeed, OrganizationNeed, OrganizationRole, Role, Unscoped,
};

impl MembersNeed {
    pub(super) fn admit(self, call: &mut Call<'_>) -> Result<(), ApiError> {
        match self {
            Self::Public => public(call),
            Self::Own(level) => own(call, level),
            Self::TeamRepository(level) => team_repository(call, level),
        }
    }
}

fn allow(token: &Token, level: Level) -> Result<(), ApiError> {
    if token.is_scoped() || token.permissions.allow("members", level) {
        Ok(())
    } else {
        Err(rejected(token))
    }
}

fn public(call: &mut Call<'_>) -> Result<(), ApiError> {
    let organization = organization_of_path(call)?.id;
    call.caller.token().map_or(Ok(()), |token| allow(token, Level::Read))?;
    call.organization = organization;
    Ok(())
}

fn own(call: &Call<'_>, level: Level) -> Result<(), ApiError> {
    acts_as_user(call.caller)?;
    let token = call.caller.token().ok_or(ApiError::RequiresAuthentication)?;
    if token.is_scoped() && !has_any(token, scopes(level)) {
        return Err(LACKS_SCOPE);
    }
    allow(token, level)
}

fn team_repository(call: &mut Call<'_>, level: Level) -> Result<(), ApiError> {
    let of_organization = OrganizationNeed {
        permission: "members",
        level: Level::Read,
        scopes: scopes(level),
        role: OrganizationRole::Member,
        unscoped: Unscoped::Forbidden,
    };
    organization(call, of_organization)?;
    let named = call.world.repository_named(call.params.get("owner"), call.params.get("repo"));
    let repository = named
        .filter(|repository| sees(call.world, call.caller, repository))
        .ok_or(ApiError::NotFound)?;
    if level > Level::Read {
        may(call.world, call.caller, repository, "administration", level, Role::Admin)?;
    }
    call.repository = repository.id;
    Ok(())
}
