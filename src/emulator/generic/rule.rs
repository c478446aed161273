//! Access rules of the endpoint table in the emulator's terms: the subject of a route, its scopes
//! and permissions, and the required role.
//!
//! Undocumented rules follow the running service roughly. Owners administer an organisation, writes
//! to a repository take push rights and its administration admin rights; public data is readable.

use http::Method;

use crate::api::{Dialect, Endpoint, PermissionOwner, TokenKind, TokenKinds};
use crate::emulator::auth::endpoint_permissions::{self, Grant};
use crate::emulator::routing::{OrganizationRole, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Repository,
    Organization,
    Team,
    Enterprise,
    /// A user or organisation by its login.
    Account,
    Caller,
    App,
    /// The installation that sends the request.
    Installation,
    OauthApp,
    Service,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Openness {
    Public,
    Closed,
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub subject: Subject,
    pub tokens: TokenKinds,
    /// Classic and OAuth tokens need one of these, if there are any.
    pub scopes: Vec<String>,
    /// Tokens with permissions need all of one of these sets, if there are any.
    pub permissions: Vec<Vec<Grant>>,
    pub repository_role: Role,
    pub organization_role: OrganizationRole,
    pub openness: Openness,
    /// Says if the route requires a user to answer about.
    pub about_caller: bool,
}

impl Rule {
    pub fn of(endpoint: &Endpoint, dialect: Dialect) -> Self {
        let subject = subject(endpoint);
        let openness = openness(subject, endpoint);
        let takes_permissions = [TokenKind::FineGrained, TokenKind::AppUser]
            .iter()
            .any(|kind| endpoint.tokens.accepts(*kind) != Some(false));
        Self {
            subject,
            tokens: endpoint.tokens,
            scopes: if endpoint.scopes.is_empty() {
                usual_scopes(subject, endpoint)
            } else {
                endpoint.scopes.clone()
            },
            permissions: if takes_permissions {
                endpoint_permissions::sets(endpoint, dialect)
            } else {
                Vec::new()
            },
            repository_role: repository_role(endpoint),
            organization_role: organization_role(endpoint),
            openness,
            about_caller: endpoint.about_caller
                && !matches!(subject, Subject::App | Subject::Installation | Subject::Service),
        }
    }

    pub fn accepted_permissions(&self) -> String {
        let written =
            |set: &Vec<Grant>| set.iter().map(Grant::header).collect::<Vec<_>>().join(",");
        if !self.permissions.is_empty() {
            // The running service's form: a comma for "and", a semicolon for "or".
            return self.permissions.iter().map(written).collect::<Vec<_>>().join("; ");
        }
        let takes_any = self.tokens.accepts(TokenKind::FineGrained) != Some(false);
        if takes_any { "allows_permissionless_access=true".to_owned() } else { String::new() }
    }

    pub fn accepted_scopes(&self) -> String {
        self.scopes.join(", ")
    }
}

/// Prefixes that name a subject. A team's come before its organisation's.
pub const SUBJECTS: &[(&str, Subject)] = &[
    ("/repos/{owner}/{repo}", Subject::Repository),
    ("/networks/{owner}/{repo}", Subject::Repository),
    ("/orgs/{org}/teams/{team_slug}", Subject::Team),
    ("/organizations/{org_id}/team/{team_id}", Subject::Team),
    ("/teams/{team_id}", Subject::Team),
    ("/orgs/{org}", Subject::Organization),
    ("/organizations/{org}", Subject::Organization),
    ("/enterprises/{enterprise}", Subject::Enterprise),
    ("/users/{username}", Subject::Account),
];

/// Prefixes of templates whose objects belong to a subject that the path does not name.
const UNNAMED_SUBJECTS: &[(&str, Subject)] = &[
    ("/scim", Subject::Enterprise),
    ("/applications/{client_id}", Subject::OauthApp),
    ("/installation", Subject::Installation),
    // The caller's own feeds and gists, and public ones; anonymous callers see the public ones.
    ("/feeds", Subject::Service),
    ("/gists", Subject::Service),
];

/// Returns the rest of a template below a prefix of whole segments.
pub fn below<'t>(template: &'t str, prefix: &str) -> Option<&'t str> {
    template.strip_prefix(prefix).filter(|own| own.is_empty() || own.starts_with('/'))
}

fn subject(endpoint: &Endpoint) -> Subject {
    if endpoint.tokens.accepts_app_jwt() == Some(true) {
        return Subject::App;
    }
    let mut subjects = SUBJECTS.iter().chain(UNNAMED_SUBJECTS);
    let named = subjects.find(|(prefix, _)| below(&endpoint.template, prefix).is_some());
    match named {
        Some((_, subject)) => *subject,
        None if endpoint.about_caller => Subject::Caller,
        None => Subject::Service,
    }
}

fn own_part(template: &str) -> &str {
    template.strip_prefix("/repos/{owner}/{repo}").unwrap_or("")
}

