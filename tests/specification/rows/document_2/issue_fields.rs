//! Issue fields and their options.

use crate::document_2::{issue_field_rules, issue_fields};
use crate::evidence::{Evidence, Granted, Outcome};
use crate::shape::{Object, Type, field, listed};
use crate::table::{
    CredentialRow, EndpointRow, RuleRow, Table, ValueRow, credential, endpoint, rule, value,
};
use crate::tests;

const TIMES: &str = "created_at, updated_at";

static OPTION: Object = Object {
    name: "Issue field option",
    fields: &[
        field("id", Type::Integer),
        field("name", Type::Text),
        field("description", Type::Nullable(&Type::String)),
        field("color", Type::Text),
        field("priority", Type::Integer),
        field("created_at", Type::Timestamp),
        field("updated_at", Type::Timestamp),
    ],
};

pub static ISSUE_FIELD: Object = Object {
    name: "Issue field",
    fields: &[
        field("id", Type::Integer),
        field("node_id", Type::Text),
        field("name", Type::Text),
        field("description", Type::Nullable(&Type::String)),
        field("data_type", Type::Text),
        field("visibility", Type::Text),
        field("options", Type::Array(&Type::Object(&OPTION))),
        listed(TIMES, "created_at", Type::Timestamp),
        listed(TIMES, "updated_at", Type::Timestamp),
    ],
};

/// "options: only for `single_select`": the fields common to all types.
pub static TEXT_FIELD: Object = Object {
    name: "Issue field of any type",
    fields: &[
        field("id", Type::Integer),
        field("node_id", Type::Text),
        field("name", Type::Text),
        field("description", Type::MaybeNull(&Type::String)),
        field("data_type", Type::Text),
        field("visibility", Type::Text),
        field("created_at", Type::Timestamp),
        field("updated_at", Type::Timestamp),
    ],
};

/// The named values. The document does not exclude others.
pub static NAMED_VALUES: Object = Object {
    name: "Issue field, named values",
    fields: &[field("data_type", Type::OneOf(&["text", "single_select"]))],
};

pub static COLORS: Object = Object {
    name: "Issue field option, named values",
    fields: &[field("color", Type::OneOf(&["red", "yellow", "green"]))],
};

const NAMED: &str = "Issue field, named values";
const NAMED_COLORS: &str = "Issue field option, named values";

const VALUES: &[ValueRow] = &[
    value(NAMED, "data_type", "text", tests![issue_fields::the_values_that_are_named_occur]),
    value(
        NAMED,
        "data_type",
        "single_select",
        tests![issue_fields::the_values_that_are_named_occur],
    ),
    value(NAMED_COLORS, "color", "red", tests![issue_fields::the_values_that_are_named_occur]),
    value(NAMED_COLORS, "color", "yellow", tests![issue_fields::the_values_that_are_named_occur]),
    value(NAMED_COLORS, "color", "green", tests![issue_fields::the_values_that_are_named_occur]),
];

const FIELDS: &str = "/orgs/{org}/issue-fields";
const FIELD: &str = "/orgs/{org}/issue-fields/{issue_field_id}";

const ENDPOINTS: &[EndpointRow] = &[
    endpoint(
        "GET /orgs/{org}/issue-fields",
        "GET",
        FIELDS,
        &[200, 404],
        tests![issue_fields::fields_are_listed],
    ),
    endpoint(
        "POST /orgs/{org}/issue-fields",
        "POST",
        FIELDS,
        &[200, 404, 422],
        tests![issue_fields::a_field_is_created_with_status_200],
    ),
    endpoint(
        "PATCH /orgs/{org}/issue-fields/{issue_field_id}",
        "PATCH",
        FIELD,
        &[200, 404, 422],
        tests![issue_fields::a_field_is_changed],
    ),
    endpoint(
        "DELETE /orgs/{org}/issue-fields/{issue_field_id}",
        "DELETE",
        FIELD,
        &[204, 404],
        tests![issue_fields::a_field_is_deleted],
    ),
    endpoint(
        "DELETE /orgs/{org}/issue-fields/{issue_field_id}",
        "DELETE",
        FIELD,
        &[422],
        tests![issue_fields::an_id_that_is_no_integer_fails_validation],
    ),
];

