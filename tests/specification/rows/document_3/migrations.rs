//! User migrations: their object, states, endpoints and rules.

use crate::document_3::migrations::MACHINE;
use crate::document_3::{migration_rules, migrations};
use crate::evidence::{Evidence, Trigger};
use crate::objects::repository::REPOSITORY;
use crate::objects::user::USER_SUMMARY;
use crate::shape::{Object, Type, field, listed};
use crate::table::{
    CredentialRow, EndpointRow, RuleRow, StateRow, Table, ValueRow, credential, endpoint, rule,
    transition, value,
};
use crate::tests;

const EXCLUDES: &str = "exclude_attachments, exclude_releases, exclude_owner_projects";
const WEEK_SECS: u64 = 7 * 86_400;

pub static USER_MIGRATION: Object = Object {
    name: "User migration",
    fields: &[
        field("id", Type::Integer),
        field("node_id", Type::Text),
        field("owner", Type::Object(&USER_SUMMARY)),
        field("guid", Type::Text),
        field("state", Type::OneOf(&["pending", "exporting", "exported", "failed"])),
        field("lock_repositories", Type::Boolean),
        listed(EXCLUDES, "exclude_attachments", Type::Boolean),
        listed(EXCLUDES, "exclude_releases", Type::Boolean),
        listed(EXCLUDES, "exclude_owner_projects", Type::Boolean),
        field("org_metadata_only", Type::Boolean),
        field("repositories", Type::MaybeEmpty(&Type::Object(&REPOSITORY))),
        field("url", Type::Url),
        listed("created_at, updated_at", "created_at", Type::Timestamp),
        listed("created_at, updated_at", "updated_at", Type::Timestamp),
    ],
};

const STATES: &[ValueRow] = &[
    value(
        "User migration",
        "state",
        "pending",
        tests![migrations::the_world_has_a_migration_in_each_state],
    ),
    value(
        "User migration",
        "state",
        "exporting",
        tests![migrations::the_world_has_a_migration_in_each_state],
    ),
    value(
        "User migration",
        "state",
        "exported",
        tests![migrations::the_world_has_a_migration_in_each_state],
    ),
    value(
        "User migration",
        "state",
        "failed",
        tests![migrations::the_world_has_a_migration_in_each_state],
    ),
];

const TRANSITIONS: &[StateRow] = &[
    transition(
        "(none) | POST /user/migrations",
        MACHINE,
        &["(none)"],
        Trigger::Request("POST", "/user/migrations"),
        "pending",
        tests![migrations::a_migration_begins_pending_and_is_exported],
    ),
    transition(
        "exported | archive age reaches 7 days",
        MACHINE,
        &["exported"],
        Trigger::Passing(WEEK_SECS),
        "exported (archive deleted)",
        tests![migrations::an_archive_is_deleted_after_7_days_and_the_state_stays],
    ),
];

const ENDPOINTS: &[EndpointRow] = &[
    endpoint(
        "GET /user/migrations",
        "GET",
        "/user/migrations",
        &[200, 304, 401, 403],
        tests![migrations::migrations_are_listed],
    ),
    endpoint(
        "POST /user/migrations",
        "POST",
        "/user/migrations",
        &[201, 401, 403, 422],
        tests![migrations::a_migration_is_started],
    ),
    endpoint(
        "GET /user/migrations/{migration_id}",
        "GET",
        "/user/migrations/{migration_id}",
        &[200, 304, 401, 403, 404],
        tests![migrations::a_migrations_status_is_read],
    ),
    endpoint(
        "download archive",
        "GET",
        "/user/migrations/{migration_id}/archive",
        &[302, 401, 403],
        tests![migrations::an_archive_is_downloaded_once_exported],
    ),
    endpoint(
        "delete archive",
        "DELETE",
        "/user/migrations/{migration_id}/archive",
        &[204],
        tests![migrations::an_archive_is_deleted_and_the_metadata_remains],
    ),
];

const CREDENTIALS: &[CredentialRow] = &[credential(
    "User migrations",
    "a classic credential; app user, installation and fine-grained tokens are rejected",
    &[("bearer", "classic")],
    &[("bearer", "app-user"), ("bearer", "installation"), ("bearer", "fine-grained")],
    tests![migration_rules::only_classic_credentials_of_the_owner_are_accepted],
)];

const RULES: &[RuleRow] = &[
    rule(
        "owner",
        "account owner",
        &[Evidence::Status(404)],
        tests![migration_rules::a_migration_is_its_owners_alone],
    ),
    rule(
        "flags",
        "booleans",
        &[],
        tests![migration_rules::every_flag_of_the_body_is_a_boolean_and_kept],
    ),
    rule(
        "org_metadata_only",
        "repositories must then be empty",
        &[],
        tests![migration_rules::organization_metadata_alone_needs_no_repositories],
    ),
    rule(
        "exclude",
        "supported value: repositories",
        &[],
        tests![migration_rules::exclude_names_repositories_and_nothing_else],
    ),
    rule(
        "lock_repositories",
        "locked at the start, unlocked after export",
        &[],
        tests![migration_rules::repositories_are_locked_at_the_start_and_unlocked_later],
    ),
    rule(
        "exclude_metadata",
        "only git source included when true",
        &[],
        tests![migration_rules::an_export_without_metadata_has_only_git_data],
    ),
    rule(
        "exclude_git_data",
        "no Git data",
        &[],
        tests![migration_rules::the_archive_has_git_data_unless_it_is_excluded],
    ),
    rule(
        "exclude_releases",
        "no releases",
        &[],
        tests![migration_rules::excluded_releases_are_not_in_the_archive],
    ),
    rule(
        "archive",
        "JSON files as the resources exist",
        &[],
        tests![migration_rules::the_archive_has_json_files_of_the_resources_that_exist],
    ),
    rule(
        "migration_id",
        "integer",
        &[Evidence::Status(404)],
        tests![migration_rules::a_migration_id_is_an_integer],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::fields(3, 11, &USER_MIGRATION, tests![migrations::a_migrations_status_is_read]),
        Table::fields(3, 3, &REPOSITORY, tests![migrations::a_migrations_status_is_read]),
        Table::new(3, "User migration states", 4, STATES),
        Table::new(3, "User migration, transitions", 2, TRANSITIONS),
        Table::new(3, "User migrations", 5, ENDPOINTS),
        Table::new(3, "User migrations, credentials", 1, CREDENTIALS),
        Table::new(3, "User migrations, rules", 10, RULES),
    ]
}
