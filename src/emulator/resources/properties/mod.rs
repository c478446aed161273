//! Custom properties of an organisation's repositories: the schema (SPECIFICATION, "Custom
//! properties"). `values` holds the values.
//!
//! The routes document 200, 204, 403 and 404. An invalid body is a 422 nevertheless, as everywhere
//! (SPECIFICATION, "Errors").

pub mod definition;
mod selection;
mod values;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::events::webhooks::organizations as organization_events;
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::routing::{Call, Need, OrganizationRole, Outcome, Route, Unscoped};
use crate::emulator::world::organizations::membership::DEFINITIONS_MANAGER;
use crate::emulator::world::{Definition, World};

pub use self::values::ROUTES as VALUES;

const READ: Need = need(Level::Read, &[], OrganizationRole::Member);
/// Requires an administrator or the fine-grained role.
const ADMIN: Need =
    need(Level::Admin, &["admin:org"], OrganizationRole::OwnerOr(DEFINITIONS_MANAGER));

/// 403 and 404 are documented, but no scope: reading takes none, writing the running service's.
const fn need(level: Level, scopes: &'static [&'static str], role: OrganizationRole) -> Need {
    let permission = "organization_custom_properties";
    Need::organization(permission, level, scopes, role, Unscoped::Forbidden)
}

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/properties/schema", READ, list),
    Route::patch("/orgs/{org}/properties/schema", ADMIN, patch),
    Route::get("/orgs/{org}/properties/schema/{custom_property_name}", READ, get),
    Route::put("/orgs/{org}/properties/schema/{custom_property_name}", ADMIN, put),
    Route::delete("/orgs/{org}/properties/schema/{custom_property_name}", ADMIN, delete),
];

/// The most properties of an organisation. Undocumented; the running service's maximum.
const DEFINITIONS_MAX: usize = 100;

/// Without pages: the route takes no parameters.
fn list(call: &mut Call<'_>) -> Outcome {
    let organization = login(call)?;
    let definitions = call.world.properties.definitions(call.organization);
    let shown = definitions.map(|definition| definition.render(call.urls, organization));
    Ok(Reply::ok(shown.collect()))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let name = call.params.get("custom_property_name");
    let definition = call.world.properties.definition(call.organization, name);
    let definition = definition.ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(definition.render(call.urls, login(call)?)))
}

/// Creates or replaces all listed properties or none; answers with them in their order.
fn patch(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("CustomProperty", call.body)?;
    fields.require("properties");
    let items = fields.objects("properties").unwrap_or_default();
    let given = fields.value("properties").and_then(Value::as_array);
    if given.is_some_and(|given| !(1..=DEFINITIONS_MAX).contains(&given.len())) {
        fields.invalid("properties", format!("properties must have 1 to {DEFINITIONS_MAX} items"));
        fields.check()?;
    }
    let mut listed: Vec<Definition> = Vec::new();
    for (index, mut item) in items.into_iter().enumerate() {
        let name = item.required_string("property_name");
        if !name.is_empty() && !definition::is_name(&name) {
            let message = "property_name has up to 75 letters, digits, `_`, `-`, `$` and `#`";
            item.invalid("property_name", message);
        }
        if listed.iter().any(|other| !name.is_empty() && other.name == name) {
            item.reject("property_name", Code::AlreadyExists, "property_name is listed twice");
        }
        listed.push(Definition::read(&mut item, name));
        fields.absorb(item, &format!("properties[{index}]"));
    }
    if !leaves_room(call, listed.iter().map(|definition| definition.name.as_str())) {
        let message = format!("an organization has at most {DEFINITIONS_MAX} properties");
        fields.invalid("properties", message);
    }
    fields.check()?;
    let organization = login(call)?;
    let shown: Vec<Value> =
        listed.iter().map(|definition| definition.render(call.urls, organization)).collect();
    for (definition, shown) in listed.into_iter().zip(&shown) {
        define(call, definition, shown);
    }
    Ok(Reply::ok(Value::Array(shown)))
}

fn put(call: &mut Call<'_>) -> Outcome {
    let name = call.params.get("custom_property_name").to_owned();
    // An invalid name in the path is a 404.
    ApiError::not_found_unless(definition::is_name(&name))?;
    let mut fields = Fields::parse("CustomProperty", call.body)?;
    let definition = Definition::read(&mut fields, name);
    if !leaves_room(call, [definition.name.as_str()]) {
        fields.invalid("base", format!("an organization has at most {DEFINITIONS_MAX} properties"));
    }
    fields.check()?;
    let value = definition.render(call.urls, login(call)?);
    define(call, definition, &value);
    Ok(Reply::ok(value))
}

fn define(call: &mut Call<'_>, definition: Definition, shown: &Value) {
    let had = call.world.properties.definition(call.organization, &definition.name).is_some();
    call.world.define_property(call.organization, definition);
    organization_events::property(call, if had { "updated" } else { "created" }, shown);
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let name = call.params.get("custom_property_name").to_owned();
    let organization = call.organization;
    ApiError::not_found_unless(call.world.undefine_property(organization, &name))?;
    organization_events::property(call, "deleted", &json!({ "property_name": name }));
    Ok(Reply::no_content())
}

fn leaves_room<'n>(call: &'n Call<'_>, more: impl IntoIterator<Item = &'n str>) -> bool {
    let definitions = call.world.properties.definitions(call.organization);
    let mut names: BTreeSet<&str> =
        definitions.map(|definition| definition.name.as_str()).collect();
    let before = names.len();
    names.extend(more);
    names.len() <= DEFINITIONS_MAX || names.len() == before
}

fn login<'a>(call: &'a Call<'_>) -> Result<&'a str, ApiError> {
    Ok(&call.organization()?.login)
}

pub fn overview(world: &World, organization: u64) -> Value {
    let definitions = world.properties.definitions(organization);
    definitions.map(|definition| json!({ "property_name": definition.name, "value_type": definition.value_type.into_str() })).collect()
}
