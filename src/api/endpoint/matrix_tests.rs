//! An independent copy of the permission matrix and the route inventory: the table agrees with it,
//! and adds no route of its own to their groups.
//!
//! Braces stand for alternatives, as in the specification. Names of parameters are not compared,
//! because most are left out there.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;

use crate::api::*;

/// Permission and level, then methods and routes. After a method, `m` marks \[M\], and `u` marks
/// routes for the user's app token only.
const MATRIX: &str = "
org/administration:write
  PUT /organizations/{}/actions/cache/(retention-limit|storage-limit)
  PATCH /organizations/{}/dependabot/repository-access
  PUT /organizations/{}/dependabot/repository-access/default-level
  PATCH,DELETE /organizations/{}/settings/billing/budgets/{}
  PATCH,DELETE /orgs/{}
  POST /orgs/{}/actions/hosted-runners
  PATCH,DELETE /orgs/{}/actions/hosted-runners/{}
  PUT /orgs/{}/actions/oidc/customization/sub
  PUT /orgs/{}/actions/permissions
  PUT /orgs/{}/actions/permissions/(artifact-and-log-retention|fork-pr-contributor-approval|fork-pr-workflows-private-repos|repositories|selected-actions|self-hosted-runners|self-hosted-runners/repositories|workflow)
  PUTm,DELETEm /orgs/{}/actions/permissions/(repositories/{}|self-hosted-runners/repositories/{})
  POST /orgs/{}/code-security/configurations
  DELETE /orgs/{}/code-security/configurations/detach
  PATCH,DELETE /orgs/{}/code-security/configurations/{}
  POST /orgs/{}/code-security/configurations/{}/attach
  PUT /orgs/{}/code-security/configurations/{}/defaults
  POSTm,DELETEm /orgs/{}/assistant/billing/(selected_teams|selected_users)
  PUT,DELETE /orgs/{}/interaction-limits
  GET,POST /orgs/{}/rulesets
  GET /orgs/{}/rulesets/(rule-suites|rule-suites/{}|{}/history|{}/history/{})
  GET,PUT,DELETE /orgs/{}/rulesets/{}
  PATCH /orgs/{}/secret-scanning/pattern-configurations
  PUT,DELETE /orgs/{}/security-managers/teams/{}
  PUT /orgs/{}/settings/immutable-releases
  PUTm /orgs/{}/settings/immutable-releases/repositories
  PUTm,DELETEm /orgs/{}/settings/immutable-releases/repositories/{}
  POST /orgs/{}/{}/{}
org/administration:read
  GET /organizations/{}/actions/cache/(retention-limit|storage-limit)
  GET /organizations/{}/dependabot/repository-access
  GET /organizations/{}/settings/billing/(budgets|budgets/{}|premium_request/usage|usage|usage/summary)
  GET /orgs/{}/actions/cache/(usage|usage-by-repository)
  GET /orgs/{}/actions/hosted-runners
  GET /orgs/{}/actions/hosted-runners/(images/github-owned|images/partner|limits|machine-sizes|platforms|{})
  GET /orgs/{}/actions/oidc/customization/sub
  GET /orgs/{}/actions/permissions
  GET /orgs/{}/actions/permissions/(artifact-and-log-retention|fork-pr-contributor-approval|fork-pr-workflows-private-repos|repositories|selected-actions|self-hosted-runners|self-hosted-runners/repositories|workflow)
  GET /orgs/{}/code-security/configurations
  GET /orgs/{}/code-security/configurations/(defaults|{}|{}/repositories)
  GETm /orgs/{}/assistant/(billing|billing/seats|metrics)
  GETm /orgs/{}/members/{}/assistant
  GETm /orgs/{}/team/{}/assistant/metrics
  GET /orgs/{}/(installations|interaction-limits|secret-scanning/pattern-configurations|security-managers|settings/immutable-releases|settings/immutable-releases/repositories)
org/assistant_business:write
  POSTm,DELETEm /orgs/{}/assistant/billing/(selected_teams|selected_users)
org/assistant_business:read
  GETm /orgs/{}/assistant/(billing|billing/seats|metrics)
  GETm /orgs/{}/members/{}/assistant
  GETm /orgs/{}/team/{}/assistant/metrics
org/members:write
  POST /orgs/{}/invitations
  DELETE /orgs/{}/invitations/{}
  DELETE /orgs/{}/members/{}
  PUT,DELETE /orgs/{}/memberships/{}
  DELETE /orgs/{}/organization-roles/teams/{}
  PUT,DELETE /orgs/{}/organization-roles/teams/{}/{}
  DELETE /orgs/{}/organization-roles/users/{}
  PUT,DELETE /orgs/{}/organization-roles/users/{}/{}
  PUT,DELETE /orgs/{}/outside_collaborators/{}
  PUTu,DELETEu /orgs/{}/public_members/{}
  POST /orgs/{}/teams
  PATCH,DELETE /orgs/{}/teams/{}
  PUT,DELETE /orgs/{}/teams/{}/memberships/{}
  PATCH,DELETE /teams/{}
  PUT,DELETE /teams/{}/(members|memberships)/{}
  PATCHu /user/memberships/orgs/{}
