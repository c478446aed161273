//! The file being read with those that it includes: their lines, the source of secrets and
//! variables, and the faults so far.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::fault::{Fault, Faults};
use super::loaded_file::LoadedFile;
use super::references::{References, Unresolved, resolved};
use super::secret_file::{SecretFile, Source};
use super::sources::{File, Sources};

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
    /// The same, but files of certificates and keys may be missing: a running gateway has older
    /// ones.
    WithoutCertificates,
    /// A placeholder: for a config that is examined on a machine without its secrets.
    Presumed,
}

/// The ways in which a config is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) secrets: Secrets,
    pub(crate) references: References,
}

/// A part of a config that was not checked, because it was read without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Full key, such as `tokens[0].secret.env`.
    pub key: String,
    /// The thing that was not read, such as a variable or a file.
    pub what: String,
}

/// A string with references to variables.
enum Reference {
    /// Its text in the file and its value.
    Replaced { written: String, value: String },
    /// A value that cannot be formed; true once that was reported.
    Unresolved(Unresolved, bool),
}

/// The result of reading.
pub(crate) struct Loaded<T> {
    /// `None` if it depends on a variable that was left out.
    pub(crate) value: Option<T>,
    pub(crate) left_out: Vec<LeftOut>,
    /// Key and text of each remark about a valid file.
    pub(crate) notices: Vec<(String, String)>,
    /// All files that were read, as the operator would name them.
    pub(crate) files: Vec<String>,
}

/// The file being read with those that it includes, shared by all its readers, which add their
/// faults.
pub(crate) struct Document<'a> {
    sources: Sources,
    /// Lookup of an environment variable.
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) secrets: Secrets,
    references: References,
    /// Files of settings, as an earlier reading of the same texts found them.
    pub(super) before: &'a [SecretFile],
    /// Those of them whose present content is read. Others may be half written.
    pub(super) changed: &'a [PathBuf],
    /// Files of settings that were read.
    pub(super) files: RefCell<Vec<SecretFile>>,
    /// Other files, as an earlier reading of the same texts loaded them.
    pub(super) loaded_before: &'a [LoadedFile],
    /// Other files that were loaded.
    pub(super) loaded: RefCell<Vec<LoadedFile>>,
    /// Strings with references by the offset at which readers find them.
    replaced: RefCell<HashMap<usize, Reference>>,
    /// Each with the position of its file.
    faults: RefCell<Vec<(usize, Fault)>>,
    left_out: RefCell<Vec<LeftOut>>,
    notices: Vec<(String, String)>,
    /// A variable was left out, so that the values are not those of the gateway.
    is_partial: Cell<bool>,
    /// An item of `include` was left out, so that any entry may be in a file that is not known.
    lacks_files: Cell<bool>,
}

impl<'a> Document<'a> {
    /// Creates a document without a file. The first that is added is the config file itself.
    pub(crate) fn new(env: &'a dyn Fn(&str) -> Option<String>, manner: Manner) -> Self {
        Self {
            sources: Sources::default(),
            env,
            secrets: manner.secrets,
            references: manner.references,
            before: &[],
            changed: &[],
            files: RefCell::default(),
            loaded_before: &[],
            loaded: RefCell::default(),
            replaced: RefCell::default(),
            faults: RefCell::default(),
            left_out: RefCell::default(),
            notices: Vec::new(),
            is_partial: Cell::default(),
            lacks_files: Cell::default(),
        }
    }

