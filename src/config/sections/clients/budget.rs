//! `clients[].budget`: what a client may spend of each resource, whatever its accounts have left
//! (SPECIFICATION, "Budgets of clients").

use std::time::Duration;

use crate::api::ResourceName;
use crate::config::input::document::listed;
use crate::config::input::reader::{Choice, Entry, Read};
use crate::config::printer::text;
pub use crate::decision::BudgetAmount;

/// The windows that an amount in units may have.
const WINDOWS: [(&str, Duration); 3] = [
    ("min", Duration::from_secs(60)),
    ("h", Duration::from_hours(1)),
    ("d", Duration::from_hours(24)),
];
/// A whole, in millionths.
const WHOLE: u32 = 1_000_000;
/// Decimal places of a percentage.
const DECIMALS: usize = 4;

/// The budgets of one client, in the order of their resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets(pub Vec<(ResourceName, BudgetAmount)>);

/// The consequence of a spent budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BudgetMode {
    /// Requests wait for the next window, or are refused.
    #[default]
    Hard,
    /// Requests go after those of all others, and leave them the units of `limits.batch_floor`.
    Soft,
}

impl Choice for BudgetMode {
    const ALL: &'static [(&'static str, Self)] = &[("hard", Self::Hard), ("soft", Self::Soft)];
}

impl Read for Budgets {
    fn accepted() -> String {
        "an amount for each resource, such as { core = \"2000/h\", graphql = \"30%\" }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let budgets = entry.members::<Self>()?.into_iter().map(|(name, value)| {
            let amount = BudgetAmount::read(&value);
            let Some(resource) = ResourceName::known().find(|known| known.as_str() == name) else {
                let names = ResourceName::known().collect::<Vec<_>>();
                let accepted = listed(names.iter().map(ResourceName::as_str));
                return value.refuse("no resource has this name", accepted);
            };
            Some((resource, amount?))
        });
        // Every amount is read before the first `None` is returned, because each may have a fault.
        let budgets: Vec<Option<_>> = budgets.collect();
        let mut budgets: Vec<_> = budgets.into_iter().collect::<Option<_>>()?;
        budgets.sort_by(|(one, _): &(ResourceName, _), (other, _)| one.cmp(other));
        Some(Self(budgets))
    }
}

impl Read for BudgetAmount {
    fn accepted() -> String {
        "units per min, h or d, such as \"2000/h\", or a share of the accounts' limits, such as \"30%\""
            .to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.parsed("amount", parsed)
    }
}

fn parsed(text: &str) -> Option<BudgetAmount> {
    if let Some(percent) = text.strip_suffix('%') {
        let millionths = decimal(percent)?;
        return (1..=WHOLE).contains(&millionths).then_some(BudgetAmount::Share { millionths });
    }
    let (units, window) = text.split_once('/')?;
    let (_, per) = WINDOWS.into_iter().find(|(name, _)| *name == window)?;
    let is_plain = units.bytes().all(|byte| byte.is_ascii_digit());
    let units = units.parse().ok().filter(|units| is_plain && *units > 0)?;
    Some(BudgetAmount::Units { units, per })
}

/// Parses a percentage with at most four decimal places, as millionths.
fn decimal(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(a, b)| (a, Some(b)));
    let are_digits = |text: &str| {
        (1..=DECIMALS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !are_digits(whole) || !fraction.is_none_or(are_digits) {
        return None;
    }
    let fraction = format!("{:0<DECIMALS$}", fraction.unwrap_or_default());
    format!("{whole}{fraction}").parse().ok()
}

impl Budgets {
    /// Formats the value of `budget`; `None` if it has none.
    pub(super) fn printed(&self) -> Option<String> {
        let budget = |(resource, amount): &(ResourceName, BudgetAmount)| {
            format!("{} = {}", resource.as_str(), text(amount_text(*amount)))
        };
        let budgets: Vec<_> = self.0.iter().map(budget).collect();
        (!budgets.is_empty()).then(|| format!("{{ {} }}", budgets.join(", ")))
    }
}

/// Formats an amount as the config has it.
fn amount_text(amount: BudgetAmount) -> String {
    match amount {
        BudgetAmount::Units { units, per } => {
            let window = WINDOWS.iter().find(|(_, window)| *window == per);
            format!("{units}/{}", window.map_or("", |(name, _)| name))
        }
        BudgetAmount::Share { millionths } => {
            let (whole, fraction) = (millionths / 10_000, millionths % 10_000);
            let digits = format!("{whole}.{fraction:0DECIMALS$}");
            format!("{}%", digits.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_units_per_window_or_a_percentage() {
        let hour = Duration::from_hours(1);
        for (written, amount) in [
            ("2000/h", BudgetAmount::Units { units: 2_000, per: hour }),
            ("1/min", BudgetAmount::Units { units: 1, per: Duration::from_mins(1) }),
            ("90000/d", BudgetAmount::Units { units: 90_000, per: hour * 24 }),
            ("30%", BudgetAmount::Share { millionths: 300_000 }),
            ("33.3333%", BudgetAmount::Share { millionths: 333_333 }),
            ("0.5%", BudgetAmount::Share { millionths: 5_000 }),
            ("100%", BudgetAmount::Share { millionths: WHOLE }),
        ] {
            assert_eq!(parsed(written), Some(amount), "{written}");
            assert_eq!(amount_text(amount), written);
        }
        for wrong in [
            "",
            "2000",
            "0/h",
            "-1/h",
            "+1/h",
            "1/week",
            "1.5/h",
            "0%",
            "0.0%",
            "101%",
            "100.0001%",
            "%",
            ".5%",
            "5.%",
            "1e2%",
            " 30%",
            "4294967296/h",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
