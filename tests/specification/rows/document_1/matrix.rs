//! The permission matrix for app tokens: every route of every row. A row that names a family
//! ("autolinks") is listed by the family's writing routes.
//!
//! The document does not show the rows after pages in the last category, nor later categories.

use crate::document_1::matrix;
use crate::evidence::{Evidence, Granted, Outcome};
use crate::routes::{Mark, Route, routes};
use crate::table::{Row, Table, Test};
use crate::tests;

pub const ADMINISTRATION_WRITE: &str = "
    PUT /organizations/{org}/actions/cache/retention-limit
    PUT /organizations/{org}/actions/cache/storage-limit
    PATCH /organizations/{org}/dependabot/repository-access
    PUT /organizations/{org}/dependabot/repository-access/default-level
    PATCH,DELETE /organizations/{org}/settings/billing/budgets/{budget_id}
    PATCH,DELETE /orgs/{org}
    POST /orgs/{org}/actions/hosted-runners
    PATCH,DELETE /orgs/{org}/actions/hosted-runners/{hosted_runner_id}
    PUT /orgs/{org}/actions/oidc/customization/sub
    PUT /orgs/{org}/actions/permissions
    PUT /orgs/{org}/actions/permissions/artifact-and-log-retention
    PUT /orgs/{org}/actions/permissions/fork-pr-contributor-approval
    PUT /orgs/{org}/actions/permissions/fork-pr-workflows-private-repos
    PUT /orgs/{org}/actions/permissions/repositories
    PUT /orgs/{org}/actions/permissions/selected-actions
    PUT /orgs/{org}/actions/permissions/self-hosted-runners
    PUT /orgs/{org}/actions/permissions/self-hosted-runners/repositories
    PUT /orgs/{org}/actions/permissions/workflow
    PUT,DELETE [M] /orgs/{org}/actions/permissions/repositories/{repository_id}
    PUT,DELETE [M] /orgs/{org}/actions/permissions/self-hosted-runners/repositories/{repository_id}
    POST /orgs/{org}/code-security/configurations
    DELETE /orgs/{org}/code-security/configurations/detach
    PATCH,DELETE /orgs/{org}/code-security/configurations/{configuration_id}
    POST /orgs/{org}/code-security/configurations/{configuration_id}/attach
    PUT /orgs/{org}/code-security/configurations/{configuration_id}/defaults
    POST,DELETE [M] /orgs/{org}/assistant/billing/selected_teams
    POST,DELETE [M] /orgs/{org}/assistant/billing/selected_users
    PUT,DELETE /orgs/{org}/interaction-limits
    GET,POST /orgs/{org}/rulesets
    GET /orgs/{org}/rulesets/rule-suites
    GET /orgs/{org}/rulesets/rule-suites/{rule_suite_id}
    GET,PUT,DELETE /orgs/{org}/rulesets/{ruleset_id}
    GET /orgs/{org}/rulesets/{ruleset_id}/history
    GET /orgs/{org}/rulesets/{ruleset_id}/history/{version_id}
    PATCH /orgs/{org}/secret-scanning/pattern-configurations
    PUT,DELETE /orgs/{org}/security-managers/teams/{team_slug}
    PUT /orgs/{org}/settings/immutable-releases
    PUT [M] /orgs/{org}/settings/immutable-releases/repositories
    PUT,DELETE [M] /orgs/{org}/settings/immutable-releases/repositories/{repository_id}
    POST /orgs/{org}/{security_product}/{enablement}
";

