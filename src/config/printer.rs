//! Writes a config back as TOML: the sections in the order of SPECIFICATION, "Configuration", each
//! key with its effective value.

use std::fmt::{Display, Write};

/// Printed for every secret and every key's hash.
const REDACTED: &str = "<redacted>";

#[derive(Default)]
pub(crate) struct Printer(String);

impl Printer {
    /// Begins the section `[name]`.
    pub(crate) fn section(&mut self, name: &str) {
        self.header(&format!("[{name}]"));
    }

    /// Begins an entry `[[name]]`.
    pub(crate) fn entry(&mut self, name: &str) {
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
    pub(crate) fn set(&mut self, key: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }

    /// Writes a key that may be absent.
    pub(crate) fn set_some(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// Formats a TOML string, in which nothing refers to a variable.
pub(crate) fn text(value: impl Display) -> String {
    toml::Value::String(value.to_string().replace("${", "$${")).to_string()
}

/// Formats a TOML float, which always has a point.
pub(crate) fn float(value: f64) -> String {
    toml::Value::Float(value).to_string()
}

/// Formats a list of TOML values.
pub(crate) fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// Formats a table of TOML values on one line.
pub(crate) fn inline(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", fields.join(", "))
}

pub(crate) fn redacted() -> String {
    text(REDACTED)
}
