//! The embedded table: it loads, finds every listed route, and states the documented facts.

use std::collections::BTreeSet;

use http::Method;
use proptest::prelude::*;

use super::table::TEXT;
use crate::api::*;

const DIALECTS: [Dialect; 2] = [Dialect::Service, Dialect::Github];

fn classify(method: &str, path: &str) -> Classified<'static, 'static> {
    let path: &'static str = Box::leak(path.to_owned().into_boxed_str());
    Table::embedded(Dialect::Service).classify(&method.parse().unwrap_or_default(), path)
}

fn template(method: &str, path: &str) -> &'static str {
    &classify(method, path).endpoint.template
}

/// Path of a template with a number for each parameter, because a name may be a number too.
fn sample(template: &str) -> String {
    let value = |segment: &str| if segment.starts_with('{') { "4711" } else { segment }.to_owned();
    template.split('/').map(value).collect::<Vec<_>>().join("/")
}

#[test]
fn the_table_loads_without_a_fault_in_both_dialects() {
    for dialect in DIALECTS {
        let (table, faults) = Table::read(TEXT, dialect);
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(table.endpoints().len(), Table::embedded(dialect).endpoints().len());
        assert!(
            table
                .endpoints()
                .iter()
                .enumerate()
                .all(|(index, endpoint)| endpoint.id.index() == index)
        );
    }
}

#[test]
fn an_endpoint_has_the_same_id_in_both_dialects() {
    let neutral = |template: &str| template.replace("/copilot", "/assistant");
    let [service, github] = DIALECTS.map(Table::embedded);
    assert_eq!(service.endpoints().len(), github.endpoints().len());
    assert!(
        service
            .endpoints()
            .iter()
            .zip(github.endpoints())
            .all(|(one, other)| one.template == neutral(&other.template)
                && one.method == other.method)
    );
}

#[test]
fn every_template_classifies_to_itself() {
    for dialect in DIALECTS {
        let table = Table::embedded(dialect);
        for endpoint in
            table.endpoints().iter().filter(|endpoint| endpoint.template.starts_with('/'))
        {
            // One unlisted segment may be a parameter's value, and several may reach into a deeper
            // family: one of the two belongs to the family itself.
            let itself = ["unlisted", "unlisted/part/of/a/family"].into_iter().any(|rest| {
                let path = sample(&endpoint.template.replace("{*rest}", rest));
                table.classify(&endpoint.method, &path).endpoint.id == endpoint.id
            });
            assert!(itself, "{} {}", endpoint.method, endpoint.template);
        }
    }
}

#[test]
fn parameters_keep_their_names_and_raw_values() {
    let found = classify("GET", "/repos/ac%2Fme/wid.gets/issues/5");
    assert_eq!(
        found.params.iter().collect::<Vec<_>>(),
        [("owner", "ac%2Fme"), ("repo", "wid.gets"), ("issue_number", "5")]
    );
    assert_eq!(found.params.get("org"), None);
    let file = classify("GET", "/repos/o/r/contents/src/api/mod.rs");
    assert_eq!(file.params.get("path"), Some("src/api/mod.rs"));
}

#[test]
fn head_is_classified_as_get() {
    assert_eq!(
        classify("HEAD", "/notifications").endpoint.id,
        classify("GET", "/notifications").endpoint.id
    );
}

#[test]
fn every_sample_route_has_its_permission_and_tokens() {
    for line in
        SAMPLES.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let words: Vec<_> = line.split_whitespace().collect();
        let [method, template, permission, tokens] = words[..] else {
            panic!("four words: {line}")
        };
        let found = classify(method, &sample(template)).endpoint;
        assert_eq!(found.template, template, "{line}");
        assert_eq!(
            found.permission.as_ref().map_or("-".to_owned(), ToString::to_string),
            permission,
            "{line}"
        );
        assert_eq!(token_signs(found.tokens), tokens, "{line}");
    }
}

