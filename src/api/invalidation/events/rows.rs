//! The rows of the events: the subject of each event, and the paths that it changes.

/// Minimum that an event must name; without it the row has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Repository,
    Organization,
    Account,
    /// No stored answer changes.
    Nothing,
}

/// Name of an event, alone or with its action; its subject; and the groups of paths that it
/// changes.
pub(super) type Row = (&'static str, About, &'static [&'static [&'static str]]);

/// Lists of repositories, with their counters and dates.
const REPOSITORY: &[&str] = &[
    "{repo}",
    "{owner}/repos",
    "/user/repos",
    "/installation/repositories",
    "/search/repositories",
    "/repositories",
    "{org}/teams/*/repos/**",
    "/teams/*/repos/**",
    "/organizations/*/team/*/repos/**",
    "{org}/installation/repositories",
];
/// Counts and lists of an organization's repositories by name.
const REPOSITORY_OF_ORGANIZATION: &[&str] =
    &["{org}/teams/**", "/teams/*", "/organizations/*/team/**", "{org}/properties/values"];
/// Lists of people that a removed, renamed or transferred repository leaves.
const LISTED_BY_OTHERS: &[&str] =
    &["/user/starred/**", "/user/subscriptions", "/user/installations/**"];
/// Lists of issues, pull requests included.
const ISSUE: &[&str] = &[
    "{repo}/issues",
    "{repo}/issues/{number}/**",
    "{repo}/issues/events/**",
    "{repo}/pulls",
    "{repo}/pulls/{number}",
    "/issues",
    "/user/issues",
    "{org}/issues",
    "/search/issues",
    // Issues that mention it, contain it or wait for it.
    "{repo}/issues/*/timeline",
    "{repo}/issues/*/parent",
    "{repo}/issues/*/sub_issues",
    "{repo}/issues/*/dependencies/**",
];
const ISSUE_COMMENTS: &[&str] = &["{repo}/issues/comments", "{repo}/issues/comments/{comment}/**"];
/// A pull request; its commits show its end too.
const PULL: &[&str] = &["{repo}/pulls/{number}/**", "{repo}/commits/*/pulls", "{repo}/branches/**"];
const REVIEW_COMMENTS: &[&str] = &["{repo}/pulls/comments/**", "{repo}/pulls/{number}/**"];
/// All views of git's state.
const GIT: &[&str] = &[
    "{repo}/commits/**",
    "{repo}/branches/**",
    "{repo}/contents/**",
    "{repo}/git/**",
    "{repo}/compare/**",
    "{repo}/tags",
    "{repo}/readme/**",
    "{repo}/license",
    "{repo}/languages",
    "{repo}/contributors",
    "{repo}/community/**",
    "{repo}/codeowners/**",
    "{repo}/stats/**",
    "{repo}/activity",
    "{repo}/tarball/**",
    "{repo}/zipball/**",
    "{repo}/dependency-graph/**",
    // A pull request is compared with its base.
    "{repo}/pulls/**",
    "/search/code",
    "/search/commits",
];
const CHECKS: &[&str] = &[
    "{repo}/check-runs/**",
    "{repo}/check-suites/**",
    "{repo}/commits/{sha}/check-runs",
    "{repo}/commits/{sha}/check-suites",
    // By branch or tag.
    "{repo}/commits/*/check-runs",
    "{repo}/commits/*/check-suites",
];
const RUNS: &[&str] = &[
    "{repo}/actions/runs",
    "{repo}/actions/runs/{run}/**",
    "{repo}/actions/jobs/**",
    "{repo}/actions/artifacts/**",
    "{repo}/actions/workflows/**",
    "{repo}/actions/caches",
    "{repo}/actions/cache/**",
];
const TEAM: &[&str] = &[
    "{org}/invitations/**",
    "{org}/teams",
    "{team}/**",
    "{org}/teams/*/teams",
    "/user/teams",
    "{repo}/teams",
    "{territory}/*/teams",
    "/repositories/*/teams",
];
const MEMBERS: &[&str] = &[
    "{org}",
    "{org}/members/**",
    "{org}/memberships/**",
    "{org}/public_members/**",
    "{org}/outside_collaborators/**",
    "{org}/invitations/**",
    "{org}/failed_invitations",
    "{org}/organization-roles/**",
    "{org}/teams/**",
    "{team}/**",
    "{user}/orgs",
    "/user/orgs",
    "/user/teams",
    "/user/repos",
    "/user/memberships/**",
    "/search/users",
    "{territory}/*/assignees/**",
    "{territory}/*/collaborators/**",
    "/repositories/*/assignees/**",
    "/repositories/*/collaborators/**",
];
/// Further effects of an issue.
const OF_ISSUES: &[&str] = &["{repo}/milestones/**", "{repo}/pulls/{number}/**"];
/// A new label on an issue is created in the repository too.
const LABELS: &[&str] = &["{repo}/labels/**", "/search/labels"];
const WHOLE_REPOSITORY: &[&str] = &["{repo}/**"];
const WHOLE_ORGANIZATION: &[&str] = &["{org}/**", "{territory}/**"];
const PEOPLE_OF_REPOSITORY: &[&str] = &[
    "{repo}/collaborators/**",
    "{repo}/invitations",
    "{repo}/assignees/**",
    "{repo}/teams",
    "/user/repository_invitations",
];

