//! `[webhooks]`: deliveries by which the upstream says that something changed.

use secrecy::SecretString;

use super::printer::{Printer, redacted};
use super::reader::{Entry, Read};

/// The section `[webhooks]`.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// The secret that signs the deliveries.
    pub secret: SecretString,
    /// The one before, which is still good while the upstream is told of the new one.
    pub previous_secret: Option<SecretString>,
}

impl Read for Webhooks {
    fn accepted() -> String {
        "a table, written [webhooks]".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.table(|reader| {
            let (secret, previous_secret) = (reader.required("secret"), reader.optional("previous_secret"));
            Some(Self { secret: secret?, previous_secret })
        })
    }
}

impl Webhooks {
    pub(super) fn print(&self, printer: &mut Printer) {
        printer.section("webhooks");
        printer.set("secret", redacted());
        if self.previous_secret.is_some() {
            printer.set("previous_secret", redacted());
        }
    }
}
