//! Reads tables key by key and collects faults instead of stopping at the first.
//!
//! A section requests each key it knows from its [`Reader`], with the type and the default. Any
//! other key is unknown. An unreadable value becomes a fault at once and `None` for the section, so
//! that the rest of the section is still read. [`Read`] defines the syntax of each type.

use std::fmt::Display;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Document, Secrets, listed, quoted};
use super::loaded_file::{self, LoadedFile};
use super::secret_file::{SecretFile, Source};
#[cfg(test)]
use super::visits;

/// A type with a syntax in the file.
pub(crate) trait Read: Sized {
    /// Describes the accepted values for messages: `a duration such as "30s"`.
    fn accepted() -> String;
    /// Reads the value; `None` after adding a fault.
    fn read(entry: &Entry<'_>) -> Option<Self>;
}

/// An enum whose values have names in the file.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    const ALL: &'static [(&'static str, Self)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

impl<T: Choice> Read for T {
    fn accepted() -> String {
        listed(T::ALL.iter().map(|(name, _)| *name))
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = entry.text::<Self>()?;
        let found = T::ALL.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        found.or_else(|| entry.refuse(format!("unknown value {}", quoted(text)), T::accepted()))
    }
}

impl<T: Read> Read for Vec<T> {
    fn accepted() -> String {
        format!("a list, each of it {}", T::accepted())
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        // Every item is read before the first `None` is returned, because each may have a fault.
        let items: Vec<Option<T>> = entry.items::<Self>()?.iter().map(T::read).collect();
        items.into_iter().collect()
    }
}

/// One value of the file with its position.
pub(crate) struct Entry<'a> {
    pub(crate) document: &'a Document<'a>,
    /// Full key.
    pub(crate) path: String,
    pub(super) at: usize,
    pub(crate) value: &'a DeValue<'a>,
}

impl<'a> Entry<'a> {
    /// Adds a fault about this value. Always returns `None`, the result of a failed [`Read`].
    pub(crate) fn refuse<T>(
        &self,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Option<T> {
        self.document.fault(Some(self.at), &self.path, problem.into(), Some(accepted.into()));
        None
    }

    /// Returns true if the value came from the environment, at least in part.
    pub(super) fn is_from_environment(&self) -> bool {
        self.document.is_from_environment(self.at)
    }

    /// Adds a fault about the type of the value. The value is not quoted, because it might be a
    /// secret.
    pub(crate) fn refuse_type<T: Read>(&self) -> Option<T> {
        self.refuse(self.wrong_type(), T::accepted())
    }

    fn wrong_type(&self) -> String {
        let found = self.value.type_str();
        let article = if found.starts_with(['a', 'i']) { "an" } else { "a" };
        format!("wrong type: {article} {found}")
    }

    /// Returns the text of a `T` that is written as a string; `None` after a fault, also for a
    /// reference to a variable that is not set.
    pub(crate) fn text<T: Read>(&self) -> Option<&'a str> {
        #[cfg(test)]
        visits::typed::<T>(&self.path);
        let text = self.value.as_str().or_else(|| self.refuse_type::<T>().and(None))?;
        (!self.document.refuse_unresolved(self.at, &self.path)).then_some(text)
    }

    /// Parses a `T` that is written as a string; a fault calls it a bad `noun`.
    pub(crate) fn parsed<T: Read>(
        &self,
        noun: &str,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text::<T>()?;
        parse(text).or_else(|| self.refuse(format!("bad {noun} {}", quoted(text)), T::accepted()))
    }