org/members:read
  GET /orgs/{}/(failed_invitations|invitations|invitations/{}/teams|members|members/{}|memberships/{}|outside_collaborators|public_members|public_members/{}|teams|teams/{})
  GET /orgs/{}/organization-roles/{}/(teams|users)
  GET /orgs/{}/teams/{}/(invitations|members|memberships/{}|repos|teams)
  GET /teams/{}
  GET /teams/{}/(invitations|members|members/{}|memberships/{}|repos|teams)
  GETu /user/memberships/orgs/{}
  GETm,PUTm,DELETEm /orgs/{}/teams/{}/repos/{}/{}
  GETm,PUTm,DELETEm /teams/{}/repos/{}/{}
org/self_hosted_runners:write
  POST /orgs/{}/actions/runner-groups
  PATCH,DELETE /orgs/{}/actions/runner-groups/{}
  PUT /orgs/{}/actions/runner-groups/{}/(repositories|runners)
  PUTm,DELETEm /orgs/{}/actions/runner-groups/{}/repositories/{}
  PUT,DELETE /orgs/{}/actions/runner-groups/{}/runners/{}
  POST /orgs/{}/actions/runners/(generate-jitconfig|registration-token|remove-token)
  DELETE /orgs/{}/actions/runners/{}
  POST,PUT,DELETE /orgs/{}/actions/runners/{}/labels
  DELETE /orgs/{}/actions/runners/{}/labels/{}
org/self_hosted_runners:read
  GET /orgs/{}/actions/runner-groups
  GET /orgs/{}/actions/runner-groups/({}|{}/hosted-runners|{}/repositories|{}/runners)
  GET /orgs/{}/actions/runners
  GET /orgs/{}/actions/runners/(downloads|{}|{}/labels)
repo/actions:write
  DELETE /repos/{}/{}/actions/(artifacts/{}|caches|caches/{}|runs/{}|runs/{}/logs)
  POST /repos/{}/{}/actions/jobs/{}/rerun
  PUT /repos/{}/{}/actions/oidc/customization/sub
  POST /repos/{}/{}/actions/runs/{}/(approve|cancel|force-cancel|rerun|rerun-failed-jobs)
  PUT /repos/{}/{}/actions/workflows/{}/(disable|enable)
  POST /repos/{}/{}/actions/workflows/{}/dispatches
repo/actions:read
  GET /repos/{}/{}/actions/(artifacts|artifacts/{}|artifacts/{}/{}|cache/storage-limit|cache/usage|caches|jobs/{}|jobs/{}/logs|oidc/customization/sub|runs|runs/{})
  GET /repos/{}/{}/actions/runs/{}/(approvals|artifacts|attempts/{}|attempts/{}/jobs|attempts/{}/logs|jobs|logs|pending_deployments|timing)
  GET /repos/{}/{}/actions/(workflows|workflows/{}|workflows/{}/runs|workflows/{}/timing)
  GET /repos/{}/{}/environments
  GET /repos/{}/{}/environments/({}|{}/deployment-branch-policies|{}/deployment-branch-policies/{}|{}/deployment_protection_rules|{}/deployment_protection_rules/{})
repo/administration:write
  POST /orgs/{}/repos
  PUTm,DELETEm /orgs/{}/teams/{}/repos/{}/{}
  PATCH,DELETE /repos/{}/{}
  PUT /repos/{}/{}/actions/cache/(retention-limit|storage-limit)
  PUT /repos/{}/{}/actions/permissions
  PUT /repos/{}/{}/actions/permissions/(access|artifact-and-log-retention|fork-pr-contributor-approval|fork-pr-workflows-private-repos|selected-actions|workflow)
  PATCH /repos/{}/{}/code-scanning/default-setup
  POSTm /repos/{}/{}/(forks|pages)
";

/// Families of the repository permission "Administration" that the specification names by a word,
/// not by routes.
const NAMED_BY_A_WORD: &[&str] = &[
    "/actions/runners/",
    "/autolinks",
    "/automated-security-fixes",
    "/branches/{}/protection",
    "/collaborators/",
    "/environments/{}",
    "/immutable-releases",
    "/interaction-limits",
    "/invitations/",
    "/keys",
];