/// Facts about classic, fine-grained, OAuth, app user and installation tokens and about the app's
/// JWT.
fn token_signs(tokens: TokenKinds) -> String {
    use TokenKind::{AppUser, Classic, FineGrained, Installation, Oauth};
    let kinds =
        [Classic, FineGrained, Oauth, AppUser, Installation].map(|kind| tokens.accepts(kind));
    let sign = |accepted| match accepted {
        Some(true) => '+',
        Some(false) => '-',
        None => '?',
    };
    kinds.into_iter().chain([tokens.accepts_app_jwt()]).map(sign).collect()
}

/// Method, template, permission, and the text of [`token_signs`].
const SAMPLES: &str = "
# The guides for teams, properties, enterprise teams, issue fields and notifications
GET /orgs/{org}/teams/{team_slug}/invitations org/members:read +++++?
GET /orgs/{org}/teams/{team_slug}/members org/members:read +++++?
PUT /orgs/{org}/teams/{team_slug}/memberships/{username} org/members:write +++++?
DELETE /organizations/{org_id}/team/{team_id}/memberships/{username} org/members:write +++++?
GET /organizations/{org_id}/team/{team_id}/invitations org/members:read +++++?
GET /teams/{team_id}/invitations org/members:read +++++?
PUT /teams/{team_id}/members/{username} org/members:write +++++?
DELETE /teams/{team_id}/memberships/{username} org/members:write +++++?
GET /orgs/{org}/properties/schema org/custom_properties:read ?+?++?
PATCH /orgs/{org}/properties/schema org/custom_properties:admin ?+?++?
PUT /orgs/{org}/properties/schema/{custom_property_name} org/custom_properties:admin ?+?++?
PATCH /orgs/{org}/properties/values org/custom_properties:write ?+?++?
GET /enterprises/{enterprise}/teams/{enterprise-team}/organizations enterprise/enterprise_teams:read +-----
POST /enterprises/{enterprise}/teams/{enterprise-team}/organizations/add enterprise/enterprise_teams:write +-----
PUT /enterprises/{enterprise}/teams/{enterprise-team}/organizations/{org} enterprise/enterprise_teams:write +-----
POST /orgs/{org}/issue-fields org/issue_fields:write ++?++?
DELETE /orgs/{org}/issue-fields/{issue_field_id} org/issue_fields:write ++?++?
GET /notifications - +-----
PUT /notifications - +-----
PATCH /notifications/threads/{thread_id} - +-----
DELETE /notifications/threads/{thread_id}/subscription - +-----
GET /repos/{owner}/{repo}/notifications - +-----
# The guides for webhooks, deliveries and user migrations
PATCH /app/hook/config - -----+
GET /app/hook/deliveries - -----+
POST /app/hook/deliveries/{delivery_id}/attempts - -----+
GET /orgs/{org}/hooks org/webhooks:read ++?++?
PATCH /orgs/{org}/hooks/{hook_id} org/webhooks:write ++?++?
GET /orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id} org/webhooks:read ++?++?
POST /orgs/{org}/hooks/{hook_id}/pings org/webhooks:write ++?++?
POST /user/migrations - +-?--?
GET /user/migrations/{migration_id} - +-?--?
# The permission matrix
PUT /organizations/{org}/actions/cache/storage-limit org/administration:write ???++?
PUT /organizations/{org}/dependabot/repository-access/default-level org/administration:write ???++?
PATCH /organizations/{org}/settings/billing/budgets/{budget_id} org/administration:write ???++?
GET /organizations/{org}/settings/billing/usage/summary org/administration:read ???++?
GET /orgs/{org}/actions/hosted-runners/machine-sizes org/administration:read ???++?
DELETE /orgs/{org}/actions/hosted-runners/{hosted_runner_id} org/administration:write ???++?
DELETE /orgs/{org}/actions/permissions/self-hosted-runners/repositories/{repository_id} org/administration:write ???++?
POST /orgs/{org}/{security_product}/{enablement} org/administration:write ???++?
GET /orgs/{org}/rulesets/{ruleset_id}/history/{version_id} org/administration:write ???++?
GET /orgs/{org}/rulesets/rule-suites org/administration:write ???++?
DELETE /orgs/{org}/code-security/configurations/detach org/administration:write ???++?
GET /orgs/{org}/assistant/billing/seats org/administration:read ???++?
POST /orgs/{org}/invitations org/members:write ???++?
PUT /orgs/{org}/public_members/{username} org/members:write ???+-?
GET /user/memberships/orgs/{org} org/members:read ???+-?
PUT /orgs/{org}/teams/{team_slug}/repos/{owner}/{repo} org/members:read ???++?
PUT /orgs/{org}/actions/runner-groups/{runner_group_id}/runners/{runner_id} org/self_hosted_runners:write ???++?
POST /orgs/{org}/actions/runners/registration-token org/self_hosted_runners:write ???++?
DELETE /repos/{owner}/{repo}/actions/caches/{cache_id} repo/actions:write ???++?
GET /repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}/logs repo/actions:read ???++?
GET /repos/{owner}/{repo}/environments/{environment_name} repo/actions:read ???++?
PUT /repos/{owner}/{repo}/environments/{environment_name} repo/administration:write ???++?
POST /repos/{owner}/{repo}/forks repo/administration:write ???++?
PATCH /repos/{owner}/{repo}/code-scanning/default-setup repo/administration:write ???++?
# The rest of the route inventory
GET /enterprises/{enterprise}/actions/cache/retention-limit - ??????
GET /networks/{owner}/{repo}/events - ??????
GET /users/{username}/received_events/public - ??????
POST /repos/{owner}/{repo}/branches/{branch}/rename - ??????
POST /repos/{owner}/{repo}/merge-upstream - ??????
PATCH /orgs/{org}/campaigns/{campaign_number} - ??????
PATCH /repos/{owner}/{repo}/check-runs/{check_run_id} - ??????
GET /repos/{owner}/{repo}/code-scanning/alerts - ??????
GET /repos/{owner}/{repo}/code-security-configuration - ??????
GET /repos/{owner}/{repo}/codespaces/machines - ??????
GET /repos/{owner}/{repo}/collaborators - ??????
GET /repos/{owner}/{repo}/compare/{basehead} - ??????
PUT /orgs/{org}/assistant/content_exclusion - ??????
GET /orgs/{org}/dependabot/alerts - ??????
GET /repos/{owner}/{repo}/dependency-graph/sbom - ??????
GET /repos/{owner}/{repo}/keys/{key_id} - ??????
POST /repos/{owner}/{repo}/deployments - ??????
POST /enterprises/{enterprise}/teams - ??????
POST /repos/{owner}/{repo}/git/blobs - ??????
GET /repos/{owner}/{repo}/interaction-limits - ??????
GET /repos/{owner}/{repo}/issues/{issue_number}/timeline - ??????
GET /repos/{owner}/{repo}/community/profile - ??????
# beyond the documents
GET / - ??????
GET /rate_limit - ??????
GET /user - ??????
POST /app/installations/{installation_id}/access_tokens - -----+
GET /repos/{owner}/{repo} - ??????
PUT /repos/{owner}/{repo}/pulls/{pull_number}/merge - ??????
GET /repos/{owner}/{repo}/releases/latest - ??????
GET /search/issues - ??????
POST /graphql - ??????
POST /markdown - ??????
GET /repositories/{repository_id} - ??????
";