    /// Returns the digits of a `T` that is written as a float or an integer.
    pub(crate) fn number<T: Read>(&self) -> Option<&'a str> {
        match self.value {
            DeValue::Float(float) => Some(float.as_str()),
            DeValue::Integer(integer) => Some(integer.as_str()),
            _ => self.refuse_type::<T>().and(None),
        }
    }

    /// Reads a `T` that is written as a whole number, if `fit` accepts the number.
    pub(crate) fn whole<T: Read>(&self, fit: impl FnOnce(u64) -> Option<T>) -> Option<T> {
        let DeValue::Integer(integer) = self.value else { return self.refuse_type() };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        number.and_then(fit).or_else(|| self.refuse("out of bounds", T::accepted()))
    }

    /// Returns the items of a `T` that is written as a list.
    pub(crate) fn items<T: Read>(&self) -> Option<Vec<Entry<'a>>> {
        #[cfg(test)]
        visits::typed::<T>(&self.path);
        let Some(array) = self.value.as_array() else { return self.refuse_type::<T>().and(None) };
        Some(array.iter().enumerate().map(|(index, item)| self.item(index, item)).collect())
    }

    fn item(&self, index: usize, item: &'a Spanned<DeValue<'a>>) -> Entry<'a> {
        Entry {
            document: self.document,
            path: format!("{}[{index}]", self.path),
            at: item.span().start,
            value: item.get_ref(),
        }
    }

    /// Reads the value as a table; keys that `read` does not request become faults.
    pub(crate) fn table<T>(&self, read: impl FnOnce(&mut Reader<'a>) -> Option<T>) -> Option<T> {
        let accepted = || format!("a table, written [{}] or {{ … }}", self.path);
        let table = self.value.as_table().or_else(|| self.refuse(self.wrong_type(), accepted()))?;
        Reader::new(self.document, self.path.clone(), Some(self.at), Some(table)).finish(read)
    }
}

