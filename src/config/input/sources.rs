//! The files of one config as one text: a place is an offset in all of them, one after the other.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

/// One file.
struct Source {
    name: String,
    /// Base of its relative paths.
    folder: PathBuf,
    /// Offset of its first byte.
    start: usize,
    line_starts: Vec<usize>,
    text: SecretString,
}

/// The place of a key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    /// Position of the file among all.
    pub file: usize,
    /// Name of the file as the operator gave it.
    pub name: &'a str,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in bytes, counted from 1.
    pub column: usize,
}

/// A file with its text.
pub(crate) struct File<'a> {
    /// Name as the operator gave it.
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    /// Base of its relative paths.
    pub(crate) folder: &'a Path,
}

/// All files so far; the first is the config file itself.
#[derive(Default)]
pub(super) struct Sources {
    sources: Vec<Source>,
    end: usize,
}

impl Sources {
    /// Adds a file, and returns the offset of its first byte.
    pub(super) fn add(&mut self, file: &File<'_>) -> usize {
        let after_newlines =
            file.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(after_newlines).collect();
        let start = self.end;
        // The end of a file is a place of that file.
        self.end += file.text.len() + 1;
        let (name, folder) = (file.name.to_owned(), file.folder.to_owned());
        let text = file.text.into();
        self.sources.push(Source { name, folder, start, line_starts, text });
        start
    }

    /// Returns all files with their texts in the order of reading.
    pub(super) fn texts(&self) -> impl Iterator<Item = File<'_>> {
        self.sources.iter().map(|source| File {
            name: &source.name,
            text: source.text.expose_secret(),
            folder: &source.folder,
        })
    }

    fn of(&self, at: usize) -> (usize, &Source) {
        let after = self.sources.partition_point(|source| source.start <= at);
        let index = after.saturating_sub(1);
        (index, &self.sources[index])
    }

    pub(super) fn place(&self, at: usize) -> Place<'_> {
        let (file, source) = self.of(at);
        let at = at - source.start;
        let line = source.line_starts.partition_point(|start| *start <= at).max(1);
        let start = source.line_starts.get(line - 1).copied().unwrap_or(0);
        Place { file, name: &source.name, line, column: at - start + 1 }
    }

    /// Returns the base of relative paths in the file of this offset.
    pub(super) fn folder(&self, at: usize) -> &Path {
        &self.of(at).1.folder
    }

    /// Returns the name of the config file itself.
    pub(super) fn main(&self) -> &str {
        &self.sources[0].name
    }

    /// Returns the names of all files in the order of reading.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| source.name.as_str())
    }
}
