//! Permission names in the API, and the permission of routes without a documented one.
//!
//! The endpoint table uses documented names (`org/administration`). The API prefixes an
//! organisation's permission with `organization_` where a repository's has the same name. The
//! documented matrix breaks off within the repository permission 'Administration' (SPECIFICATION,
//! "Permissions"). Later routes follow the running service, so that a token without permissions
//! reaches public data only.

use http::Method;

use crate::api::{Access, Dialect, Endpoint, Permission, PermissionOwner};
use crate::emulator::accounts::Level;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub name: String,
    pub level: Level,
}

impl Grant {
    pub fn of(permission: &Permission, dialect: Dialect) -> Self {
        let name = permission.name.as_str();
        let name = match (permission.owner, name) {
            (PermissionOwner::Organization, "members" | "issue_fields") => name.to_owned(),
            (PermissionOwner::Organization, "webhooks") => "organization_hooks".to_owned(),
            // 'Assistant Business' in the running service; its product's word follows the dialect.
            (PermissionOwner::Organization, "assistant_business") => {
                format!("organization_{}_seat_management", dialect.assistant_segment())
            }
            (PermissionOwner::Organization, _) => format!("organization_{name}"),
            (PermissionOwner::Repository, "webhooks") => "repository_hooks".to_owned(),
            (PermissionOwner::Repository | PermissionOwner::Enterprise, _) => name.to_owned(),
        };
        let level = match permission.access {
            Access::Read => Level::Read,
            Access::Write => Level::Write,
            Access::Admin => Level::Admin,
        };
        Self { name, level }
    }

    /// Formats it as in `X-Accepted-Service-Permissions`.
    pub fn header(&self) -> String {
        format!("{}={}", self.name, self.level.into_str())
    }
}

/// Returns the permission sets that open an endpoint: one set suffices, and takes all its members.
/// Empty where no permission is required.
///
/// Routes marked \[M\] need several permissions or accept alternatives; the upstream does not say
/// which (SPECIFICATION, "Permissions"). Two categories of one owner count as alternatives, such as
/// 'Administration' or 'Assistant Business'. One of an organisation and one of a repository are
/// both required, such as 'Members' and 'Administration'. With a single category, the running
/// service's further permission is required too.
pub fn sets(endpoint: &Endpoint, dialect: Dialect) -> Vec<Vec<Grant>> {
    let Some(first) = &endpoint.permission else {
        return unlisted(&endpoint.template, &endpoint.method)
            .into_iter()
            .map(|grant| vec![grant])
            .collect();
    };
    let mut sets = vec![vec![Grant::of(first, dialect)]];
    for other in &endpoint.other_permissions {
        let grant = Grant::of(other, dialect);
        if other.owner == first.owner {
            sets.push(vec![grant]);
        } else {
            for set in &mut sets {
                set.push(grant.clone());
            }
        }
    }
    if endpoint.several_permissions && endpoint.other_permissions.is_empty() {
        for set in &mut sets {
            set.push(beside(&endpoint.template));
        }
    }
    sets
}

/// The further permission of a route marked \[M\], on the repository involved.
fn beside(template: &str) -> Grant {
    let (name, level) = match template {
        "/repos/{owner}/{repo}/forks" => ("contents", Level::Read),
        "/repos/{owner}/{repo}/pages" => ("pages", Level::Write),
        _ => ("metadata", Level::Read),
    };
    Grant { name: name.to_owned(), level }
}

/// The prefix of a route, and the list for the rest of it.
const UNLISTED_BY_PREFIX: &[(&str, Unlisted)] = &[
    ("/repos/{owner}/{repo}", REPOSITORY),
    ("/networks/{owner}/{repo}", REPOSITORY),
    ("/orgs/{org}/teams/{team_slug}", TEAM),
    ("/organizations/{org_id}/team/{team_id}", TEAM),
    ("/teams/{team_id}", TEAM),
    ("/orgs/{org}", ORGANIZATION),
    ("/organizations/{org}", ORGANIZATION),
    ("/enterprises/{enterprise}", ENTERPRISE),
    ("/user", USER),
    ("/gists", GISTS),
];

/// A prefix of the route's own part and the permission of the routes there, longest prefix first.
type Unlisted = &'static [(&'static str, &'static str)];

