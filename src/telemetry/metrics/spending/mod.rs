//! Spending of clients: units of budgets and points, by client, account, resource and endpoint
//! (SPECIFICATION, "Metrics").
//!
//! The metrics and `/api/clients` show the same counters. The label sets are bounded like those of
//! any family; those without room count as overflow.

mod own_budgets;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use self::own_budgets::OwnBudgetFigures;
use super::Metrics;
use crate::telemetry::labels::{LabelSet as _, Name, SpendingLabels};
use crate::telemetry::names::Metric;
use crate::telemetry::registry::{Counter, Registry};
use crate::telemetry::series::{SERIES_MAX, Series};

/// One exchange with the upstream and its price.
#[derive(Clone, Copy, Debug)]
pub struct Spent<'a> {
    /// Client name in the config; `None` for requests of the gateway itself.
    pub client: Option<&'a Arc<str>>,
    /// Account name in the config.
    pub account: &'a str,
    /// Resource of the budget that it was charged to.
    pub resource: &'a str,
    /// Route template of the endpoint table.
    pub endpoint: &'static str,
    /// Units of the budget that it spent or may have spent.
    pub units: u32,
    /// Points of the secondary limit that it took.
    pub points: u32,
}

/// The sum of one label set since the process began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentSum {
    /// Client name, `_none` or `_overflow`.
    pub client: String,
    /// Account name.
    pub account: String,
    /// Resource of the budget.
    pub resource: String,
    /// Route template.
    pub endpoint: &'static str,
    /// Units of the budget.
    pub units: u64,
    /// Points of the secondary limit.
    pub points: u64,
}

pub(super) struct Spending {
    units: Series<SpendingLabels, Counter>,
    points: Series<SpendingLabels, Counter>,
    known: RwLock<HashMap<SpendingLabels, Sums>>,
    pub(super) own_budgets: OwnBudgetFigures,
}

#[derive(Clone)]
struct Sums {
    units: Counter,
    points: Counter,
}

impl Sums {
    fn add(&self, spent: &Spent<'_>) {
        self.units.inc_by(spent.units.into());
        self.points.inc_by(spent.points.into());
    }
}

impl Metrics {
    /// Counts the price of an exchange with the upstream.
    pub fn spent(&self, spent: &Spent<'_>) {
        self.counts.spending.add(spent);
    }

    /// Returns what was spent since the process began, the largest sums first.
    pub fn spending(&self) -> Vec<SpentSum> {
        self.counts.spending.sums()
    }
}

impl Spending {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        Self {
            units: Series::new(registry, Metric::UnitsTotal, Counter::default),
            points: Series::new(registry, Metric::PointsTotal, Counter::default),
            known: RwLock::default(),
            own_budgets: OwnBudgetFigures::registered(registry),
        }
    }

    pub(super) fn add(&self, spent: &Spent<'_>) {
        let labels = SpendingLabels {
            client: Name::of_client(spent.client),
            account: spent.account.into(),
            resource: spent.resource.into(),
            endpoint: spent.endpoint,
        };
        if let Some(sums) = self.known.read().get(&labels) {
            sums.add(spent);
            return;
        }
        let mut known = self.known.write();
        let has_room = known.len() < SERIES_MAX || known.contains_key(&labels);
        let labels = if has_room { labels } else { SpendingLabels::overflow() };
        let sums = known.entry(labels.clone()).or_insert_with(|| Sums {
            units: self.units.of(&labels),
            points: self.points.of(&labels),
        });
        sums.add(spent);
    }

    /// Returns the sums, those of the most units first.
    pub(super) fn sums(&self) -> Vec<SpentSum> {
        let known = self.known.read();
        let mut sums: Vec<SpentSum> = known
            .iter()
            .map(|(labels, sums)| SpentSum {
                client: labels.client.to_string(),
                account: labels.account.to_string(),
                resource: labels.resource.to_string(),
                endpoint: labels.endpoint,
                units: sums.units.get(),
                points: sums.points.get(),
            })
            .collect();
        drop(known);
        let name = |sum: &SpentSum| (sum.account.clone(), sum.resource.clone(), sum.endpoint);
        sums.sort_by(|a, b| {
            (b.units, b.points).cmp(&(a.units, a.points)).then_with(|| name(a).cmp(&name(b)))
        });
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent<'a>(client: Option<&'a Arc<str>>, endpoint: &'static str, units: u32) -> Spent<'a> {
        Spent { client, account: "bot", resource: "core", endpoint, units, points: 1 }
    }

    #[test]
    fn sums_are_by_label_set_and_the_dearest_come_first() {
        let spending = Spending::registered(&mut Registry::default());
        let client: Arc<str> = "ci".into();
        for units in [1, 0, 1] {
            spending.add(&spent(Some(&client), "/a", units));
        }
        spending.add(&spent(None, "/b", 5));
        let sum = |client: &str, endpoint, units, points| SpentSum {
            client: client.into(),
            account: "bot".into(),
            resource: "core".into(),
            endpoint,
            units,
            points,
        };
        assert_eq!(spending.sums(), [sum("_none", "/b", 5, 1), sum("ci", "/a", 2, 3)]);
    }

    #[test]
    fn a_full_family_counts_further_spending_as_overflow() {
        let spending = Spending::registered(&mut Registry::default());
        for number in 0..SERIES_MAX + 2 {
            let client: Arc<str> = format!("client-{number}").into();
            spending.add(&spent(Some(&client), "/a", 1));
        }
        let sums = spending.sums();
        assert_eq!(sums.len(), SERIES_MAX + 1);
        assert_eq!((sums[0].client.as_str(), sums[0].units), ("_overflow", 2));
    }
}
