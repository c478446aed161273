//! Webhooks: their objects, the endpoints of apps and organizations, and their rules.

use crate::document_3::{app_webhook, deliveries, webhook_rules, webhooks};
use crate::evidence::Evidence;
use crate::shape::{Object, Type, field, listed};
use crate::table::{CredentialRow, EndpointRow, RuleRow, Table, credential, endpoint, rule};
use crate::tests;

pub static WEBHOOK_CONFIGURATION: Object = Object {
    name: "Webhook configuration",
    fields: &[
        field("url", Type::Url),
        field("content_type", Type::Text),
        field("secret", Type::Text),
        field("insecure_ssl", Type::Either(&[Type::String, Type::Number])),
    ],
};

static CONFIG_OF_A_HOOK: Object = Object {
    name: "Configuration of an organization webhook",
    fields: &[field("url", Type::Url), field("content_type", Type::Text)],
};

pub static ORGANIZATION_WEBHOOK: Object = Object {
    name: "Organization webhook",
    fields: &[
        field("id", Type::Integer),
        field("url", Type::Url),
        field("ping_url", Type::Url),
        field("deliveries_url", Type::Url),
        field("name", Type::OneOf(&["web"])),
        field("events", Type::Array(&Type::Text)),
        field("active", Type::Boolean),
        field("config", Type::Object(&CONFIG_OF_A_HOOK)),
        listed("updated_at, created_at", "updated_at", Type::Timestamp),
        listed("updated_at, created_at", "created_at", Type::Timestamp),
        field("type", Type::OneOf(&["Organization"])),
    ],
};

pub static DELIVERY_SUMMARY: Object = Object {
    name: "Delivery summary (list item)",
    fields: &[
        field("id", Type::Integer),
        field("guid", Type::Text),
        field("delivered_at", Type::Timestamp),
        field("redelivery", Type::Boolean),
        field("duration", Type::Number),
        field("status", Type::Text),
        field("status_code", Type::Integer),
        field("event", Type::Text),
        field("action", Type::MaybeNull(&Type::String)),
        field("installation_id", Type::MaybeNull(&Type::Integer)),
        field("repository_id", Type::MaybeNull(&Type::Integer)),
        field("throttled_at", Type::MaybeNull(&Type::Timestamp)),
    ],
};

static REQUEST: Object = Object {
    name: "Delivery request",
    fields: &[field("headers", Type::Map), field("payload", Type::Map)],
};
static RESPONSE: Object = Object {
    name: "Delivery response",
    fields: &[field("headers", Type::Map), field("payload", Type::String)],
};

pub static DELIVERY_DETAIL: Object = Object {
    name: "Delivery detail",
    fields: &[
        field("url", Type::Url),
        field("request", Type::Object(&REQUEST)),
        field("response", Type::Object(&RESPONSE)),
    ],
};

const CONFIGURATION_RULES: &[RuleRow] = &[
    rule(
        "secret",
        "write-only; responses show it masked",
        &[],
        tests![webhook_rules::the_secret_is_never_returned],
    ),
    rule(
        "insecure_ssl",
        "string or number",
        &[],
        tests![webhook_rules::insecure_ssl_is_text_or_a_number],
    ),
    rule(
        "username, password",
        "accepted on organization webhook creation only",
        &[],
        tests![webhook_rules::username_and_password_are_accepted_on_creation],
    ),
    rule(
        "events",
        "default [push]; [*] means all events",
        &[],
        tests![
            webhook_rules::events_default_to_push_and_active_to_true,
            webhook_rules::a_star_means_all_events,
            webhook_rules::an_event_that_is_not_selected_is_not_delivered
        ],
    ),
];

const APP: &[EndpointRow] = &[
    endpoint(
        "GET /app/hook/config",
        "GET",
        "/app/hook/config",
        &[200],
        tests![app_webhook::an_app_reads_and_changes_its_webhook_configuration],
    ),
    endpoint(
        "PATCH /app/hook/config",
        "PATCH",
        "/app/hook/config",
        &[200],
        tests![
            app_webhook::an_app_reads_and_changes_its_webhook_configuration,
            app_webhook::every_field_of_the_configuration_is_optional
        ],
    ),
    endpoint(
        "GET /app/hook/deliveries",
        "GET",
        "/app/hook/deliveries",
        &[200, 400, 422],
        tests![
            app_webhook::deliveries_are_listed_by_cursor_and_shown,
            app_webhook::malformed_queries_for_deliveries_are_refused
        ],
    ),
    endpoint(
        "GET /app/hook/deliveries/{delivery_id}",
        "GET",
        "/app/hook/deliveries/{delivery_id}",
        &[200, 400, 422],
        tests![
            app_webhook::deliveries_are_listed_by_cursor_and_shown,
            app_webhook::malformed_queries_for_deliveries_are_refused
        ],
    ),
    endpoint(
        "POST /app/hook/deliveries/{delivery_id}/attempts",
        "POST",
        "/app/hook/deliveries/{delivery_id}/attempts",
        &[202, 400, 422],
        tests![
            app_webhook::a_delivery_is_sent_again,
            app_webhook::malformed_queries_for_deliveries_are_refused
        ],
    ),
];

