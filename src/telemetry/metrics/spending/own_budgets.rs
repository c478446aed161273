//! The own budgets of clients, and the rules in shadow mode (SPECIFICATION, "Metrics").

use std::sync::Arc;

use super::super::{Count, Level, Metrics, Series, counts, set};
use crate::clock::Timestamp;
use crate::telemetry::labels::{ClientBudgetLabels, Name, ShadowLabels};
use crate::telemetry::names::Metric;
use crate::telemetry::registry::{Gauge, Registry};

pub struct OwnBudgetFigures {
    limit: Level<ClientBudgetLabels>,
    used: Level<ClientBudgetLabels>,
    reset: Level<ClientBudgetLabels>,
    shadowed: Count<ShadowLabels>,
}

impl OwnBudgetFigures {
    /// Drops the budgets before a scrape sets them anew.
    pub fn clear(&self) {
        for level in [&self.limit, &self.used, &self.reset] {
            level.clear();
        }
    }

    pub fn registered(registry: &mut Registry) -> Self {
        let mut level = |name| Series::new(registry, name, Gauge::default);
        Self {
            limit: level(Metric::ClientBudgetLimit),
            used: level(Metric::ClientBudgetUsed),
            reset: level(Metric::ClientBudgetResetTimestampSeconds),
            shadowed: counts(registry, Metric::ShadowedTotal),
        }
    }
}

impl Metrics {
    /// Sets a client's own budget of a resource.
    pub fn set_client_budget(
        &self,
        client: &str,
        resource: &str,
        limit: u64,
        used: u64,
        reset: Timestamp,
    ) {
        let figures = &self.counts.spending.own_budgets;
        let labels = ClientBudgetLabels { client: client.into(), resource: resource.into() };
        set(&figures.limit, &labels, limit);
        set(&figures.used, &labels, used);
        set(&figures.reset, &labels, reset.as_secs());
    }

    /// Counts a request that a rule in shadow mode would have refused or held. `rule` is the reason
    /// that the refusal would have had.
    pub fn shadowed(&self, client: Option<&Arc<str>>, rule: &'static str, is_refusal: bool) {
        let effect = if is_refusal { "refused" } else { "held" };
        let labels = ShadowLabels { client: Name::of_client(client), rule, effect };
        self.counts.spending.own_budgets.shadowed.of(&labels).inc();
    }
}
