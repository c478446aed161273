//! Documented objects as data, and the comparison of a JSON value with one.
//!
//! A field counts as compared only with a value: null says nothing about a nullable field, an empty
//! list nothing about its items. Undocumented fields may be present.

use serde_json::Value;

use crate::recorder::{Event, record};

#[derive(Debug)]
pub struct Object {
    pub name: &'static str,
    pub fields: &'static [Field],
}

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub ty: Type,
    /// The first cell of its line in the document's table.
    pub line: &'static str,
}

/// The documented type of a value.
#[derive(Debug)]
pub enum Type {
    String,
    /// A string that is not empty.
    Text,
    Integer,
    Number,
    Boolean,
    /// `YYYY-MM-DDTHH:MM:SSZ`, or a numeric offset instead of `Z`.
    Timestamp,
    /// An absolute URL or a template of one.
    Url,
    /// One of these strings; each observed value is recorded.
    OneOf(&'static [&'static str]),
    /// A value of this type must be observed once; null may be too.
    Nullable(&'static Type),
    /// Null suffices: the documents do not say when there is a value.
    MaybeNull(&'static Type),
    /// At least one item must be observed.
    Array(&'static Type),
    /// An empty list suffices.
    MaybeEmpty(&'static Type),
    Object(&'static Object),
    /// Any object.
    Map,
    /// Any one of these.
    Either(&'static [Type]),
}

/// A field with its own line in the document's table.
pub const fn field(name: &'static str, ty: Type) -> Field {
    Field { name, ty, line: name }
}

/// A field that shares its line with others; `line` is the line's first cell.
pub const fn listed(line: &'static str, name: &'static str, ty: Type) -> Field {
    Field { name, ty, line }
}

/// Compares and records. Panics with every fault.
pub fn assert_shape(value: &Value, object: &'static Object) {
    let faults = faults(value, object);
    assert!(faults.is_empty(), "not a {}:\n{}\nin {value}", object.name, faults.join("\n"));
}

/// Compares the items of a list, which must not be empty.
pub fn assert_shapes(value: &Value, object: &'static Object) {
    let items = value.as_array().unwrap_or_else(|| panic!("no list of {}: {value}", object.name));
    assert!(!items.is_empty(), "an empty list shows no {}", object.name);
    for item in items {
        assert_shape(item, object);
    }
}

/// The faults that keep `value` from being `object`; matching fields are recorded.
pub fn faults(value: &Value, object: &'static Object) -> Vec<String> {
    let Some(map) = value.as_object() else {
        return vec![format!("{}: {value} is no object", object.name)];
    };
    let mut faults = Vec::new();
    for field in object.fields {
        match map.get(field.name).map(|value| fit(value, &field.ty)) {
            None => faults.push(format!("{} is missing", field.name)),
            Some(Fit::Wrong(what)) => faults.push(format!("{}: {what}", field.name)),
            Some(Fit::Unseen) => {}
            Some(Fit::Compared(text)) => {
                record(Event::Compared { object: object.name, field: field.name, text });
            }
        }
    }
    faults
}

/// The result of comparing a value with a type.
enum Fit {
    /// Compared, with the text of a closed set.
    Compared(Option<String>),
    /// Not wrong, but nothing to compare.
    Unseen,
    Wrong(String),
}

fn fit(value: &Value, ty: &'static Type) -> Fit {
    let text = value.as_str();
    let fits = match ty {
        Type::String => text.is_some(),
        Type::Text => text.is_some_and(|text| !text.is_empty()),
        Type::Integer => value.is_u64() || value.is_i64(),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::Timestamp => text.is_some_and(is_timestamp),
        Type::Url => text.is_some_and(is_url),
        Type::Map => value.is_object(),
        Type::OneOf(values) => match text {
            Some(text) if values.contains(&text) => return Fit::Compared(Some(text.to_owned())),
            _ => false,
        },
        Type::Nullable(inner) => {
            return if value.is_null() { Fit::Unseen } else { fit(value, inner) };
        }
        Type::MaybeNull(inner) => {
            return if value.is_null() { Fit::Compared(None) } else { fit(value, inner) };
        }
        Type::Array(item) => return fit_items(value, item, Fit::Unseen),
        Type::MaybeEmpty(item) => return fit_items(value, item, Fit::Compared(None)),
        Type::Object(object) => {
            let faults = faults(value, object);
            return if faults.is_empty() {
                Fit::Compared(None)
            } else {
                Fit::Wrong(faults.join("; "))
            };
        }
        Type::Either(types) => {
            let fitting =
                types.iter().map(|ty| fit(value, ty)).find(|fit| !matches!(fit, Fit::Wrong(_)));
            return fitting.unwrap_or_else(|| Fit::Wrong(format!("{value} is none of {types:?}")));
        }
    };
    if fits { Fit::Compared(None) } else { Fit::Wrong(format!("{value} is not {ty:?}")) }
}

fn fit_items(value: &Value, item: &'static Type, empty: Fit) -> Fit {
    let Some(items) = value.as_array() else { return Fit::Wrong(format!("{value} is no list")) };
    let mut result = empty;
    for value in items {
        match fit(value, item) {
            Fit::Wrong(what) => return Fit::Wrong(what),
            Fit::Unseen => {}
            Fit::Compared(_) => result = Fit::Compared(None),
        }
    }
    result
}

/// "ISO 8601, `YYYY-MM-DDTHH:MM:SSZ` (some responses carry a numeric UTC offset instead of Z)"
/// (SPECIFICATION, "Conventions").
pub fn is_timestamp(text: &str) -> bool {
    let matches = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| {
                if wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted }
            })
    };
    let Some((moment, zone)) = text.split_at_checked(19) else { return false };
    matches(moment, "0000-00-00T00:00:00")
        && (zone == "Z" || matches(zone, "+00:00") || matches(zone, "-00:00"))
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && !text.contains(char::is_whitespace)
}

mod tests {
    use serde_json::json;

    use super::*;
    use crate::recorder;

    static THING: Object = Object {
        name: "thing",
        fields: &[
            field("id", Type::Integer),
            field("at", Type::Timestamp),
            field("state", Type::OneOf(&["open", "closed"])),
            field("note", Type::Nullable(&Type::String)),
            field("tags", Type::Array(&Type::String)),
        ],
    };

    fn compared() -> Vec<&'static str> {
        let fields = recorder::take().into_iter();
        fields
            .filter_map(
                |event| if let Event::Compared { field, .. } = event { Some(field) } else { None },
            )
            .collect()
    }

    #[test]
    fn only_present_fields_count_as_compared() {
        recorder::take();
        assert_shape(
            &json!({ "id": 1, "at": "2026-01-02T03:04:05Z", "state": "open", "note": null, "tags": [] }),
            &THING,
        );
        assert_eq!(compared(), ["id", "at", "state"]);
        assert_shape(
            &json!({ "id": 1, "at": "2026-01-02T03:04:05+02:00", "state": "closed", "note": "n", "tags": ["a"] }),
            &THING,
        );
        assert_eq!(compared(), ["id", "at", "state", "note", "tags"]);
    }

    #[test]
    fn all_faults_of_an_object_are_found_at_once() {
        let faults = faults(
            &json!({ "id": "1", "at": "yesterday", "state": "ajar", "note": 1, "tags": [2] }),
            &THING,
        );
        assert_eq!(faults.len(), 5, "{faults:?}");
        assert_eq!(super::faults(&json!({}), &THING).len(), 5);
        assert_eq!(super::faults(&json!([]), &THING).len(), 1);
    }
}
