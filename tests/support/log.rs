//! A log writer whose text a test can read. Unit tests in `telemetry::writer` use it too.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// The captured text. Clones share it.
#[derive(Clone, Default)]
pub struct Written(pub Arc<Mutex<Vec<u8>>>);

impl Written {
    /// The text so far.
    pub fn text(&self) -> String {
        self.text_from(0)
    }

    /// The text from this byte on.
    pub fn text_from(&self, start: usize) -> String {
        String::from_utf8_lossy(self.0.lock().get(start..).unwrap_or_default()).into_owned()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Written {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