#[test]
fn families_take_the_sub_routes_that_no_document_lists() {
    for (method, path, expected) in [
        (
            "PUT",
            "/orgs/o/actions/secrets/TOKEN/repositories/7",
            "/orgs/{org}/actions/secrets/{*rest}",
        ),
        (
            "GET",
            "/repos/o/r/actions/runs/5/unheard/of",
            "/repos/{owner}/{repo}/actions/runs/{*rest}",
        ),
        ("PUT", "/repos/o/r/actions/runs/5", "/repos/{owner}/{repo}/actions/runs/{*rest}"),
        ("GET", "/repos/o/r/commits/heads/main/status", "/repos/{owner}/{repo}/commits/{*rest}"),
        ("GET", "/repos/o/r/compare/a/b...c", "/repos/{owner}/{repo}/compare/{*rest}"),
        ("POST", "/orgs/o/codespaces/access", "/orgs/{org}/codespaces/{*rest}"),
        ("GET", "/enterprises/e/teams/t/memberships/u", "/enterprises/{enterprise}/teams/{*rest}"),
        ("GET", "/scim/v2/organizations/o/Users", "/scim/{*rest}"),
    ] {
        let found = classify(method, path).endpoint;
        assert_eq!(
            (found.template.as_str(), found.generic, found.family),
            (expected, false, true),
            "{method} {path}"
        );
    }
}