pub const ADMINISTRATION_READ: &str = "
    GET /organizations/{org}/actions/cache/retention-limit
    GET /organizations/{org}/actions/cache/storage-limit
    GET /organizations/{org}/dependabot/repository-access
    GET /organizations/{org}/settings/billing/budgets
    GET /organizations/{org}/settings/billing/budgets/{budget_id}
    GET /organizations/{org}/settings/billing/premium_request/usage
    GET /organizations/{org}/settings/billing/usage
    GET /organizations/{org}/settings/billing/usage/summary
    GET /orgs/{org}/actions/cache/usage
    GET /orgs/{org}/actions/cache/usage-by-repository
    GET /orgs/{org}/actions/hosted-runners
    GET /orgs/{org}/actions/hosted-runners/images/github-owned
    GET /orgs/{org}/actions/hosted-runners/images/partner
    GET /orgs/{org}/actions/hosted-runners/limits
    GET /orgs/{org}/actions/hosted-runners/machine-sizes
    GET /orgs/{org}/actions/hosted-runners/platforms
    GET /orgs/{org}/actions/hosted-runners/{hosted_runner_id}
    GET /orgs/{org}/actions/oidc/customization/sub
    GET /orgs/{org}/actions/permissions
    GET /orgs/{org}/actions/permissions/artifact-and-log-retention
    GET /orgs/{org}/actions/permissions/fork-pr-contributor-approval
    GET /orgs/{org}/actions/permissions/fork-pr-workflows-private-repos
    GET /orgs/{org}/actions/permissions/repositories
    GET /orgs/{org}/actions/permissions/selected-actions
    GET /orgs/{org}/actions/permissions/self-hosted-runners
    GET /orgs/{org}/actions/permissions/self-hosted-runners/repositories
    GET /orgs/{org}/actions/permissions/workflow
    GET /orgs/{org}/code-security/configurations
    GET /orgs/{org}/code-security/configurations/defaults
    GET /orgs/{org}/code-security/configurations/{configuration_id}
    GET /orgs/{org}/code-security/configurations/{configuration_id}/repositories
    GET [M] /orgs/{org}/assistant/billing
    GET [M] /orgs/{org}/assistant/billing/seats
    GET [M] /orgs/{org}/assistant/metrics
    GET [M] /orgs/{org}/members/{username}/assistant
    GET [M] /orgs/{org}/team/{team_slug}/assistant/metrics
    GET /orgs/{org}/installations
    GET /orgs/{org}/interaction-limits
    GET /orgs/{org}/secret-scanning/pattern-configurations
    GET /orgs/{org}/security-managers
    GET /orgs/{org}/settings/immutable-releases
    GET /orgs/{org}/settings/immutable-releases/repositories
";

pub const ASSISTANT_WRITE: &str = "
    POST,DELETE [M] /orgs/{org}/assistant/billing/selected_teams
    POST,DELETE [M] /orgs/{org}/assistant/billing/selected_users
";

pub const ASSISTANT_READ: &str = "
    GET [M] /orgs/{org}/assistant/billing
    GET [M] /orgs/{org}/assistant/billing/seats
    GET [M] /orgs/{org}/assistant/metrics
    GET [M] /orgs/{org}/members/{username}/assistant
    GET [M] /orgs/{org}/team/{team_slug}/assistant/metrics
";

pub const MEMBERS_WRITE: &str = "
    POST /orgs/{org}/invitations
    DELETE /orgs/{org}/invitations/{invitation_id}
    DELETE /orgs/{org}/members/{username}
    PUT,DELETE /orgs/{org}/memberships/{username}
    DELETE /orgs/{org}/organization-roles/teams/{team_slug}
    PUT,DELETE /orgs/{org}/organization-roles/teams/{team_slug}/{role_id}
    DELETE /orgs/{org}/organization-roles/users/{username}
    PUT,DELETE /orgs/{org}/organization-roles/users/{username}/{role_id}
    PUT,DELETE /orgs/{org}/outside_collaborators/{username}
    PUT,DELETE [UAT] /orgs/{org}/public_members/{username}
    POST /orgs/{org}/teams
    PATCH,DELETE /orgs/{org}/teams/{team_slug}
    PUT,DELETE /orgs/{org}/teams/{team_slug}/memberships/{username}
    PATCH,DELETE /teams/{team_id}
    PUT,DELETE /teams/{team_id}/members/{username}
    PUT,DELETE /teams/{team_id}/memberships/{username}
    PATCH [UAT] /user/memberships/orgs/{org}
";