/// The default scopes of a subject.
fn usual_scopes(subject: Subject, endpoint: &Endpoint) -> Vec<String> {
    let reads = endpoint.method == Method::GET;
    let scope = match subject {
        Subject::Repository => "repo",
        Subject::Organization if endpoint.about_caller => return Vec::new(),
        Subject::Organization | Subject::Team if reads => "read:org",
        Subject::Organization | Subject::Team => "admin:org",
        Subject::Enterprise if reads => "read:enterprise",
        Subject::Enterprise => "admin:enterprise",
        Subject::Account
        | Subject::Caller
        | Subject::App
        | Subject::Installation
        | Subject::OauthApp
        | Subject::Service => return Vec::new(),
    };
    vec![scope.to_owned()]
}

/// Parts of a repository that the public does not see.
const CLOSED: &[&str] = &[
    "/actions/cache/retention-limit",
    "/actions/oidc",
    "/actions/organization-",
    "/actions/permissions",
    "/actions/runners",
    "/actions/secrets",
    "/actions/variables",
    "/autolinks",
    "/automated-security-fixes",
    "/branches/{branch}/protection",
    "/code-scanning",
    "/code-security-configuration",
    "/codespaces",
    "/collaborators",
    "/dependabot",
    "/environments/{environment_name}/secrets",
    "/environments/{environment_name}/variables",
    "/hooks",
    "/immutable-releases",
    "/installation",
    "/interaction-limits",
    "/invitations",
    "/keys",
    "/notifications",
    "/pages",
    "/properties",
    "/secret-scanning",
    "/subscription",
    "/teams",
    "/traffic",
    "/vulnerability-alerts",
];

/// Public data of an organisation.
const PUBLIC_OF_ORGANIZATIONS: &[&str] = &[
    "/orgs/{org}",
    "/orgs/{org}/events",
    "/orgs/{org}/public_members",
    "/orgs/{org}/public_members/{username}",
    "/orgs/{org}/repos",
];

fn openness(subject: Subject, endpoint: &Endpoint) -> Openness {
    let reads = endpoint.method == Method::GET;
    let is_public = match subject {
        Subject::Repository => {
            reads && !CLOSED.iter().any(|part| own_part(&endpoint.template).starts_with(part))
        }
        Subject::Organization => {
            reads && PUBLIC_OF_ORGANIZATIONS.contains(&endpoint.template.as_str())
        }
        Subject::Account => reads && !endpoint.about_caller,
        // Rendering a text and revoking a leaked credential change no object of another user.
        Subject::Service => {
            reads || matches!(endpoint.group.as_str(), "markdown" | "credentials" | "apps")
        }
        Subject::Team
        | Subject::Enterprise
        | Subject::Caller
        | Subject::App
        | Subject::Installation
        | Subject::OauthApp => false,
    };
    if is_public { Openness::Public } else { Openness::Closed }
}

/// Reacting, commenting, proposing and subscribing take only read access.
const TAKING_PART: &[&str] = &[
    "/codespaces",
    "/comments/{comment_id}/reactions",
    "/commits/{ref}/comments",
    "/forks",
    "/issues",
    "/notifications",
    "/pulls",
    "/subscription",
];
/// Exceptions below those: writes that change the repository or need a maintainer.
const MAINTAINING: &[&str] = &[
    "/codespaces/secrets",
    "/issues/{issue_number}/assignees",
    "/issues/{issue_number}/dependencies",
    "/issues/{issue_number}/labels",
    "/issues/{issue_number}/lock",
    "/issues/{issue_number}/sub_issue",
    "/pulls/{pull_number}/merge",
    "/pulls/{pull_number}/requested_reviewers",
    "/pulls/{pull_number}/reviews/{review_id}/dismissals",
    "/pulls/{pull_number}/update-branch",
];

fn repository_role(endpoint: &Endpoint) -> Role {
    let own = own_part(&endpoint.template);
    let begins = |parts: &[&str]| parts.iter().any(|part| own.starts_with(part));
    if endpoint.method == Method::GET {
        // Webhooks hold secrets; the other private parts are open to collaborators.
        let is_mine = endpoint.about_caller || !begins(CLOSED);
        return if begins(&["/hooks"]) {
            Role::Admin
        } else if is_mine {
            Role::Read
        } else {
            Role::Push
        };
    }
    let administers = endpoint_permissions::sets(endpoint, Dialect::Service)
        .iter()
        .flatten()
        .any(|grant| matches!(grant.name.as_str(), "administration" | "repository_hooks"));
    if begins(TAKING_PART) && !begins(MAINTAINING) {
        Role::Take
    } else if administers {
        Role::Admin
    } else {
        Role::Push
    }
}

/// Members read memberships; owners read and change the setup. A member's writes about itself need
/// no owner.
fn organization_role(endpoint: &Endpoint) -> OrganizationRole {
    let members = endpoint.permission.as_ref().is_some_and(|permission| {
        permission.owner == PermissionOwner::Organization
            && matches!(permission.name.as_str(), "members" | "custom_properties" | "issue_fields")
    });
    let about_members = members
        || endpoint.template.contains("/teams/")
        || endpoint.template.starts_with("/teams/");
    let is_listing = matches!(
        endpoint.template.as_str(),
        "/orgs/{org}" | "/orgs/{org}/repos" | "/orgs/{org}/events" | "/orgs/{org}/issues"
    );
    match endpoint.method {
        Method::GET if about_members || is_listing => OrganizationRole::Member,
        _ => OrganizationRole::Owner,
    }
}
