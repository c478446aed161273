//! What the whole process logs: all of it, and what one test's own thread does. One subscriber for
//! all tests, because a scoped one can miss what other threads were the first to log.

use std::cell::RefCell;
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
}

/// Begins to keep what is logged.
pub fn begin() {
    LazyLock::force(&ALL);
    OWN.set(Written::default());
}

/// What all tests have logged.
pub fn all() -> String {
    ALL.text()
}

/// What this thread has logged since it began.
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
