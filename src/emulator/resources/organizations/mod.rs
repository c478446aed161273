//! People of an organisation: members, invitations and roles (SPECIFICATION, "Permissions").

pub mod collaborators;
pub mod invitations;
pub mod members;
pub mod memberships;
pub mod roles;

use crate::emulator::accounts::Level;
use crate::emulator::http::ApiError;
use crate::emulator::routing::need::ADMIN_SCOPES;
use crate::emulator::routing::{Call, Need, OrganizationRole, READ_SCOPES, Unscoped};

pub const READ: Need = need(Level::Read, READ_SCOPES, OrganizationRole::Member);
/// Reading by owners. The upstream does not document the role, only the permission.
pub const READ_AS_OWNER: Need = need(Level::Read, READ_SCOPES, OrganizationRole::Owner);
pub const WRITE_AS_OWNER: Need = need(Level::Write, ADMIN_SCOPES, OrganizationRole::Owner);
/// Changes by members to their own data.
pub const WRITE_AS_MEMBER: Need = need(Level::Write, ADMIN_SCOPES, OrganizationRole::Member);

const fn need(level: Level, scopes: &'static [&'static str], role: OrganizationRole) -> Need {
    Need::organization("members", level, scopes, role, Unscoped::Forbidden)
}

/// The lists' `filter`. Two-factor authentication is not modelled: `2fa_disabled` finds no one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    All,
    None,
}

pub fn filter(call: &Call<'_>) -> Result<Filter, ApiError> {
    let named = |name: &str| match name {
        "all" => Some(Filter::All),
        "2fa_disabled" | "2fa_insecure" => Some(Filter::None),
        _ => None,
    };
    let message = "filter must be all, 2fa_disabled or 2fa_insecure";
    Ok(call.choice("Member", "filter", named, message)?.unwrap_or(Filter::All))
}
