//! Files of secrets: their content as it was read, and the reading of the same config with their
//! present content.
//!
//! A changed file must not put other changes of the config into force, which wait for a reload. So
//! the config's own text is kept, and that of the files that it includes.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use toml::de::DeTable;

use super::document::{Document, Manner, Secrets};
use super::fault::{Fault, Faults};
use super::loaded_file::LoadedFile;
use super::reader::Reader;
use super::references::References;
use super::sources::File;
use super::{complete, include, regular_file, variable};

/// Largest file accepted: a PEM file with a chain of keys is far smaller.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// The facts by which a file that was written or exchanged differs, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Stamps the file that a path leads to now; `None` if it leads to none.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// A file whose content is a setting.
#[derive(Clone, Debug)]
pub struct SecretFile {
    /// Its path.
    pub path: PathBuf,
    /// Full key of the setting.
    pub key: String,
    /// Its state when it was read.
    pub stamp: Option<Stamp>,
    /// The problem of its present content, if the content before stays in force.
    pub problem: Option<String>,
    text: SecretString,
}

impl SecretFile {
    /// Returns true if both have the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.path, &self.key) == (&other.path, &other.key)
            && self.text.expose_secret() == other.text.expose_secret()
    }
}

/// The reason why the content of a file is of no use, and what is accepted.
pub(crate) type Refused = (String, String);

/// Reads the file of a setting and adds it to the document's. What an earlier reading of the same
/// config found stays in force if the file has not changed, or if its content is of no use. The
/// error is for a fault.
pub(crate) fn read<T>(
    document: &Document<'_>,
    key: &str,
    path: PathBuf,
    accepted: &str,
    accept: impl Fn(&str) -> Result<T, Refused>,
) -> Result<T, Refused> {
    let is_same = |file: &&SecretFile| file.key == key && file.path == path;
    let before = document.before.iter().find(is_same);
    // One of no use may be of use beside another that has changed, as a key beside a certificate.
    if let Some(before) = before
        && !document.changed.contains(&path)
        && before.problem.is_none()
    {
        let value = accept(before.text.expose_secret())?;
        document.files.borrow_mut().push(before.clone());
        return Ok(value);
    }
    // Before the content: a later change is then seen by the next look.
    let stamp = Stamp::of(&path);
    let problem = match text_of(&path) {
        Ok(text) => match accept(text.expose_secret()) {
            Ok(value) => {
                let key = key.to_owned();
                document.files.borrow_mut().push(SecretFile {
                    path,
                    key,
                    stamp,
                    problem: None,
                    text,
                });
                return Ok(value);
            }
            Err(refused) => refused,
        },
        Err(problem) => (format!("the file named here {problem}"), accepted.to_owned()),
    };
    let Some(before) = before else { return Err(problem) };
    let value = accept(before.text.expose_secret())?;
    let kept = SecretFile { stamp, problem: Some(problem.0), ..before.clone() };
    document.files.borrow_mut().push(kept);
    Ok(value)
}

fn text_of(path: &Path) -> Result<SecretString, String> {
    let bytes = regular_file(path, SECRET_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "is not text in UTF-8".to_owned())?;
    Ok(text.into())
}

/// The texts of a config and of the files that it includes, for another reading.
pub struct Source(Vec<SourceFile>);

/// One file with its text.
struct SourceFile {
    name: String,
    text: SecretString,
    folder: PathBuf,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|file| &file.name)).finish()
    }
}

impl SourceFile {
    fn file(&self) -> File<'_> {
        File { name: &self.name, text: self.text.expose_secret(), folder: &self.folder }
    }
}

impl Source {
    pub(super) fn of<'f>(files: impl Iterator<Item = File<'f>>) -> Self {
        let owned = |file: File<'_>| SourceFile {
            name: file.name.to_owned(),
            text: file.text.into(),
            folder: file.folder.to_owned(),
        };
        Self(files.map(owned).collect())
    }

    /// Reads the texts again, with the present content of the files of `before` that have
    /// `changed`. `before` and `loaded_before` have what files held.
    pub(crate) fn read_again<T>(
        &self,
        (before, changed): (&[SecretFile], &[PathBuf]),
        loaded_before: &[LoadedFile],
        read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
    ) -> Result<T, Faults> {
        let manner = Manner { secrets: Secrets::Resolved, references: References::Resolved };
        let mut document = Document::new(&variable, manner);
        (document.before, document.changed) = (before, changed);
        document.loaded_before = loaded_before;
        let table = self.add_to(&mut document);
        let value = table.as_ref().and_then(|table| Reader::document(&document, table, read));
        complete(document.finish(value))
    }

    /// Describes a problem of a key, at its place in the texts. One that is absent has the place of
    /// the table that lacks it.
    pub(crate) fn fault(&self, key: &str, problem: String) -> Fault {
        let manner = Manner { secrets: Secrets::Presumed, references: References::Literal };
        let mut document = Document::new(&|_| None, manner);
        let table = self.add_to(&mut document);
        let at = table.and_then(|table| offset_of(&table, key));
        document.fault_at(at, key, problem, None).1
    }

    /// Adds the texts to a document, and returns their table.
    fn add_to<'s>(&'s self, document: &mut Document<'_>) -> Option<DeTable<'s>> {
        let (config, included) = self.0.split_first()?;
        let mut table = document.add(&config.file())?;
        for file in included {
            include::add(document, &file.file(), &mut table);
        }
        Some(table)
    }
}

/// Finds a full key, such as `clients[0].reads`, or the last table on the way to it.
fn offset_of(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (mut table, mut at) = (table, None);
    for part in key.split('.') {
        let (name, index) = part.split_once('[').unwrap_or((part, ""));
        let Some((found, value)) = table.get_key_value(name) else { break };
        at = Some(found.span().start);
        let index = index.trim_end_matches(']').parse::<usize>().ok();
        let item = index.and_then(|index| value.get_ref().as_array()?.get(index));
        at = item.map(|item| item.span().start).or(at);
        let Some(next) = item.unwrap_or(value).get_ref().as_table() else { break };
        table = next;
    }
    at
}
