//! Enterprise team organization assignments.

use crate::document_2::enterprise_teams;
use crate::evidence::Evidence;
use crate::shape::{Object, Type, field};
use crate::table::{CredentialRow, EndpointRow, RuleRow, Table, credential, endpoint, rule};
use crate::tests;

pub static ORGANIZATION_SUMMARY: Object = Object {
    name: "Organization summary",
    fields: &[
        field("login", Type::Text),
        field("id", Type::Integer),
        field("node_id", Type::Text),
        field("url", Type::Url),
        field("repos_url", Type::Url),
        field("events_url", Type::Url),
        field("hooks_url", Type::Url),
        field("issues_url", Type::Url),
        field("members_url", Type::Url),
        field("public_members_url", Type::Url),
        field("avatar_url", Type::Url),
        field("description", Type::String),
    ],
};

const ASSIGNMENTS: &str = "/enterprises/{enterprise}/teams/{enterprise-team}/organizations";
const ADD: &str = "/enterprises/{enterprise}/teams/{enterprise-team}/organizations/add";
const REMOVE: &str = "/enterprises/{enterprise}/teams/{enterprise-team}/organizations/remove";
const ASSIGNMENT: &str = "/enterprises/{enterprise}/teams/{enterprise-team}/organizations/{org}";

const ENDPOINTS: &[EndpointRow] = &[
    endpoint(
        "GET /enterprises/{enterprise}/teams/{enterprise-team}/organizations",
        "GET",
        ASSIGNMENTS,
        &[200],
        tests![enterprise_teams::assignments_are_listed],
    ),
    endpoint(
        "POST .../organizations/add",
        "POST",
        ADD,
        &[200],
        tests![enterprise_teams::organizations_are_added_together],
    ),
    endpoint(
        "POST .../organizations/remove",
        "POST",
        REMOVE,
        &[204],
        tests![enterprise_teams::organizations_are_removed_together],
    ),
    endpoint(
        "GET .../organizations/{org}",
        "GET",
        ASSIGNMENT,
        &[200, 404],
        tests![enterprise_teams::an_assignment_is_read],
    ),
    endpoint(
        "PUT .../organizations/{org}",
        "PUT",
        ASSIGNMENT,
        &[201],
        tests![enterprise_teams::an_organization_is_assigned],
    ),
    endpoint(
        "DELETE .../organizations/{org}",
        "DELETE",
        ASSIGNMENT,
        &[204],
        tests![enterprise_teams::an_assignment_ends],
    ),
];

const CREDENTIALS: &[CredentialRow] = &[
    credential(
        "Auth",
        "only classic personal access tokens; fine-grained personal access tokens and app tokens are not accepted",
        &[("bearer", "classic")],
        &[
            ("bearer", "fine-grained"),
            ("bearer", "app-user"),
            ("bearer", "installation"),
            ("", "none"),
        ],
        tests![enterprise_teams::only_classic_personal_access_tokens_are_accepted],
    ),
    credential(
        "Auth",
        "only classic personal access tokens",
        &[],
        &[("bearer", "oauth")],
        tests![enterprise_teams::tokens_of_oauth_apps_are_not_accepted],
    ),
    credential(
        "scopes",
        "read:enterprise for GET, admin:enterprise for all others",
        &[("bearer", "classic")],
        &[("bearer", "classic")],
        tests![enterprise_teams::reads_need_read_enterprise_and_writes_admin_enterprise],
    ),
];

const RULES: &[RuleRow] = &[
    rule(
        "enterprise-team",
        "slug or team id",
        &[Evidence::Answer { method: "GET", template: ASSIGNMENTS, status: 404 }],
        tests![enterprise_teams::the_team_is_named_by_its_slug_or_its_id],
    ),
    rule(
        "per_page, page",
        "query for the list",
        &[Evidence::Header("link")],
        tests![enterprise_teams::assignments_are_paged],
    ),
    rule(
        "permission",
        "'Enterprise teams' enterprise (read for GET, write otherwise) is named",
        &[Evidence::Header("x-accepted-service-permissions")],
        tests![enterprise_teams::the_permission_enterprise_teams_is_named],
    ),
    rule(
        "organization_slugs",
        "array of strings, required",
        &[Evidence::Status(422)],
        tests![enterprise_teams::organization_slugs_are_required_and_an_array_of_strings],
    ),
    rule(
        "slug",
        "generated from the name with the prefix ent:",
        &[],
        tests![enterprise_teams::an_enterprise_teams_slug_is_its_name_with_the_prefix_ent],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::fields(
            2,
            12,
            &ORGANIZATION_SUMMARY,
            tests![enterprise_teams::assignments_are_listed],
        ),
        Table::new(2, "Enterprise team organization assignments", 6, ENDPOINTS),
        Table::new(2, "Enterprise team organization assignments, credentials", 2, CREDENTIALS),
        Table::new(2, "Enterprise team organization assignments, rules", 5, RULES),
    ]
}
