//! The log of the process, whole and by test thread. All tests share one subscriber: a scoped one
//! misses call sites that another thread registered first.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::LazyLock;

use tracing_subscriber::fmt::MakeWriter;

use super::log::Written;

static ALL: LazyLock<Written> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(Both)
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    Written::default()
});

thread_local! {
    static OWN: RefCell<Written> = RefCell::default();
    /// The length of the whole log at the latest `begin`: all of it grows to gigabytes.
    static START: Cell<usize> = Cell::default();
}

/// Starts to capture the log of this thread.
pub fn begin() {
    START.set(LazyLock::force(&ALL).0.lock().len());
    OWN.set(Written::default());
}

/// The log of all threads since `begin` of this one.
pub fn all() -> String {
    ALL.text_from(START.get())
}

/// The log of this thread since `begin`.
pub fn own() -> String {
    OWN.with_borrow(Written::text)
}

#[derive(Clone, Copy)]
struct Both;

impl io::Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(all) = LazyLock::get(&ALL) {
            all.clone().write_all(bytes)?;
        }
        OWN.with_borrow_mut(|own| own.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Both {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}
