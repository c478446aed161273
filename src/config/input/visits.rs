//! The keys that readers ask for, with their types: for the schema of the config, which a test
//! compares with them. Only tests record.

use std::any::type_name;
use std::cell::RefCell;

/// A key that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    /// Full key, such as `clients[0].name`.
    pub(crate) path: String,
    /// Name of the Rust type; `None` for a table, or a key of unknown type.
    pub(crate) kind: Option<&'static str>,
    /// Zero is refused.
    pub(crate) is_positive: bool,
}

thread_local! {
    static VISITS: RefCell<Option<Vec<Visit>>> = const { RefCell::new(None) };
}

/// Runs `read`, and returns the keys that it asks for.
pub(crate) fn recorded(read: impl FnOnce()) -> Vec<Visit> {
    VISITS.set(Some(Vec::new()));
    read();
    VISITS.take().unwrap_or_default()
}

/// Records a key.
pub(super) fn key(path: &str) {
    add(path, None, false);
}

/// Records the type of a key.
pub(super) fn typed<T>(path: &str) {
    add(path, Some(type_name::<T>()), false);
}

/// Records that a key may not be zero.
pub(super) fn positive(path: &str) {
    add(path, None, true);
}

fn add(path: &str, kind: Option<&'static str>, is_positive: bool) {
    VISITS.with_borrow_mut(|visits| {
        if let Some(visits) = visits {
            visits.push(Visit { path: path.to_owned(), kind, is_positive });
        }
    });
}