#[test]
fn unknown_routes_fall_to_a_class_and_never_to_an_error() {
    for (method, path, expected) in [
        ("GET", "/repos/o/r/unheard-of/7", "/repos/{owner}/{repo}/{*rest}"),
        ("PUT", "/repos/o/r/issues", "/repos/{owner}/{repo}/{*rest}"),
        ("GET", "/repos/o", "/repos/{*rest}"),
        ("GET", "/orgs/o/unheard-of", "/orgs/{org}/{*rest}"),
        ("POST", "/orgs/o/some/longer/path", "/orgs/{org}/{*rest}"),
        ("GET", "/user/unheard-of", "/user/{*rest}"),
        ("GET", "/search/wikis", "/search/{*rest}"),
        ("GET", "/nothing/of/the/sort", "(unknown)"),
        ("POST", "/", "(unknown)"),
        ("OPTIONS", "/repos/o/r", "(unknown)"),
        ("BREW", "/repos/o/r", "(unknown)"),
        ("GET", "*", "(unknown)"),
        ("GET", "", "(unknown)"),
    ] {
        let found = classify(method, path).endpoint;
        assert_eq!((found.template.as_str(), found.generic), (expected, true), "{method} {path}");
    }
    assert_eq!(classify("GET", "/search/wikis").endpoint.resource, ResourceName::search());
}

#[test]
fn a_trailing_slash_is_an_unknown_route() {
    for path in [
        "/user/",
        "/notifications/",
        "/repos/o/r/",
        "/repos/o/r/issues/",
        "/repos/o/r/issues/5/",
        "/orgs/o/hooks/",
        "/rate_limit/",
    ] {
        let found = classify("GET", path).endpoint;
        assert!(found.generic || found.family, "{path}: {}", found.template);
    }
}

#[test]
fn an_encoded_slash_is_data_of_its_segment() {
    assert_eq!(
        template("GET", "/repos/o/r/branches/a%2Fb"),
        "/repos/{owner}/{repo}/branches/{branch}"
    );
    assert_eq!(template("GET", "/repos%2Fo/r"), "(unknown)");
}

#[test]
fn addresses_by_number_are_the_endpoints_they_stand_for() {
    for (path, expected) in [
        ("/repositories/1300192/issues", "/repos/{owner}/{repo}/issues"),
        (
            "/repositories/1300192/issues/5/comments",
            "/repos/{owner}/{repo}/issues/{issue_number}/comments",
        ),
        ("/organizations/9/repos", "/orgs/{org}/repos"),
        ("/organizations/9/team/7/members", "/orgs/{org}/teams/{team_slug}/members"),
        ("/user/583231/repos", "/users/{username}/repos"),
    ] {
        assert_eq!(template("GET", path), expected, "{path}");
    }
    assert!(!classify("GET", "/user/583231/repos").endpoint.about_caller);
    for (path, expected) in [
        ("/user/blocks", "/user/blocks"),
        ("/user/drafts/repos", "/user/{*rest}"),
        ("/user/drafts", "/user/{*rest}"),
    ] {
        let found = classify("GET", path).endpoint;
        assert_eq!((found.template.as_str(), found.about_caller), (expected, true), "{path}");
    }
    assert_eq!(template("GET", "/repositories/x/issues"), "/repositories/{repository_id}/{*rest}");
}

