//! Writes a config back as TOML: the sections in the order of the contract, each key with the value
//! that is in force.

use std::fmt::{Display, Write};

/// What stands in place of every secret, and of every key's hash.
const REDACTED: &str = "<redacted>";

/// TOML in the making.
#[derive(Default)]
pub(in crate::config) struct Printer(String);

impl Printer {
    /// Begins the section `[name]`.
    pub(in crate::config) fn section(&mut self, name: &str) {
        self.header(&format!("[{name}]"));
    }

    /// Begins an entry `[[name]]`.
    pub(in crate::config) fn entry(&mut self, name: &str) {
        self.header(&format!("[[{name}]]"));
    }

    fn header(&mut self, header: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(header);
        self.0.push('\n');
    }

    /// A key with a value that is already TOML: a number, or what the functions below make.
    pub(in crate::config) fn set(&mut self, key: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }

    /// The finished text.
    pub(in crate::config) fn finish(self) -> String {
        self.0
    }
}

/// A TOML string.
pub(in crate::config) fn text(value: impl Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}

/// A TOML float, which always has a point.
pub(in crate::config) fn float(value: f64) -> String {
    toml::Value::Float(value).to_string()
}

/// A list of values that are already TOML.
pub(in crate::config) fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// A table on one line, of values that are already TOML.
pub(in crate::config) fn inline(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", fields.join(", "))
}

/// A secret.
pub(in crate::config) fn redacted() -> String {
    text(REDACTED)
}