pub const MEMBERS_READ: &str = "
    GET /orgs/{org}/failed_invitations
    GET /orgs/{org}/invitations
    GET /orgs/{org}/invitations/{invitation_id}/teams
    GET /orgs/{org}/members
    GET /orgs/{org}/members/{username}
    GET /orgs/{org}/memberships/{username}
    GET /orgs/{org}/organization-roles/{role_id}/teams
    GET /orgs/{org}/organization-roles/{role_id}/users
    GET /orgs/{org}/outside_collaborators
    GET /orgs/{org}/public_members
    GET /orgs/{org}/public_members/{username}
    GET /orgs/{org}/teams
    GET /orgs/{org}/teams/{team_slug}
    GET /orgs/{org}/teams/{team_slug}/invitations
    GET /orgs/{org}/teams/{team_slug}/members
    GET /orgs/{org}/teams/{team_slug}/memberships/{username}
    GET /orgs/{org}/teams/{team_slug}/repos
    GET /orgs/{org}/teams/{team_slug}/teams
    GET /teams/{team_id}
    GET /teams/{team_id}/invitations
    GET /teams/{team_id}/members
    GET /teams/{team_id}/members/{username}
    GET /teams/{team_id}/memberships/{username}
    GET /teams/{team_id}/repos
    GET /teams/{team_id}/teams
    GET [UAT] /user/memberships/orgs/{org}
    GET,PUT,DELETE [M] /orgs/{org}/teams/{team_slug}/repos/{owner}/{repo}
    GET,PUT,DELETE [M] /teams/{team_id}/repos/{owner}/{repo}
";

pub const RUNNERS_WRITE: &str = "
    POST /orgs/{org}/actions/runner-groups
    PATCH,DELETE /orgs/{org}/actions/runner-groups/{runner_group_id}
    PUT /orgs/{org}/actions/runner-groups/{runner_group_id}/repositories
    PUT,DELETE [M] /orgs/{org}/actions/runner-groups/{runner_group_id}/repositories/{repository_id}
    PUT /orgs/{org}/actions/runner-groups/{runner_group_id}/runners
    PUT,DELETE /orgs/{org}/actions/runner-groups/{runner_group_id}/runners/{runner_id}
    POST /orgs/{org}/actions/runners/generate-jitconfig
    POST /orgs/{org}/actions/runners/registration-token
    POST /orgs/{org}/actions/runners/remove-token
    DELETE /orgs/{org}/actions/runners/{runner_id}
    POST,PUT,DELETE /orgs/{org}/actions/runners/{runner_id}/labels
    DELETE /orgs/{org}/actions/runners/{runner_id}/labels/{name}
";

pub const RUNNERS_READ: &str = "
    GET /orgs/{org}/actions/runner-groups
    GET /orgs/{org}/actions/runner-groups/{runner_group_id}
    GET /orgs/{org}/actions/runner-groups/{runner_group_id}/hosted-runners
    GET /orgs/{org}/actions/runner-groups/{runner_group_id}/repositories
    GET /orgs/{org}/actions/runner-groups/{runner_group_id}/runners
    GET /orgs/{org}/actions/runners
    GET /orgs/{org}/actions/runners/downloads
    GET /orgs/{org}/actions/runners/{runner_id}
    GET /orgs/{org}/actions/runners/{runner_id}/labels
";

pub const ACTIONS_WRITE: &str = "
    DELETE /repos/{owner}/{repo}/actions/artifacts/{artifact_id}
    DELETE /repos/{owner}/{repo}/actions/caches
    DELETE /repos/{owner}/{repo}/actions/caches/{cache_id}
    POST /repos/{owner}/{repo}/actions/jobs/{job_id}/rerun
    PUT /repos/{owner}/{repo}/actions/oidc/customization/sub
    DELETE /repos/{owner}/{repo}/actions/runs/{run_id}
    POST /repos/{owner}/{repo}/actions/runs/{run_id}/approve
    POST /repos/{owner}/{repo}/actions/runs/{run_id}/cancel
    POST /repos/{owner}/{repo}/actions/runs/{run_id}/force-cancel
    POST /repos/{owner}/{repo}/actions/runs/{run_id}/rerun
    POST /repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs
    DELETE /repos/{owner}/{repo}/actions/runs/{run_id}/logs
    PUT /repos/{owner}/{repo}/actions/workflows/{workflow_id}/disable
    PUT /repos/{owner}/{repo}/actions/workflows/{workflow_id}/enable
    POST /repos/{owner}/{repo}/actions/workflows/{workflow_id}/dispatches
";

