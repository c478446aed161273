//! Limits: primary and secondary ones, their headers, their aftermath, and the other limits.

use crate::document_1::{
    primary_limits as primary, rate_headers as headers, secondary_limits as secondary, versions,
};
use crate::evidence::Evidence;
use crate::table::{RuleRow, Table, rule};
use crate::tests;

const fn core(kind: &'static str, limit: u64) -> Evidence {
    Evidence::PrimaryLimit { kind, resource: "core", limit }
}

const fn refusal(limit: &'static str, after: u64) -> Evidence {
    Evidence::Refusal { limit, after }
}

const PRIMARY: &[RuleRow] = &[
    rule(
        "Unauthenticated (per originating IP address)",
        "60",
        &[core("none", 60), Evidence::Status(403)],
        tests![primary::an_address_without_a_credential_has_60],
    ),
    rule(
        "Authenticated user (personal access token, OAuth token, app user token; shared across all of them)",
        "5,000",
        &[
            core("classic", 5_000),
            core("fine-grained", 5_000),
            core("oauth", 5_000),
            core("app-user", 5_000),
            Evidence::Status(403),
        ],
        tests![
            primary::a_user_has_5000_shared_by_all_the_users_tokens,
            primary::a_users_5001st_request_of_the_hour_is_refused
        ],
    ),
    rule(
        "App or OAuth app owned by an enterprise-cloud organization, acting for a member",
        "15,000",
        &[core("app-user", 15_000), core("oauth", 15_000)],
        tests![
            primary::an_enterprises_app_acting_for_a_member_has_15000,
            primary::an_enterprises_oauth_app_acting_for_a_member_has_15000
        ],
    ),
    rule(
        "App installation (minimum)",
        "5,000",
        &[core("installation", 5_000)],
        tests![primary::an_installation_has_at_least_5000],
    ),
    rule(
        "App installation on an enterprise-cloud organization",
        "15,000",
        &[core("installation", 15_000)],
        tests![primary::an_enterprise_cloud_installation_has_15000],
    ),
    rule(
        "App installation scaling (not on enterprise cloud)",
        "+50 for each beyond 20, never above 12,500",
        &[core("installation", 12_500)],
        tests![
            primary::an_installation_gains_50_per_repository_and_user_beyond_20,
            primary::an_installation_never_has_more_than_12500
        ],
    ),
    rule(
        "OAuth app using client id and secret",
        "5,000, 15,000 if owned by an enterprise-cloud organization",
        &[core("basic", 5_000), core("basic", 15_000)],
        tests![
            primary::an_oauth_app_by_id_and_secret_has_5000,
            primary::an_enterprises_oauth_app_by_id_and_secret_has_15000
        ],
    ),
    rule(
        "Workflow token",
        "1,000 per repository, 15,000 for resources of an enterprise-cloud account",
        &[core("workflow", 1_000), core("workflow", 15_000)],
        tests![
            primary::a_workflow_token_has_1000_for_its_repository,
            primary::an_enterprise_cloud_workflow_token_has_15000
        ],
    ),
    rule(
        "Git LFS transfer, unauthenticated",
        "300 per minute",
        &[Evidence::PrimaryLimit { kind: "none", resource: "lfs", limit: 300 }],
        tests![primary::git_lfs_without_a_credential_has_300_a_minute],
    ),
    rule(
        "Git LFS transfer, authenticated",
        "3,000 per minute",
        &[Evidence::PrimaryLimit { kind: "classic", resource: "lfs", limit: 3_000 }],
        tests![primary::git_lfs_with_a_credential_has_3000_a_minute],
    ),
];

const PRIMARY_FACTS: &[RuleRow] = &[
    rule(
        "A Git LFS batch request processes 100 objects by default",
        "",
        &[],
        tests![primary::a_git_lfs_batch_processes_100_objects],
    ),
    rule(
        "Requests made by a higher-limit app also consume the lower-limit budget of the user",
        "",
        &[],
        tests![primary::a_higher_limit_app_spends_the_users_budget_too],
    ),
];

