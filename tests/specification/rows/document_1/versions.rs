//! Versioning: its statements.

use crate::document_1::{conventions, versions};
use crate::evidence::Evidence;
use crate::table::{RuleRow, Table, rule};
use crate::tests;

const ROWS: &[RuleRow] = &[
    rule(
        "The API is versioned by a date-valued request header",
        "2022-11-28 and 2026-03-10",
        &[],
        tests![
            versions::both_versions_are_served,
            versions::a_version_that_is_not_a_date_is_a_bad_request,
            conventions::the_version_header_selects_the_version
        ],
    ),
    rule(
        "A self-hosted release line announces its end of support",
        "no route ends with it",
        &[Evidence::Status(200)],
        tests![versions::the_end_of_a_release_line_ends_no_route],
    ),
    rule(
        "Self-hosted instances expose the API under the /api/v3 path prefix",
        "",
        &[Evidence::Status(200)],
        tests![
            versions::a_self_hosted_instance_has_the_prefix_api_v3,
            conventions::a_self_hosted_instance_answers_under_its_prefix
        ],
    ),
    rule(
        "Some routes are marked closing down",
        "their replacements do the same; the preview answers",
        &[Evidence::Answer {
            method: "GET",
            template: "/enterprises/{enterprise}/teams/{enterprise-team}/organizations",
            status: 200,
        }],
        tests![
            versions::closing_down_routes_match_their_replacements,
            versions::the_preview_of_enterprise_team_organizations_answers
        ],
    ),
    rule(
        "The full list of supported version values and the behavior when the header is omitted: not shown",
        "a request without it is answered",
        &[],
        tests![versions::a_request_without_the_header_gets_a_version],
    ),
    rule(
        "Deprecation and removal policy: not shown",
        "closing-down routes answer",
        &[],
        tests![versions::closing_down_routes_match_their_replacements],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![Table::new(1, "Versioning", 6, ROWS)]
}