const TEAM: Unlisted = &[("", "members")];
const GISTS: Unlisted = &[("", "gists")];
const ENTERPRISE: Unlisted = &[("/teams", "enterprise_teams"), ("", "enterprise_administration")];
const REPOSITORY: Unlisted = &[
    ("/actions/cache/retention-limit", "administration"),
    ("/actions/organization-secrets", "secrets"),
    ("/actions/organization-variables", "actions_variables"),
    ("/actions/permissions", "administration"),
    ("/actions/runners", "administration"),
    ("/actions/secrets", "secrets"),
    ("/actions/variables", "actions_variables"),
    ("/actions", "actions"),
    ("/assignees", "issues"),
    ("/autolinks", "administration"),
    ("/automated-security-fixes", "administration"),
    ("/branches/{branch}/protection", "administration"),
    ("/check-", "checks"),
    ("/code-scanning", "security_events"),
    ("/code-security-configuration", "administration"),
    ("/codespaces/secrets", "codespaces_secrets"),
    ("/codespaces", "codespaces"),
    ("/collaborators/{*rest}", "administration"),
    ("/collaborators", "metadata"),
    ("/commits/{ref}/check-", "checks"),
    ("/commits/{ref}/pulls", "pull_requests"),
    ("/commits/{ref}/status", "statuses"),
    ("/community", "metadata"),
    ("/contributors", "metadata"),
    ("/dependabot/secrets", "dependabot_secrets"),
    ("/dependabot", "vulnerability_alerts"),
    ("/deployments", "deployments"),
    ("/environments", "environments"),
    ("/events", "metadata"),
    ("/forks", "metadata"),
    ("/hooks", "repository_hooks"),
    ("/immutable-releases", "administration"),
    ("/installation", "metadata"),
    ("/interaction-limits", "administration"),
    ("/invitations", "administration"),
    ("/issues", "issues"),
    ("/keys", "administration"),
    ("/labels", "issues"),
    ("/languages", "metadata"),
    ("/milestones", "issues"),
    ("/notifications", "metadata"),
    ("/pages", "pages"),
    ("/properties", "repository_custom_properties"),
    ("/pulls", "pull_requests"),
    ("/rules/", "metadata"),
    ("/rulesets", "administration"),
    ("/secret-scanning", "secret_scanning_alerts"),
    ("/stargazers", "metadata"),
    ("/stats", "metadata"),
    ("/statuses", "statuses"),
    ("/subscri", "metadata"),
    ("/teams", "administration"),
    ("/topics", "metadata"),
    ("/traffic", "administration"),
    ("/transfer", "administration"),
    ("/vulnerability-alerts", "administration"),
    // All other routes of a repository are about its files and their history.
    ("/", "contents"),
    ("", "metadata"),
];
const ORGANIZATION: Unlisted = &[
    ("/actions/runner", "organization_self_hosted_runners"),
    ("/actions/secrets", "organization_secrets"),
    ("/actions/variables", "organization_actions_variables"),
    ("/campaigns", "organization_campaigns"),
    ("/code-scanning", "security_events"),
    ("/codespaces/secrets", "organization_codespaces_secrets"),
    ("/codespaces", "organization_codespaces"),
    ("/dependabot/secrets", "organization_dependabot_secrets"),
    ("/dependabot/alerts", "vulnerability_alerts"),
    ("/events", "organization_events"),
    ("/installation", ""),
    ("/issues", ""),
    ("/members/{username}/codespaces", "organization_codespaces"),
    ("/repos", "metadata"),
    ("/secret-scanning", "secret_scanning_alerts"),
    ("/", "organization_administration"),
    ("", ""),
];
const USER: Unlisted = &[
    ("/blocks", "blocking"),
    ("/codespaces", "codespaces"),
    ("/emails", "email_addresses"),
    ("/follow", "followers"),
    ("/gpg_keys", "gpg_keys"),
    ("/interaction-limits", "interaction_limits"),
    ("/keys", "keys"),
    ("/starred", "starring"),
    ("/subscriptions", "watching"),
    ("/", ""),
    // Every token may read its own user; changing it takes a permission.
    ("", "profile"),
];