const SECONDARY: &[RuleRow] = &[
    rule(
        "At most 100 concurrent requests (shared by REST and GraphQL)",
        "",
        &[refusal("concurrency", 100), refusal("concurrency of both", 100)],
        tests![
            secondary::concurrency_is_limited_to_100_requests,
            secondary::rest_and_graphql_share_the_concurrency_limit,
            secondary::another_account_has_its_own_concurrency_limit
        ],
    ),
    rule(
        "At most 900 points per minute per REST endpoint; 2,000 points per minute for the GraphQL endpoint",
        "",
        &[refusal("points of GET", 900), refusal("points of GraphQL without mutations", 2_000)],
        tests![
            secondary::a_rest_endpoint_has_900_points_a_minute,
            secondary::each_rest_endpoint_has_its_own_points,
            secondary::graphql_has_2000_points_a_minute,
            secondary::a_304_counts_against_the_secondary_limits_only
        ],
    ),
    rule(
        "At most 90 seconds of CPU time per 60 seconds of real time, of which at most 60 seconds for GraphQL",
        "",
        &[refusal("cpu", 90), refusal("cpu of GraphQL", 60), refusal("cpu of both", 90)],
        tests![
            secondary::cpu_time_is_limited_to_90_seconds_a_minute,
            secondary::graphql_has_60_of_the_90_seconds,
            secondary::rest_and_graphql_share_the_cpu_time
        ],
    ),
    rule(
        "At most 80 content-generating requests per minute and 500 per hour",
        "",
        &[refusal("content.minute", 80), refusal("content.hour", 500)],
        tests![
            secondary::content_is_limited_to_80_requests_a_minute,
            secondary::content_is_limited_to_500_requests_an_hour
        ],
    ),
    rule(
        "At most 80 content-generating requests per minute and 500 per hour",
        "some endpoints are lower; web actions count too",
        &[],
        tests![
            secondary::some_endpoints_have_lower_limits_on_content,
            secondary::content_created_on_the_web_counts_too
        ],
    ),
    rule(
        "At most 2,000 OAuth access token requests per hour for apps and OAuth apps",
        "",
        &[refusal("oauth tokens", 2_000)],
        tests![secondary::access_token_requests_are_limited_to_2000_an_hour],
    ),
    rule(
        "Requests that consume excessive compute in a short time may be limited. Limits may change without notice",
        "",
        &[],
        tests![
            secondary::much_compute_in_a_short_time_may_be_limited,
            secondary::limits_change_without_notice
        ],
    ),
];

const POINTS: &[RuleRow] = &[
    rule(
        "GraphQL without mutations",
        "1",
        &[refusal("points of GraphQL without mutations", 2_000)],
        tests![secondary::graphql_has_2000_points_a_minute],
    ),
    rule(
        "GraphQL with mutations",
        "5",
        &[refusal("points of GraphQL with mutations", 400)],
        tests![secondary::a_graphql_mutation_is_5_points],
    ),
    rule(
        "Most REST GET, HEAD, OPTIONS",
        "1",
        &[
            refusal("points of GET", 900),
            refusal("points of HEAD", 50),
            refusal("points of OPTIONS", 50),
        ],
        tests![
            secondary::a_rest_endpoint_has_900_points_a_minute,
            secondary::head_and_options_are_a_point_each
        ],
    ),
    rule(
        "Most REST POST, PATCH, PUT, DELETE",
        "5",
        &[
            refusal("points of POST", 180),
            refusal("points of PATCH", 180),
            refusal("points of PUT", 180),
            refusal("points of DELETE", 180),
        ],
        tests![secondary::writes_are_5_points_each],
    ),
];

