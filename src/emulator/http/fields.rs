//! Reads the fields of a JSON body and reports all invalid ones at once.

use serde_json::{Map, Value};

use super::error::{ApiError, Code, FieldError};

#[derive(Debug)]
pub struct Fields {
    resource: &'static str,
    map: Map<String, Value>,
    faults: Vec<FieldError>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// The field is absent.
    #[default]
    Keep,
    /// The field is null.
    Clear,
    Set(T),
}

impl<T> Change<T> {
    pub fn of(self, old: Option<T>) -> Option<T> {
        match self {
            Self::Keep => old,
            Self::Clear => None,
            Self::Set(new) => Some(new),
        }
    }

    pub fn value(self) -> Option<T> {
        self.of(None)
    }
}

impl Fields {
    /// Parses a body; an empty one has no fields. Errors name `resource`.
    pub fn parse(resource: &'static str, body: &[u8]) -> Result<Self, ApiError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self { resource, map: Map::new(), faults: Vec::new() });
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Self { resource, map, faults: Vec::new() }),
            Ok(_) => Err(ApiError::BadRequest("Body should be a JSON object".to_owned())),
            Err(_) => Err(ApiError::MalformedJson),
        }
    }

    /// `None` when it is absent.
    pub fn object(&mut self, name: &str) -> Option<Self> {
        match self.map.get(name) {
            None => None,
            Some(Value::Object(map)) => {
                Some(Self { resource: self.resource, map: map.clone(), faults: Vec::new() })
            }
            Some(_) => self.wrong_type(name, "an object"),
        }
    }

    /// `None` when it is absent.
    pub fn objects(&mut self, name: &str) -> Option<Vec<Self>> {
        let Value::Array(items) = self.map.get(name)? else {
            return self.wrong_type(name, "an array of objects");
        };
        let objects: Option<Vec<Map<String, Value>>> =
            items.iter().map(|item| item.as_object().cloned()).collect();
        let Some(objects) = objects else { return self.wrong_type(name, "an array of objects") };
        Some(
            objects
                .into_iter()
                .map(|map| Self { resource: self.resource, map, faults: Vec::new() })
                .collect(),
        )
    }

    pub fn absorb(&mut self, inner: Self, name: &str) {
        self.faults.extend(
            inner
                .faults
                .into_iter()
                .map(|fault| FieldError { field: format!("{name}.{}", fault.field), ..fault }),
        );
    }

    pub fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        self.map.get(name)
    }

    pub fn string(&mut self, name: &str) -> Option<String> {
        match self.map.get(name) {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => self.wrong_type(name, "a string"),
        }
    }

    pub fn nullable_string(&mut self, name: &str) -> Change<String> {
        match self.map.get(name) {
            Some(Value::Null) => Change::Clear,
            _ => self.string(name).map_or(Change::Keep, Change::Set),
        }
    }

    /// On an error it returns the empty string.
    pub fn required_string(&mut self, name: &str) -> String {
        match self.map.get(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
            Some(Value::String(_) | Value::Null) | None => {
                self.missing(name);
                String::new()
            }
            Some(_) => self.wrong_type(name, "a string").unwrap_or_default(),
        }
    }

    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        match self.map.get(name) {
            None => None,
            Some(Value::Bool(value)) => Some(*value),
            Some(_) => self.wrong_type(name, "a boolean"),
        }
    }

    pub fn nullable_integer(&mut self, name: &str) -> Change<u64> {
        match self.map.get(name) {
            None => Change::Keep,
            Some(Value::Null) => Change::Clear,
            Some(value) => value
                .as_u64()
                .or_else(|| self.wrong_type(name, "an integer"))
                .map_or(Change::Keep, Change::Set),
        }
    }

    pub fn strings(&mut self, name: &str) -> Option<Vec<String>> {
        let items = match self.map.get(name) {
            None => return None,
            Some(Value::Array(items)) => items,
            Some(_) => return self.wrong_type(name, "an array of strings"),
        };
        let texts: Option<Vec<String>> =
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        texts.or_else(|| self.wrong_type(name, "an array of strings"))
    }

    /// Accepts strings and objects with a name.
    pub fn names(&mut self, name: &str) -> Option<Vec<String>> {
        let items = match self.map.get(name) {
            None => return None,
            Some(Value::Array(items)) => items,
            Some(_) => return self.wrong_type(name, "an array"),
        };
        let named = |item: &Value| {
            item.as_str().or_else(|| item.get("name").and_then(Value::as_str)).map(str::to_owned)
        };
        let texts: Option<Vec<String>> = items.iter().map(named).collect();
        texts.or_else(|| self.wrong_type(name, "an array of names"))
    }

    /// Notes that the value of a field is invalid.
    pub fn invalid(&mut self, name: &str, message: impl Into<String>) {
        self.reject(name, Code::Invalid, message);
    }

    /// Notes that a field is required.
    pub fn missing(&mut self, name: &str) {
        self.reject(name, Code::MissingField, format!("{name} is required"));
    }

    /// Notes that something else has the value of a field already.
    pub fn taken(&mut self, name: &str) {
        self.reject(name, Code::AlreadyExists, format!("{name} is taken"));
    }

    pub fn reject(&mut self, name: &str, code: Code, message: impl Into<String>) {
        self.faults.push(FieldError {
            resource: self.resource,
            field: name.to_owned(),
            code,
            message: message.into(),
        });
    }

    fn wrong_type<T>(&mut self, name: &str, wanted: &str) -> Option<T> {
        self.invalid(name, format!("{name} is not {wanted}"));
        None
    }

    pub fn check(&mut self) -> Result<(), ApiError> {
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(ApiError::Invalid(std::mem::take(&mut self.faults)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_field_is_named_at_once() {
        let mut fields = Fields::parse("Issue", br#"{"title": 3, "labels": [1], "draft": "no"}"#)
            .expect("it is JSON");
        assert_eq!(fields.required_string("title"), "");
        assert_eq!(fields.names("labels"), None);
        assert_eq!(fields.boolean("draft"), None);
        let Err(ApiError::Invalid(faults)) = fields.check() else {
            panic!("three fields are wrong")
        };
        let names: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(names, ["title", "labels", "draft"]);
    }

    #[test]
    fn malformed_json_is_a_bad_request_and_so_is_an_array() {
        assert_eq!(Fields::parse("Issue", b"{").unwrap_err(), ApiError::MalformedJson);
        assert!(matches!(Fields::parse("Issue", b"[]").unwrap_err(), ApiError::BadRequest(_)));
        assert!(Fields::parse("Issue", b" ").is_ok());
    }
}
