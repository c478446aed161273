//! Errors: the table of statuses and the rules below it.

use crate::document_1::errors;
use crate::evidence::Evidence;
use crate::table::{RuleRow, Table, rule};
use crate::tests;

const STATUSES: &[RuleRow] = &[
    rule("200", "OK", &[Evidence::Status(200)], tests![errors::a_read_is_ok]),
    rule("201", "Created", &[Evidence::Status(201)], tests![errors::a_creation_is_created]),
    rule(
        "202",
        "work continues in the background",
        &[Evidence::Status(202)],
        tests![errors::a_background_task_is_accepted],
    ),
    rule("204", "No content", &[Evidence::Status(204)], tests![errors::deleting_has_no_content]),
    rule(
        "205",
        "Reset content",
        &[Evidence::Status(205)],
        tests![errors::marking_as_read_resets_content],
    ),
    rule(
        "302",
        "redirect to a download address",
        &[Evidence::Status(302)],
        tests![errors::a_download_redirects],
    ),
    rule(
        "304",
        "does not consume primary rate limit",
        &[Evidence::Status(304)],
        tests![errors::a_304_does_not_consume_the_primary_limit],
    ),
    rule(
        "400",
        "Bad request",
        &[Evidence::Status(400)],
        tests![errors::a_malformed_body_is_a_bad_request],
    ),
    rule(
        "401",
        "Requires authentication",
        &[Evidence::Status(401)],
        tests![errors::a_missing_credential_requires_authentication],
    ),
    rule(
        "403",
        "Forbidden",
        &[Evidence::Status(403)],
        tests![errors::a_missing_permission_is_forbidden],
    ),
    rule(
        "403",
        "primary or secondary rate limit exceeded",
        &[Evidence::Status(403)],
        tests![errors::both_kinds_of_rate_limit_are_forbidden],
    ),
    rule(
        "403",
        "team synchronization blocks a change",
        &[Evidence::Status(403)],
        tests![errors::team_synchronization_blocks_a_change],
    ),
    rule(
        "404",
        "not found, and a membership that does not exist",
        &[Evidence::Status(404)],
        tests![errors::a_missing_resource_is_not_found],
    ),
    rule(
        "404",
        "a synchronized team at some endpoints",
        &[Evidence::Status(404)],
        tests![errors::team_synchronization_blocks_a_change],
    ),
    rule(
        "422",
        "Validation failed",
        &[Evidence::Status(422)],
        tests![errors::an_invalid_field_fails_validation],
    ),
    rule(
        "422",
        "modifying an enterprise team at the organization level",
        &[Evidence::Status(422)],
        tests![errors::an_enterprise_team_is_not_modified_at_the_organization_level],
    ),
    rule(
        "429",
        "Rate limit exceeded",
        &[Evidence::Status(429)],
        tests![errors::a_rate_limit_can_be_429],
    ),
];

const RULES: &[RuleRow] = &[
    rule(
        "1",
        "primary: 403 or 429 and x-ratelimit-remaining 0",
        &[Evidence::Header("x-ratelimit-remaining"), Evidence::Status(403), Evidence::Status(429)],
        tests![errors::a_primary_refusal_has_nothing_remaining, errors::a_rate_limit_can_be_429],
    ),
    rule(
        "2",
        "secondary: 403 or 429 and the message says so",
        &[Evidence::Status(403), Evidence::Status(429)],
        tests![
            errors::a_secondary_refusal_names_the_secondary_limit,
            errors::a_rate_limit_can_be_429
        ],
    ),
    rule(
        "3",
        "error bodies carry a message",
        &[
            Evidence::Status(400),
            Evidence::Status(401),
            Evidence::Status(403),
            Evidence::Status(404),
            Evidence::Status(422),
        ],
        tests![errors::error_bodies_carry_a_message],
    ),
    rule(
        "4",
        "each endpoint lists its statuses",
        &[],
        tests![errors::each_endpoint_answers_with_the_statuses_that_it_lists],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![Table::new(1, "Errors", 13, STATUSES), Table::new(1, "Errors, rules", 4, RULES)]
}
