//! Conventions of requests and responses: the table, and the base URL of the service.

use crate::document_1::conventions;
use crate::evidence::Evidence;
use crate::table::{RuleRow, Table, rule};
use crate::tests;

const ROWS: &[RuleRow] = &[
    rule(
        "Body format",
        "JSON for request and response bodies",
        &[Evidence::Header("content-type"), Evidence::Status(201), Evidence::Status(400)],
        tests![conventions::bodies_are_json_both_ways],
    ),
    rule(
        "Accept header",
        "the media type is recommended on every request",
        &[Evidence::Header("content-type")],
        tests![conventions::the_recommended_media_type_is_accepted_on_every_request],
    ),
    rule(
        "Authorization header",
        "Bearer <ACCESS_TOKEN>",
        &[Evidence::Status(200), Evidence::Status(401)],
        tests![conventions::the_authorization_header_carries_the_token],
    ),
    rule(
        "X-Service-Api-Version header",
        "selects the API version",
        &[],
        tests![conventions::the_version_header_selects_the_version],
    ),
    rule("Timestamps", "ISO 8601", &[], tests![conventions::timestamps_are_iso_8601]),
    rule(
        "Page-number pagination",
        "per_page (max 100, default 30) and page (default 1)",
        &[],
        tests![conventions::a_page_has_30_items_by_default_and_100_at_most],
    ),
    rule(
        "Cursor pagination",
        "webhook delivery lists use per_page and cursor",
        &[Evidence::Status(400), Evidence::Header("link")],
        tests![conventions::delivery_lists_are_paged_by_cursor],
    ),
    rule(
        "Conditional requests",
        "Last-Modified; If-Modified-Since with that value yields 304 when nothing changed",
        &[Evidence::Header("last-modified"), Evidence::Status(304)],
        tests![conventions::polling_answers_304_until_something_changes],
    ),
    rule(
        "Poll interval",
        "X-Poll-Interval states how often polling is allowed; it can increase under load",
        &[Evidence::Header("x-poll-interval")],
        tests![
            conventions::the_poll_interval_is_stated_and_rises_under_load,
            conventions::a_304_states_the_poll_interval_too
        ],
    ),
    rule(
        "Empty-body mutations",
        "some legacy PUT routes need Content-Length set to zero",
        &[Evidence::Answer {
            method: "PUT",
            template: "/teams/{team_id}/members/{username}",
            status: 204,
        }],
        tests![conventions::a_legacy_put_takes_an_empty_body],
    ),
    rule(
        "Team addressing",
        "by slug, by id, and the closing-down way",
        &[
            Evidence::Answer {
                method: "GET",
                template: "/orgs/{org}/teams/{team_slug}/members",
                status: 200,
            },
            Evidence::Answer {
                method: "GET",
                template: "/organizations/{org_id}/team/{team_id}/members",
                status: 200,
            },
            Evidence::Answer { method: "GET", template: "/teams/{team_id}/members", status: 200 },
        ],
        tests![conventions::a_team_is_addressed_by_slug_by_id_and_the_closing_down_way],
    ),
    rule(
        "Format of pagination links in responses: not shown.",
        "links lead through all pages",
        &[Evidence::Header("link")],
        tests![conventions::links_lead_through_all_pages],
    ),
];

const OVERVIEW: &[RuleRow] = &[
    rule(
        "Naming",
        "`service` replaces the brand in identifiers",
        &[
            Evidence::Header("x-accepted-service-permissions"),
            Evidence::Header("x-accepted-github-permissions"),
        ],
        tests![conventions::the_dialects_words_replace_the_neutral_ones],
    ),
    rule(
        "Address",
        "relative to the host, or to the host and /api/v3",
        &[Evidence::Status(200), Evidence::Status(404)],
        tests![conventions::a_self_hosted_instance_answers_under_its_prefix],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::new(1, "Request and response conventions", 12, ROWS),
        Table::new(1, "What the service does", 2, OVERVIEW),
    ]
}