pub const ACTIONS_READ: &str = "
    GET /repos/{owner}/{repo}/actions/artifacts
    GET /repos/{owner}/{repo}/actions/artifacts/{artifact_id}
    GET /repos/{owner}/{repo}/actions/artifacts/{artifact_id}/{archive_format}
    GET /repos/{owner}/{repo}/actions/cache/storage-limit
    GET /repos/{owner}/{repo}/actions/cache/usage
    GET /repos/{owner}/{repo}/actions/caches
    GET /repos/{owner}/{repo}/actions/jobs/{job_id}
    GET /repos/{owner}/{repo}/actions/jobs/{job_id}/logs
    GET /repos/{owner}/{repo}/actions/oidc/customization/sub
    GET /repos/{owner}/{repo}/actions/runs
    GET /repos/{owner}/{repo}/actions/runs/{run_id}
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/approvals
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/artifacts
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}/jobs
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}/logs
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/jobs
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/logs
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/pending_deployments
    GET /repos/{owner}/{repo}/actions/runs/{run_id}/timing
    GET /repos/{owner}/{repo}/actions/workflows
    GET /repos/{owner}/{repo}/actions/workflows/{workflow_id}
    GET /repos/{owner}/{repo}/actions/workflows/{workflow_id}/runs
    GET /repos/{owner}/{repo}/actions/workflows/{workflow_id}/timing
    GET /repos/{owner}/{repo}/environments
    GET /repos/{owner}/{repo}/environments/{environment_name}
    GET /repos/{owner}/{repo}/environments/{environment_name}/deployment-branch-policies
    GET /repos/{owner}/{repo}/environments/{environment_name}/deployment-branch-policies/{branch_policy_id}
    GET /repos/{owner}/{repo}/environments/{environment_name}/deployment_protection_rules
    GET /repos/{owner}/{repo}/environments/{environment_name}/deployment_protection_rules/{protection_rule_id}
";

pub const REPOSITORY_ADMINISTRATION_WRITE: &str = "
    POST /orgs/{org}/repos
    PUT,DELETE [M] /orgs/{org}/teams/{team_slug}/repos/{owner}/{repo}
    PATCH,DELETE /repos/{owner}/{repo}
    PUT /repos/{owner}/{repo}/actions/cache/retention-limit
    PUT /repos/{owner}/{repo}/actions/cache/storage-limit
    PUT /repos/{owner}/{repo}/actions/permissions
    PUT /repos/{owner}/{repo}/actions/permissions/access
    PUT /repos/{owner}/{repo}/actions/permissions/artifact-and-log-retention
    PUT /repos/{owner}/{repo}/actions/permissions/fork-pr-contributor-approval
    PUT /repos/{owner}/{repo}/actions/permissions/fork-pr-workflows-private-repos
    PUT /repos/{owner}/{repo}/actions/permissions/selected-actions
    PUT /repos/{owner}/{repo}/actions/permissions/workflow
    POST /repos/{owner}/{repo}/actions/runners/registration-token
    POST /repos/{owner}/{repo}/actions/runners/remove-token
    POST /repos/{owner}/{repo}/actions/runners/generate-jitconfig
    DELETE /repos/{owner}/{repo}/actions/runners/{runner_id}
    POST,PUT,DELETE /repos/{owner}/{repo}/actions/runners/{runner_id}/labels
    DELETE /repos/{owner}/{repo}/actions/runners/{runner_id}/labels/{name}
    POST /repos/{owner}/{repo}/autolinks
    DELETE /repos/{owner}/{repo}/autolinks/{autolink_id}
    PUT,DELETE /repos/{owner}/{repo}/automated-security-fixes
    PUT,DELETE /repos/{owner}/{repo}/branches/{branch}/protection
    POST,DELETE /repos/{owner}/{repo}/branches/{branch}/protection/enforce_admins
    PATCH,DELETE /repos/{owner}/{repo}/branches/{branch}/protection/required_pull_request_reviews
    POST,DELETE /repos/{owner}/{repo}/branches/{branch}/protection/required_signatures
    PATCH,DELETE /repos/{owner}/{repo}/branches/{branch}/protection/required_status_checks
    POST,PUT,DELETE /repos/{owner}/{repo}/branches/{branch}/protection/required_status_checks/contexts
    DELETE /repos/{owner}/{repo}/branches/{branch}/protection/restrictions
    POST,PUT,DELETE /repos/{owner}/{repo}/branches/{branch}/protection/restrictions/apps
    POST,PUT,DELETE /repos/{owner}/{repo}/branches/{branch}/protection/restrictions/teams
    POST,PUT,DELETE /repos/{owner}/{repo}/branches/{branch}/protection/restrictions/users
    PATCH /repos/{owner}/{repo}/code-scanning/default-setup
    PUT,DELETE /repos/{owner}/{repo}/collaborators/{username}
    PUT,DELETE /repos/{owner}/{repo}/environments/{environment_name}
    POST /repos/{owner}/{repo}/environments/{environment_name}/deployment-branch-policies
    PUT,DELETE /repos/{owner}/{repo}/environments/{environment_name}/deployment-branch-policies/{branch_policy_id}
    POST [M] /repos/{owner}/{repo}/forks
    PUT,DELETE /repos/{owner}/{repo}/immutable-releases
    PUT,DELETE /repos/{owner}/{repo}/interaction-limits
    PATCH,DELETE /repos/{owner}/{repo}/invitations/{invitation_id}
    POST /repos/{owner}/{repo}/keys
    DELETE /repos/{owner}/{repo}/keys/{key_id}
    POST [M] /repos/{owner}/{repo}/pages
