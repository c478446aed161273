//! `[webhooks]`: deliveries by which the upstream says that something changed.

use secrecy::SecretString;

use super::printer::{Printer, redacted};
use super::reader::{Entry, Read};

/// The section `[webhooks]`.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// The secret that signs the deliveries.
    pub secret: SecretString,
}

impl Read for Webhooks {
    fn accepted() -> String {
        "a table, written [webhooks]".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.table(|reader| reader.required("secret").map(|secret| Self { secret }))
    }
}

impl Webhooks {
    #[expect(clippy::unused_self, reason = "its one key is a secret")]
    pub(super) fn print(&self, printer: &mut Printer) {
        printer.section("webhooks");
        printer.set("secret", redacted());
    }
}