/// The inventory: groups and their routes. `...` stands for routes below that are not spelled out.
const INVENTORY: &str = "
actions /organizations/{}/actions/cache/(retention-limit|storage-limit) /enterprises/{}/actions/cache/(retention-limit|storage-limit)
actions /orgs/{}/actions/(cache/usage|cache/usage-by-repository|hosted-runners...|oidc/customization/sub|permissions...|runner-groups...|runners...|secrets...|variables...)
actions /repos/{}/{}/actions/(artifacts|cache...|caches|jobs/{}|oidc/customization/sub|organization-secrets|organization-variables|permissions...|runners...|runs...|secrets|variables|workflows...)
actions /repos/{}/{}/environments/{}/(secrets|variables)
activity /events /feeds /networks/{}/{}/events /orgs/{}/events /repos/{}/{}/(events|stargazers|subscribers)
activity /users/{}/(events|events/public|received_events|received_events/public|starred|subscriptions)
billing /organizations/{}/settings/billing/(budgets|budgets/{}|premium_request/usage|usage|usage/summary)
branches /repos/{}/{}/branches /repos/{}/{}/branches/{} /repos/{}/{}/branches/{}/protection /repos/{}/{}/merge-upstream /repos/{}/{}/merges
branches /repos/{}/{}/branches/{}/(rename|protection/enforce_admins|protection/required_pull_request_reviews|protection/required_signatures)
branches /repos/{}/{}/branches/{}/protection/(required_status_checks|required_status_checks/contexts|restrictions|restrictions/apps|restrictions/teams|restrictions/users)
campaigns /orgs/{}/campaigns /orgs/{}/campaigns/{}
checks /repos/{}/{}/(check-runs...|check-suites...|commits/{}/check-runs|commits/{}/check-suites)
code-scanning /orgs/{}/code-scanning/alerts
code-scanning /repos/{}/{}/code-scanning/(alerts...|analyses...|codeql/databases...|codeql/variant-analyses...|default-setup|sarifs...)
code-security /orgs/{}/code-security/configurations /repos/{}/{}/code-security-configuration
code-security /orgs/{}/code-security/configurations/(defaults|detach|{}|{}/attach|{}/defaults|{}/repositories)
codespaces /orgs/{}/codespaces... /orgs/{}/members/{}/codespaces... /repos/{}/{}/codespaces/(devcontainers|machines|secrets...)
collaborators /repos/{}/{}/collaborators... /repos/{}/{}/invitations...
commits /repos/{}/{}/(comments...|commits...|compare/{}|statuses/{})
assistant /orgs/{}/assistant/(billing|billing/seats|billing/selected_teams|billing/selected_users|content_exclusion|metrics)
assistant /orgs/{}/members/{}/assistant /orgs/{}/team/{}/assistant/metrics
dependabot /organizations/{}/dependabot/repository-access... /orgs/{}/dependabot/(alerts|secrets...) /repos/{}/{}/dependabot/(alerts...|secrets...)
dependency-graph /repos/{}/{}/dependency-graph/(compare/{}|sbom|snapshots)
deploy-keys /repos/{}/{}/keys /repos/{}/{}/keys/{}
deployments /repos/{}/{}/deployments... /repos/{}/{}/environments...
enterprise-teams /enterprises/{}/teams... /enterprises/{}/teams/{}/memberships /enterprises/{}/teams/{}/organizations
git /repos/{}/{}/git/(blobs...|commits...|matching-refs...|ref...|refs...|tags...|trees...)
interactions /orgs/{}/interaction-limits /repos/{}/{}/interaction-limits
issues /repos/{}/{}/(assignees...|issues...|labels...|milestones...)
issues /repos/{}/{}/issues/{}/(comments|events|dependencies/blocked_by|dependencies/blocking|labels|lock|sub_issues|timeline)
metrics /repos/{}/{}/community/profile /repos/{}/{}/stats...
";

/// Expands `a/(b|c)`.
fn alternatives(route: &str) -> Vec<String> {
    let Some((before, rest)) = route.split_once('(') else { return vec![route.to_owned()] };
    let (inside, after) = rest.split_once(')').expect("a closing parenthesis");
    inside.split('|').map(|one| format!("{before}{one}{after}")).collect()
}

/// Drops the names of a template's parameters.
fn nameless(template: &str) -> String {
    template
        .split('/')
        .map(|segment| if segment.starts_with('{') { "{}" } else { segment })
        .collect::<Vec<_>>()
        .join("/")
}

/// Row of the matrix: method, route, permission, the \[M\] mark, and the mark for the user's token
/// only.
type Row = (String, String, String, bool, bool);