/// Reads one table of the file. An absent table consists of defaults.
pub(crate) struct Reader<'a> {
    document: &'a Document<'a>,
    path: String,
    at: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(crate) fn document<T>(
        document: &'a Document<'a>,
        table: &'a DeTable<'a>,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Option<T> {
        Reader::new(document, String::new(), None, Some(table)).finish(read)
    }

    fn new(
        document: &'a Document<'a>,
        path: String,
        at: Option<usize>,
        table: Option<&'a DeTable<'a>>,
    ) -> Self {
        Self { document, path, at, table, known: Vec::new() }
    }

    fn finish<T>(mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let value = read(&mut self);
        self.report_unknown_keys();
        value
    }

    fn report_unknown_keys(&self) {
        for (key, _) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if !self.known.contains(&name) {
                let problem = match closest(name, &self.known) {
                    Some(meant) => format!("unknown key, did you mean `{meant}`?"),
                    None => "unknown key".to_owned(),
                };
                self.document.fault(
                    Some(key.span().start),
                    &self.key(&printable(name)),
                    problem,
                    Some(listed(self.known.iter().copied())),
                );
            }
        }
    }

    fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Returns true if absent keys and entries may be in an included file that is not known.
    pub(crate) fn lacks_files(&self) -> bool {
        self.document.lacks_files()
    }

    /// Adds a fault about `name`, at its line if it is set, else at the table's.
    pub(crate) fn refuse<T>(
        &self,
        name: &str,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Option<T> {
        let set = self.table.and_then(|table| table.get_key_value(name));
        // A section may be in several files; what is inside of it is in one.
        if set.is_none() && self.lacks_files() && !self.path.contains(['[', '.']) {
            return None;
        }
        let at = set.map(|(key, _)| key.span().start).or(self.at);
        self.document.fault(at, &self.key(name), problem.into(), Some(accepted.into()));
        None
    }

    /// Adds a fault about the entry at `index` of `[[name]]` as a whole.
    pub(crate) fn refuse_item(
        &self,
        name: &str,
        index: usize,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) {
        let array = self
            .table
            .and_then(|table| table.get(name))
            .and_then(|value| value.get_ref().as_array());
        let at = array.and_then(|array| array.get(index)).map(|item| item.span().start);
        self.document.fault(
            at,
            &format!("{}[{index}]", self.key(name)),
            problem.into(),
            Some(accepted.into()),
        );
    }

    /// Returns the way in which secrets are read, and other files of the gateway's machine.
    pub(crate) fn secrets(&self) -> Secrets {
        self.document.secrets
    }

    /// Returns an environment variable of the gateway's machine.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.document.env)(name)
    }

    /// Returns the files of settings that were read so far.
    pub(crate) fn secret_files(&self) -> Vec<SecretFile> {
        self.document.files.borrow().clone()
    }

    /// Returns the other files that were loaded so far.
    pub(crate) fn loaded_files(&self) -> Vec<LoadedFile> {
        self.document.loaded.borrow().clone()
    }

    /// Loads the file that the key `name` names, as [`loaded_file::load`] does.
    pub(crate) fn load<T: Clone + Send + Sync + 'static, E: Display>(
        &self,
        name: &str,
        path: &Path,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        loaded_file::load(self.document, &self.key(name), path, load)
    }

    /// Returns the text of the file for another reading.
    pub(crate) fn source(&self) -> Source {
        self.document.source()
    }

    /// Remembers that `what`, which the key `name` names, is not read.
    pub(crate) fn leave_out(&self, name: &str, what: impl Into<String>) {
        self.document.leave_out(&self.key(name), what);
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(name))
    }

    /// Returns the value of `name` for the caller to read, if it is set.
    pub(crate) fn entry(&mut self, name: &'static str) -> Option<Entry<'a>> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        #[cfg(test)]
        visits::key(&self.key(name));
        let (key, value) = self.table?.get_key_value(name)?;
        Some(Entry {
            document: self.document,
            path: self.key(name),
            at: key.span().start,
            value: value.get_ref(),
        })
    }

    /// Reads `name` by `read`. `Some(None)` when it is not set, `None` when it is faulty.
    #[expect(clippy::option_option, reason = "an absent setting is not a faulty one")]
    pub(crate) fn if_set<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Entry<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        self.entry(name).map_or(Some(None), |entry| read(&entry).map(Some))
    }

    /// Reads `name`; `None` when it is not set, or faulty.
    pub(crate) fn optional<T: Read>(&mut self, name: &'static str) -> Option<T> {
        #[cfg(test)]
        visits::typed::<T>(&self.key(name));
        T::read(&self.entry(name)?)
    }

    /// Reads `name`, whose absence is a fault.
    pub(crate) fn required<T: Read>(&mut self, name: &'static str) -> Option<T> {
        #[cfg(test)]
        visits::typed::<T>(&self.key(name));
        match self.entry(name) {
            Some(entry) => T::read(&entry),
            None => self.refuse(name, "missing", T::accepted()),
        }
    }

    /// Reads `name`, or returns its default.
    pub(crate) fn or<T: Read>(&mut self, name: &'static str, default: T) -> T {
        self.optional(name).unwrap_or(default)
    }

    /// Like [`Reader::or`], with zero as a fault.
    pub(crate) fn positive<T: Read + Default + PartialEq + Copy>(
        &mut self,
        name: &'static str,
        default: T,
    ) -> T {
        #[cfg(test)]
        visits::positive(&self.key(name));
        let value = self.or(name, default);
        if value == T::default() {
            self.refuse::<T>(name, "zero", format!("more than zero: {}", T::accepted()));
            return default;
        }
        value
    }

    /// Reads the table `name`; an absent one counts as empty.
    pub(crate) fn section<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Option<T> {
        match self.entry(name) {
            Some(entry) => entry.table(read),
            None => Reader::new(self.document, self.key(name), None, None).finish(read),
        }
    }

    /// Reads the tables `[[name]]`, each by `read`. A faulty item is `None`; the whole is `None`
    /// when it is no list of tables.
    pub(crate) fn entries<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&mut Reader<'a>) -> Option<T>,
    ) -> Option<Vec<Option<T>>> {
        let Some(entry) = self.entry(name) else { return Some(Vec::new()) };
        let Some(array) = entry.value.as_array() else {
            return entry
                .refuse(entry.wrong_type(), format!("entries, each written [[{}]]", entry.path));
        };
        Some(
            array
                .iter()
                .enumerate()
                .map(|(index, item)| entry.item(index, item).table(&mut read))
                .collect(),
        )
    }

    /// Like [`Reader::entries`]; `None` when any of them is faulty.
    pub(crate) fn all_entries<T>(
        &mut self,
        name: &'static str,
        read: impl FnMut(&mut Reader<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.entries(name, read)?.into_iter().collect()
    }
}

/// Formats an unknown key for a message. Text that does not look like a key is omitted, because it
/// may be a misplaced secret.
pub(super) fn printable(name: &str) -> String {
    let looks_like_a_key = name.len() <= 32
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if looks_like_a_key { name.to_owned() } else { "…".to_owned() }
}

/// Returns the known key that is closest to an unknown one.
fn closest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    if name.len() > 32 {
        return None;
    }
    let folded = name.to_ascii_lowercase().replace('-', "_");
    let nearest = known.iter().map(|key| (edits(&folded, key), *key)).min()?;
    // A third of the key may differ: `prioirty` finds its key, `colour` does not.
    (nearest.0 <= (nearest.1.len() / 3).max(1)).then_some(nearest.1)
}

/// Levenshtein distance.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, from_byte) in from.bytes().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (left, to_byte) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(from_byte != to_byte);
            diagonal = row[left + 1];
            row[left + 1] = replaced.min(diagonal + 1).min(row[left] + 1);
        }
    }
    row[to.len()]
}
