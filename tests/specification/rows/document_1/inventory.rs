//! The route inventory: every family of every group. A family that the document leaves open (`...`)
//! is listed by its root and by the sub-routes that the permission matrix names. A method appears
//! only where the document gives one.
//!
//! Some groups replace a word by "the service"; the environments' routes show that it is `secrets`.

use crate::document_1::inventory;
use crate::evidence::Evidence;
use crate::routes::{Route, routes};
use crate::table::{Row, Table, Test};
use crate::tests;

#[derive(Clone, Copy)]
pub struct Group {
    /// The first cell of its line.
    pub name: &'static str,
    pub routes: &'static str,
    tests: &'static [Test],
}

const fn group(name: &'static str, routes: &'static str, tests: &'static [Test]) -> Group {
    Group { name, routes, tests }
}

pub const ACTIONS: Group = group(
    "actions",
    "
    GET,PUT /organizations/{org}/actions/cache/retention-limit
    GET,PUT /organizations/{org}/actions/cache/storage-limit
    GET,PUT /enterprises/{enterprise}/actions/cache/retention-limit
    GET,PUT /enterprises/{enterprise}/actions/cache/storage-limit
    ANY /orgs/{org}/actions/cache/usage
    ANY /orgs/{org}/actions/cache/usage-by-repository
    ANY /orgs/{org}/actions/hosted-runners
    ANY /orgs/{org}/actions/oidc/customization/sub
    ANY /orgs/{org}/actions/permissions
    ANY /orgs/{org}/actions/runner-groups
    ANY /orgs/{org}/actions/runners
    ANY /orgs/{org}/actions/secrets
    ANY /orgs/{org}/actions/variables
    ANY /repos/{owner}/{repo}/actions/artifacts
    ANY /repos/{owner}/{repo}/actions/cache/usage
    ANY /repos/{owner}/{repo}/actions/caches
    ANY /repos/{owner}/{repo}/actions/jobs/{job_id}
    ANY /repos/{owner}/{repo}/actions/oidc/customization/sub
    ANY /repos/{owner}/{repo}/actions/organization-secrets
    ANY /repos/{owner}/{repo}/actions/organization-variables
    ANY /repos/{owner}/{repo}/actions/permissions
    ANY /repos/{owner}/{repo}/actions/runners
    ANY /repos/{owner}/{repo}/actions/runs
    ANY /repos/{owner}/{repo}/actions/secrets
    ANY /repos/{owner}/{repo}/actions/variables
    ANY /repos/{owner}/{repo}/actions/workflows
    ANY /repos/{owner}/{repo}/environments/{environment_name}/secrets
    ANY /repos/{owner}/{repo}/environments/{environment_name}/variables
    ",
    tests![inventory::actions_routes_answer],
);

pub const ACTIVITY: Group = group(
    "activity",
    "
    GET /events
    GET /feeds
    GET /networks/{owner}/{repo}/events
    GET /orgs/{org}/events
    GET /repos/{owner}/{repo}/events
    GET /repos/{owner}/{repo}/stargazers
    GET /repos/{owner}/{repo}/subscribers
    GET /users/{username}/events
    GET /users/{username}/events/public
    GET /users/{username}/received_events
    GET /users/{username}/received_events/public
    GET /users/{username}/starred
    GET /users/{username}/subscriptions
    ",
    tests![inventory::activity_routes_answer],
);

pub const BILLING: Group = group(
    "billing",
    "
    ANY /organizations/{org}/settings/billing/budgets
    ANY /organizations/{org}/settings/billing/budgets/{budget_id}
    ANY /organizations/{org}/settings/billing/premium_request/usage
    ANY /organizations/{org}/settings/billing/usage
    ANY /organizations/{org}/settings/billing/usage/summary
    ",
    tests![inventory::billing_routes_answer],
);

pub const BRANCHES: Group = group(
    "branches",
    "
    ANY /repos/{owner}/{repo}/branches
    ANY /repos/{owner}/{repo}/branches/{branch}
    ANY /repos/{owner}/{repo}/branches/{branch}/protection
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/enforce_admins
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/required_pull_request_reviews
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/required_signatures
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/required_status_checks
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/required_status_checks/contexts
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/restrictions
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/restrictions/apps
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/restrictions/teams
    ANY /repos/{owner}/{repo}/branches/{branch}/protection/restrictions/users
    ANY /repos/{owner}/{repo}/branches/{branch}/rename
    ANY /repos/{owner}/{repo}/merge-upstream
    ANY /repos/{owner}/{repo}/merges
    ",
    tests![inventory::branches_routes_answer],
);

pub const CAMPAIGNS: Group = group(
    "campaigns",
    "
    GET,POST /orgs/{org}/campaigns
    GET,PATCH,DELETE /orgs/{org}/campaigns/{campaign_number}
    ",
    tests![inventory::campaigns_routes_answer],
);

