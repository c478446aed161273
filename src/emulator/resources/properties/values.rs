//! Values of custom properties, for many repositories or for one (SPECIFICATION, "Custom
//! properties"). The upstream does not document the routes of one repository; they are the running
//! service's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::selection::Selection;
use super::{READ, need};
use crate::emulator::accounts::Level;

use crate::emulator::events::webhooks::organizations as organization_events;
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::routing::{Call, Need, OrganizationRole, Outcome, Role, Route};
use crate::emulator::world::organizations::membership::VALUES_EDITOR;
use crate::emulator::world::{Definition, Editors, Owner, PropertyValue, Repository};

/// Requires an administrator or the values editor.
const WRITE: Need = need(Level::Write, &["admin:org"], OrganizationRole::OwnerOr(VALUES_EDITOR));
const READ_ONE: Need = Need::repository("metadata", Level::Read, Role::Read);
const WRITE_ONE: Need = Need::repository("repository_custom_properties", Level::Write, Role::Push);

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/properties/values", READ, list),
    Route::patch("/orgs/{org}/properties/values", WRITE, patch),
    Route::get("/repos/{owner}/{repo}/properties/values", READ_ONE, list_of_repository),
    Route::patch("/repos/{owner}/{repo}/properties/values", WRITE_ONE, patch_repository),
];

/// SPECIFICATION, "Other limits".
const REPOSITORIES_MAX: usize = 30;
/// The maximum of an organisation's properties.
const PROPERTIES_MAX: usize = 100;

/// The requested value of each property; `None` unsets it.
type NewValues = BTreeMap<String, Option<PropertyValue>>;

fn list(call: &mut Call<'_>) -> Outcome {
    let selection = Selection::parse(call.query.get("repository_query").unwrap_or(""));
    let organization = call.organization;
    let is_wanted = |repository: &&Repository| {
        repository.owner == Owner::Organization(organization)
            && selection.matches(call.world, organization, repository)
    };
    let repositories = call.visible_repositories().filter(is_wanted);
    call.page(repositories, |_, repository| render(call, organization, repository))
}

fn render(call: &Call<'_>, organization: u64, repository: &Repository) -> Value {
    json!({
        "repository_id": repository.id,
        "repository_name": repository.name,
        "repository_full_name": call.world.full_name(repository),
        "properties": shown(call, organization, repository.id),
    })
}

/// Lists every property of the organisation; null without a value or a required default.
fn shown(call: &Call<'_>, organization: u64, repository: u64) -> Value {
    let properties = &call.world.properties;
    let member = |definition: &Definition| json!({ "property_name": definition.name, "value": properties.value_of(repository, definition).map(PropertyValue::to_json) });
    properties.definitions(organization).map(member).collect()
}

/// Sets or unsets properties of all listed repositories, or of none; null unsets.
fn patch(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("CustomPropertyValue", call.body)?;
    let repositories = repositories(call, &mut fields);
    let new_values = new_values(call, &mut fields, call.organization);
    fields.check()?;
    for repository in repositories {
        set(call, call.organization, repository, &new_values);
    }
    Ok(Reply::no_content())
}

/// Reads the listed repositories, by name or full name. Invisible ones are unknown.
fn repositories(call: &Call<'_>, fields: &mut Fields) -> BTreeSet<u64> {
    fields.require("repository_names");
    let names = fields.strings("repository_names").unwrap_or_default();
    let count = fields.value("repository_names").and_then(Value::as_array).map_or(1, Vec::len);
    if count == 0 || count > REPOSITORIES_MAX {
        let message = format!("repository_names must have 1 to {REPOSITORIES_MAX} items");
        fields.invalid("repository_names", message);
        return BTreeSet::new();
    }
    let login = call.world.owner_login(Owner::Organization(call.organization));
    let mut found = BTreeSet::new();
    for given in names {
        let (owner, name) = given.split_once('/').unwrap_or((login, &given));
        let repository = call.world.repository_named(owner, name).filter(|repository| {
            repository.owner == Owner::Organization(call.organization)
                && repository.name.eq_ignore_ascii_case(name)
                && call.sees(repository)
        });
        if repository.is_none() {
            let message = "repository_names has one that the organization does not have";
            fields.invalid("repository_names", message);
        }
        found.extend(repository.map(|repository| repository.id));
    }
    found
}

