//! `GET /api/clients`: each client's requests, waits and gateway errors since the process began.
//!
//! The counts match `weir_requests_total` and `weir_refused_total`. Left out: keys and their
//! hashes.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;

use crate::config::Client;
use crate::config::input::reader::Choice as _;
use crate::gateway::Gateway;
use crate::telemetry::ClientFigures;

#[derive(Debug, Serialize)]
pub struct Clients {
    /// In the order of the config.
    pub clients: Vec<ClientUse>,
    /// Requests without an accepted key.
    pub without_key: RequestCounts,
}

#[derive(Debug, Serialize)]
pub struct ClientUse {
    /// Name in the config.
    pub client: String,
    pub priority: &'static str,
    pub weight: u32,
    /// Requests that wait right now.
    pub waiting: u64,
    #[serde(flatten)]
    pub counts: RequestCounts,
    pub waits: Waits,
}

#[derive(Debug, Serialize)]
pub struct RequestCounts {
    /// Requests finished.
    pub requests: u64,
    /// Requests among them that the gateway refused.
    pub refused: u64,
    /// `refused` by reason.
    pub refused_by: BTreeMap<&'static str, u64>,
}

/// Waits of finished requests.
#[derive(Debug, Serialize)]
pub struct Waits {
    /// Requests that waited for a millisecond or more.
    pub count: u64,
    pub sum_seconds: f64,
    /// Median; at most a quarter too high.
    pub p50_seconds: f64,
    /// 99th percentile; at most a quarter too high.
    pub p99_seconds: f64,
}

/// Takes a snapshot of all clients.
pub fn of(gateway: &Gateway) -> Clients {
    let clients = active_clients(gateway).map(|(client, waiting)| {
        let figures = gateway.env.metrics.client_figures(Some(&client.name));
        ClientUse {
            client: client.name.to_string(),
            priority: client.priority.name(),
            weight: client.weight.get(),
            waiting,
            waits: Waits::from(&figures),
            counts: figures.into(),
        }
    });
    Clients {
        clients: clients.collect(),
        without_key: gateway.env.metrics.client_figures(None).into(),
    }
}

/// Returns the clients of the current config, each with its waiting requests.
pub(super) fn active_clients(gateway: &Gateway) -> impl Iterator<Item = (&Client, u64)> {
    let clients = gateway.env.config.clients.iter().zip(gateway.dispatcher.waiting());
    let active = clients.filter(|(client, _)| !client.retired);
    active.map(|(client, waiting)| (client, waiting.load(Ordering::Relaxed)))
}

impl From<ClientFigures> for RequestCounts {
    fn from(figures: ClientFigures) -> Self {
        Self {
            requests: figures.requests,
            refused: figures.refused.values().sum(),
            refused_by: figures.refused,
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
