//! Strict reading of a TOML file: its values with their positions, and every fault at once.
//!
//! Left out: the sections of the config. The emulator's settings are read with it too.

mod data_keys;
pub(crate) mod declared;
pub(crate) mod document;
pub(crate) mod fault;
pub(crate) mod http_url;
pub(crate) mod include;
pub(crate) mod loaded_file;
pub(crate) mod reader;
pub(crate) mod references;
pub(crate) mod scalars;
pub(crate) mod secret;
pub(crate) mod secret_file;
mod sources;
#[cfg(test)]
pub(crate) mod visits;

use std::io::{self, Read as _};
use std::path::Path;

use zeroize::Zeroizing;

use document::{Document, FILE_BYTES_MAX, Loaded, Manner, Secrets};
use fault::{Fault, Faults};
use reader::Reader;
use references::References;
use sources::File;

/// The manner of files that are no config of the gateway: as they are.
#[cfg(feature = "emulator")]
const PLAIN: Manner = Manner { secrets: Secrets::Resolved, references: References::Literal };

/// Loads a file whose keys `read` knows, without references to variables and other files.
#[cfg(feature = "emulator")]
pub(crate) fn load_as<T>(
    path: &Path,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    let (name, text) = named_file(path)?;
    let file = File { name: &name, text: &text, folder: folder_of(path) };
    complete(read_file(&file, &variable, PLAIN, None, read))
}

/// Loads a config whose keys `read` knows, with the files that it includes.
pub(crate) fn load_config<T>(
    path: &Path,
    manner: Manner,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<Loaded<T>, Faults> {
    let (name, text) = named_file(path)?;
    let file = File { name: &name, text: &text, folder: folder_of(path) };
    read_file(&file, &variable, manner, Some(path), read)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Returns what was read if nothing was left out.
pub(crate) fn complete<T>(loaded: Result<Loaded<T>, Faults>) -> Result<T, Faults> {
    loaded?.value.ok_or_else(|| Faults(Vec::new()))
}

/// Returns the name and the text of the file that the operator gave.
fn named_file(path: &Path) -> Result<(String, String), Faults> {
    let name = path.display().to_string();
    match text_of(path) {
        Ok(text) => Ok((name, text)),
        Err((line, problem)) => Err(Faults(vec![Fault::of_file(&name, line, problem)])),
    }
}

/// Like [`text_of`], of a regular file: opening a pipe would block.
fn regular_text(path: &Path) -> Result<String, (Option<usize>, String)> {
    let failed = |error: io::Error| (None, format!("cannot be read: {error}"));
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err((None, "is not a regular file".to_owned()));
    }
    text_of(path)
}

/// Returns the text of a file; or the problem, with its line if it has one.
fn text_of(path: &Path) -> Result<String, (Option<usize>, String)> {
    let failed = |error: io::Error| (None, format!("cannot be read: {error}"));
    let mut bytes = Vec::new();
    // One byte beyond the limit reveals a file that is too large.
    std::fs::File::open(path)
        .map_err(failed)?
        .take(FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    check_size(bytes.len()).map_err(|problem| (None, problem))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count() + 1;
        (Some(line), "not TOML: the file is not text in UTF-8".to_owned())
    })
}

/// Reads a regular file of at most `bytes_max`, or returns the problem as a predicate. The buffer
/// is cleared on drop and never moves, because the file may hold a secret.
pub(crate) fn regular_file(path: &Path, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    // Opening a pipe would block, and a reload with it.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max + 1));
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > bytes_max {
        return Err(format!("is larger than {bytes_max} bytes"));
    }
    Ok(bytes)
}

fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > FILE_BYTES_MAX {
        Err(format!("larger than {FILE_BYTES_MAX} bytes, which no config is"))
    } else {
        Ok(())
    }
}

/// Parses the text of a config whose keys `read` knows. A text includes no files.
pub(crate) fn parse_config<T>(
    text: &str,
    name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    folder: &Path,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    let manner = Manner { secrets: Secrets::Resolved, references: References::Resolved };
    complete(read_file(&File { name, text, folder }, env, manner, None, read))
}

/// Parses a text whose keys `read` knows, without references to variables.
#[cfg(all(test, feature = "emulator"))]
pub(crate) fn parse_as<T>(
    text: &str,
    name: &str,
    folder: &Path,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    complete(read_file(&File { name, text, folder }, &|_| None, PLAIN, None, read))
}

/// Reads a file; with its path, also those that it includes.
fn read_file<T>(
    file: &File<'_>,
    env: &dyn Fn(&str) -> Option<String>,
    manner: Manner,
    path: Option<&Path>,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<Loaded<T>, Faults> {
    if let Err(problem) = check_size(file.text.len()) {
        return Err(Faults(vec![Fault::of_file(file.name, None, problem)]));
    }
    // Declared first, because the table borrows from them.
    let included;
    let mut document = Document::new(env, manner);
    let mut table = document.add(file);
    if let Some(table) = &mut table {
        included = include::texts(&mut document, path, table);
        for file in &included {
            include::add(&mut document, &file.file(), table);
        }
    }
    let value = table.as_ref().and_then(|table| Reader::document(&document, table, read));
    document.finish(value)
}