/// Sorted by name; a name with an action comes before the name alone.
pub(super) const ROWS: &[Row] = {
    use About::{Account, Nothing, Organization, Repository};
    &[
        ("branch_protection_configuration", Repository, &[&["{repo}/branches/**"]]),
        ("branch_protection_rule", Repository, &[&["{repo}/branches/**", "{repo}/rules/**"]]),
        ("check_run", Repository, &[CHECKS, &["{repo}/actions/**"]]),
        ("check_suite", Repository, &[CHECKS, &["{repo}/actions/**"]]),
        (
            "code_scanning_alert",
            Repository,
            &[&["{repo}/code-scanning/**", "{org}/code-scanning/**"]],
        ),
        (
            "commit_comment",
            Repository,
            &[&[
                "{repo}/comments/**",
                "{repo}/commits",
                "{repo}/commits/*",
                "{repo}/commits/*/comments",
            ]],
        ),
        ("create", Repository, &[REPOSITORY, GIT]),
        (
            "custom_property",
            Organization,
            &[&[
                "{org}/properties/**",
                "{territory}/*/properties/**",
                "/repositories/*/properties/**",
            ]],
        ),
        (
            "custom_property_values",
            Repository,
            &[&["{repo}/properties/**", "{org}/properties/**"], REPOSITORY],
        ),
        ("delete", Repository, &[REPOSITORY, GIT]),
        ("dependabot_alert", Repository, &[&["{repo}/dependabot/**", "{org}/dependabot/**"]]),
        ("deploy_key", Repository, &[&["{repo}/keys/**"]]),
        (
            "deployment",
            Repository,
            &[&[
                "{repo}/deployments/**",
                "{repo}/environments/**",
                "{repo}/actions/runs/*/pending_deployments",
            ]],
        ),
        (
            "deployment_review",
            Repository,
            &[&["{repo}/deployments/**", "{repo}/environments/**"], RUNS],
        ),
        ("deployment_status", Repository, &[&["{repo}/deployments/**", "{repo}/environments/**"]]),
        ("fork", Repository, &[&["{repo}/forks"], REPOSITORY]),
        ("gollum", Nothing, &[]),
        (
            "installation",
            Account,
            &[&[
                "{territory}/**",
                "{owner}/**",
                "/repositories/**",
                "/installation/**",
                "/user/**",
                "/app/**",
                "/search/**",
            ]],
        ),
        (
            "installation_repositories",
            Account,
            &[&[
                "{territory}/**",
                "{owner}/**",
                "/repositories/**",
                "/installation/**",
                "/user/**",
                "/app/**",
                "/search/**",
            ]],
        ),
        ("issue_comment", Repository, &[REPOSITORY, ISSUE, ISSUE_COMMENTS]),
        ("issue_dependencies", Repository, &[ISSUE]),
        ("issues.labeled", Repository, &[REPOSITORY, ISSUE, ISSUE_COMMENTS, OF_ISSUES, LABELS]),
        ("issues.opened", Repository, &[REPOSITORY, ISSUE, ISSUE_COMMENTS, OF_ISSUES, LABELS]),
        ("issues", Repository, &[REPOSITORY, ISSUE, ISSUE_COMMENTS, OF_ISSUES]),
        ("label.created", Repository, &[LABELS]),
        (
            "label",
            Repository,
            &[LABELS, &["{repo}/issues/**", "{repo}/pulls/**", "{repo}/milestones/**"], ISSUE],
        ),
        (
            "member",
            Repository,
            &[PEOPLE_OF_REPOSITORY, REPOSITORY, &["{org}/outside_collaborators", "{user}/repos"]],
        ),
        ("membership", Organization, &[MEMBERS]),
        ("milestone.created", Repository, &[&["{repo}/milestones/**"]]),
        (
            "milestone",
            Repository,
            &[&["{repo}/milestones/**", "{repo}/issues/**", "{repo}/pulls/**"], ISSUE],
        ),
        (
            "organization",
            Organization,
            &[
                MEMBERS,
                WHOLE_ORGANIZATION,
                &[
                    "{owner}",
                    "{owner}/repos",
                    "/organizations",
                    "/teams/**",
                    "/organizations/*/team/**",
                ],
            ],
        ),
        ("page_build", Repository, &[&["{repo}/pages/**"], REPOSITORY]),
        ("ping", Nothing, &[]),
        ("public", Repository, &[WHOLE_REPOSITORY, REPOSITORY]),
        (
            "pull_request.labeled",
            Repository,
            &[REPOSITORY, ISSUE, PULL, &["{repo}/milestones/**"], LABELS],
        ),
        ("pull_request", Repository, &[REPOSITORY, ISSUE, PULL, &["{repo}/milestones/**"]]),
        ("pull_request_review", Repository, &[ISSUE, PULL, REVIEW_COMMENTS]),
        ("pull_request_review_comment", Repository, &[ISSUE, PULL, REVIEW_COMMENTS]),
        ("pull_request_review_thread", Repository, &[ISSUE, PULL, REVIEW_COMMENTS]),
        // Workflows are files.
        ("push", Repository, &[REPOSITORY, GIT, &["{repo}/actions/workflows/**"]]),
        (
            "release",
            Repository,
            &[REPOSITORY, &["{repo}/releases/**", "{repo}/tags", "{repo}/git/**"]],
        ),
        (
            "repository",
            Repository,
            &[
                WHOLE_REPOSITORY,
                REPOSITORY,
                REPOSITORY_OF_ORGANIZATION,
                &["{org}", "{owner}", "/search/**"],
                LISTED_BY_OTHERS,
            ],
        ),
        (
            "repository_advisory",
            Repository,
            &[&["{repo}/security-advisories/**", "{org}/security-advisories"]],
        ),
        ("repository_dispatch", Repository, &[RUNS]),
        (
            "repository_ruleset",
            Repository,
            &[&[
                "{repo}/rules/**",
                "{repo}/rulesets/**",
                "{repo}/branches/**",
                "{org}/rulesets/**",
            ]],
        ),
        (
            "repository_vulnerability_alert",
            Repository,
            &[&["{repo}/vulnerability-alerts", "{repo}/dependabot/**", "{org}/dependabot/**"]],
        ),
        (
            "secret_scanning_alert",
            Repository,
            &[&["{repo}/secret-scanning/**", "{org}/secret-scanning/**"]],
        ),
        (
            "secret_scanning_alert_location",
            Repository,
            &[&["{repo}/secret-scanning/**", "{org}/secret-scanning/**"]],
        ),
        (
            "star",
            Repository,
            &[&["{repo}/stargazers", "{user}/starred", "/user/starred/**"], REPOSITORY],
        ),
        (
            "status",
            Repository,
            // It decides about the mergeability of a pull request.
            &[&[
                "{repo}/commits/*/status",
                "{repo}/commits/*/statuses",
                "{repo}/statuses/{sha}",
                "{repo}/pulls/**",
            ]],
        ),
        ("sub_issues", Repository, &[&["{repo}/issues/**"], ISSUE]),
        (
            "team",
            Organization,
            &[
                TEAM,
                &[
                    "{org}/teams/**",
                    "{repo}/teams",
                    "{repo}/collaborators/**",
                    "/user/teams",
                    "/user/repos",
                ],
            ],
        ),
        (
            "team_add",
            Organization,
            &[TEAM, PEOPLE_OF_REPOSITORY, &["{org}/teams/**", "/user/repos"]],
        ),
        (
            "watch",
            Repository,
            &[
                &[
                    "{repo}/subscribers",
                    "{repo}/subscription",
                    "{repo}/stargazers",
                    "/user/subscriptions",
                    "{user}/subscriptions",
                    "/user/starred/**",
                ],
                REPOSITORY,
            ],
        ),
        ("workflow_dispatch", Repository, &[RUNS]),
        (
            "workflow_job",
            Repository,
            &[RUNS, CHECKS, &["{repo}/actions/runners/**", "{org}/actions/runners/**"]],
        ),
        ("workflow_run", Repository, &[RUNS, CHECKS]),
    ]
};
