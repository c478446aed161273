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

/// Groups of paths that an event changes.
pub(super) type Groups = &'static [&'static [&'static str]];

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
const DEPLOYMENTS: &[&str] = &["{repo}/deployments/**", "{repo}/environments/**"];
const SECRET_SCANNING: &[&str] = &["{repo}/secret-scanning/**", "{org}/secret-scanning/**"];
/// Everything that an installation may see.
const INSTALLATION: &[&str] = &[
    "{territory}/**",
    "{owner}/**",
    "/repositories/**",
    "/installation/**",
    "/user/**",
    "/app/**",
    "/search/**",
];
const WHOLE_REPOSITORY: &[&str] = &["{repo}/**"];
const WHOLE_ORGANIZATION: &[&str] = &["{org}/**", "{territory}/**"];
const PEOPLE_OF_REPOSITORY: &[&str] = &[
    "{repo}/collaborators/**",
    "{repo}/invitations",
    "{repo}/assignees/**",
    "{repo}/teams",
    "/user/repository_invitations",
];

/// Iterates over the events of all tables: name, subject, and groups of changed paths.
pub(super) fn rows() -> impl Iterator<Item = (&'static str, About, Groups)> {
    [
        (About::Repository, REPOSITORY_EVENTS),
        (About::Organization, ORGANIZATION_EVENTS),
        (About::Account, ACCOUNT_EVENTS),
        (About::Nothing, EVENTS_WITHOUT_EFFECT),
    ]
    .into_iter()
    .flat_map(|(about, events)| events.iter().map(move |(name, groups)| (*name, about, *groups)))
}

const REPOSITORY_EVENTS: &[(&str, Groups)] = &[
    ("branch_protection_configuration", &[&["{repo}/branches/**"]]),
    ("branch_protection_rule", &[&["{repo}/branches/**", "{repo}/rules/**"]]),
    ("check_run", &[CHECKS, &["{repo}/actions/**"]]),
    ("check_suite", &[CHECKS, &["{repo}/actions/**"]]),
    ("code_scanning_alert", &[&["{repo}/code-scanning/**", "{org}/code-scanning/**"]]),
    (
        "commit_comment",
        &[&[
            "{repo}/comments/**",
            "{repo}/commits",
            "{repo}/commits/*",
            "{repo}/commits/*/comments",
        ]],
    ),
    ("create", &[REPOSITORY, GIT]),
    ("custom_property_values", &[&["{repo}/properties/**", "{org}/properties/**"], REPOSITORY]),
    ("delete", &[REPOSITORY, GIT]),
    ("dependabot_alert", &[&["{repo}/dependabot/**", "{org}/dependabot/**"]]),
    ("deploy_key", &[&["{repo}/keys/**"]]),
    ("deployment", &[DEPLOYMENTS, &["{repo}/actions/runs/*/pending_deployments"]]),
    ("deployment_review", &[DEPLOYMENTS, RUNS]),
    ("deployment_status", &[DEPLOYMENTS]),
    ("fork", &[&["{repo}/forks"], REPOSITORY]),
    ("issue_comment", &[REPOSITORY, ISSUE, ISSUE_COMMENTS]),
    ("issue_dependencies", &[ISSUE]),
    ("issues.labeled", &[REPOSITORY, ISSUE, ISSUE_COMMENTS, OF_ISSUES, LABELS]),
    ("issues.opened", &[REPOSITORY, ISSUE, ISSUE_COMMENTS, OF_ISSUES, LABELS]),
    ("issues", &[REPOSITORY, ISSUE, ISSUE_COMMENTS, OF_ISSUES]),
    ("label.created", &[LABELS]),
    ("label", &[LABELS, &["{repo}/issues/**", "{repo}/pulls/**", "{repo}/milestones/**"], ISSUE]),
    (
        "member",
        &[PEOPLE_OF_REPOSITORY, REPOSITORY, &["{org}/outside_collaborators", "{user}/repos"]],
    ),
    ("milestone.created", &[&["{repo}/milestones/**"]]),
    ("milestone", &[&["{repo}/milestones/**", "{repo}/issues/**", "{repo}/pulls/**"], ISSUE]),
    ("page_build", &[&["{repo}/pages/**"], REPOSITORY]),
    ("public", &[WHOLE_REPOSITORY, REPOSITORY]),
    ("pull_request.labeled", &[REPOSITORY, ISSUE, PULL, &["{repo}/milestones/**"], LABELS]),
    ("pull_request", &[REPOSITORY, ISSUE, PULL, &["{repo}/milestones/**"]]),
    ("pull_request_review", &[ISSUE, PULL, REVIEW_COMMENTS]),
    ("pull_request_review_comment", &[ISSUE, PULL, REVIEW_COMMENTS]),
    ("pull_request_review_thread", &[ISSUE, PULL, REVIEW_COMMENTS]),
    // Workflows are files.
    ("push", &[REPOSITORY, GIT, &["{repo}/actions/workflows/**"]]),
    ("release", &[REPOSITORY, &["{repo}/releases/**", "{repo}/tags", "{repo}/git/**"]]),
    (
        "repository",
        &[
            WHOLE_REPOSITORY,
            REPOSITORY,
            REPOSITORY_OF_ORGANIZATION,
            &["{org}", "{owner}", "/search/**"],
            LISTED_BY_OTHERS,
        ],
    ),
    ("repository_advisory", &[&["{repo}/security-advisories/**", "{org}/security-advisories"]]),
    ("repository_dispatch", &[RUNS]),
    (
        "repository_ruleset",
        &[&["{repo}/rules/**", "{repo}/rulesets/**", "{repo}/branches/**", "{org}/rulesets/**"]],
    ),
    (
        "repository_vulnerability_alert",
        &[&["{repo}/vulnerability-alerts", "{repo}/dependabot/**", "{org}/dependabot/**"]],
    ),
    ("secret_scanning_alert", &[SECRET_SCANNING]),
    ("secret_scanning_alert_location", &[SECRET_SCANNING]),
    ("star", &[&["{repo}/stargazers", "{user}/starred", "/user/starred/**"], REPOSITORY]),
    // It decides about the mergeability of a pull request.
    (
        "status",
        &[&[
            "{repo}/commits/*/status",
            "{repo}/commits/*/statuses",
            "{repo}/statuses/{sha}",
            "{repo}/pulls/**",
        ]],
    ),
    ("sub_issues", &[&["{repo}/issues/**"], ISSUE]),
    (
        "watch",
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
    ("workflow_dispatch", &[RUNS]),
    ("workflow_job", &[RUNS, CHECKS, &["{repo}/actions/runners/**", "{org}/actions/runners/**"]]),
    ("workflow_run", &[RUNS, CHECKS]),
];

const ORGANIZATION_EVENTS: &[(&str, Groups)] = &[
    (
        "custom_property",
        &[&["{org}/properties/**", "{territory}/*/properties/**", "/repositories/*/properties/**"]],
    ),
    ("membership", &[MEMBERS]),
    (
        "organization",
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
    (
        "team",
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
    ("team_add", &[TEAM, PEOPLE_OF_REPOSITORY, &["{org}/teams/**", "/user/repos"]]),
];

const ACCOUNT_EVENTS: &[(&str, Groups)] =
    &[("installation", &[INSTALLATION]), ("installation_repositories", &[INSTALLATION])];

const EVENTS_WITHOUT_EFFECT: &[(&str, Groups)] = &[("gollum", &[]), ("ping", &[])];
