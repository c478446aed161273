//! Custom properties: definitions and repositories' values.

use crate::document_2::{property_definitions, property_rules, property_values};
use crate::evidence::{Evidence, Granted, Outcome};
use crate::shape::{Object, Type, field};
use crate::table::{
    CredentialRow, EndpointRow, RuleRow, Table, ValueRow, credential, endpoint, rule, value,
};
use crate::tests;

pub static DEFINITION: Object = Object {
    name: "Custom property definition",
    fields: &[
        field("property_name", Type::Text),
        field("url", Type::Url),
        field("source_type", Type::Text),
        field("value_type", Type::Text),
        field("required", Type::Boolean),
        field(
            "default_value",
            Type::Nullable(&Type::Either(&[Type::String, Type::Array(&Type::Text)])),
        ),
        field("description", Type::Nullable(&Type::String)),
        field("allowed_values", Type::Nullable(&Type::Array(&Type::Text))),
        field("values_editable_by", Type::Nullable(&Type::Text)),
        field("require_explicit_values", Type::Boolean),
    ],
};

/// The named values. The document does not exclude others.
pub static NAMED_VALUES: Object = Object {
    name: "Custom property definition, named values",
    fields: &[
        field("source_type", Type::OneOf(&["organization"])),
        field("value_type", Type::OneOf(&["string", "single_select"])),
        field("values_editable_by", Type::OneOf(&["org_actors", "org_and_repo_actors"])),
    ],
};

pub static VALUE: Object = Object {
    name: "Repository custom property value",
    fields: &[
        field("property_name", Type::Text),
        field("value", Type::MaybeNull(&Type::Either(&[Type::String, Type::Array(&Type::Text)]))),
    ],
};

pub static REPOSITORY_VALUES: Object = Object {
    name: "Repository custom property values",
    fields: &[
        field("repository_id", Type::Integer),
        field("repository_name", Type::Text),
        field("repository_full_name", Type::Text),
        field("properties", Type::Array(&Type::Object(&VALUE))),
    ],
};

const NAMED: &str = "Custom property definition, named values";

const VALUES_NAMED: &[ValueRow] = &[
    value(
        NAMED,
        "source_type",
        "organization",
        tests![property_definitions::the_values_that_are_named_occur],
    ),
    value(
        NAMED,
        "value_type",
        "string",
        tests![property_definitions::the_values_that_are_named_occur],
    ),
    value(
        NAMED,
        "value_type",
        "single_select",
        tests![property_definitions::the_values_that_are_named_occur],
    ),
    value(
        NAMED,
        "values_editable_by",
        "org_actors",
        tests![property_definitions::the_values_that_are_named_occur],
    ),
    value(
        NAMED,
        "values_editable_by",
        "org_and_repo_actors",
        tests![property_definitions::the_values_that_are_named_occur],
    ),
];

const SCHEMA: &str = "/orgs/{org}/properties/schema";
const PROPERTY: &str = "/orgs/{org}/properties/schema/{custom_property_name}";
const VALUES: &str = "/orgs/{org}/properties/values";

const ENDPOINTS: &[EndpointRow] = &[
    endpoint(
        "GET /orgs/{org}/properties/schema",
        "GET",
        SCHEMA,
        &[200, 403, 404],
        tests![property_definitions::definitions_are_listed],
    ),
    endpoint(
        "PATCH /orgs/{org}/properties/schema",
        "PATCH",
        SCHEMA,
        &[200, 403, 404],
        tests![property_definitions::definitions_are_written_together],
    ),
    endpoint(
        "GET /orgs/{org}/properties/schema/{custom_property_name}",
        "GET",
        PROPERTY,
        &[200, 403, 404],
        tests![property_definitions::a_definition_is_read],
    ),
    endpoint(
        "PUT /orgs/{org}/properties/schema/{custom_property_name}",
        "PUT",
        PROPERTY,
        &[200, 403, 404],
        tests![property_definitions::a_definition_is_put_and_keeps_its_fields],
    ),
    endpoint(
        "DELETE /orgs/{org}/properties/schema/{custom_property_name}",
        "DELETE",
        PROPERTY,
        &[204, 403, 404],
        tests![property_definitions::a_definition_is_deleted],
    ),
    endpoint(
        "GET /orgs/{org}/properties/values",
        "GET",
        VALUES,
        &[200, 403, 404],
        tests![property_values::values_are_listed_by_repository],
    ),
    endpoint(
        "PATCH /orgs/{org}/properties/values",
        "PATCH",
        VALUES,
        &[204, 403, 404, 422],
        tests![property_values::values_are_written],
    ),
];