/// Reads the requested values; each error names its index.
fn new_values(call: &Call<'_>, fields: &mut Fields, organization: u64) -> NewValues {
    fields.require("properties");
    let items = fields.objects("properties").unwrap_or_default();
    let count = fields.value("properties").and_then(Value::as_array).map_or(1, Vec::len);
    if count == 0 || count > PROPERTIES_MAX {
        fields.invalid("properties", format!("properties must have 1 to {PROPERTIES_MAX} items"));
        return NewValues::new();
    }
    let mut new_values = NewValues::new();
    for (index, mut item) in items.into_iter().enumerate() {
        let name = item.required_string("property_name");
        let definition = call.world.properties.definition(organization, &name);
        if definition.is_none() && !name.is_empty() {
            item.invalid("property_name", "the organization has no such property");
        }
        let new_value = match (item.value("value").cloned(), definition) {
            (None, _) => {
                let message = "value is required; null unsets the property";
                item.reject("value", Code::MissingField, message);
                None
            }
            (Some(Value::Null), _) | (Some(_), None) => None,
            (Some(value), Some(definition)) => definition
                .accept(&value)
                .map_err(|why| item.invalid("value", format!("value {why}")))
                .ok(),
        };
        let is_named = !name.is_empty();
        if new_values.insert(name, new_value).is_some() && is_named {
            item.reject("property_name", Code::AlreadyExists, "property_name is listed twice");
        }
        fields.absorb(item, &format!("properties[{index}]"));
    }
    new_values
}

/// Raises no event without a change.
fn set(call: &mut Call<'_>, organization: u64, repository: u64, new_values: &NewValues) {
    let before = shown(call, organization, repository);
    for (name, value) in new_values {
        call.world.properties.set(repository, name, value.clone());
    }
    let after = shown(call, organization, repository);
    if before != after {
        organization_events::property_values(call, repository, &before, &after);
    }
}

/// Returns the organisation that owns the repository; users have no properties.
fn organization_of(call: &Call<'_>) -> Result<Option<u64>, ApiError> {
    match call.repository()?.owner {
        Owner::Organization(id) => Ok(Some(id)),
        Owner::User(_) => Ok(None),
    }
}

fn list_of_repository(call: &mut Call<'_>) -> Outcome {
    let organization = organization_of(call)?;
    let values = organization.map(|organization| shown(call, organization, call.repository));
    Ok(Reply::ok(values.unwrap_or_else(|| json!([]))))
}

/// Callers with push rights set only properties of `org_and_repo_actors`.
fn patch_repository(call: &mut Call<'_>) -> Outcome {
    let organization = organization_of(call)?.ok_or(ApiError::NotFound)?;
    let mut fields = Fields::parse("CustomPropertyValue", call.body)?;
    let new_values = new_values(call, &mut fields, organization);
    fields.check()?;
    let is_open = |name: &String| {
        let definition = call.world.properties.definition(organization, name);
        definition.is_some_and(|definition| definition.editors == Editors::OrgAndRepoActors)
    };
    if !edits_for_organization(call, organization) && !new_values.keys().all(is_open) {
        return Err(ApiError::Forbidden(
            "Only the organization's actors may edit a value of this property.",
        ));
    }
    set(call, organization, call.repository, &new_values);
    Ok(Reply::no_content())
}

fn edits_for_organization(call: &Call<'_>, organization: u64) -> bool {
    let (Some(token), Some(organization)) =
        (call.caller.token(), call.world.organizations.get(&organization))
    else {
        return false;
    };
    match token.user {
        Some(user) => organization.has_role(user, OrganizationRole::OwnerOr(VALUES_EDITOR)),
        None => token.installed_on == Some(organization.id),
    }
}