pub const CHECKS: Group = group(
    "checks",
    "
    ANY /repos/{owner}/{repo}/check-runs
    ANY /repos/{owner}/{repo}/check-suites
    ANY /repos/{owner}/{repo}/commits/{ref}/check-runs
    ANY /repos/{owner}/{repo}/commits/{ref}/check-suites
    ",
    tests![inventory::checks_routes_answer],
);

pub const CODE_SCANNING: Group = group(
    "code-scanning",
    "
    ANY /orgs/{org}/code-scanning/alerts
    ANY /repos/{owner}/{repo}/code-scanning/alerts
    ANY /repos/{owner}/{repo}/code-scanning/analyses
    ANY /repos/{owner}/{repo}/code-scanning/codeql/databases
    ANY /repos/{owner}/{repo}/code-scanning/codeql/variant-analyses
    ANY /repos/{owner}/{repo}/code-scanning/default-setup
    ANY /repos/{owner}/{repo}/code-scanning/sarifs
    ",
    tests![inventory::code_scanning_routes_answer],
);

pub const CODE_SECURITY: Group = group(
    "code-security",
    "
    ANY /orgs/{org}/code-security/configurations
    ANY /orgs/{org}/code-security/configurations/defaults
    ANY /orgs/{org}/code-security/configurations/detach
    ANY /orgs/{org}/code-security/configurations/{configuration_id}
    ANY /orgs/{org}/code-security/configurations/{configuration_id}/attach
    ANY /orgs/{org}/code-security/configurations/{configuration_id}/defaults
    ANY /orgs/{org}/code-security/configurations/{configuration_id}/repositories
    ANY /repos/{owner}/{repo}/code-security-configuration
    ",
    tests![inventory::code_security_routes_answer],
);

pub const CODESPACES: Group = group(
    "codespaces",
    "
    ANY /orgs/{org}/codespaces
    ANY /orgs/{org}/members/{username}/codespaces
    ANY /repos/{owner}/{repo}/codespaces/devcontainers
    ANY /repos/{owner}/{repo}/codespaces/machines
    ANY /repos/{owner}/{repo}/codespaces/secrets
    ",
    tests![inventory::codespaces_routes_answer],
);

pub const COLLABORATORS: Group = group(
    "collaborators",
    "
    ANY /repos/{owner}/{repo}/collaborators
    ANY /repos/{owner}/{repo}/collaborators/{username}
    ANY /repos/{owner}/{repo}/invitations
    ANY /repos/{owner}/{repo}/invitations/{invitation_id}
    ",
    tests![inventory::collaborators_routes_answer],
);

pub const COMMITS: Group = group(
    "commits",
    "
    ANY /repos/{owner}/{repo}/comments
    ANY /repos/{owner}/{repo}/commits
    ANY /repos/{owner}/{repo}/commits/{ref}
    ANY /repos/{owner}/{repo}/compare/{basehead}
    ANY /repos/{owner}/{repo}/statuses/{sha}
    ",
    tests![inventory::commits_routes_answer],
);

pub const ASSISTANT: Group = group(
    "assistant",
    "
    ANY /orgs/{org}/assistant/billing
    ANY /orgs/{org}/assistant/billing/seats
    ANY /orgs/{org}/assistant/billing/selected_teams
    ANY /orgs/{org}/assistant/billing/selected_users
    ANY /orgs/{org}/assistant/content_exclusion
    ANY /orgs/{org}/assistant/metrics
    ANY /orgs/{org}/members/{username}/assistant
    ANY /orgs/{org}/team/{team_slug}/assistant/metrics
    ",
    tests![inventory::assistant_routes_answer],
);

pub const DEPENDABOT: Group = group(
    "dependabot",
    "
    ANY /organizations/{org}/dependabot/repository-access
    ANY /orgs/{org}/dependabot/alerts
    ANY /orgs/{org}/dependabot/secrets
    ANY /repos/{owner}/{repo}/dependabot/alerts
    ANY /repos/{owner}/{repo}/dependabot/secrets
    ",
    tests![inventory::dependabot_routes_answer],
);

pub const DEPENDENCY_GRAPH: Group = group(
    "dependency-graph",
    "
    ANY /repos/{owner}/{repo}/dependency-graph/compare/{basehead}
    ANY /repos/{owner}/{repo}/dependency-graph/sbom
    ANY /repos/{owner}/{repo}/dependency-graph/snapshots
    ",
    tests![inventory::dependency_graph_routes_answer],
);

pub const DEPLOY_KEYS: Group = group(
    "deploy-keys",
    "
    ANY /repos/{owner}/{repo}/keys
    ANY /repos/{owner}/{repo}/keys/{key_id}
    ",
    tests![inventory::deploy_keys_routes_answer],
);

pub const DEPLOYMENTS: Group = group(
    "deployments",
    "
    ANY /repos/{owner}/{repo}/deployments
    ANY /repos/{owner}/{repo}/environments
    ANY /repos/{owner}/{repo}/environments/{environment_name}
    ANY /repos/{owner}/{repo}/environments/{environment_name}/deployment-branch-policies
    ANY /repos/{owner}/{repo}/environments/{environment_name}/deployment_protection_rules
    ",
    tests![inventory::deployments_routes_answer],
);