/// `None` where the running service requires none.
fn unlisted(template: &str, method: &Method) -> Option<Grant> {
    let level = if *method == Method::GET { Level::Read } else { Level::Write };
    let below = |prefix: &str| {
        template.strip_prefix(prefix).filter(|own| own.is_empty() || own.starts_with('/'))
    };
    let (own, list) =
        UNLISTED_BY_PREFIX.iter().find_map(|(prefix, list)| Some((below(prefix)?, list)))?;
    let name =
        list.iter().find(|(prefix, _)| own.starts_with(prefix)).map_or(&"", |(_, name)| name);
    // Topics belong to administrators; the other writes are about the caller.
    let (name, level) = match (*name, level) {
        ("metadata", Level::Write) if own == "/topics" => ("administration", level),
        ("metadata", _) => ("metadata", Level::Read),
        named => named,
    };
    let is_open = name.is_empty()
        || (level == Level::Read && matches!(template, "/user" | "/gists" | "/gists/{gist_id}"));
    (!is_open).then(|| Grant { name: name.to_owned(), level })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Table;

    fn header(method: &Method, path: &str, dialect: Dialect) -> String {
        let sets = sets(Table::embedded(dialect).classify(method, path).endpoint, dialect);
        let written =
            |set: &Vec<Grant>| set.iter().map(Grant::header).collect::<Vec<_>>().join(",");
        sets.iter().map(written).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn documented_permissions_have_their_header_names() {
        for (method, path, expected) in [
            (Method::PUT, "/orgs/o/actions/permissions", "organization_administration=write"),
            (Method::GET, "/orgs/o/actions/runners", "organization_self_hosted_runners=read"),
            (Method::GET, "/orgs/o/members", "members=read"),
            (Method::GET, "/orgs/o/hooks", "organization_hooks=read"),
            (Method::PATCH, "/orgs/o/properties/schema", "organization_custom_properties=admin"),
            (Method::POST, "/orgs/o/issue-fields", "issue_fields=write"),
            (Method::PATCH, "/repos/o/r", "administration=write"),
            (Method::POST, "/repos/o/r/actions/runs/5/rerun", "actions=write"),
        ] {
            assert_eq!(header(&method, path, Dialect::Service), expected, "{path}");
        }
    }

    #[test]
    fn only_permissions_of_one_owner_are_alternatives() {
        let seats = "organization_administration=read; organization_assistant_seat_management=read";
        assert_eq!(
            header(&Method::GET, "/orgs/o/assistant/billing/seats", Dialect::Service),
            seats
        );
        let team = "members=read,administration=write";
        assert_eq!(header(&Method::PUT, "/orgs/o/teams/t/repos/o/r", Dialect::Service), team);
        assert_eq!(
            header(&Method::PUT, "/teams/5/repos/o/r", Dialect::Service),
            "members=read,metadata=read"
        );
        // The running service's further permission joins the documented one.
        let repository = "organization_administration=write,metadata=read";
        assert_eq!(
            header(&Method::PUT, "/orgs/o/actions/permissions/repositories/5", Dialect::Service),
            repository
        );
        assert_eq!(
            header(&Method::POST, "/repos/o/r/forks", Dialect::Service),
            "administration=write,contents=read"
        );
        assert_eq!(
            header(&Method::POST, "/repos/o/r/pages", Dialect::Service),
            "administration=write,pages=write"
        );
    }

    #[test]
    fn an_undocumented_route_takes_the_services_permission() {
        for (method, path, expected) in [
            (Method::GET, "/repos/o/r/branches", "contents=read"),
            (Method::POST, "/repos/o/r/check-runs", "checks=write"),
            (Method::POST, "/repos/o/r/statuses/c0ffee", "statuses=write"),
            (Method::GET, "/repos/o/r/hooks", "repository_hooks=read"),
            (Method::GET, "/user", ""),
            (Method::PATCH, "/user", "profile=write"),
            (Method::GET, "/user/orgs", ""),
            (Method::GET, "/emojis", ""),
        ] {
            assert_eq!(header(&method, path, Dialect::Service), expected, "{path}");
        }
    }

    #[test]
    fn a_longer_prefix_precedes_its_own_prefix() {
        for (_, list) in UNLISTED_BY_PREFIX {
            for (index, (prefix, _)) in list.iter().enumerate() {
                let shadowed =
                    list[..index].iter().find(|(earlier, _)| prefix.starts_with(earlier));
                assert_eq!(shadowed, None, "{prefix}");
            }
        }
    }
}
