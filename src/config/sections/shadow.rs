//! `[shadow]`: rules that are tried out: their refusals and waits are counted and not made
//! (SPECIFICATION, "Shadow mode").

use crate::config::input::reader::Reader;
use crate::config::printer::Printer;

/// The section `[shadow]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowRules {
    /// The secondary limits, `limits.pace` and `limits.batch_floor`.
    pub limits: bool,
    /// `clients[].budget`.
    pub budgets: bool,
    /// `clients[].allow`.
    pub access: bool,
}

impl ShadowRules {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            limits: reader.or("limits", false),
            budgets: reader.or("budgets", false),
            access: reader.or("access", false),
        }
    }

    pub(crate) fn print(self, printer: &mut Printer) {
        printer.section("shadow");
        printer.set("limits", self.limits);
        printer.set("budgets", self.budgets);
        printer.set("access", self.access);
    }
}
