//! `GET /api/clients`: each client's requests, waits, gateway errors and spending since the process
//! began.
//!
//! The counts match `weir_requests_total`, `weir_refused_total`, `weir_units_total` and
//! `weir_points_total`. Left out: keys and their hashes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::input::reader::Choice as _;
use crate::config::{BudgetMode, Client};
use crate::decision::ClientBudgetSnapshot;
use crate::gateway::Gateway;
use crate::telemetry::{ClientFigures, SpentSum};

/// All clients.
#[derive(Debug, Serialize, Deserialize)]
pub struct AllClients {
    /// In the order of the config.
    pub clients: Vec<ClientUse>,
    /// Requests without an accepted key.
    pub without_key: RequestCounts,
    /// Spending of clients that the config has no longer, and what had no room of its own.
    pub other_spending: Vec<Spending>,
}

/// One client: its requests, its waits and its spending.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientUse {
    /// Name in the config.
    pub client: String,
    /// `normal` or another one of the config.
    pub priority: String,
    /// Weight among the clients of its priority.
    pub weight: u32,
    /// Requests that wait right now.
    pub waiting: u64,
    /// Its requests.
    #[serde(flatten)]
    pub counts: RequestCounts,
    /// The waits of its finished requests.
    pub waits: Waits,
    /// Units of budgets spent.
    pub units: u64,
    /// Points taken.
    pub points: u64,
    /// Its own budgets; absent in the answer of older gateways.
    #[serde(default)]
    pub budgets: Vec<OwnBudget>,
    /// The units and points by account, resource and endpoint, the most units first.
    pub spending: Vec<Spending>,
}

/// A client's own budget of a resource.
#[derive(Debug, Serialize, Deserialize)]
pub struct OwnBudget {
    /// Resource, such as `core`.
    pub resource: String,
    /// `hard` or `soft`.
    pub mode: String,
    /// Units per window.
    pub limit: u32,
    /// Units of this window, spent or in flight.
    pub used: u32,
    /// `limit - used`, at least 0.
    pub remaining: u32,
    /// End of the window, in seconds since the epoch.
    pub reset: u64,
    /// The same in RFC 3339.
    pub reset_iso: String,
}

/// Spending of one account at one endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct Spending {
    /// Account name in the config.
    pub account: String,
    /// Resource of the budget.
    pub resource: String,
    /// Route template.
    pub endpoint: String,
    /// Units of the budget, spent or perhaps spent.
    pub units: u64,
    /// Points of the secondary limit.
    pub points: u64,
}

/// Numbers of finished requests.
#[derive(Debug, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Requests finished.
    pub requests: u64,
    /// Requests among them that the gateway refused.
    pub refused: u64,
    /// `refused` by reason.
    pub refused_by: BTreeMap<String, u64>,
}

/// Waits of finished requests.
#[derive(Debug, Serialize, Deserialize)]
pub struct Waits {
    /// Requests that waited for a millisecond or more.
    pub count: u64,
    /// Sum of the waits.
    pub sum_seconds: f64,
    /// Median; at most a quarter too high.
    pub p50_seconds: f64,
    /// 99th percentile; at most a quarter too high.
    pub p99_seconds: f64,
}

/// Takes a snapshot of all clients.
pub fn of(gateway: &Gateway) -> AllClients {
    let mut spent = BTreeMap::<String, Vec<Spending>>::new();
    for SpentSum { client, account, resource, endpoint, units, points } in
        gateway.env.metrics.spending()
    {
        let endpoint = endpoint.to_owned();
        let spending = Spending { account, resource, endpoint, units, points };
        spent.entry(client).or_default().push(spending);
    }
    let mut budgets = BTreeMap::<Arc<str>, Vec<OwnBudget>>::new();
    for budget in gateway.dispatcher.admissions().client_budgets().1 {
        budgets.entry(Arc::clone(&budget.client)).or_default().push(budget.into());
    }
    let clients = active_clients(gateway).map(|(client, waiting)| {
        let spending = spent.remove(&*client.name).unwrap_or_default();
        let figures = gateway.env.metrics.client_figures(Some(&client.name));
        ClientUse {
            client: client.name.to_string(),
            priority: client.priority.name().to_owned(),
            weight: client.weight.get(),
            waiting,
            waits: Waits::from(&figures),
            counts: figures.into(),
            units: spending.iter().map(|spending| spending.units).sum(),
            points: spending.iter().map(|spending| spending.points).sum(),
            budgets: budgets.remove(&client.name).unwrap_or_default(),
            spending,
        }
    });
    let clients = clients.collect();
    AllClients {
        clients,
        other_spending: spent.into_values().flatten().collect(),
        without_key: gateway.env.metrics.client_figures(None).into(),
    }
}

/// Returns the clients of the current config, each with its waiting requests.
pub(super) fn active_clients(gateway: &Gateway) -> impl Iterator<Item = (&Client, u64)> {
    let clients = gateway.env.config.clients.iter().zip(gateway.dispatcher.waiting());
    let active = clients.filter(|(client, _)| !client.retired);
    active.map(|(client, waiting)| (client, waiting.load(Ordering::Relaxed)))
}

impl From<ClientBudgetSnapshot> for OwnBudget {
    fn from(budget: ClientBudgetSnapshot) -> Self {
        let mode = if budget.is_hard { BudgetMode::Hard } else { BudgetMode::Soft };
        Self {
            resource: budget.resource.as_str().to_owned(),
            mode: mode.name().to_owned(),
            limit: budget.limit,
            used: budget.used,
            remaining: budget.limit.saturating_sub(budget.used),
            reset: budget.reset.as_secs(),
            reset_iso: budget.reset.rfc3339(),
        }
    }
}

impl From<ClientFigures> for RequestCounts {
    fn from(figures: ClientFigures) -> Self {
        Self {
            requests: figures.requests,
            refused: figures.refused.values().sum(),
            refused_by: figures
                .refused
                .into_iter()
                .map(|(reason, count)| (reason.to_owned(), count))
                .collect(),
        }
    }
}

impl From<&ClientFigures> for Waits {
    fn from(figures: &ClientFigures) -> Self {
        Self {
            count: figures.waited,
            sum_seconds: figures.waited_total.as_secs_f64(),
            p50_seconds: Duration::as_secs_f64(&figures.wait_p50),
            p99_seconds: Duration::as_secs_f64(&figures.wait_p99),
        }
    }
}
