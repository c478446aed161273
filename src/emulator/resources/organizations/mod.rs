//! People of an organisation: who belongs to it, who is asked to, who may do what (Document 1,
//! Organization permission 'Members').

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

/// For every member.
pub const READ: Need = need(Level::Read, READ_SCOPES, OrganizationRole::Member);
/// For owners to look at. Whose business it is beyond the permission is not shown.
pub const READ_AS_OWNER: Need = need(Level::Read, READ_SCOPES, OrganizationRole::Owner);
/// For owners to change.
pub const WRITE_AS_OWNER: Need = need(Level::Write, ADMIN_SCOPES, OrganizationRole::Owner);
/// For members to change what is their own.
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

/// The id of the user that the path names.
pub fn named_user(call: &Call<'_>) -> Result<u64, ApiError> {
    call.world
        .user_by_login(call.params.get("username"))
        .map(|user| user.id)
        .ok_or(ApiError::NotFound)
}

/// `filter` of the lists of people. Nobody here has or lacks a second factor: `2fa_disabled` finds
/// nobody.
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
