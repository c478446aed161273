//! Definitions of custom properties: their fields, parsing and accepted values (SPECIFICATION,
//! "Custom properties").
//!
//! The upstream does not enumerate the types. Accepted value types are its two examples and the
//! running service's `multi_select` and `true_false`; accepted editors are the two documented ones.

use serde_json::{Value, json};

use crate::emulator::http::{Fields, Urls, segment};
use crate::emulator::world::organizations::property::{VALUE_BYTES_MAX, ValueType, has_twice};
use crate::emulator::world::{Definition, Editors, PropertyValue};

/// The documented maximum of an ordered list.
const ALLOWED_VALUES_MAX: usize = 200;
/// Bounds of texts in bytes. Undocumented; at least the running service's.
const NAME_BYTES_MAX: usize = 75;
const DESCRIPTION_BYTES_MAX: usize = 1_024;

/// Returns true for a valid name. Undocumented; the running service's characters, at most 75.
pub fn is_name(name: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$' | '#');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_usual)
}

impl Definition {
    /// Records errors in `fields`. Omitted optional fields take their defaults, not earlier values.
    pub fn read(fields: &mut Fields, name: String) -> Self {
        let mut definition = Self {
            name,
            value_type: value_type(fields),
            required: fields.boolean("required").unwrap_or(false),
            default_value: None,
            description: fields.nullable_string("description").value(),
            allowed_values: None,
            editors: editors(fields),
            require_explicit_values: fields.boolean("require_explicit_values").unwrap_or(false),
        };
        if definition.description.as_ref().is_some_and(|text| text.len() > DESCRIPTION_BYTES_MAX) {
            let message = format!("description is longer than {DESCRIPTION_BYTES_MAX} bytes");
            fields.invalid("description", message);
        }
        definition.allowed_values = allowed_values(fields, definition.value_type);
        definition.default_value = match fields.value("default_value").cloned() {
            None | Some(Value::Null) => None,
            Some(given) => match definition.accept(&given) {
                Ok(value) => Some(value),
                Err(why) => {
                    fields.invalid("default_value", format!("default_value {why}"));
                    None
                }
            },
        };
        definition
    }

    pub fn render(&self, urls: &Urls, organization: &str) -> Value {
        json!({
            "property_name": self.name,
            "url": format!("{}/orgs/{}/properties/schema/{}", urls.api, segment(organization), segment(&self.name)),
            "source_type": "organization",
            "value_type": self.value_type.into_str(),
            "required": self.required,
            "default_value": self.default_value.as_ref().map(PropertyValue::to_json),
            "description": self.description,
            "allowed_values": self.allowed_values,
            "values_editable_by": self.editors.into_str(),
            "require_explicit_values": self.require_explicit_values,
        })
    }
}

fn value_type(fields: &mut Fields) -> ValueType {
    let given = fields.required_string("value_type");
    let known = given.parse().ok();
    if known.is_none() && !given.is_empty() {
        let message = "value_type must be string, single_select, multi_select or true_false";
        fields.invalid("value_type", message);
    }
    known.unwrap_or(ValueType::Text)
}

/// Null counts as absent and gives the default.
fn editors(fields: &mut Fields) -> Editors {
    let given = fields.nullable_string("values_editable_by").value();
    let known = [Editors::OrgActors, Editors::OrgAndRepoActors];
    let editors = known.into_iter().find(|known| given.as_deref() == Some(known.into_str()));
    if given.is_some() && editors.is_none() {
        let message = "values_editable_by must be org_actors or org_and_repo_actors";
        fields.invalid("values_editable_by", message);
    }
    editors.unwrap_or(Editors::OrgActors)
}

fn allowed_values(fields: &mut Fields, value_type: ValueType) -> Option<Vec<String>> {
    if fields.value("allowed_values").is_none_or(Value::is_null) {
        return None;
    }
    let values = fields.strings("allowed_values")?;
    let fault = if value_type == ValueType::TrueFalse {
        Some("allowed_values of true_false are true and false; leave them out".to_owned())
    } else if values.len() > ALLOWED_VALUES_MAX {
        Some(format!("allowed_values has more than {ALLOWED_VALUES_MAX} entries"))
    } else if has_twice(&values) {
        Some("allowed_values has an entry twice".to_owned())
    } else if values.iter().any(|value| value.is_empty() || value.len() > VALUE_BYTES_MAX) {
        Some(format!(
            "allowed_values has an entry that is empty or longer than {VALUE_BYTES_MAX} bytes"
        ))
    } else {
        None
    };
    if let Some(fault) = fault {
        fields.invalid("allowed_values", fault);
    }
    Some(values)
}