const CREDENTIALS: &[CredentialRow] = &[credential(
    "Issue fields",
    "fine-grained tokens allowed",
    &[
        ("bearer", "classic"),
        ("bearer", "fine-grained"),
        ("bearer", "installation"),
        ("bearer", "app-user"),
    ],
    &[("", "none")],
    tests![issue_field_rules::fine_grained_tokens_are_allowed],
)];

/// An installation token with some permissions or none was accepted or refused.
const fn granted(
    method: &'static str,
    template: &'static str,
    granted: Granted,
    outcome: Outcome,
) -> Evidence {
    Evidence::Grant { method, template, kind: "installation", granted, outcome }
}

const RULES: &[RuleRow] = &[
    rule(
        "permission",
        "'Issue Fields' organization: read for GET, write otherwise",
        &[
            granted("GET", FIELDS, Granted::Nothing, Outcome::Refused),
            granted("GET", FIELDS, Granted::Something, Outcome::Accepted),
            granted("POST", FIELDS, Granted::Something, Outcome::Refused),
            granted("POST", FIELDS, Granted::Something, Outcome::Accepted),
            granted("PATCH", FIELD, Granted::Something, Outcome::Refused),
            granted("PATCH", FIELD, Granted::Something, Outcome::Accepted),
            granted("DELETE", FIELD, Granted::Something, Outcome::Refused),
            granted("DELETE", FIELD, Granted::Something, Outcome::Accepted),
        ],
        tests![issue_field_rules::issue_fields_needs_read_for_get_and_write_otherwise],
    ),
    rule(
        "version",
        "2026-03-10 in examples",
        &[],
        tests![issue_fields::the_examples_version_works_on_every_route],
    ),
    rule(
        "scopes",
        "classic tokens need read:org to read, admin:org to write",
        &[],
        tests![issue_field_rules::classic_tokens_need_read_org_to_read_and_admin_org_to_write],
    ),
    rule(
        "administrator",
        "only who administers the organization writes",
        &[],
        tests![issue_field_rules::only_an_organization_administrator_writes],
    ),
    rule(
        "name, data_type",
        "required",
        &[Evidence::Status(422)],
        tests![issue_field_rules::name_and_data_type_are_required],
    ),
    rule(
        "description, visibility",
        "string or null; accepted on write",
        &[],
        tests![issue_field_rules::description_is_text_or_null_and_visibility_is_accepted],
    ),
    rule(
        "options",
        "required when data_type is single_select",
        &[Evidence::Status(422)],
        tests![issue_field_rules::options_are_required_for_single_select],
    ),
    rule(
        "option",
        "name, color and integer priority are required, description is not",
        &[Evidence::Status(422)],
        tests![issue_field_rules::an_option_has_a_name_a_color_and_an_integer_priority],
    ),
    rule(
        "priority",
        "ordering",
        &[],
        tests![issue_field_rules::options_are_in_the_order_of_their_priority],
    ),
    rule(
        "single_select",
        "options are only for it",
        &[Evidence::Status(422)],
        tests![issue_field_rules::options_are_only_for_single_select],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::fields(2, 8, &ISSUE_FIELD, tests![issue_fields::fields_are_listed]),
        Table::fields(2, 7, &OPTION, tests![issue_fields::fields_are_listed]),
        Table::new(2, "Issue field, values named", 5, VALUES),
        Table::new(2, "Issue fields, endpoints", 4, ENDPOINTS),
        Table::new(2, "Issue fields, credentials", 1, CREDENTIALS),
        Table::new(2, "Issue fields, rules", 10, RULES),
    ]
}
