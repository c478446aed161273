//! `GET /api/clients`: what each client of the config has asked for, waited and been refused since
//! the process began.
//!
//! The same requests as in `weir_requests_total` and `weir_refused_total`. Left out: keys and their
//! hashes.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;

use crate::decision::Priority;
use crate::gateway::Gateway;
use crate::telemetry::ClientFigures;

/// All clients.
#[derive(Debug, Serialize)]
pub struct Clients {
    /// In the order of the config.
    pub clients: Vec<ClientUse>,
    /// Requests that no key was accepted for.
    pub without_key: RequestCounts,
}

/// One client.
#[derive(Debug, Serialize)]
pub struct ClientUse {
    /// Its name in the config.
    pub client: String,
    /// Its priority in the config.
    pub priority: &'static str,
    /// Its weight in the config.
    pub weight: u32,
    /// How many of its requests are held right now.
    pub waiting: u64,
    /// What it has asked for.
    #[serde(flatten)]
    pub asked: RequestCounts,
    /// How long its finished requests were held.
    pub waits: Waits,
}

/// Requests and refusals.
#[derive(Debug, Serialize)]
pub struct RequestCounts {
    /// Requests finished.
    pub requests: u64,
    /// Of these, refused by the gateway.
    pub refused: u64,
    /// The same by reason.
    pub refused_by: BTreeMap<&'static str, u64>,
}

/// How long requests were held, in seconds; of those that were not held at all there is only the
/// difference to `requests`.
#[derive(Debug, Serialize)]
pub struct Waits {
    /// Requests that were held for a millisecond or more.
    pub count: u64,
    /// All their waits together.
    pub sum_seconds: f64,
    /// What half of them did not exceed; at most a quarter too high.
    pub p50_seconds: f64,
    /// What 99 of 100 did not exceed; at most a quarter too high.
    pub p99_seconds: f64,
}

/// The clients as they stand.
pub fn of(gateway: &Gateway) -> Clients {
    let clients = gateway
        .config()
        .clients
        .iter()
        .zip(gateway.waiting())
        .filter(|(client, _)| !client.retired);
    let clients = clients.map(|(client, waiting)| {
        let figures = gateway.metrics().client_figures(Some(&client.name));
        ClientUse {
            client: client.name.to_string(),
            priority: priority(client.priority),
            weight: client.weight.get(),
            waiting: waiting.load(Ordering::Relaxed),
            waits: Waits::from(&figures),
            asked: figures.into(),
        }
    });
    Clients {
        clients: clients.collect(),
        without_key: gateway.metrics().client_figures(None).into(),
    }
}

const fn priority(priority: Priority) -> &'static str {
    match priority {
        Priority::Interactive => "interactive",
        Priority::Normal => "normal",
        Priority::Batch => "batch",
    }
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
