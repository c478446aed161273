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
            return Ok(Self::new(resource, Map::new()));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Self::new(resource, map)),
            Ok(_) => Err(ApiError::BadRequest("Body should be a JSON object".to_owned())),
            Err(_) => Err(ApiError::MalformedJson),
        }
    }

    fn new(resource: &'static str, map: Map<String, Value>) -> Self {
        Self { resource, map, faults: Vec::new() }
    }

    /// Parses a body that may also be the array `member` alone.
    pub fn parse_list(resource: &'static str, member: &str, body: &[u8]) -> Result<Self, ApiError> {
        let Ok(items @ Value::Array(_)) = serde_json::from_slice(body) else {
            return Self::parse(resource, body);
        };
        let map = Map::from_iter([(member.to_owned(), items)]);
        Ok(Self { resource, map, faults: Vec::new() })
    }

    /// `None` when it is absent.
    pub fn object(&mut self, name: &str) -> Option<Self> {
        let map = self.read(name, "an object", |value| value.as_object().cloned())?;
        Some(Self::new(self.resource, map))
    }

    /// `None` when it is absent.
    pub fn objects(&mut self, name: &str) -> Option<Vec<Self>> {
        let resource = self.resource;
        let object = |item: &Value| Some(Self::new(resource, item.as_object()?.clone()));
        self.list(name, "an array of objects", object)
    }

    pub fn absorb(&mut self, inner: Self, name: &str) {
        let named =
            |fault: FieldError| FieldError { field: format!("{name}.{}", fault.field), ..fault };
        self.faults.extend(inner.faults.into_iter().map(named));
    }

    pub fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    pub fn member_names(&self) -> Vec<String> {
        self.map.keys().cloned().collect()
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        self.map.get(name)
    }

    /// `None` when the field is absent, or notes that its value is not what is `wanted`.
    fn read<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = read(self.map.get(name)?);
        if value.is_none() {
            self.invalid(name, format!("{name} is not {wanted}"));
        }
        value
    }

    fn list<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.read(name, wanted, |value| value.as_array()?.iter().map(read).collect())
    }

    pub fn string(&mut self, name: &str) -> Option<String> {
        self.read(name, "a string", |value| value.as_str().map(str::to_owned))
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
            Some(_) => self.string(name).unwrap_or_default(),
        }
    }

    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        self.read(name, "a boolean", Value::as_bool)
    }

    pub fn nullable_integer(&mut self, name: &str) -> Change<u64> {
        match self.map.get(name) {
            Some(Value::Null) => Change::Clear,
            _ => self.read(name, "an integer", Value::as_u64).map_or(Change::Keep, Change::Set),
        }
    }

    pub fn strings(&mut self, name: &str) -> Option<Vec<String>> {
        self.list(name, "an array of strings", |item| item.as_str().map(str::to_owned))
    }

    /// Accepts strings and objects with a name.
    pub fn names(&mut self, name: &str) -> Option<Vec<String>> {
        let named = |item: &Value| {
            item.as_str().or_else(|| item.get("name").and_then(Value::as_str)).map(str::to_owned)
        };
        let is_array = self.map.get(name).is_some_and(Value::is_array);
        self.list(name, if is_array { "an array of names" } else { "an array" }, named)
    }

    /// Reads one of the values that `named` knows.
    pub fn choice<T>(
        &mut self,
        name: &str,
        named: impl FnOnce(&str) -> Option<T>,
        message: &str,
    ) -> Option<T> {
        let given = self.string(name)?;
        let known = named(&given);
        if known.is_none() {
            self.invalid(name, message);
        }
        known
    }

    /// Notes an absent field as missing; its value may be empty or null.
    pub fn require(&mut self, name: &str) {
        if !self.has(name) {
            self.missing(name);
        }
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
    fn all_invalid_fields_are_reported_at_once() {
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
