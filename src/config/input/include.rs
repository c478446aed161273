//! `include`: further files of a config.
//!
//! Their tables are joined to those of the config file, and their lists of tables appended, in the
//! order of the patterns and, within one, of the names. Nothing replaces anything: a key that two
//! files set is a fault. An included file includes none.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, glob_with};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::document::Document;
use super::reader::{Entry, Read, printable};
use super::regular_text;
use super::sources::File;

/// The key.
const INCLUDE: &str = "include";
/// Most files of one config. Ours: a file for each client of a large company.
const FILES_MAX: usize = 1_000;
/// Bytes of all included files together. Ours: four times the largest config file.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// One item of `include`.
pub(crate) struct Pattern;

impl Read for Pattern {
    fn accepted() -> String {
        "the path of a TOML file, which may have `*`, `?` and `[…]`, relative to this file"
            .to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = entry.text::<Self>()?;
        if is_path(text) { Some(Self) } else { entry.refuse("bad path", Self::accepted()) }
    }
}

/// An included file.
pub(super) struct Included {
    name: String,
    text: String,
    folder: PathBuf,
}

impl Included {
    pub(super) fn file(&self) -> File<'_> {
        File { name: &self.name, text: &self.text, folder: &self.folder }
    }
}

/// Reads the files that the config file at `main` includes by its `table`. What is not a list of
/// paths is left to the reader, which refuses it.
pub(super) fn texts(
    document: &mut Document<'_>,
    main: Option<&Path>,
    table: &DeTable<'_>,
) -> Vec<Included> {
    let mut included = Vec::new();
    let Some((key, list)) = table.get_key_value(INCLUDE) else { return included };
    let key = key.span().start;
    let Some(main) = main else {
        let accepted = "include in a config file".to_owned();
        document.fault(Some(key), INCLUDE, "not in a text".to_owned(), Some(accepted));
        return included;
    };
    let mut seen = HashSet::from([identity(main)]);
    let items = list.get_ref().as_array().map_or(&[][..], |items| &**items);
    for (index, item) in items.iter().enumerate() {
        let at = item.span().start;
        let Some(pattern) = item.get_ref().as_str().filter(|_| !document.lacks_file(at)) else {
            continue;
        };
        let key = format!("{INCLUDE}[{index}]");
        let refuse = |document: &Document<'_>, problem: String| {
            document.fault(Some(at), &key, problem, Some(Pattern::accepted()));
        };
        let files = match matches(document.folder(at), pattern) {
            Ok(files) if files.is_empty() => {
                document.notice(&key, "no file matches".to_owned());
                continue;
            }
            Ok(files) => files,
            Err(problem) => {
                refuse(document, problem);
                continue;
            }
        };
        for path in files {
            if identity(&path) == identity(main) {
                refuse(document, "the config file includes itself".to_owned());
            } else if seen.insert(identity(&path)) {
                let name = path.display().to_string();
                match regular_text(&path) {
                    Ok(text) => {
                        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                        included.push(Included { name, text, folder });
                    }
                    Err((None, problem)) => refuse(document, format!("{name}: {problem}")),
                    Err((line, problem)) => document.file_fault(&name, line, problem),
                }
            }
            let bytes: usize = included.iter().map(|file| file.text.len()).sum();
            if seen.len() > FILES_MAX || bytes > BYTES_MAX {
                let problem = format!(
                    "more than {FILES_MAX} files, or than {BYTES_MAX} bytes in all of them"
                );
                refuse(document, problem);
                return included;
            }
        }
    }
    included
}

/// Adds an included file to the `table` of the config file.
pub(super) fn add<'t>(document: &mut Document<'_>, file: &File<'t>, table: &mut DeTable<'t>) {
    let Some(mut added) = document.add(file) else { return };
    if let Some((key, _)) = added.remove_entry(INCLUDE) {
        let problem = format!("not in a file that {} includes", document.main());
        let accepted = "include in the config file itself".to_owned();
        document.fault(Some(key.span().start), INCLUDE, problem, Some(accepted));
    }
    join(document, table, added, "");
}

/// Adds the keys of one table to those of another, whose full key is `path`.
fn join<'t>(document: &Document<'_>, table: &mut DeTable<'t>, added: DeTable<'t>, path: &str) {
    for (key, value) in added {
        let name: &str = key.get_ref();
        let before = table.get_key_value(name).map(|(key, _)| key.span().start);
        let (Some(before), Some(existing)) = (before, table.get_mut(name)) else {
            table.insert(key, value);
            continue;
        };
        let name = printable(name);
        let path = if path.is_empty() { name } else { format!("{path}.{name}") };
        match (existing.get_mut(), value.into_inner()) {
            (DeValue::Table(table), DeValue::Table(added)) => join(document, table, added, &path),
            (DeValue::Array(list), DeValue::Array(added)) if can_append(list, &added) => {
                added.into_iter().for_each(|item| list.push(item));
            }
            _ => {
                let problem = format!("already set in {}", document.named_place(before));
                let accepted = "each key in one file; lists of tables are appended".to_owned();
                document.fault(Some(key.span().start), &path, problem, Some(accepted));
            }
        }
    }
}

/// Returns true for lists of tables, of which one has an item at least.
fn can_append(list: &DeArray<'_>, added: &DeArray<'_>) -> bool {
    let are_tables = |list: &DeArray<'_>| list.iter().map(Spanned::get_ref).all(DeValue::is_table);
    are_tables(list) && are_tables(added) && !(list.is_empty() && added.is_empty())
}

/// Returns the files of a pattern, sorted by name; a path without wildcards is one file, which may
/// not exist. The error is the problem of the pattern.
fn matches(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    if !is_path(pattern) {
        // The reader refuses it.
        return Ok(Vec::new());
    }
    if !pattern.contains(['*', '?', '[']) {
        return Ok(vec![folder.join(pattern)]);
    }
    let folder = folder.to_str().ok_or("the folder's name is not text in UTF-8")?;
    let whole = Path::new(&glob::Pattern::escape(folder)).join(pattern);
    // A hidden file is one of an editor, or of a volume that is exchanged as a whole.
    let options = MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..MatchOptions::new()
    };
    let found = glob_with(&whole.to_string_lossy(), options)
        .map_err(|error| format!("bad pattern: {}", error.msg))?;
    let mut files = Vec::new();
    for path in found.take(FILES_MAX + 1) {
        let path = path.map_err(|error| error.to_string())?;
        if !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns false for a pattern that is refused. Two stars would walk through every folder below.
fn is_path(pattern: &str) -> bool {
    !pattern.is_empty() && !pattern.contains("**") && !pattern.contains('\0')
}

/// Returns what tells files apart whatever their paths.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
