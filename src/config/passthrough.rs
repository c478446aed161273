//! `[passthrough]`: clients that bring their own upstream credential.

use super::printer::Printer;
use super::reader::Reader;

/// The section `[passthrough]`.
#[derive(Clone, Debug)]
pub struct Passthrough {
    /// Whether a client's own credential may be used.
    pub enabled: bool,
}

impl Passthrough {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self { enabled: reader.or("enabled", false) }
    }

    pub(super) fn print(&self, printer: &mut Printer) {
        printer.section("passthrough");
        printer.set("enabled", self.enabled);
    }
}