#[test]
fn routes_about_the_caller_are_marked() {
    for endpoint in Table::embedded(Dialect::Service).endpoints() {
        let first = endpoint.template.split('/').nth(1).unwrap_or_default();
        if matches!(first, "user" | "notifications" | "app" | "installation")
            || endpoint.template.ends_with("/notifications")
        {
            assert!(endpoint.about_caller, "{} {}", endpoint.method, endpoint.template);
        }
    }
    assert!(classify("GET", "/orgs/o/issues").endpoint.about_caller);
    assert!(!classify("GET", "/users/u/repos").endpoint.about_caller);
}

#[test]
fn resources_are_those_of_upstream() {
    for (method, path, resource) in [
        ("GET", "/repos/o/r", "core"),
        ("GET", "/search/code", "code_search"),
        ("GET", "/search/repositories", "search"),
        ("POST", "/graphql", "graphql"),
        ("POST", "/app-manifests/c/conversions", "integration_manifest"),
        ("PUT", "/repos/o/r/import", "source_import"),
        ("POST", "/repos/o/r/code-scanning/sarifs", "code_scanning_upload"),
        ("POST", "/repos/o/r/code-scanning/alerts/5/autofix", "code_scanning_autofix"),
        ("POST", "/repos/o/r/actions/runners/registration-token", "actions_runner_registration"),
        ("PATCH", "/scim/v2/organizations/o/Users/5", "scim"),
        ("POST", "/repos/o/r/dependency-graph/snapshots", "dependency_snapshots"),
        ("GET", "/repos/o/r/dependency-graph/sbom", "dependency_sbom"),
        ("GET", "/orgs/o/audit-log", "audit_log"),
        ("POST", "/enterprises/e/audit-log/streams", "audit_log_streaming"),
    ] {
        assert_eq!(classify(method, path).endpoint.resource.as_str(), resource, "{method} {path}");
    }
}

#[test]
fn the_other_facts_are_those_of_the_documents() {
    let list = classify("GET", "/notifications").endpoint;
    assert_eq!((list.per_page_default, list.per_page_max, list.polls), (50, 50, true));
    assert_eq!(list.scopes, ["notifications", "repo"]);
    let other = classify("GET", "/repos/o/r/notifications").endpoint;
    assert_eq!((other.per_page_default, other.per_page_max, other.cursor_pages), (30, 100, false));
    assert!(classify("GET", "/orgs/o/hooks/5/deliveries").endpoint.cursor_pages);
    assert_eq!((list.points, classify("PUT", "/notifications").endpoint.points), (1, 5));
    assert_eq!(classify("GET", "/rate_limit").endpoint.primary_cost, 0);
    let legacy = classify("PUT", "/teams/5/members/u").endpoint;
    assert_eq!(
        legacy.replaced_by.as_deref(),
        Some("/orgs/{org}/teams/{team_slug}/memberships/{username}")
    );
    assert!(classify("PUT", "/orgs/o/public_members/u").endpoint.uat_only);
    let seats = classify("GET", "/orgs/o/assistant/billing/seats").endpoint;
    let others: Vec<_> = seats.other_permissions.iter().map(ToString::to_string).collect();
    assert_eq!(
        (seats.several_permissions, others),
        (true, vec!["org/assistant_business:read".to_owned()])
    );
}

