//! `[passthrough]`: clients with upstream credentials of their own.

use std::num::NonZeroU32;

use crate::config::input::reader::Reader;
use crate::config::printer::Printer;

/// Default. Our choice: several times the bots of a large team; each takes some kilobytes.
const CREDENTIALS_MAX: NonZeroU32 = NonZeroU32::new(256).unwrap();
/// Upper bound. Our choice: the ledger of so many accounts is measured (`benches/decision.rs`).
const CREDENTIALS_MAX_MAX: u32 = 10_000;

/// Name of the account behind every client's own credential in logs, metrics and `X-Weir-Account`.
/// It distinguishes no credential from another.
pub const PASSTHROUGH_ACCOUNT: &str = "passthrough";

/// The section `[passthrough]`.
#[derive(Clone, Debug)]
pub struct Passthrough {
    /// Permits clients' own credentials.
    pub enabled: bool,
    /// Most credentials of clients in the quota ledger at once.
    pub credentials_max: NonZeroU32,
}

impl Passthrough {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let enabled = reader.or("enabled", false);
        let mut credentials_max = reader.or("credentials_max", CREDENTIALS_MAX);
        if credentials_max.get() > CREDENTIALS_MAX_MAX {
            reader.refuse::<()>(
                "credentials_max",
                "out of bounds",
                format!("a whole number from 1 to {CREDENTIALS_MAX_MAX}"),
            );
            credentials_max = CREDENTIALS_MAX;
        }
        Self { enabled, credentials_max }
    }

    /// Returns the number of account ids reserved for clients' credentials.
    pub fn reserved_ids(&self) -> u32 {
        if self.enabled { self.credentials_max.get() } else { 0 }
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("passthrough");
        printer.set("enabled", self.enabled);
        printer.set("credentials_max", self.credentials_max);
    }
}