const CREDENTIALS: &[CredentialRow] = &[
    credential(
        "Custom properties",
        "fine-grained tokens allowed",
        &[
            ("bearer", "classic"),
            ("bearer", "fine-grained"),
            ("bearer", "installation"),
            ("bearer", "app-user"),
        ],
        &[],
        tests![property_rules::fine_grained_tokens_are_allowed],
    ),
    credential(
        "read",
        "organization members may read",
        &[("bearer", "classic")],
        &[("", "none")],
        tests![property_rules::organization_members_may_read],
    ),
];

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
        "'Custom properties' organization: read, write or admin as stated",
        &[
            granted("GET", SCHEMA, Granted::Nothing, Outcome::Refused),
            granted("GET", SCHEMA, Granted::Something, Outcome::Accepted),
            granted("PATCH", SCHEMA, Granted::Something, Outcome::Refused),
            granted("PATCH", SCHEMA, Granted::Something, Outcome::Accepted),
            granted("GET", PROPERTY, Granted::Nothing, Outcome::Refused),
            granted("GET", PROPERTY, Granted::Something, Outcome::Accepted),
            granted("PUT", PROPERTY, Granted::Something, Outcome::Refused),
            granted("PUT", PROPERTY, Granted::Something, Outcome::Accepted),
            granted("DELETE", PROPERTY, Granted::Something, Outcome::Refused),
            granted("DELETE", PROPERTY, Granted::Something, Outcome::Accepted),
            granted("GET", VALUES, Granted::Nothing, Outcome::Refused),
            granted("GET", VALUES, Granted::Something, Outcome::Accepted),
            granted("PATCH", VALUES, Granted::Something, Outcome::Refused),
            granted("PATCH", VALUES, Granted::Something, Outcome::Accepted),
        ],
        tests![property_rules::the_permission_is_read_or_write_or_admin_as_stated],
    ),
    rule(
        "definitions",
        "writes and deletes need organization administrator or custom_properties_org_definitions_manager",
        &[
            Evidence::Answer { method: "PATCH", template: SCHEMA, status: 403 },
            Evidence::Answer { method: "DELETE", template: PROPERTY, status: 403 },
        ],
        tests![property_rules::administrators_and_managers_write_definitions],
    ),
    rule(
        "values",
        "writes need administrator or custom_properties_org_values_editor",
        &[Evidence::Answer { method: "PATCH", template: VALUES, status: 403 }],
        tests![property_rules::administrators_and_editors_write_values],
    ),
    rule(
        "property_name, value_type",
        "required on batch write",
        &[Evidence::Status(422)],
        tests![property_rules::a_batch_names_each_property_and_its_type],
    ),
    rule(
        "value_type",
        "required on write",
        &[Evidence::Status(422)],
        tests![property_rules::a_put_requires_the_type_only],
    ),
    rule(
        "PATCH",
        "creates or replaces each listed property; omitted optional fields revert to defaults",
        &[],
        tests![property_rules::a_batch_creates_or_replaces_and_omissions_reset],
    ),
    rule(
        "values_editable_by",
        "org_actors (default)",
        &[],
        tests![property_rules::values_editable_by_is_org_actors_by_default],
    ),
    rule(
        "allowed_values",
        "ordered, at most 200 entries",
        &[Evidence::Status(422)],
        tests![property_rules::allowed_values_are_at_most_200_and_keep_their_order],
    ),
    rule(
        "default_value",
        "null, string or array",
        &[],
        tests![property_definitions::a_default_value_is_null_or_text_or_a_list],
    ),
    rule(
        "url",
        "address of the property",
        &[],
        tests![property_definitions::the_address_of_a_definition_leads_to_it],
    ),
    rule(
        "value",
        "null, string or array",
        &[],
        tests![property_values::a_value_is_null_or_text_or_a_list],
    ),
    rule(
        "allowed",
        "a value that is not allowed, or a property that is not there, fails validation",
        &[Evidence::Answer { method: "PATCH", template: VALUES, status: 422 }],
        tests![property_values::a_value_that_is_not_allowed_fails_validation],
    ),
    rule(
        "null",
        "a value of null unsets the property on each listed repository",
        &[],
        tests![property_values::null_unsets_the_property_on_each_listed_repository],
    ),
    rule(
        "repository_names",
        "at most 30",
        &[Evidence::Status(422)],
        tests![property_values::writes_are_limited_to_30_repositories_at_once],
    ),
    rule(
        "body",
        "repository_names, properties, property_name and value are required",
        &[Evidence::Status(422)],
        tests![property_values::repositories_properties_names_and_values_are_required],
    ),
    rule(
        "repository_query",
        "search keywords and qualifiers limiting the repositories",
        &[],
        tests![property_values::repository_query_limits_the_repositories],
    ),
    rule(
        "per_page, page",
        "default 30, max 100; default 1",
        &[],
        tests![property_values::a_page_has_30_repositories_by_default_and_100_at_most],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::fields(2, 10, &DEFINITION, tests![property_definitions::definitions_are_listed]),
        Table::new(2, "Custom property definition, values named", 5, VALUES_NAMED),
        Table::fields(
            2,
            4,
            &REPOSITORY_VALUES,
            tests![property_values::values_are_listed_by_repository],
        ),
        Table::fields(2, 2, &VALUE, tests![property_values::a_value_is_null_or_text_or_a_list]),
        Table::new(2, "Custom properties, endpoints", 7, ENDPOINTS),
        Table::new(2, "Custom properties, credentials", 2, CREDENTIALS),
        Table::new(2, "Custom properties, rules", 17, RULES),
    ]
}
