//! What routes of the permission 'Members' ask beyond [`OrganizationNeed`] (Document 1, Permission
//! matrix).

use super::{
    OrganizationNeed, OrganizationRole, REJECTED_APP, Role, Unscoped, may, organization_of_path,
    rejection, sees,
};
use crate::emulator::accounts::{Level, Token};
use crate::emulator::call::Call;
use crate::emulator::fault::Fault;

/// Classic and OAuth tokens need it to read (Document 2, Team membership: "classic OAuth tokens
/// need `read:org`").
pub const READ_SCOPES: &[&str] = &["read:org"];
/// Classic and OAuth tokens need it to change an organisation. Not shown but for the routes of
/// Document 2; what the running service asks.
pub const ADMIN_SCOPES: &[&str] = &["admin:org"];
const LACKS_SCOPE: &str = "The token lacks a scope that this needs; see X-Accepted-OAuth-Scopes.";

/// What is asked of whoever is not, or not only, looked at as a member of the organisation that the
/// path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembersNeed {
    /// What an organisation shows to everyone. Tokens that have permissions need `members`; no
    /// scope is needed.
    Public,
    /// The caller's own membership, which may be pending. "UAT only": an installation has none.
    Own(Level),
    /// A team's hold on a repository: marked \[M\], `members` at read level and for writes the
    /// repository permission 'Administration'.
    TeamRepository(Level),
}

impl MembersNeed {
    pub fn accepted_permissions(self) -> String {
        match self {
            Self::Public => "members=read".to_owned(),
            Self::Own(level) => format!("members={}", level.name()),
            Self::TeamRepository(Level::Read) => "members=read,metadata=read".to_owned(),
            Self::TeamRepository(_) => "members=read,administration=write".to_owned(),
        }
    }

    pub fn accepted_scopes(self) -> String {
        match self {
            Self::Public => String::new(),
            Self::Own(level) => scopes(level).join(", "),
            Self::TeamRepository(level) => format!("{}, repo", scopes(level).join(", ")),
        }
    }

    pub(super) fn admit(self, call: &mut Call<'_>) -> Result<(), Fault> {
        match self {
            Self::Public => public(call),
            Self::Own(level) => own(call, level),
            Self::TeamRepository(level) => team_repository(call, level),
        }
    }
}

fn scopes(level: Level) -> &'static [&'static str] {
    if level == Level::Read { READ_SCOPES } else { ADMIN_SCOPES }
}

fn allow(token: &Token, level: Level) -> Result<(), Fault> {
    if token.is_scoped() || token.permissions.allow("members", level) {
        Ok(())
    } else {
        Err(Fault::Forbidden(rejection(token)))
    }
}

fn public(call: &mut Call<'_>) -> Result<(), Fault> {
    let organization = organization_of_path(call)?.id;
    if call.caller.app().is_some() {
        return Err(Fault::Forbidden(REJECTED_APP));
    }
    call.caller.token().map_or(Ok(()), |token| allow(token, Level::Read))?;
    call.organization = organization;
    Ok(())
}

fn own(call: &Call<'_>, level: Level) -> Result<(), Fault> {
    if call.caller.app().is_some() {
        return Err(Fault::Forbidden(REJECTED_APP));
    }
    super::acts_as_user(call.caller)?;
    let token = call.caller.token().ok_or(Fault::RequiresAuthentication)?;
    if token.is_scoped() && !scopes(level).iter().any(|scope| token.has_scope(scope)) {
        return Err(Fault::Forbidden(LACKS_SCOPE));
    }
    allow(token, level)
}

fn team_repository(call: &mut Call<'_>, level: Level) -> Result<(), Fault> {
    let of_organization = OrganizationNeed {
        permission: "members",
        level: Level::Read,
        scopes: scopes(level),
        role: OrganizationRole::Member,
        unscoped: Unscoped::Forbidden,
    };
    super::organization(call, of_organization)?;
    let named = call.world.repository_named(call.params.get("owner"), call.params.get("repo"));
    let repository = named
        .filter(|repository| sees(call.world, call.caller, repository))
        .ok_or(Fault::NotFound)?;
    if level > Level::Read {
        may(call.world, call.caller, repository, "administration", level, Role::Admin)?;
    }
    call.repository = repository.id;
    Ok(())
}
