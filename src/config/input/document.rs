//! The file being read: its lines, the source of its secrets and files, and its faults so far.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

use toml::de::DeTable;

use super::fault::{Fault, Faults};
use super::secret_file::{SecretFile, Source};

/// Largest config accepted. A thousand clients take about 200 KiB; a larger file is not a config.
pub(crate) const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Most faults kept: with more the file is not a config, and a list is useless.
const FAULTS_MAX: usize = 1_000;
/// Most syntax errors listed; later ones mostly follow from the first few.
const SYNTAX_FAULTS_MAX: usize = 20;

/// Values used for secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    /// The secret itself.
    Resolved,
    /// A placeholder: for a config that is examined on a machine without its secrets.
    Presumed,
}

/// The file being read, shared by all its readers, which add their faults.
pub(crate) struct Document<'a> {
    file_name: &'a str,
    /// Lookup of an environment variable.
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    /// Base of relative paths.
    pub(crate) base_dir: &'a Path,
    pub(crate) secrets: Secrets,
    /// Files of settings, as an earlier reading of the same text found them.
    pub(super) before: &'a [SecretFile],
    /// Files of settings that were read.
    pub(super) files: RefCell<Vec<SecretFile>>,
    text: &'a str,
    line_starts: Vec<usize>,
    faults: RefCell<Vec<Fault>>,
    left_out: RefCell<Vec<LeftOut>>,
}

/// A part of a config that was not checked, because it was read without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Full key, such as `tokens[0].secret.env`.
    pub key: String,
    /// The thing that was not read, such as a variable or a file.
    pub what: String,
}

impl<'a> Document<'a> {
    pub(crate) fn new(
        text: &'a str,
        file_name: &'a str,
        env: &'a dyn Fn(&str) -> Option<String>,
        base_dir: &'a Path,
        secrets: Secrets,
    ) -> Self {
        let after_newlines =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(after_newlines).collect();
        Self {
            file_name,
            env,
            base_dir,
            secrets,
            before: &[],
            files: RefCell::default(),
            text,
            line_starts,
            faults: RefCell::default(),
            left_out: RefCell::default(),
        }
    }

    /// Returns the text for another reading.
    pub(super) fn source(&self) -> Source {
        Source::of(self.text, self.file_name, self.base_dir)
    }

    /// Remembers that `what`, which the key names, is not read.
    pub(crate) fn leave_out(&self, key: &str, what: impl Into<String>) {
        self.left_out.borrow_mut().push(LeftOut { key: key.to_owned(), what: what.into() });
    }

    /// Returns what was left out so far, and forgets it.
    pub(super) fn take_left_out(&self) -> Vec<LeftOut> {
        self.left_out.take()
    }

    /// Returns line and column of a byte offset, both counted from 1, the column in bytes.
    fn position(&self, at: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= at);
        let start =
            line.checked_sub(1).and_then(|index| self.line_starts.get(index)).copied().unwrap_or(0);
        (line.max(1), at - start + 1)
    }

    /// Adds a fault about the key at the byte offset `at`; `None` for a key that is absent.
    pub(crate) fn fault(
        &self,
        at: Option<usize>,
        key: &str,
        problem: String,
        accepted: Option<String>,
    ) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < FAULTS_MAX {
            let line = at.map(|at| self.position(at).0);
            faults.push(Fault {
                file: self.file_name.to_owned(),
                line,
                key: key.to_owned(),
                problem,
                accepted,
            });
        }
    }

    /// Parses the file; `None` when it is not TOML, with a fault for each bad line.
    pub(crate) fn parse<'t>(&self, text: &'t str) -> Option<DeTable<'t>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Some(table.into_inner());
        }
        let hint = other_format(text);
        let shown = if hint.is_some() { 1 } else { SYNTAX_FAULTS_MAX };
        let mut lines = HashSet::new();
        for error in errors {
            // Only the parser's own words: its full message quotes the line, which may hold a
            // secret.
            let at = error.span().map(|span| span.start);
            let (line, column) = at.map_or((0, 0), |at| self.position(at));
            if lines.len() < shown && lines.insert(line) {
                let place = if column > 0 { format!(" (column {column})") } else { String::new() };
                self.fault(
                    at,
                    "",
                    format!("not TOML: {}{place}{}", error.message(), hint.unwrap_or_default()),
                    None,
                );
            }
        }
        None
    }

    /// Returns the config, or all faults in the order of their lines.
    pub(crate) fn finish<T>(self, config: Option<T>) -> Result<T, Faults> {
        let mut faults = self.faults.into_inner();
        match config {
            Some(config) if faults.is_empty() => Ok(config),
            _ => {
                faults.sort_by_key(|fault| fault.line);
                if faults.len() == FAULTS_MAX {
                    let problem = format!("{FAULTS_MAX} faults and more; only these are listed");
                    faults.push(Fault::of_file(self.file_name, None, problem));
                }
                Err(Faults(faults))
            }
        }
    }
}

/// Recognises another format in a file that is not TOML, and returns advice.
fn other_format(text: &str) -> Option<&'static str> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let first_line =
        text.lines().find(|line| !line.trim_start().starts_with('#')).unwrap_or_default();
    let in_list = text.strip_prefix('[').map(str::trim_start);
    if text.starts_with('{') || in_list.is_some_and(|rest| rest.starts_with(['{', '"'])) {
        Some(
            "; if this is JSON, write it as TOML: sections such as `[listen]`, then lines `key = value`",
        )
    } else if first_line.starts_with("---")
        || (first_line.trim_end().ends_with(':') && !first_line.contains('='))
    {
        Some(
            "; if this is YAML, write it as TOML: sections such as `[listen]`, then lines `key = value`",
        )
    } else {
        None
    }
}

/// Formats a text from the file for a message: in backquotes, on one line, shortened.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("`{shown}{rest}`")
}

/// Formats names for a message: the first few, and the total when there are more.
pub(crate) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 24;
    let count = names.len();
    let mut list = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if count > SHOWN {
        // Writing to a string cannot fail.
        let _ = write!(list, ", … {count} in all");
    }
    list
}
