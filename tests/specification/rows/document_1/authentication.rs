//! Authentication: credentials, scopes, the permission header and the other facts. The permission
//! matrix has its own file.

use crate::document_1::{authentication, credentials};
use crate::evidence::Evidence;
use crate::table::{CredentialRow, RuleRow, Table, credential, rule};
use crate::tests;

const CREDENTIALS: &[CredentialRow] = &[
    credential(
        "Bearer token",
        "Authorization: Bearer; the word token too",
        &[("bearer", "classic"), ("token", "classic")],
        &[("bearer", "bad")],
        tests![credentials::a_token_is_accepted_with_both_schemes],
    ),
    credential(
        "Bearer token",
        "a JWT must use Bearer",
        &[("bearer", "jwt")],
        &[("token", "jwt")],
        tests![credentials::a_jwt_must_use_bearer],
    ),
    credential(
        "Personal access token (classic)",
        "used with scopes",
        &[("bearer", "classic")],
        &[("bearer", "classic")],
        tests![
            credentials::a_classic_token_is_bound_to_its_scopes,
            credentials::an_expired_or_unknown_token_is_refused
        ],
    ),
    credential(
        "Fine-grained personal access token",
        "used with the permission named on each endpoint",
        &[("bearer", "fine-grained")],
        &[("bearer", "fine-grained")],
        tests![credentials::a_fine_grained_token_needs_the_permission_of_the_endpoint],
    ),
    credential(
        "App user access token",
        "acts as the authorizing user, limited by the app's permissions",
        &[("bearer", "app-user")],
        &[("bearer", "app-user")],
        tests![credentials::an_app_user_token_has_the_users_and_the_apps_limits],
    ),
    credential(
        "App installation access token",
        "created by an app for an installation",
        &[("bearer", "jwt"), ("bearer", "installation")],
        &[("bearer", "installation"), ("bearer", "classic"), ("bearer", "app-user")],
        tests![
            credentials::an_app_creates_a_token_for_its_installation,
            credentials::narrowing_never_widens
        ],
    ),
    credential(
        "App installation access token",
        "expires after 60 minutes",
        &[("bearer", "installation")],
        &[("bearer", "installation")],
        tests![credentials::a_minted_token_expires_after_60_minutes],
    ),
    credential(
        "App JWT",
        "required by the app-level endpoints, which reject user and installation tokens",
        &[("bearer", "jwt")],
        &[
            ("bearer", "classic"),
            ("bearer", "fine-grained"),
            ("bearer", "app-user"),
            ("bearer", "installation"),
            ("", "none"),
        ],
        tests![credentials::app_endpoints_take_a_jwt_and_reject_other_tokens],
    ),
    credential(
        "App JWT",
        "of the right time, key and app",
        &[("bearer", "jwt")],
        &[("bearer", "jwt")],
        tests![credentials::a_jwt_of_the_wrong_time_key_or_app_is_refused],
    ),
    credential(
        "Workflow token",
        "has its own rate limit",
        &[("bearer", "workflow")],
        &[],
        tests![credentials::a_workflow_token_has_a_rate_limit_of_its_own],
    ),
    credential(
        "OAuth app",
        "its token acts as the authorizing user",
        &[("bearer", "oauth")],
        &[("bearer", "oauth")],
        tests![credentials::an_oauth_apps_token_acts_as_the_user],
    ),
    credential(
        "OAuth app",
        "client id and secret as HTTP basic credentials read public data",
        &[("basic", "basic")],
        &[("basic", "basic"), ("basic", "bad")],
        tests![credentials::an_oauth_app_reads_public_data_with_its_id_and_secret],
    ),
    credential(
        "OAuth app",
        "the client secret is never shown",
        &[("bearer", "classic")],
        &[],
        tests![credentials::the_client_secret_is_in_no_answer],
    ),
    credential(
        "No credential",
        "allowed only for public data",
        &[("", "none")],
        &[("", "none")],
        tests![credentials::a_request_without_a_credential_gets_public_data_only],
    ),
];

const SCOPES: &[RuleRow] = &[
    rule("read:org", "", &[], tests![credentials::read_org_opens_team_memberships]),
    rule("admin:org", "", &[], tests![credentials::admin_org_opens_issue_field_definitions]),
    rule("admin:org_hook", "", &[], tests![credentials::admin_org_hook_opens_webhooks]),
    rule(
        "read:enterprise",
        "",
        &[],
        tests![credentials::the_enterprise_scopes_open_enterprise_teams],
    ),
    rule(
        "admin:enterprise",
        "",
        &[],
        tests![credentials::the_enterprise_scopes_open_enterprise_teams],
    ),
    rule("notifications", "", &[], tests![credentials::notifications_opens_the_inbox]),
    rule("repo", "", &[], tests![credentials::repo_opens_private_repositories]),
];

const PERMISSION_HEADER: &[RuleRow] = &[
    rule(
        "Every REST response carries X-Accepted-Service-Permissions",
        "with every status",
        &[
            Evidence::Header("x-accepted-service-permissions"),
            Evidence::Status(200),
            Evidence::Status(201),
            Evidence::Status(204),
            Evidence::Status(304),
            Evidence::Status(400),
            Evidence::Status(401),
            Evidence::Status(403),
            Evidence::Status(404),
            Evidence::Status(422),
        ],
        tests![authentication::every_rest_answer_states_the_permissions],
    ),
    rule(
        "stating the permissions that the endpoint requires",
        "whoever asks",
        &[Evidence::Header("x-accepted-service-permissions")],
        tests![
            authentication::the_header_states_the_permissions_of_the_endpoint,
            authentication::every_permission_that_the_header_states_can_be_granted
        ],
    ),
    rule(
        "Some endpoints work for public resources without a permission",
        "public data for a token without permissions",
        &[Evidence::Credential {
            scheme: "bearer",
            kind: "fine-grained",
            outcome: crate::evidence::Outcome::Accepted,
        }],
        tests![authentication::public_data_needs_no_permission],
    ),
];

const OTHER_FACTS: &[RuleRow] = &[
    rule(
        "Endpoints that work only with classic personal access tokens or JWT",
        "every other kind is rejected",
        &[Evidence::Status(403)],
        tests![
            authentication::endpoints_for_classic_tokens_reject_every_other_kind,
            credentials::app_endpoints_take_a_jwt_and_reject_other_tokens
        ],
    ),
    rule(
        "Organization owners, team maintainers and the named fine-grained roles gate individual operations",
        "an owner and a maintainer may, a member may not",
        &[Evidence::Status(403)],
        tests![authentication::owners_and_maintainers_may_do_more_than_members],
    ),
    rule(
        "Authorization flows that issue tokens: not shown",
        "the world has a token of every kind, and the app mints its own",
        &[],
        tests![authentication::the_world_has_a_token_of_every_kind],
    ),
    rule(
        "How an app builds and signs its JWT: not shown",
        "RS256 with the app's key",
        &[Evidence::Credential {
            scheme: "bearer",
            kind: "jwt",
            outcome: crate::evidence::Outcome::Accepted,
        }],
        tests![credentials::a_jwt_of_the_wrong_time_key_or_app_is_refused],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::new(1, "Credentials", 9, CREDENTIALS),
        Table::new(1, "Scopes named in the interface", 7, SCOPES),
        Table::new(1, "Permission header", 3, PERMISSION_HEADER),
        Table::new(1, "Other authentication facts", 4, OTHER_FACTS),
    ]
}
