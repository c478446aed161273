//! Custom fields of an organisation's issues (SPECIFICATION, "Issue fields").
//!
//! The upstream does not enumerate data types, visibilities and colours. Accepted are the running
//! service's data types that fit the documented rule about options, its eight colours, and any
//! short word as visibility.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Change, Code, Fields, Reply, iso};
use crate::emulator::render::{extend, node_id};
use crate::emulator::routing::{Call, Need, OrganizationRole, Outcome, Route, Unscoped};
use crate::emulator::world::World;
use crate::emulator::world::organizations::issue_fields::{FieldOption, IssueField};

const READ: Need = need(Level::Read, &["read:org"], OrganizationRole::Member);
/// Requires an organisation owner; classic tokens need `admin:org`.
const WRITE: Need = need(Level::Write, &["admin:org"], OrganizationRole::Owner);

/// 404 is the only documented refusal.
const fn need(level: Level, scopes: &'static [&'static str], role: OrganizationRole) -> Need {
    Need::organization("issue_fields", level, scopes, role, Unscoped::NotFound)
}

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/issue-fields", READ, list),
    Route::post("/orgs/{org}/issue-fields", WRITE, create),
    Route::patch("/orgs/{org}/issue-fields/{issue_field_id}", WRITE, patch),
    Route::delete("/orgs/{org}/issue-fields/{issue_field_id}", WRITE, delete),
];

const DATA_TYPES: &[&str] = &["text", "single_select", "date", "number"];
const COLORS: &[&str] = &["gray", "blue", "green", "yellow", "orange", "red", "pink", "purple"];
const SINGLE_SELECT: &str = "single_select";
/// The running service's default.
const VISIBILITY: &str = "organization_members_only";
/// Bounds: fields of an organisation, options of a field, and bytes of their texts. Undocumented.
const FIELDS_MAX: usize = 100;
const OPTIONS_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 255;
const DESCRIPTION_BYTES_MAX: usize = 1_024;

#[derive(Debug)]
struct OptionInput {
    name: String,
    description: Option<String>,
    color: &'static str,
    priority: i64,
}

/// Without pages: the route takes no parameters.
#[expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]
fn list(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(of_organization(call.world, call.organization).map(render).collect()))
}

fn of_organization(world: &World, organization: u64) -> impl Iterator<Item = &IssueField> {
    world.issue_fields.get(&organization).into_iter().flat_map(BTreeMap::values)
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("IssueField", call.body)?;
    let name = name(&mut fields);
    refuse_taken_name(call, &mut fields, &name, None);
    let description = description(&mut fields).value();
    let data_type = one_of(&mut fields, "data_type", DATA_TYPES);
    let visibility = visibility(&mut fields).unwrap_or_else(|| VISIBILITY.to_owned());
    let options = options(&mut fields, data_type);
    if data_type == Some(SINGLE_SELECT) && fields.value("options").is_none_or(Value::is_null) {
        let message = "options is required when data_type is single_select";
        fields.reject("options", Code::MissingField, message);
    }
    if of_organization(call.world, call.organization).count() >= FIELDS_MAX {
        fields.invalid("base", format!("an organization has at most {FIELDS_MAX} issue fields"));
    }
    fields.check()?;
    let (now, organization, id) = (call.now, call.organization, call.world.next_id());
    let options = merged_options(call.world, now, &[], options.unwrap_or_default());
    let data_type = data_type.unwrap_or(SINGLE_SELECT);
    let field = IssueField {
        id,
        name,
        description,
        data_type,
        visibility,
        options,
        created_at: now,
        updated_at: now,
    };
    let value = render(&field);
    call.world.issue_fields.entry(organization).or_default().insert(id, field);
    // The documented status is 200, not 201.
    Ok(Reply::ok(value))
}

