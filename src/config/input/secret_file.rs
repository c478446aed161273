//! Files of secrets: their content as it was read, and the reading of the same config with their
//! present content.
//!
//! A changed file must not put other changes of the config into force, which wait for a reload. So
//! the config's own text is kept, and that of the files that it includes.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::document::{Document, Manner, Secrets};
use super::fault::Faults;
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

/// Reads the file of a setting and adds it to the document's. If its content is of no use, that
/// which an earlier reading of the same config found stays in force. The error is for a fault.
pub(crate) fn read<T>(
    document: &Document<'_>,
    key: &str,
    path: PathBuf,
    accepted: &str,
    accept: impl Fn(&str) -> Result<T, Refused>,
) -> Result<T, Refused> {
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
    let is_same = |file: &&SecretFile| file.key == key && file.path == path;
    let Some(before) = document.before.iter().find(is_same) else { return Err(problem) };
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

    /// Reads the texts again, with the present content of files. `before` has what they held.
    pub(crate) fn read_again<T>(
        &self,
        before: &[SecretFile],
        read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
    ) -> Result<T, Faults> {
        let Some((config, included)) = self.0.split_first() else { return Err(Faults(Vec::new())) };
        let manner = Manner { secrets: Secrets::Resolved, references: References::Resolved };
        let mut document = Document::new(&variable, manner);
        document.before = before;
        let mut table = document.add(&config.file());
        if let Some(table) = &mut table {
            for file in included {
                include::add(&mut document, &file.file(), table);
            }
        }
        let value = table.as_ref().and_then(|table| Reader::document(&document, table, read));
        complete(document.finish(value))
    }
}