fn rows() -> BTreeSet<Row> {
    let mut permission = "";
    let mut rows = BTreeSet::new();
    for line in MATRIX.lines().filter(|line| !line.trim().is_empty()) {
        let Some((methods, route)) = line.trim().split_once(' ') else {
            permission = line.trim();
            continue;
        };
        for method in methods.split(',') {
            let (name, mark) = method.split_at(method.trim_end_matches(['m', 'u']).len());
            rows.extend(alternatives(route).into_iter().map(|route| {
                (name.to_owned(), route, permission.to_owned(), mark == "m", mark == "u")
            }));
        }
    }
    rows
}

/// Rows of the table for the routes of these sources.
fn table_rows(table: &Table) -> BTreeSet<Row> {
    let mut rows = BTreeSet::new();
    let listed = table.endpoints().iter().filter(|endpoint| {
        matches!(endpoint.source, Source::Matrix | Source::Document2) && !endpoint.generic
    });
    for endpoint in listed {
        for permission in endpoint.permission.iter().chain(&endpoint.other_permissions) {
            let (method, route) = (endpoint.method.to_string(), nameless(&endpoint.template));
            rows.insert((
                method,
                route,
                permission.to_string(),
                endpoint.several_permissions,
                endpoint.uat_only,
            ));
        }
    }
    rows
}

#[test]
fn the_table_has_every_row_of_the_permission_matrix() {
    let in_table = table_rows(Table::embedded(Dialect::Service));
    let missing: Vec<_> = rows().into_iter().filter(|row| !in_table.contains(row)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_table_adds_no_permission_to_the_matrix() {
    let rows = rows();
    let by_a_word = |row: &Row| {
        let own = row.1.strip_prefix("/repos/{}/{}").unwrap_or("");
        row.2 == "repo/administration:write"
            && NAMED_BY_A_WORD.iter().any(|word| own.starts_with(word))
    };
    // The documents on organizations name more permissions than the matrix, and team routes by
    // number.
    let of_document_2 = |row: &Row| {
        ["org/custom_properties", "org/issue_fields", "org/webhooks", "enterprise/"]
            .iter()
            .any(|name| row.2.starts_with(name))
            || row.1.starts_with("/organizations/{}/team/{}/")
    };
    let more: Vec<_> = table_rows(Table::embedded(Dialect::Service))
        .into_iter()
        .filter(|row| !rows.contains(row) && !by_a_word(row) && !of_document_2(row))
        .collect();
    assert!(more.is_empty(), "{more:#?}");
}

#[test]
fn every_unmarked_row_takes_both_app_tokens() {
    for (method, route, permission, _, uat_only) in rows() {
        let table = Table::embedded(Dialect::Service);
        let endpoint = table.endpoints().iter().find(|endpoint| {
            endpoint.method == method.as_str() && nameless(&endpoint.template) == route
        });
        let tokens = endpoint.unwrap_or_else(|| panic!("{method} {route}")).tokens;
        assert_eq!(tokens.accepts(TokenKind::AppUser), Some(true), "{method} {route} {permission}");
        assert_eq!(
            tokens.accepts(TokenKind::Installation),
            Some(!uat_only),
            "{method} {route} {permission}"
        );
    }
}

#[test]
fn the_table_has_every_route_of_the_inventory() {
    let table = Table::embedded(Dialect::Service);
    let mut methods: BTreeMap<String, BTreeSet<&Method>> = BTreeMap::new();
    for endpoint in table.endpoints().iter().filter(|endpoint| !endpoint.generic) {
        methods.entry(nameless(&endpoint.template)).or_default().insert(&endpoint.method);
    }
    for line in INVENTORY.lines().filter(|line| !line.is_empty()) {
        let (group, routes) = line.split_once(' ').expect("a group and routes");
        for route in routes.split(' ').flat_map(alternatives) {
            let Some(prefix) = route.strip_suffix("...") else {
                assert!(methods.contains_key(&route), "{group}: {route}");
                continue;
            };
            // A family, or no route below it beyond the listed ones.
            let below = methods
                .keys()
                .any(|known| known == prefix || known.starts_with(&format!("{prefix}/")));
            assert!(below, "{group}: {route}");
        }
    }
    for (routes, expected) in [
        ("/organizations/{}/actions/cache/retention-limit", "GET PUT"),
        ("/enterprises/{}/actions/cache/storage-limit", "GET PUT"),
        ("/orgs/{}/campaigns", "GET POST"),
        ("/orgs/{}/campaigns/{}", "DELETE GET PATCH"),
        ("/orgs/{}/interaction-limits", "DELETE GET PUT"),
        ("/repos/{}/{}/interaction-limits", "DELETE GET PUT"),
        ("/users/{}/received_events/public", "GET"),
    ] {
        let known: BTreeSet<_> = methods[routes].iter().map(|method| method.as_str()).collect();
        assert_eq!(known.into_iter().collect::<Vec<_>>().join(" "), expected, "{routes}");
    }
}
