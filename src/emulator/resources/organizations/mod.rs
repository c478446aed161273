//! People of an organisation: members, invitations and roles (SPECIFICATION, "Permissions").

pub mod collaborators;
pub mod invitations;
pub mod members;
pub mod memberships;
pub mod roles;

use crate::emulator::accounts::Level;
use crate::emulator::http::ApiError;
use crate::emulator::routing::need::ADMIN_SCOPES;
use crate::emulator::routing::{
    Call, Need, OrganizationNeed, OrganizationRole, READ_SCOPES, Unscoped,
};

pub const READ: Need = need(Level::Read, READ_SCOPES, OrganizationRole::Member);
/// Reading by owners. The upstream does not document the role, only the permission.
pub const READ_AS_OWNER: Need = need(Level::Read, READ_SCOPES, OrganizationRole::Owner);
pub const WRITE_AS_OWNER: Need = need(Level::Write, ADMIN_SCOPES, OrganizationRole::Owner);
/// Changes by members to their own data.
pub const WRITE_AS_MEMBER: Need = need(Level::Write, ADMIN_SCOPES, OrganizationRole::Member);

const fn need(level: Level, scopes: &'static [&'static str], role: OrganizationRole) -> Need {
    Need::Organization(OrganizationNeed {
        permission: "members",
        level,
        scopes,
        role,
        unscoped: Unscoped::Forbidden,
    })
}

pub fn named_user(call: &Call<'_>) -> Result<u64, ApiError> {
    call.world
        .user_by_login(call.params.get("username"))
        .map(|user| user.id)
        .ok_or(ApiError::NotFound)
}

/// The lists' `filter`. Two-factor authentication is not modelled: `2fa_disabled` finds no one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    All,
    Nobody,
}

pub fn filter(call: &Call<'_>) -> Result<Filter, ApiError> {
    match call.query.get("filter") {
        None | Some("" | "all") => Ok(Filter::All),
        Some("2fa_disabled" | "2fa_insecure") => Ok(Filter::Nobody),
        Some(_) => Err(ApiError::invalid(
            "Member",
            "filter",
            "filter must be all, 2fa_disabled or 2fa_insecure",
        )),
    }
}
