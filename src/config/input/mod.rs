//! Strict reading of a TOML file: its values with their positions, and every fault at once.
//!
//! Left out: the sections of the config. The emulator's settings are read with it too.

mod data_keys;
pub(crate) mod declared;
pub(crate) mod document;
pub(crate) mod fault;
pub(crate) mod http_url;
pub(crate) mod reader;
pub(crate) mod scalars;
pub(crate) mod secret;
pub(crate) mod secret_file;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use zeroize::Zeroizing;

use document::{Document, FILE_BYTES_MAX, LeftOut, Secrets};
use fault::{Fault, Faults};
use reader::Reader;

/// Loads a file whose keys `read` knows.
pub(crate) fn load_as<T>(
    path: &Path,
    secrets: Secrets,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    load_with(path, secrets, read).map(|(loaded, _)| loaded)
}

/// Like [`load_as`], and returns what was left out because secrets are not read.
pub(crate) fn load_with<T>(
    path: &Path,
    secrets: Secrets,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<(T, Vec<LeftOut>), Faults> {
    let file_name = path.display().to_string();
    let text = read_file(path)
        .map_err(|(line, problem)| Faults(vec![Fault::of_file(&file_name, line, problem)]))?;
    let env = |name: &str| std::env::var(name).ok();
    parse_with(&text, &file_name, &env, path.parent().unwrap_or(Path::new("")), secrets, read)
}

/// Returns the text of a file; or the problem, with its line if it has one.
fn read_file(path: &Path) -> Result<String, (Option<usize>, String)> {
    let failed = |error: io::Error| (None, format!("cannot be read: {error}"));
    let mut bytes = Vec::new();
    // One byte beyond the limit reveals a file that is too large.
    File::open(path)
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
    let file = File::open(path).map_err(failed)?;
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

/// Parses a text whose keys `read` knows.
pub(crate) fn parse_as<T>(
    text: &str,
    file_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    base_dir: &Path,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    parse_with(text, file_name, env, base_dir, Secrets::Resolved, read).map(|(parsed, _)| parsed)
}

fn parse_with<T>(
    text: &str,
    file_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    base_dir: &Path,
    secrets: Secrets,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<(T, Vec<LeftOut>), Faults> {
    parse_document(Document::new(text, file_name, env, base_dir, secrets), text, read)
}

fn parse_document<T>(
    document: Document<'_>,
    text: &str,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<(T, Vec<LeftOut>), Faults> {
    if let Err(problem) = check_size(text.len()) {
        document.fault(None, "", problem, None);
        return document.finish(None).map(|parsed| (parsed, Vec::new()));
    }
    let table = document.parse(text);
    let config = table.as_ref().and_then(|table| Reader::document(&document, table, read));
    let left_out = document.take_left_out();
    document.finish(config).map(|config| (config, left_out))
}