#[test]
fn notifying_and_content_writes_are_marked() {
    for path in [
        "/orgs/o/invitations",
        "/repos/o/r/commits/c/comments",
        "/repos/o/r/issues",
        "/repos/o/r/issues/5/comments",
        "/repos/o/r/pulls",
        "/repos/o/r/pulls/5/comments",
        "/repos/o/r/pulls/5/comments/7/replies",
        "/repos/o/r/pulls/5/reviews",
        "/repos/o/r/releases",
    ] {
        let found = classify("POST", path).endpoint;
        assert!(found.notifies && found.content_generating, "{path}");
    }
    for (method, path) in [
        ("POST", "/repos/o/r/issues/5/sub_issues"),
        ("POST", "/repos/o/r/pulls/5/requested_reviewers"),
        ("PUT", "/repos/o/r/pulls/5/merge"),
        ("PUT", "/repos/o/r/collaborators/u"),
    ] {
        assert!(classify(method, path).endpoint.notifies, "{method} {path}");
    }
    let reads = |endpoint: &&Endpoint| {
        endpoint.method == Method::GET && (endpoint.notifies || endpoint.content_generating)
    };
    assert_eq!(
        Table::embedded(Dialect::Service)
            .endpoints()
            .iter()
            .find(reads)
            .map(|endpoint| &endpoint.template),
        None
    );
}

#[test]
fn only_routes_of_access_tokens_are_token_requests() {
    for (method, path) in [
        ("POST", "/app/installations/5/access_tokens"),
        ("POST", "/applications/c/token"),
        ("PATCH", "/applications/c/token"),
        ("DELETE", "/applications/c/token"),
        ("DELETE", "/applications/c/grant"),
        ("POST", "/applications/c/token/scoped"),
        ("GET", "/applications/c/tokens/t"),
        ("DELETE", "/installation/token"),
    ] {
        assert!(classify(method, path).endpoint.token_request, "{method} {path}");
    }
    let others = |endpoint: &&Endpoint| {
        endpoint.token_request
            && !endpoint.template.contains("token")
            && !endpoint.template.starts_with("/applications/")
    };
    assert_eq!(
        Table::embedded(Dialect::Service)
            .endpoints()
            .iter()
            .find(others)
            .map(|endpoint| &endpoint.template),
        None
    );
    for (method, path) in [
        ("GET", "/app/installations"),
        ("POST", "/orgs/o/actions/runners/registration-token"),
        ("GET", "/apps/a"),
    ] {
        assert!(!classify(method, path).endpoint.token_request, "{method} {path}");
    }
}

#[test]
fn writes_with_a_credential_in_clear_are_marked() {
    for (method, path) in [
        ("POST", "/credentials/revoke"),
        ("PUT", "/repos/o/r/import"),
        ("PATCH", "/repos/o/r/import"),
        ("POST", "/hub"),
        ("POST", "/repos/o/r/hooks"),
        ("PATCH", "/orgs/o/hooks/5/config"),
        ("PATCH", "/app/hook/config"),
        ("POST", "/orgs/o/actions/runners/registration-token"),
        ("POST", "/repos/o/r/actions/runners/generate-jitconfig"),
        ("POST", "/app-manifests/c/conversions"),
        ("POST", "/app/installations/5/access_tokens"),
        ("POST", "/applications/c/token"),
        ("PUT", "/authorizations/clients/c"),
        ("POST", "/repos/o/r/pages/deployments"),
        ("POST", "/scim/v2/organizations/o/Users"),
    ] {
        assert!(classify(method, path).endpoint.carries_credential, "{method} {path}");
    }
    for (method, path) in [
        ("POST", "/repos/o/r/issues"),
        ("PUT", "/repos/o/r/actions/secrets/SEALED"),
        ("POST", "/user/keys"),
        ("GET", "/repos/o/r/hooks"),
    ] {
        assert!(!classify(method, path).endpoint.carries_credential, "{method} {path}");
    }
}