/// Changes the given members. The data type is fixed, because the body has no `data_type`.
fn patch(call: &mut Call<'_>) -> Outcome {
    let field = named(call)?;
    let (id, data_type) = (field.id, field.data_type);
    let mut fields = Fields::parse("IssueField", call.body)?;
    let name = fields.has("name").then(|| name(&mut fields));
    if let Some(name) = &name {
        refuse_taken_name(call, &mut fields, name, Some(id));
    }
    let description = description(&mut fields);
    let visibility = visibility(&mut fields);
    let inputs = options(&mut fields, Some(data_type));
    if data_type == SINGLE_SELECT && fields.value("options").is_some_and(Value::is_null) {
        fields.invalid("options", "a single_select field has options");
    }
    fields.check()?;
    let (now, organization) = (call.now, call.organization);
    let before = named(call)?.options.clone();
    let options = inputs.map(|inputs| merged_options(call.world, now, &before, inputs));
    let fields = call.world.issue_fields.get_mut(&organization);
    let field = fields.and_then(|fields| fields.get_mut(&id)).ok_or(ApiError::NotFound)?;
    field.name = name.unwrap_or_else(|| std::mem::take(&mut field.name));
    field.description = description.of(field.description.take());
    field.visibility = visibility.unwrap_or_else(|| std::mem::take(&mut field.visibility));
    field.options = options.unwrap_or(before);
    field.updated_at = now;
    Ok(Reply::ok(render(field)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = named(call)?.id;
    call.world.issue_fields.entry(call.organization).or_default().remove(&id);
    Ok(Reply::no_content())
}

/// Anything but an integer fails validation, which both routes document.
fn named<'a>(call: &'a Call<'_>) -> Result<&'a IssueField, ApiError> {
    let no_integer =
        |_| ApiError::invalid("IssueField", "issue_field_id", "issue_field_id is not an integer");
    let id: i64 = call.params.get("issue_field_id").parse().map_err(no_integer)?;
    let id = u64::try_from(id).map_err(|_| ApiError::NotFound)?;
    let fields = call.world.issue_fields.get(&call.organization);
    fields.and_then(|fields| fields.get(&id)).ok_or(ApiError::NotFound)
}

fn name(fields: &mut Fields) -> String {
    let name = fields.required_string("name");
    refuse_long(fields, "name", &name, NAME_BYTES_MAX);
    name
}

/// Field names must be unique.
fn refuse_taken_name(call: &Call<'_>, fields: &mut Fields, name: &str, except: Option<u64>) {
    let has_name = |field: &IssueField| {
        Some(field.id) != except && field.name.to_lowercase() == name.to_lowercase()
    };
    if of_organization(call.world, call.organization).any(has_name) {
        fields.taken("name");
    }
}

fn description(fields: &mut Fields) -> Change<String> {
    let description = fields.nullable_string("description");
    if let Change::Set(text) = &description {
        refuse_long(fields, "description", text, DESCRIPTION_BYTES_MAX);
    }
    description
}

fn visibility(fields: &mut Fields) -> Option<String> {
    let visibility = fields.string("visibility")?;
    let is_word = (1..=50).contains(&visibility.len())
        && visibility.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_word {
        let message = "visibility must be a word, such as all or organization_members_only";
        fields.invalid("visibility", message);
    }
    Some(visibility)
}

fn refuse_long(fields: &mut Fields, name: &str, text: &str, bytes_max: usize) {
    if text.len() > bytes_max {
        fields.invalid(name, format!("{name} is longer than {bytes_max} bytes"));
    }
}

fn one_of(fields: &mut Fields, name: &str, known: &[&'static str]) -> Option<&'static str> {
    let given = fields.required_string(name);
    let found = known.iter().find(|known| **known == given).copied();
    if found.is_none() && !given.is_empty() {
        fields.invalid(name, format!("{name} must be one of {}", known.join(", ")));
    }
    found
}

/// Each error names its index. Null is valid for other data types.
fn options(fields: &mut Fields, data_type: Option<&str>) -> Option<Vec<OptionInput>> {
    if fields.value("options").is_none_or(Value::is_null) {
        return None;
    }
    let items = fields.objects("options")?;
    if data_type.is_some_and(|data_type| data_type != SINGLE_SELECT) {
        fields.invalid("options", "options are only for single_select");
        return None;
    }
    if items.is_empty() || items.len() > OPTIONS_MAX {
        fields.invalid("options", format!("options must have 1 to {OPTIONS_MAX} items"));
        return None;
    }
    let mut inputs: Vec<OptionInput> = Vec::new();
    for (index, mut item) in items.into_iter().enumerate() {
        let option_input = option_input(&mut item);
        let name = option_input.name.to_lowercase();
        if !name.is_empty() && inputs.iter().any(|other| other.name.to_lowercase() == name) {
            item.reject("name", Code::AlreadyExists, "name is taken by another option");
        }
        fields.absorb(item, &format!("options[{index}]"));
        inputs.push(option_input);
    }
    Some(inputs)
}

/// Reads an option; all members but the description are required.
fn option_input(item: &mut Fields) -> OptionInput {
    let name = name(item);
    let description = description(item).value();
    let color = one_of(item, "color", COLORS).unwrap_or(COLORS[0]);
    let priority = match item.value("priority") {
        None | Some(Value::Null) => {
            item.missing("priority");
            0
        }
        Some(value) => value.as_i64().unwrap_or_else(|| {
            item.invalid("priority", "priority is not an integer");
            0
        }),
    };
    OptionInput { name, description, color, priority }
}

/// An option with a former name keeps its id and creation time.
fn merged_options(
    world: &mut World,
    now: Timestamp,
    before: &[FieldOption],
    inputs: Vec<OptionInput>,
) -> Vec<FieldOption> {
    let mut merged = |OptionInput { name, description, color, priority }| {
        let known = before.iter().find(|known| known.name == name);
        let is_same = |known: &&FieldOption| {
            known.description == description && known.color == color && known.priority == priority
        };
        FieldOption {
            id: known.map_or_else(|| world.next_id(), |known| known.id),
            created_at: known.map_or(now, |known| known.created_at),
            updated_at: known.filter(is_same).map_or(now, |known| known.updated_at),
            name,
            description,
            color,
            priority,
        }
    };
    let mut options: Vec<FieldOption> = inputs.into_iter().map(&mut merged).collect();
    options.sort_by_key(|option| option.priority);
    options
}

fn render(field: &IssueField) -> Value {
    let mut value = json!({
        "id": field.id,
        "node_id": node_id("IssueField", field.id),
        "name": field.name,
        "description": field.description,
        "data_type": field.data_type,
        "visibility": field.visibility,
        "created_at": iso(field.created_at),
        "updated_at": iso(field.updated_at),
    });
    // Only `single_select` has options.
    if field.data_type == SINGLE_SELECT {
        let options: Value = field.options.iter().map(render_option).collect();
        extend(&mut value, json!({ "options": options }));
    }
    value
}

fn render_option(option: &FieldOption) -> Value {
    json!({
        "id": option.id,
        "name": option.name,
        "description": option.description,
        "color": option.color,
        "priority": option.priority,
        "created_at": iso(option.created_at),
        "updated_at": iso(option.updated_at),
    })
}

pub fn overview(world: &World, organization: u64) -> Value {
    of_organization(world, organization)
        .map(|field| json!({ "id": field.id, "name": field.name, "data_type": field.data_type }))
        .collect()
}
