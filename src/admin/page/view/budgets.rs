//! Budgets: one row for each window of an account, with its curve of the last hour.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};

use super::{Look, more, table, words};
use crate::admin::page::history::{Curve, History, is_empty_before_reset};
use crate::clock::Timestamp;
use crate::decision::{AccountSnapshot, WindowSnapshot};
use crate::gateway::Gateway;

/// Most rows. Our choice: a person reads no more.
const SHOWN_MAX: usize = 50;
/// Part of a budget below which it is low.
const LOW: f64 = 0.1;
/// Size of a curve in its own unit: one sample, and a part of 30.
const WIDTH: u32 = 120;
const HEIGHT: u32 = 30;

/// The state of a window, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The upstream has closed the account, or nothing is left.
    Spent,
    /// It will be empty before its reset.
    Ending,
    Low,
    Fine,
    /// Presumed from the documented limits.
    Unknown,
}

/// One window of an account.
pub struct BudgetRow {
    pub account: Arc<str>,
    pub window: WindowSnapshot,
    pub level: Level,
    /// Time until it is empty, if that is before its reset.
    pub empty_in: Option<Duration>,
    cooldown_until: Option<Timestamp>,
    /// Part that is left for clients, from 0 to 1.
    part: f64,
    curve: Curve,
}

/// Returns all windows, the worst first.
pub fn rows(
    gateway: &Gateway,
    accounts: &[AccountSnapshot],
    history: &History,
    now: Timestamp,
) -> Vec<BudgetRow> {
    let mut rows = Vec::new();
    for account in accounts {
        let config = gateway.env.config.account(account.account);
        let reserve = config.map_or(0, |account| account.reserve);
        let cooldown_until = account.cooldown_until.filter(|until| *until > now);
        for window in &account.windows {
            let curve = history.curve(account.account, &window.resource);
            // Of the last minutes, or of the whole window while these are unknown.
            let empty_in = is_empty_before_reset(&curve, window.reset, now)
                .or_else(|| window.gone_at.map(|gone_at| gone_at.since(now)));
            let left = window.remaining.saturating_sub(reserve);
            let part = f64::from(left) / f64::from(window.limit.max(1));
            let level = match () {
                () if cooldown_until.is_some() => Level::Spent,
                () if !window.known => Level::Unknown,
                () if left == 0 => Level::Spent,
                () if empty_in.is_some() => Level::Ending,
                () if part < LOW => Level::Low,
                () => Level::Fine,
            };
            let (account, window) = (Arc::clone(&account.name), window.clone());
            let empty_in = empty_in.filter(|_| level == Level::Ending);
            rows.push(BudgetRow { account, window, level, empty_in, cooldown_until, part, curve });
        }
    }
    rows.sort_by(|one, other| {
        one.level
            .cmp(&other.level)
            .then(one.part.total_cmp(&other.part))
            .then_with(|| one.account.cmp(&other.account))
    });
    rows
}

pub fn show(look: &Look) -> Markup {
    let all = &look.budgets;
    if all.is_empty() {
        return html! {
            p.fine { "No budget is in use yet. Accounts: " (words::number(look.accounts as u64)) "." }
        };
    }
    let shown = &all[..all.len().min(SHOWN_MAX)];
    let rows = html! { @for row in shown { (row.show(look.now)) } };
    let heads = ["Account", "Resource", "Left", "Last hour", "Resets", "State"];
    let accounts = words::count(look.accounts as u64, "account", "accounts");
    let caption = format!("{accounts}, the emptiest budgets first");
    html! {
        (table("budgets", &caption, &heads, &rows))
        (more(all.len(), shown.len(), "budgets, all with more left"))
    }
}

impl Level {
    fn class(self) -> &'static str {
        match self {
            Self::Spent => "bad",
            Self::Ending | Self::Low => "warn",
            Self::Fine => "fine",
            Self::Unknown => "dim",
        }
    }
}

impl BudgetRow {
    fn show(&self, now: Timestamp) -> Markup {
        let Self { account, window, .. } = self;
        html! {
            tr {
                th scope="row" { (account) }
                td { (window.resource.as_str()) }
                td.number {
                    (words::number(window.remaining.into())) " of " (words::number(window.limit.into()))
                    @if window.reserved > 0 {
                        " " span.dim { (words::number(window.reserved.into())) " in flight" }
                    }
                }
                td { (self.curve()) }
                td { (words::until(window.reset, now)) }
                td { span class={ "state " (self.level.class()) } { (self.state(now)) } }
            }
        }
    }

    fn state(&self, now: Timestamp) -> Markup {
        match (self.level, self.cooldown_until, self.empty_in) {
            (_, Some(until), _) => {
                html! { "closed by the upstream until " (words::until(until, now)) }
            }
            (Level::Spent, ..) if self.window.remaining > 0 => html! { "only the reserve is left" },
            (Level::Spent, ..) => html! { "spent" },
            (_, _, Some(left)) => {
                html! { "empty in " (words::duration(left)) ", before its reset" }
            }
            (Level::Low, ..) => html! { "low: " (words::percent(self.part)) },
            (Level::Unknown, ..) => html! { "presumed" },
            _ => html! { (words::percent(self.part)) },
        }
    }

    /// The curve, drawn as one line for each run of samples. Its text says the same.
    fn curve(&self) -> Markup {
        let Curve(parts) = &self.curve;
        let known: Vec<f64> = parts.iter().copied().flatten().collect();
        let (Some(first), Some(last)) = (known.first(), known.last()) else {
            return html! { span.dim { "no sample yet" } };
        };
        let lowest = known.iter().copied().fold(f64::INFINITY, f64::min);
        let label = format!(
            "from {} to {}, at least {}",
            words::percent(*first),
            words::percent(*last),
            words::percent(lowest)
        );
        html! {
            svg.curve role="img" aria-label=(label) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) }
                preserveAspectRatio="none" width=(WIDTH) height=(HEIGHT) {
                line x1="0" y1=(HEIGHT) x2=(WIDTH) y2=(HEIGHT) {}
                @for (area, line) in runs(parts) {
                    path.area d=(area) {}
                    path.line d=(line) {}
                }
            }
        }
    }
}

/// The area below and the line of each run of samples.
fn runs(parts: &[Option<f64>]) -> Vec<(String, String)> {
    let mut runs = Vec::new();
    let (mut line, mut from) = (String::new(), 0);
    // The end closes the last run.
    for (at, part) in parts.iter().copied().chain([None]).enumerate() {
        match part {
            Some(part) => {
                let step = if line.is_empty() { 'M' } else { 'L' };
                if line.is_empty() {
                    from = at;
                }
                // Writing to a string cannot fail.
                let _ = write!(line, "{step}{at} {:.1}", f64::from(HEIGHT) * (1.0 - part));
            }
            None if !line.is_empty() => {
                // A single sample is as wide as its time.
                let _ = write!(line, "h1");
                let area = format!("{line}V{HEIGHT}H{from}Z");
                runs.push((area, std::mem::take(&mut line)));
            }
            None => {}
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_the_samples_is_a_gap_in_the_curve() {
        let parts = [None, Some(1.0), Some(0.5), None, Some(0.0)];
        let lines: Vec<String> = runs(&parts).into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, ["M1 0.0L2 15.0h1", "M4 30.0h1"]);
        assert_eq!(runs(&parts)[0].0, "M1 0.0L2 15.0h1V30H1Z");
        assert!(runs(&[None, None]).is_empty());
    }
}