const HEADERS: &[RuleRow] = &[
    rule(
        "x-ratelimit-limit",
        "maximum requests per window",
        &[Evidence::Header("x-ratelimit-limit")],
        tests![
            headers::limit_is_the_most_requests_of_the_window,
            headers::every_response_has_all_five_headers
        ],
    ),
    rule(
        "x-ratelimit-remaining",
        "requests left in the window",
        &[Evidence::Header("x-ratelimit-remaining")],
        tests![
            headers::remaining_and_used_add_up_to_the_limit,
            headers::every_response_has_all_five_headers
        ],
    ),
    rule(
        "x-ratelimit-used",
        "requests used in the window",
        &[Evidence::Header("x-ratelimit-used")],
        tests![
            headers::remaining_and_used_add_up_to_the_limit,
            headers::every_response_has_all_five_headers
        ],
    ),
    rule(
        "x-ratelimit-reset",
        "window reset time, UTC epoch seconds",
        &[Evidence::Header("x-ratelimit-reset")],
        tests![
            headers::reset_is_when_the_window_ends,
            headers::every_response_has_all_five_headers
        ],
    ),
    rule(
        "x-ratelimit-resource",
        "the resource that the request counted against",
        &[Evidence::Header("x-ratelimit-resource")],
        tests![
            headers::resource_names_the_budget_of_the_request,
            headers::every_response_has_all_five_headers
        ],
    ),
];

const STATUS: Evidence = Evidence::Answer { method: "GET", template: "/rate_limit", status: 200 };

const RATE_LIMIT: &[RuleRow] = &[
    rule("reports the status", "", &[STATUS], tests![headers::rate_limit_reports_the_status]),
    rule(
        "does not count against the primary limit",
        "",
        &[STATUS],
        tests![headers::rate_limit_does_not_count_against_the_primary_limit],
    ),
    rule(
        "may count against the secondary limit",
        "",
        &[STATUS, refusal("points of GET /rate_limit", 900)],
        tests![headers::rate_limit_may_count_against_the_secondary_limit],
    ),
    rule(
        "the secondary limit status cannot be queried",
        "",
        &[STATUS],
        tests![headers::the_secondary_limit_cannot_be_queried],
    ),
];

const CLIENTS: &[RuleRow] = &[
    rule(
        "1",
        "not before x-ratelimit-reset",
        &[Evidence::Status(403)],
        tests![headers::a_primary_limit_refuses_everything_until_reset],
    ),
    rule(
        "2",
        "not before retry-after has passed",
        &[Evidence::Header("retry-after"), Evidence::Status(403)],
        tests![headers::a_secondary_limit_refuses_everything_until_retry_after],
    ),
    rule(
        "3",
        "with remaining 0 not before x-ratelimit-reset",
        &[Evidence::Header("x-ratelimit-remaining"), Evidence::Status(403)],
        tests![headers::a_secondary_refusal_with_nothing_remaining_lasts_until_reset],
    ),
    rule(
        "4",
        "otherwise at least one minute",
        &[Evidence::Status(403)],
        tests![
            headers::a_minute_is_enough_without_retry_after,
            headers::a_client_that_retries_too_early_waits_longer,
            headers::some_refusals_carry_retry_after_and_some_do_not
        ],
    ),
    rule(
        "5",
        "continued requests may lead to a ban",
        &[Evidence::Status(403)],
        tests![headers::a_client_that_continues_while_limited_is_banned],
    ),
];

const OTHER: &[RuleRow] = &[
    rule(
        "per_page maximum",
        "100 (notifications list: 50)",
        &[],
        tests![versions::a_page_has_at_most_100_items_and_of_notifications_50],
    ),
    rule(
        "Custom property allowed values",
        "up to 200 per property",
        &[refusal("allowed values", 200)],
        tests![versions::a_custom_property_has_up_to_200_allowed_values],
    ),
    rule(
        "Repositories per custom-property-values batch",
        "30",
        &[refusal("repositories of a batch", 30)],
        tests![versions::a_batch_of_property_values_is_for_30_repositories],
    ),
    rule(
        "User migration archive availability",
        "7 days",
        &[Evidence::Status(302)],
        tests![versions::a_migration_archive_is_there_for_7_days],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::new(1, "Primary rate limits", 10, PRIMARY),
        Table::new(1, "Primary rate limits, below the table", 2, PRIMARY_FACTS),
        Table::new(1, "Secondary rate limits", 6, SECONDARY),
        Table::new(1, "Points", 4, POINTS),
        Table::new(1, "Rate limit response headers", 5, HEADERS),
        Table::new(1, "GET /rate_limit", 4, RATE_LIMIT),
        Table::new(1, "Client behavior after a limit", 5, CLIENTS),
        Table::new(1, "Other limits", 4, OTHER),
    ]
}
