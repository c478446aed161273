//! Files that are read with the config and are no secrets: certificates. When files of secrets are
//! read again, one that is of no use then keeps what it held before.

use std::any::Any;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::document::Document;

/// A file and what was made of it.
#[derive(Clone)]
pub struct LoadedFile {
    /// Full key of the setting.
    pub key: String,
    /// Its path.
    pub path: PathBuf,
    /// The problem of its present content, if the content before stays in force.
    pub problem: Option<String>,
    value: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for LoadedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadedFile").field(&self.path).finish()
    }
}

/// Loads a file and adds it to the document's. If that fails, the value of an earlier reading of
/// the same config stays in force.
pub(crate) fn load<T: Clone + Send + Sync + 'static, E: Display>(
    document: &Document<'_>,
    key: &str,
    path: &Path,
    load: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let (value, problem) = match load() {
        Ok(value) => (value, None),
        Err(fault) => {
            let mut before = document.loaded_before.iter();
            let before = before.find(|file| file.key == key && file.path == path);
            match before.and_then(|file| file.value.downcast_ref::<T>()) {
                Some(value) => (value.clone(), Some(fault.to_string())),
                None => return Err(fault),
            }
        }
    };
    document.loaded.borrow_mut().push(LoadedFile {
        key: key.to_owned(),
        path: path.to_owned(),
        problem,
        value: Arc::new(value.clone()),
    });
    Ok(value)
}
