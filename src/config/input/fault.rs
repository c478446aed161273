//! Faults of a config in a form that operators can act on: place, key, problem, and what is
//! accepted.
//!
//! A file with ten mistakes is reported with ten lines. No fault quotes a secret.

use std::fmt::{self, Write as _};

/// One fault of a config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// File name as the operator gave it.
    pub file: String,
    /// Line, counted from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// Full key, such as `clients[0].reads`; empty when the file is not TOML.
    pub key: String,
    /// The problem, lower case and without a full stop.
    pub problem: String,
    /// Accepted values, if a few words can describe them.
    pub accepted: Option<String>,
}

impl Fault {
    /// Creates a fault of no single key.
    pub(super) fn of_file(file: &str, line: Option<usize>, problem: String) -> Self {
        Self { file: file.to_owned(), line, key: String::new(), problem, accepted: None }
    }
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
        // A path or a name that it quotes may have control characters.
        write!(f, " ")?;
        for character in self.problem.chars() {
            match character {
                control if control.is_control() => write!(f, "{}", control.escape_debug())?,
                other => f.write_char(other)?,
            }
        }
        self.accepted.as_ref().map_or(Ok(()), |accepted| write!(f, " (accepted: {accepted})"))
    }
}

/// All faults of a config file in the order of its lines; displayed one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// Iterates over the faults.
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
