//! The credential, permission and role that a route needs.

use crate::api::TokenKind;
use crate::emulator::accounts::Level;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Open to everyone, anonymous callers included.
    Nothing,
    /// A token that acts for a user.
    User,
    /// Every other kind of token is rejected.
    Classic(&'static [&'static str]),
    /// A classic or OAuth token of a user; app, installation and fine-grained tokens are rejected.
    ClassicCredential,
    /// By its JWT; user, installation and fine-grained tokens are rejected.
    App,
    /// A token of this kind; every other kind is rejected.
    Kind(TokenKind),
    /// An OAuth app itself, by its client id and secret.
    OauthApp,
    /// The organisation of `{org}`, `{org_id}`, or of the team `{team_id}`.
    Organization(OrganizationNeed),
    /// An organisation, or the caller's membership in it, that non-members can reach too.
    Members(MembersNeed),
    /// The enterprise of `{enterprise}`; takes a classic token with the scope of this level.
    Enterprise(Level),
    /// The repository of `{owner}/{repo}`. Tokens with permissions need this permission.
    Repository { permission: &'static str, level: Level, role: Role },
    /// Forking a repository: any reader may fork it, with both permissions.
    Fork,
    /// A classic token's notifications of a repository that the caller can see.
    RepositoryNotifications,
    /// A repository by its Git address. The handler checks access, which depends on the body.
    Git,
}

/// Anonymous callers get 401, outsiders 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrganizationNeed {
    pub permission: &'static str,
    pub level: Level,
    /// Required of tokens with scopes: one of these.
    pub scopes: &'static [&'static str],
    pub role: OrganizationRole,
    pub unscoped: Unscoped,
}

/// An installation counts as an owner where it is installed; its permissions limit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrganizationRole {
    Member,
    Owner,
    /// An owner, or a holder of this fine-grained role.
    OwnerOr(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unscoped {
    Forbidden,
    NotFound,
}

/// A role in a repository; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Read,
    /// Any authenticated caller that may read: opening issues, commenting.
    Take,
    Push,
    Admin,
}

/// Reading notifications takes one of these scopes.
pub const NOTIFICATION_SCOPES: &[&str] = &["notifications", "repo"];

impl Need {
    pub const fn repository(permission: &'static str, level: Level, role: Role) -> Self {
        Self::Repository { permission, level, role }
    }

    pub const fn organization(
        permission: &'static str,
        level: Level,
        scopes: &'static [&'static str],
        role: OrganizationRole,
        unscoped: Unscoped,
    ) -> Self {
        Self::Organization(OrganizationNeed { permission, level, scopes, role, unscoped })
    }

    #[cfg(test)]
    pub fn permission(self) -> Option<(&'static str, Level)> {
        match self {
            Self::Organization(need) => Some((need.permission, need.level)),
            Self::Repository { permission, level, .. } => Some((permission, level)),
            _ => None,
        }
    }

    pub fn accepted_permissions(self) -> String {
        let written = |name: &str, level: Level| format!("{name}={}", level.into_str());
        match self {
            Self::Nothing | Self::User => "allows_permissionless_access=true".to_owned(),
            // No permission grants these.
            Self::App
            | Self::Classic(_)
            | Self::ClassicCredential
            | Self::Kind(_)
            | Self::OauthApp
            | Self::RepositoryNotifications => String::new(),
            Self::Organization(need) => written(need.permission, need.level),
            Self::Members(need) => need.accepted_permissions(),
            // The upstream names it in the header, although it accepts no token with permissions.
            Self::Enterprise(level) => written("enterprise_teams", level),
            Self::Repository { permission, level, .. } => written(permission, level),
            Self::Git => written("contents", Level::Read),
            Self::Fork => format!(
                "{},{}",
                written("administration", Level::Write),
                written("contents", Level::Read)
            ),
        }
    }

    pub fn accepted_scopes(self) -> String {
        match self {
            Self::Nothing
            | Self::User
            | Self::ClassicCredential
            | Self::App
            | Self::Kind(_)
            | Self::OauthApp => String::new(),
            Self::Classic(scopes) => scopes.join(", "),
            Self::RepositoryNotifications => NOTIFICATION_SCOPES.join(", "),
            Self::Organization(need) => need.scopes.join(", "),
            Self::Members(need) => need.accepted_scopes(),
            Self::Enterprise(level) => enterprise_scope(level).to_owned(),
            Self::Repository { .. } | Self::Fork | Self::Git => "repo".to_owned(),
        }
    }
}

/// SPECIFICATION, "Team membership".
pub const READ_SCOPES: &[&str] = &["read:org"];

/// Partly undocumented; the running service requires it.
pub const ADMIN_SCOPES: &[&str] = &["admin:org"];

/// Access by callers who need not be members of the organisation in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembersNeed {
    /// Public data of an organisation. Tokens with permissions need `members`; no scope is needed.
    Public,
    /// May be pending. User tokens only, because an installation has no membership.
    Own(Level),
    /// Needs reading `members`, and for writes the repository permission 'Administration'.
    TeamRepository(Level),
}

pub fn scopes(level: Level) -> &'static [&'static str] {
    if level == Level::Read { READ_SCOPES } else { ADMIN_SCOPES }
}

pub fn enterprise_scope(level: Level) -> &'static str {
    if level == Level::Read { "read:enterprise" } else { "admin:enterprise" }
}

impl MembersNeed {
    pub fn accepted_permissions(self) -> String {
        match self {
            Self::Public => "members=read".to_owned(),
            Self::Own(level) => format!("members={}", level.into_str()),
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
}
