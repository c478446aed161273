//! Writes a config back as TOML: the sections in the order of SPECIFICATION, "Configuration", each
//! key with its effective value.

use std::fmt::{Display, Write};

/// Printed for every secret and every key's hash.
const REDACTED: &str = "<redacted>";

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

    /// Writes a key with a value that is already TOML.
    pub(in crate::config) fn set(&mut self, key: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }

    pub(in crate::config) fn finish(self) -> String {
        self.0
    }
}

/// Formats a TOML string.
pub(in crate::config) fn text(value: impl Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}

/// Formats a TOML float, which always has a point.
pub(in crate::config) fn float(value: f64) -> String {
    toml::Value::Float(value).to_string()
}

/// Formats a list of TOML values.
pub(in crate::config) fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// Formats a table of TOML values on one line.
pub(in crate::config) fn inline(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", fields.join(", "))
}

pub(in crate::config) fn redacted() -> String {
    text(REDACTED)
}