";

pub fn tables() -> Vec<Table> {
    vec![
        category(
            "Organization permission 'Administration', write",
            54,
            ADMINISTRATION_WRITE,
            tests![matrix::administration_write_guards_its_routes],
        ),
        category(
            "Organization permission 'Administration', read",
            42,
            ADMINISTRATION_READ,
            tests![matrix::administration_read_guards_its_routes],
        ),
        category(
            "Organization permission 'Assistant Business', write",
            4,
            ASSISTANT_WRITE,
            tests![matrix::assistant_write_guards_its_routes],
        ),
        category(
            "Organization permission 'Assistant Business', read",
            5,
            ASSISTANT_READ,
            tests![matrix::assistant_read_guards_its_routes],
        ),
        category(
            "Organization permission 'Members', write",
            27,
            MEMBERS_WRITE,
            tests![matrix::members_write_guards_its_routes],
        ),
        category(
            "Organization permission 'Members', read",
            32,
            MEMBERS_READ,
            tests![matrix::members_read_guards_its_routes],
        ),
        category(
            "Organization permission 'Self-hosted runners', write",
            17,
            RUNNERS_WRITE,
            tests![matrix::runners_write_guards_its_routes],
        ),
        category(
            "Organization permission 'Self-hosted runners', read",
            9,
            RUNNERS_READ,
            tests![matrix::runners_read_guards_its_routes],
        ),
        category(
            "Repository permission 'Actions', write",
            15,
            ACTIONS_WRITE,
            tests![matrix::actions_write_guards_its_routes],
        ),
        category(
            "Repository permission 'Actions', read",
            30,
            ACTIONS_READ,
            tests![matrix::actions_read_guards_its_routes],
        ),
        category(
            "Repository permission 'Administration', write",
            67,
            REPOSITORY_ADMINISTRATION_WRITE,
            tests![matrix::repository_administration_write_guards_its_routes],
        ),
    ]
}

/// A table with a line for each route.
fn category(name: &'static str, lines: usize, text: &'static str, tests: &'static [Test]) -> Table {
    let rows = routes(text).into_iter().map(|route| Row {
        line: format!("{} {}", route.method, route.template),
        part: format!("{:?}", route.mark),
        tests: tests.to_vec(),
        evidence: evidence(route),
    });
    Table { document: 1, name, lines, rows: rows.collect() }
}

/// A token passes with the permission and not without any. A user's route is closed to every
/// installation.
fn evidence(route: Route) -> Vec<Evidence> {
    let Route { method, template, mark } = route;
    let seen =
        |kind, granted, outcome| Evidence::Grant { method, template, kind, granted, outcome };
    let refused = seen("installation", Granted::Nothing, Outcome::Refused);
    match mark {
        Mark::Plain | Mark::Several => {
            vec![refused, seen("installation", Granted::Something, Outcome::Accepted)]
        }
        Mark::UserOnly => {
            vec![
                seen("installation", Granted::Everything, Outcome::Refused),
                seen("app-user", Granted::Something, Outcome::Accepted),
            ]
        }
    }
}