    /// Adds a file, and returns its table; `None` when it is not TOML, with a fault for each bad
    /// line. The offsets of the table are those in the whole document.
    pub(super) fn add<'t>(&mut self, file: &File<'t>) -> Option<DeTable<'t>> {
        let start = self.sources.add(file);
        let table = self.parse(file.text, start)?;
        Some(self.placed(table, start))
    }

    /// Moves the offsets of a file's table to those in the document, and replaces references.
    fn placed<'t>(&self, table: DeTable<'t>, start: usize) -> DeTable<'t> {
        let moved = |range: Range<usize>| range.start + start..range.end + start;
        let entry = |(key, value): (Spanned<Cow<'t, str>>, Spanned<DeValue<'t>>)| {
            let key = Spanned::new(moved(key.span()), key.into_inner());
            let span = moved(value.span());
            let value = self.placed_value(value.into_inner(), start, key.span().start);
            (key, Spanned::new(span, value))
        };
        table.into_iter().map(entry).collect()
    }

    fn placed_value<'t>(&self, value: DeValue<'t>, start: usize, place: usize) -> DeValue<'t> {
        match value {
            DeValue::Table(table) => DeValue::Table(self.placed(table, start)),
            DeValue::Array(items) => {
                let mut list = DeArray::new();
                for item in items {
                    let span = item.span().start + start..item.span().end + start;
                    let value = self.placed_value(item.into_inner(), start, span.start);
                    list.push(Spanned::new(span, value));
                }
                DeValue::Array(list)
            }
            DeValue::String(text) => DeValue::String(self.replaced(text, place)),
            other => other,
        }
    }

    /// Replaces the references of a string that readers find at `place`.
    fn replaced<'t>(&self, text: Cow<'t, str>, place: usize) -> Cow<'t, str> {
        if self.references == References::Literal || !text.contains("${") {
            return text;
        }
        let (reference, text) = match resolved(&text, self.env).map(Cow::into_owned) {
            Ok(value) => {
                let written = text.into_owned();
                (Reference::Replaced { written, value: value.clone() }, Cow::Owned(value))
            }
            Err(unresolved) => (Reference::Unresolved(unresolved, false), text),
        };
        self.replaced.borrow_mut().insert(place, reference);
        text
    }

    /// Returns true if the string at this offset has no value, because of a reference. The first
    /// reader adds the fault, or leaves it out.
    pub(super) fn is_unresolved(&self, at: usize) -> bool {
        matches!(self.replaced.borrow().get(&at), Some(Reference::Unresolved(..)))
    }

    /// Like [`Document::is_unresolved`], for an item of `include`.
    pub(super) fn lacks_file(&self, at: usize) -> bool {
        let is_unresolved = self.is_unresolved(at);
        if is_unresolved {
            self.lacks_files.set(true);
        }
        is_unresolved
    }

    /// Returns true if any entry may be in an included file that is not known. Faults about absent
    /// entries would then be wrong, or follow from another fault.
    pub(crate) fn lacks_files(&self) -> bool {
        self.lacks_files.get()
    }

    /// Like [`Document::is_unresolved`], for the reader of the string at the full key `key`.
    pub(super) fn refuse_unresolved(&self, at: usize, key: &str) -> bool {
        let unresolved = match self.replaced.borrow_mut().get_mut(&at) {
            Some(Reference::Unresolved(_, true)) => return true,
            Some(Reference::Unresolved(unresolved, reported)) => {
                *reported = true;
                unresolved.clone()
            }
            _ => return false,
        };
        let is_unset = matches!(unresolved, Unresolved::Unset(_));
        if is_unset && self.references == References::Examined {
            self.is_partial.set(true);
            self.leave_out(key, unresolved.problem());
        } else {
            let accepted = Some(unresolved.accepted().to_owned());
            self.fault(Some(at), key, unresolved.problem(), accepted);
        }
        true
    }

    /// Returns true if the string at this offset came from the environment, at least in part.
    pub(super) fn is_from_environment(&self, at: usize) -> bool {
        matches!(self.replaced.borrow().get(&at), Some(Reference::Replaced { .. }))
    }

    /// Shows what came from the environment as it is written in the file: it may be a secret in the
    /// wrong place.
    fn as_written(&self, at: Option<usize>, message: String) -> String {
        let replaced = self.replaced.borrow();
        match at.and_then(|at| replaced.get(&at)) {
            Some(Reference::Replaced { written, value }) => {
                let message = message.replace(&quoted(value), &quoted(written));
                // A shorter one is no secret, and stands in other words too.
                if value.len() < 4 { message } else { message.replace(value.as_str(), written) }
            }
            _ => message,
        }
    }

    /// Remembers that `what`, which the key names, is not read.
    pub(crate) fn leave_out(&self, key: &str, what: impl Into<String>) {
        self.left_out.borrow_mut().push(LeftOut { key: key.to_owned(), what: what.into() });
    }

    /// Adds a remark about the key.
    pub(super) fn notice(&mut self, key: &str, text: String) {
        self.notices.push((key.to_owned(), text));
    }

    /// Returns the texts for another reading.
    pub(super) fn source(&self) -> Source {
        Source::of(self.sources.texts())
    }

    /// Returns the base of relative paths in the file of this offset.
    pub(crate) fn folder(&self, at: usize) -> &Path {
        self.sources.folder(at)
    }

    /// Returns the name of the config file itself.
    pub(super) fn main(&self) -> &str {
        self.sources.main()
    }

    /// Formats file and line of an offset.
    pub(super) fn named_place(&self, at: usize) -> String {
        let place = self.sources.place(at);
        format!("{}:{}", place.name, place.line)
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
            faults.push(self.fault_at(at, key, problem, accepted));
        }
    }

    /// Describes a fault, and returns it with the position of its file.
    pub(super) fn fault_at(
        &self,
        at: Option<usize>,
        key: &str,
        problem: String,
        accepted: Option<String>,
    ) -> (usize, Fault) {
        let place = at.map(|at| self.sources.place(at));
        let (file, name) = place.map_or((0, self.sources.main()), |place| (place.file, place.name));
        let fault = Fault {
            file: name.to_owned(),
            line: place.map(|place| place.line),
            key: key.to_owned(),
            problem: self.as_written(at, problem),
            accepted: accepted.map(|accepted| self.as_written(at, accepted)),
        };
        (file, fault)
    }

    /// Adds a fault of a file that is not one of the document.
    pub(super) fn file_fault(&self, file: &str, line: Option<usize>, problem: String) {
        let fault = Fault::of_file(file, line, problem);
        self.faults.borrow_mut().push((usize::MAX, fault));
    }

    /// Parses the file that begins at the offset `start`; `None` when it is not TOML, with a fault
    /// for each bad line.
    fn parse<'t>(&self, text: &'t str, start: usize) -> Option<DeTable<'t>> {
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
            let at = error.span().map(|span| span.start + start);
            let place = at.map(|at| self.sources.place(at));
            let line = place.map_or(0, |place| place.line);
            if lines.len() < shown && lines.insert(line) {
                let column =
                    place.map_or_else(String::new, |place| format!(" (column {})", place.column));
                self.fault(
                    at,
                    "",
                    format!("not TOML: {}{column}{}", error.message(), hint.unwrap_or_default()),
                    None,
                );
            }
        }
        None
    }

    /// Returns what was read, or all faults in the order of their files and lines.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<Loaded<T>, Faults> {
        let mut faults = self.faults.into_inner();
        let is_partial = self.is_partial.get();
        if faults.is_empty() && (value.is_some() || is_partial) {
            return Ok(Loaded {
                value: value.filter(|_| !is_partial),
                left_out: self.left_out.into_inner(),
                notices: self.notices,
                files: self.sources.names().map(str::to_owned).collect(),
            });
        }
        faults.sort_by_key(|(file, fault)| (*file, fault.line));
        let is_cut = faults.len() == FAULTS_MAX;
        let mut faults: Vec<Fault> = faults.into_iter().map(|(_, fault)| fault).collect();
        if is_cut {
            let problem = format!("{FAULTS_MAX} faults and more; only these are listed");
            faults.push(Fault::of_file(self.sources.main(), None, problem));
        }
        Err(Faults(faults))
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