const APP_CREDENTIALS: &[CredentialRow] = &[credential(
    "App webhook",
    "JWT required; app user, installation and fine-grained tokens rejected",
    &[("bearer", "jwt")],
    &[("bearer", "app-user"), ("bearer", "installation"), ("bearer", "fine-grained")],
    tests![app_webhook::other_credentials_are_rejected],
)];

const ENDPOINTS: &[EndpointRow] = &[
    endpoint(
        "GET /orgs/{org}/hooks",
        "GET",
        "/orgs/{org}/hooks",
        &[200, 404],
        tests![webhooks::hooks_are_listed],
    ),
    endpoint(
        "POST /orgs/{org}/hooks",
        "POST",
        "/orgs/{org}/hooks",
        &[201, 404, 422],
        tests![webhooks::a_hook_is_created],
    ),
    endpoint(
        "GET /orgs/{org}/hooks/{hook_id}",
        "GET",
        "/orgs/{org}/hooks/{hook_id}",
        &[200, 404],
        tests![webhooks::a_hook_is_read],
    ),
    endpoint(
        "PATCH /orgs/{org}/hooks/{hook_id}",
        "PATCH",
        "/orgs/{org}/hooks/{hook_id}",
        &[200, 404, 422],
        tests![webhooks::a_hook_is_changed],
    ),
    endpoint(
        "DELETE /orgs/{org}/hooks/{hook_id}",
        "DELETE",
        "/orgs/{org}/hooks/{hook_id}",
        &[204, 404],
        tests![webhooks::a_hook_is_deleted],
    ),
    endpoint(
        "GET /orgs/{org}/hooks/{hook_id}/config",
        "GET",
        "/orgs/{org}/hooks/{hook_id}/config",
        &[200],
        tests![webhooks::a_hooks_configuration_is_read_and_changed],
    ),
    endpoint(
        "PATCH /orgs/{org}/hooks/{hook_id}/config",
        "PATCH",
        "/orgs/{org}/hooks/{hook_id}/config",
        &[200],
        tests![webhooks::a_hooks_configuration_is_read_and_changed],
    ),
    endpoint(
        "GET /orgs/{org}/hooks/{hook_id}/deliveries",
        "GET",
        "/orgs/{org}/hooks/{hook_id}/deliveries",
        &[200, 400, 422],
        tests![deliveries::deliveries_are_listed],
    ),
    endpoint(
        "GET /orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id}",
        "GET",
        "/orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id}",
        &[200, 400, 422],
        tests![deliveries::a_delivery_is_shown],
    ),
    endpoint(
        "POST /orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id}/attempts",
        "POST",
        "/orgs/{org}/hooks/{hook_id}/deliveries/{delivery_id}/attempts",
        &[202, 400, 422],
        tests![deliveries::an_attempt_resends_the_delivery_with_redelivery_true],
    ),
    endpoint(
        "POST /orgs/{org}/hooks/{hook_id}/pings",
        "POST",
        "/orgs/{org}/hooks/{hook_id}/pings",
        &[204, 404],
        tests![webhooks::a_ping_is_triggered],
    ),
];

const RULES: &[RuleRow] = &[
    rule(
        "owner",
        "Caller must be an organization owner",
        &[],
        tests![webhook_rules::only_an_organization_owner_may_call],
    ),
    rule(
        "scope",
        "Classic tokens need admin:org_hook",
        &[],
        tests![webhook_rules::classic_tokens_need_the_scope],
    ),
    rule(
        "OAuth apps",
        "cannot list, view or edit hooks they did not create",
        &[Evidence::Status(404)],
        tests![webhook_rules::an_oauth_app_sees_only_its_own_hooks],
    ),
    rule(
        "users",
        "cannot list, view or edit hooks created by OAuth apps",
        &[Evidence::Status(404)],
        tests![webhook_rules::users_do_not_see_hooks_of_oauth_apps],
    ),
    rule(
        "permission",
        "'Webhooks' organization: read for GET, write otherwise",
        &[Evidence::Status(403)],
        tests![webhook_rules::fine_grained_tokens_need_the_webhooks_permission],
    ),
    rule(
        "path parameters",
        "org case-insensitive, hook_id an integer",
        &[],
        tests![webhook_rules::the_organization_has_any_case_and_the_hook_is_an_integer],
    ),
    rule(
        "PATCH",
        "an update without the secret removes it",
        &[],
        tests![webhook_rules::an_update_without_the_secret_removes_it],
    ),
    rule(
        "defaults",
        "events [push], active true",
        &[],
        tests![webhook_rules::events_default_to_push_and_active_to_true],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::fields(
            3,
            4,
            &WEBHOOK_CONFIGURATION,
            tests![webhooks::a_hooks_configuration_is_read_and_changed],
        ),
        Table::new(3, "Webhook configuration and webhook, notes", 4, CONFIGURATION_RULES),
        Table::fields(3, 10, &ORGANIZATION_WEBHOOK, tests![webhooks::hooks_are_listed]),
        Table::fields(3, 12, &DELIVERY_SUMMARY, tests![deliveries::deliveries_are_listed]),
        Table::fields(3, 3, &DELIVERY_DETAIL, tests![deliveries::a_delivery_is_shown]),
        Table::new(3, "App webhook", 5, APP),
        Table::new(3, "App webhook, credentials", 1, APP_CREDENTIALS),
        Table::new(3, "Organization webhooks", 11, ENDPOINTS),
        Table::new(3, "Organization webhooks, rules", 8, RULES),
    ]
}