/// Slow reference lookup: tries every route and prefers the match that is literal at the first
/// difference.
fn linear_search<'t>(table: &'t Table, method: &Method, path: &str) -> &'t str {
    let rank = |template: &str, open_end: bool| -> Option<Vec<u8>> {
        let mut ranks = Vec::new();
        let mut given = path.split('/');
        for wanted in template.split('/') {
            let value = given.next()?;
            ranks.push(match wanted {
                wanted if wanted.starts_with("{*") => {
                    let matched = !value.is_empty() || given.clone().next().is_some() || open_end;
                    return matched.then(|| [&ranks[..], &[2]].concat());
                }
                wanted if wanted.starts_with('{') => (!value.is_empty()).then_some(1)?,
                wanted => (wanted == value).then_some(0)?,
            });
        }
        given.next().is_none().then_some(ranks)
    };
    let matching = table
        .endpoints()
        .iter()
        .filter(|endpoint| endpoint.method == *method && endpoint.template.starts_with('/'));
    let best = matching
        .filter_map(|endpoint| {
            Some((rank(&endpoint.template, endpoint.family)?, &endpoint.template))
        })
        .min();
    best.map_or("(unknown)", |(_, template)| template)
}

/// Segments of the table's templates, and some unknown ones.
fn segment() -> impl Strategy<Value = String> {
    let table = Table::embedded(Dialect::Service);
    let words = table
        .endpoints()
        .iter()
        .flat_map(|endpoint| endpoint.template.split('/'))
        .filter(|word| !word.is_empty() && !word.starts_with(['{', '(']));
    let known: Vec<_> = words.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect();
    prop_oneof![3 => prop::sample::select(known), 1 => "[a-z%.~-]{1,4}"]
}

/// Path close to one of the table: a template with some segments replaced, added or dropped.
fn near_path() -> impl Strategy<Value = String> {
    let templates: Vec<_> = Table::embedded(Dialect::Service)
        .endpoints()
        .iter()
        .map(|endpoint| endpoint.template.clone())
        .filter(|text| text.starts_with('/'))
        .collect();
    let fills = prop::collection::vec((segment(), 0..10_u8), 12);
    (prop::sample::select(templates), fills, 0..4_usize, any::<bool>()).prop_map(
        |(template, fills, extra, slash)| {
            let count = template.split('/').count() - 1;
            let mut parts = template.split('/').skip(1).chain(std::iter::repeat("{x}"));
            let kept = (count + extra).saturating_sub(1).clamp(1, fills.len());
            let path: String = fills.iter().take(kept).fold(String::new(), |path, (word, dice)| {
                let part = parts.next().unwrap_or("{x}");
                path + "/"
                    + if part.starts_with('{') || part.is_empty() || *dice == 0 {
                        word
                    } else {
                        part
                    }
            });
            if slash && kept % 5 == 0 { path + "/" } else { path }
        },
    )
}

#[test]
fn a_place_is_the_first_resource_that_a_path_names() {
    assert_eq!(Table::place("/repos/acme/widgets/issues/5"), Some("/repos/acme/widgets"));
    assert_eq!(Table::place("/repos/{owner}/{repo}"), Some("/repos/{owner}/{repo}"));
    assert_eq!(Table::place("/orgs/acme/teams"), Some("/orgs/acme"));
    assert_eq!(Table::place("/repositories/7/issues"), Some("/repositories/7"));
    for nowhere in ["/user/repos", "/repos/acme", "/search/issues", "/gists/1", "/", ""] {
        assert_eq!(Table::place(nowhere), None, "{nowhere}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_trees_agree_with_a_linear_search(path in near_path(), method in prop::sample::select(crate::api::endpoint::table_text::METHODS.to_vec())) {
        let numbered = ["/repositories/", "/organizations/", "/user/"].iter().any(|first| path.starts_with(first));
        prop_assume!(!numbered);
        let table = Table::embedded(Dialect::Service);
        prop_assert_eq!(&table.classify(&method, &path).endpoint.template, linear_search(table, &method, &path));
    }

    #[test]
    fn no_path_makes_it_panic(path in "\\PC{0,40}", mixed in "/[a-z/%{}*.é]{0,60}") {
        for path in [&path, &mixed] {
            let _ = Table::embedded(Dialect::Github).classify(&Method::POST, path);
            let _ = crate::api::endpoint::owner_root::collections(path).count();
        }
    }
}
