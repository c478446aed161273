//! `[passthrough]`: clients that bring their own upstream credential.

use std::num::NonZeroU32;

use crate::config::input::reader::Reader;
use crate::config::printer::Printer;

/// How many credentials have books at once. Ours: several times the bots of a large team; each
/// takes some kilobytes.
const CREDENTIALS_MAX: NonZeroU32 = NonZeroU32::new(256).unwrap();
/// The most that the setting may say. Ours: the books of so many accounts are measured
/// (`benches/decision.rs`).
const CREDENTIALS_MAX_MAX: u32 = 10_000;

/// What logs, metrics and `X-Weir-Account` call the account behind a credential that a client
/// brings: never anything that tells one from another.
pub const PASSTHROUGH_ACCOUNT: &str = "passthrough";

/// The section `[passthrough]`.
#[derive(Clone, Debug)]
pub struct Passthrough {
    /// Whether a client's own credential may be used.
    pub enabled: bool,
    /// How many credentials of clients have books at once.
    pub credentials_max: NonZeroU32,
}

impl Passthrough {
    pub(in crate::config) fn read(reader: &mut Reader<'_>) -> Self {
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

    /// How many places for clients' credentials there are.
    pub fn places(&self) -> u32 {
        if self.enabled { self.credentials_max.get() } else { 0 }
    }

    pub(in crate::config) fn print(&self, printer: &mut Printer) {
        printer.section("passthrough");
        printer.set("enabled", self.enabled);
        printer.set("credentials_max", self.credentials_max);
    }
}
