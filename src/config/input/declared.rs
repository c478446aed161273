//! Named entries, such as `[[accounts]]`, and references to them.

use std::collections::HashMap;
use std::sync::Arc;

use super::document::{listed, quoted};
use super::reader::{Entry, Reader};

/// Named entries of one kind. Faulty entries keep their index, so that references to them are not
/// faults as well.
pub(crate) struct Declared<T> {
    noun: &'static str,
    items: Vec<Option<T>>,
    names: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, usize>,
    /// False when a name or a file could not be read; then an unknown reference may mean an entry
    /// of that.
    complete: bool,
}

impl<T> Declared<T> {
    /// Reads `[[key]]`; `read` gets each entry with its name.
    pub(crate) fn read<'a>(
        root: &mut Reader<'a>,
        key: &'static str,
        noun: &'static str,
        mut read: impl FnMut(&mut Reader<'a>, Option<Arc<str>>) -> Option<T>,
    ) -> Self {
        let mut declared = Self {
            noun,
            items: Vec::new(),
            names: Vec::new(),
            by_name: HashMap::new(),
            complete: true,
        };
        let mut index = 0;
        let items = root.entries(key, |reader| {
            let name = reader.required::<Arc<str>>("name");
            declared.declare(reader, name.clone(), index, key);
            index += 1;
            read(reader, name)
        });
        // The name of an item that is no table is unknown too.
        declared.complete &= items.as_ref().is_some_and(|items| items.len() == index);
        declared.complete &= !root.lacks_files();
        declared.items = items.unwrap_or_default();
        declared
    }

    /// Creates a single entry that is not in the file.
    pub(crate) fn implicit(noun: &'static str, name: Arc<str>, item: T) -> Self {
        let by_name = HashMap::from([(name.clone(), 0)]);
        Self { noun, items: vec![Some(item)], names: vec![name], by_name, complete: true }
    }

    fn declare(
        &mut self,
        reader: &mut Reader<'_>,
        name: Option<Arc<str>>,
        index: usize,
        key: &str,
    ) {
        let Some(name) = name else {
            self.complete = false;
            return;
        };
        if let Some(first) = self.by_name.get(&name) {
            let problem = format!("duplicate {} name {}", self.noun, quoted(&name));
            reader.refuse::<()>(
                "name",
                problem,
                format!("another name; {key}[{first}] has this one"),
            );
            // The intended name is unknown, and other entries may refer to it.
            self.complete = false;
        } else {
            self.by_name.insert(name.clone(), index);
            self.names.push(name);
        }
    }

    /// Returns the index of the entry that `entry` names.
    pub(crate) fn resolve(&self, entry: &Entry<'_>) -> Option<usize> {
        let text = entry.text::<Arc<str>>()?;
        let found = self.by_name.get(text).copied();
        if found.is_none() && self.complete {
            return entry
                .refuse(format!("unknown {} {}", self.noun, quoted(text)), self.accepted());
        }
        found
    }

    /// Returns the index of the entry that the required `key` of another table names.
    pub(crate) fn reference(&self, reader: &mut Reader<'_>, key: &'static str) -> Option<usize> {
        match reader.entry(key) {
            Some(entry) => self.resolve(&entry),
            None => reader.refuse(key, "missing", self.accepted()),
        }
    }

    pub(crate) fn accepted(&self) -> String {
        match self.names.as_slice() {
            [] => format!("none: the file has no {}", self.noun),
            names => listed(names.iter().map(AsRef::as_ref)),
        }
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.items.get_mut(index)?.as_mut()
    }

    /// Returns the entry at `index`, unless it is faulty.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index)?.as_ref()
    }

    /// Returns the number of entries, faulty ones included.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns false if there may be others than those that were read.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns true if there certainly is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.complete && self.items.is_empty()
    }

    /// Returns the entries; `None` when one of them is faulty.
    pub(crate) fn finish(self) -> Option<Vec<T>> {
        self.items.into_iter().collect()
    }
}
