//! The credential, permission and role that a route needs.

use crate::api::TokenKind;
use crate::emulator::accounts::Level;

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Open to everyone, without a credential too.
    Nothing,
    /// A token that acts as a user.
    User,
    /// A classic personal access token with one of these scopes; every other kind is rejected.
    Classic(&'static [&'static str]),
    /// A user by a classic credential, which is one with scopes: a classic or an OAuth token. App,
    /// installation and fine-grained tokens are rejected.
    ClassicCredential,
    /// An app itself, by its JWT; user, installation and fine-grained tokens are rejected.
    App,
    /// A token of this kind; every other one is rejected.
    Kind(TokenKind),
    /// An OAuth app itself, by its client id and secret.
    OauthApp,
    /// Something of the organisation that the path names by `{org}` or `{org_id}`, or by a team of
    /// it, `{team_id}`.
    Organization(OrganizationNeed),
    /// Something of an organisation, or of the caller's place in it, that more than its members
    /// reach.
    Members(MembersNeed),
    /// Something of the enterprise that the path names by `{enterprise}`: a classic token with the
    /// scope of this level.
    Enterprise(Level),
    /// A repository named by `{owner}/{repo}`, with this permission for tokens that have
    /// permissions, and this role.
    Repository { permission: &'static str, level: Level, role: Role },
    /// To fork a repository ("\[M\] POST forks"): whoever may read it may, with both permissions.
    Fork,
    /// A classic token's notifications of a repository that it sees.
    RepositoryNotifications,
    /// A repository by its Git address; what it takes depends on the body, so that the route itself
    /// looks.
    Git,
}

/// What a route about an organisation asks. Without a token it is 401, for a stranger 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrganizationNeed {
    /// For tokens that have permissions.
    pub permission: &'static str,
    pub level: Level,
    /// For tokens that have scopes: one of these.
    pub scopes: &'static [&'static str],
    pub role: OrganizationRole,
    pub unscoped: Unscoped,
}

/// What the caller must be in the organisation. An installation counts as an owner where it is
/// installed: its permissions bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrganizationRole {
    Member,
    Owner,
    /// An owner, or somebody with this fine-grained role.
    OwnerOr(&'static str),
}

/// How a token without the scope, or a member without the role, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unscoped {
    /// 403.
    Forbidden,
    /// 404: the thing is not there for this caller.
    NotFound,
}

/// What a caller may do in a repository; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Read,
    /// Any known caller that may read: opening issues, commenting.
    Take,
    Push,
    Admin,
}

/// The scopes of which Document 2 wants one for notifications.
pub const NOTIFICATION_SCOPES: &[&str] = &["notifications", "repo"];

impl Need {
    pub const fn repository(permission: &'static str, level: Level, role: Role) -> Self {
        Self::Repository { permission, level, role }
    }

    #[cfg(test)]
    /// The permission that a token needs which has permissions.
    pub fn permission(self) -> Option<(&'static str, Level)> {
        match self {
            Self::Organization(need) => Some((need.permission, need.level)),
            Self::Repository { permission, level, .. } => Some((permission, level)),
            _ => None,
        }
    }

    /// The value of the accepted-permissions header.
    pub fn accepted_permissions(self) -> String {
        let written = |name: &str, level: Level| format!("{name}={}", level.name());
        match self {
            Self::Nothing | Self::User => "allows_permissionless_access=true".to_owned(),
            // No permission opens these.
            Self::App
            | Self::Classic(_)
            | Self::ClassicCredential
            | Self::Kind(_)
            | Self::OauthApp
            | Self::RepositoryNotifications => String::new(),
            Self::Organization(need) => written(need.permission, need.level),
            Self::Members(need) => need.accepted_permissions(),
            // "The permission 'Enterprise teams' enterprise is named" (Document 2), although no
            // token that has permissions is accepted.
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

    /// The value of the accepted-scopes header.
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

/// Classic and OAuth tokens need it to read (Document 2, Team membership: "classic OAuth tokens
/// need `read:org`").
pub const READ_SCOPES: &[&str] = &["read:org"];

/// Classic and OAuth tokens need it to change an organisation. Not shown but for the routes of
/// Document 2; what the running service asks.
pub const ADMIN_SCOPES: &[&str] = &["admin:org"];

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

pub fn scopes(level: Level) -> &'static [&'static str] {
    if level == Level::Read { READ_SCOPES } else { ADMIN_SCOPES }
}

/// "`read:enterprise` for GET, `admin:enterprise` for all others".
pub fn enterprise_scope(level: Level) -> &'static str {
    if level == Level::Read { "read:enterprise" } else { "admin:enterprise" }
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
}
