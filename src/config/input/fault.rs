//! What is wrong with a config, in the form an operator can act on: where, which key, what, and
//! what is accepted instead.
//!
//! Faults are collected, not thrown: a file with ten mistakes is reported with ten lines. No fault
//! ever quotes a secret.

use std::fmt;

/// One thing wrong with a config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as the operator named it.
    pub file: String,
    /// The line, counted from 1; `None` when the fault is about the file as a whole.
    pub line: Option<usize>,
    /// The full key, such as `clients[0].reads`; empty when the file could not be read as TOML at
    /// all.
    pub key: String,
    /// What is wrong, lower case and without a full stop.
    pub problem: String,
    /// What would be right, where that can be said in a few words.
    pub accepted: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.problem)?;
        self.accepted.as_ref().map_or(Ok(()), |accepted| write!(f, " (accepted: {accepted})"))
    }
}

/// Everything wrong with a config file, in the order of its lines; shown one fault a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// The faults one by one.
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a Fault;
    type IntoIter = std::slice::Iter<'a, Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.0.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
