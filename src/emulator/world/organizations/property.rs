//! Definitions and values of custom properties.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use strum::{EnumString, IntoStaticStr};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: String,
    pub value_type: ValueType,
    /// Gives every repository a value: its own or the default.
    pub required: bool,
    pub default_value: Option<PropertyValue>,
    pub description: Option<String>,
    pub allowed_values: Option<Vec<String>>,
    pub editors: Editors,
    /// Stored without effect, because the upstream does not document one.
    pub require_explicit_values: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ValueType {
    #[strum(serialize = "string")]
    Text,
    SingleSelect,
    MultiSelect,
    TrueFalse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Editors {
    /// The organisation's administrators and values editors.
    OrgActors,
    /// Also callers with push rights in the repository.
    OrgAndRepoActors,
}

/// A string or an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    One(String),
    Many(Vec<String>),
}

impl PropertyValue {
    pub fn to_json(&self) -> Value {
        match self {
            Self::One(text) => json!(text),
            Self::Many(texts) => json!(texts),
        }
    }

    pub fn has(&self, wanted: &str) -> bool {
        let texts = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        };
        texts.iter().any(|text| text.to_lowercase() == wanted.to_lowercase())
    }
}

impl Definition {
    /// Each text must be an allowed value, if there is a list; a selection without a list accepts
    /// none.
    pub fn accept(&self, given: &Value) -> Result<PropertyValue, String> {
        let text = |given: &Value| given.as_str().map(str::to_owned);
        if self.value_type != ValueType::MultiSelect {
            let text = text(given).ok_or("is not a string")?;
            self.allow(&text)?;
            return Ok(PropertyValue::One(text));
        }
        let texts: Option<Vec<String>> =
            given.as_array().and_then(|items| items.iter().map(text).collect());
        let texts = texts.ok_or("is not an array of strings")?;
        texts.iter().try_for_each(|text| self.allow(text))?;
        if has_twice(&texts) {
            return Err("names a value twice".to_owned());
        }
        Ok(PropertyValue::Many(texts))
    }

    fn allow(&self, text: &str) -> Result<(), String> {
        let is_allowed = match (self.value_type, &self.allowed_values) {
            (ValueType::TrueFalse, _) => matches!(text, "true" | "false"),
            (_, Some(allowed)) => allowed.iter().any(|allowed| allowed == text),
            (ValueType::Text, None) => true,
            (ValueType::SingleSelect | ValueType::MultiSelect, None) => false,
        };
        if text.len() > VALUE_BYTES_MAX {
            return Err(format!("is longer than {VALUE_BYTES_MAX} bytes"));
        }
        if is_allowed { Ok(()) } else { Err("is not one of the allowed values".to_owned()) }
    }

    pub fn keeps(&self, value: &PropertyValue) -> bool {
        self.accept(&value.to_json()).is_ok()
    }
}

pub const VALUE_BYTES_MAX: usize = 255;

pub fn has_twice(texts: &[String]) -> bool {
    texts.iter().collect::<BTreeSet<_>>().len() < texts.len()
}