pub const ENTERPRISE_TEAMS: Group = group(
    "enterprise-teams",
    "
    ANY /enterprises/{enterprise}/teams
    ANY /enterprises/{enterprise}/teams/{team_slug}
    ANY /enterprises/{enterprise}/teams/{enterprise-team}/memberships
    ANY /enterprises/{enterprise}/teams/{enterprise-team}/organizations
    ",
    tests![inventory::enterprise_teams_routes_answer],
);

pub const GIT: Group = group(
    "git",
    "
    ANY /repos/{owner}/{repo}/git/blobs
    ANY /repos/{owner}/{repo}/git/commits
    ANY /repos/{owner}/{repo}/git/matching-refs/{ref}
    ANY /repos/{owner}/{repo}/git/ref/{ref}
    ANY /repos/{owner}/{repo}/git/refs
    ANY /repos/{owner}/{repo}/git/tags
    ANY /repos/{owner}/{repo}/git/trees
    ",
    tests![inventory::git_routes_answer],
);

pub const INTERACTIONS: Group = group(
    "interactions",
    "
    GET,PUT,DELETE /orgs/{org}/interaction-limits
    GET,PUT,DELETE /repos/{owner}/{repo}/interaction-limits
    ",
    tests![inventory::interactions_routes_answer],
);

pub const ISSUES: Group = group(
    "issues",
    "
    ANY /repos/{owner}/{repo}/assignees
    ANY /repos/{owner}/{repo}/issues
    ANY /repos/{owner}/{repo}/issues/{issue_number}
    ANY /repos/{owner}/{repo}/labels
    ANY /repos/{owner}/{repo}/milestones
    ANY /repos/{owner}/{repo}/issues/{issue_number}/comments
    ANY /repos/{owner}/{repo}/issues/{issue_number}/events
    ANY /repos/{owner}/{repo}/issues/{issue_number}/dependencies/blocked_by
    ANY /repos/{owner}/{repo}/issues/{issue_number}/labels
    ANY /repos/{owner}/{repo}/issues/{issue_number}/lock
    ANY /repos/{owner}/{repo}/issues/{issue_number}/sub_issues
    ANY /repos/{owner}/{repo}/issues/{issue_number}/timeline
    ",
    tests![inventory::issues_routes_answer],
);

pub const METRICS: Group = group(
    "metrics",
    "
    ANY /repos/{owner}/{repo}/community/profile
    ANY /repos/{owner}/{repo}/stats/contributors
    ",
    tests![inventory::metrics_routes_answer],
);

/// "Other groups with no listed routes": no request is possible.
pub const OTHERS: Group = group(
    "other groups with no listed routes",
    "",
    tests![inventory::a_route_that_no_group_lists_is_not_found],
);

/// Each group with its number of routes here.
pub const GROUPS: [(Group, usize); 22] = [
    (ACTIONS, 32),
    (ACTIVITY, 13),
    (BILLING, 5),
    (BRANCHES, 15),
    (CAMPAIGNS, 5),
    (CHECKS, 4),
    (CODE_SCANNING, 7),
    (CODE_SECURITY, 8),
    (CODESPACES, 5),
    (COLLABORATORS, 4),
    (COMMITS, 5),
    (ASSISTANT, 8),
    (DEPENDABOT, 5),
    (DEPENDENCY_GRAPH, 3),
    (DEPLOY_KEYS, 2),
    (DEPLOYMENTS, 5),
    (ENTERPRISE_TEAMS, 4),
    (GIT, 7),
    (INTERACTIONS, 6),
    (ISSUES, 12),
    (METRICS, 2),
    (OTHERS, 1),
];

/// The document's table with a line for each group, and a table for each group's routes.
pub fn tables() -> Vec<Table> {
    let lines = GROUPS.iter().map(|(group, _)| row(*group, group.name.to_owned(), Evidence::Ran));
    let inventory =
        Table { document: 1, name: "Route inventory", lines: 22, rows: lines.collect() };
    std::iter::once(inventory)
        .chain(GROUPS.iter().map(|(group, lines)| routes_of(*group, *lines)))
        .collect()
}

fn routes_of(group: Group, lines: usize) -> Table {
    let known = |route: Route| {
        row(
            group,
            format!("{} {}", route.method, route.template),
            Evidence::Known { method: route.method, template: route.template },
        )
    };
    let mut rows: Vec<Row> = routes(group.routes).into_iter().map(known).collect();
    if rows.is_empty() {
        rows.push(row(group, "none".to_owned(), Evidence::Status(404)));
    }
    Table { document: 1, name: group.name, lines, rows }
}

fn row(group: Group, line: String, evidence: Evidence) -> Row {
    Row { line, part: group.name.to_owned(), tests: group.tests.to_vec(), evidence: vec![evidence] }
}
