//! `weir top`: what a running gateway does, as a live table: the budgets that are nearest to their
//! end, and the clients that spend most.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::api::{AdminApi, AdminArguments, Fault, WatchOptions};
use super::table::table;
use super::{paint, plain};
use crate::admin::budgets::{Budgets, ResourceBudget};
use crate::admin::clients::{AllClients, ClientUse};
use crate::cli::counted;
use crate::clock::machine_instant;

/// Pause between two looks, unless `--watch` names another.
const PAUSE: Duration = Duration::from_secs(2);
/// Budgets shown.
const BUDGETS: usize = 8;
/// Thousandths of a budget below which it is painted.
const LOW_PER_MILLE: u64 = 100;
/// Clients shown.
const CLIENTS: usize = 20;

#[derive(Args)]
pub struct Top {
    /// Print one table and end; its rates are those of a second
    #[arg(long, conflicts_with = "watch")]
    once: bool,
    #[command(flatten)]
    watch: WatchOptions,
    #[command(flatten)]
    gateway: AdminArguments,
}

/// The figures of one client that grow.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    requests: u64,
    refused: u64,
    units: u64,
    points: u64,
}

/// The look before, for rates.
struct Look {
    at: Instant,
    sums: HashMap<String, Sums>,
}

impl Top {
    pub fn run(self) -> ExitCode {
        let before = RefCell::new(None);
        if self.once {
            return self.gateway.run("weir top", async |api| {
                look(api, &before).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
                look(api, &before).await
            });
        }
        let watch = WatchOptions { watch: Some(self.watch.watch.unwrap_or(PAUSE)) };
        self.gateway.run_watched("weir top", watch, &async |api| look(api, &before).await)
    }
}

async fn look(api: &AdminApi, before: &RefCell<Option<Look>>) -> Result<String, Fault> {
    let budgets = api.get("/api/budgets").await?;
    let clients = api.get("/api/clients").await?;
    let budgets: Budgets = api.read(&budgets, "its answer is not about budgets")?;
    let clients: AllClients = api.read(&clients, "its answer is not about clients")?;
    let at = machine_instant();
    let sums = clients.clients.iter().map(|client| (client.client.clone(), Sums::of(client)));
    let now = Look { at, sums: sums.collect() };
    let before = before.replace(Some(now));
    let took = before.as_ref().map(|before| at.saturating_duration_since(before.at));
    let since = before.map(|before| before.sums).unwrap_or_default();
    Ok(render(&api.address, &budgets, &clients, &since, took))
}

impl Sums {
    fn of(client: &ClientUse) -> Self {
        let counts = &client.counts;
        let (requests, refused) = (counts.requests, counts.refused);
        Self { requests, refused, units: client.units, points: client.points }
    }

    /// The growth; a restart of the gateway begins anew.
    fn since(self, before: Self) -> Self {
        let grown = |now: u64, before: u64| if now >= before { now - before } else { now };
        Self {
            requests: grown(self.requests, before.requests),
            refused: grown(self.refused, before.refused),
            units: grown(self.units, before.units),
            points: grown(self.points, before.points),
        }
    }
}

/// Formats both tables. Without a look before there are no rates.
fn render(
    address: &str,
    budgets: &Budgets,
    clients: &AllClients,
    before: &HashMap<String, Sums>,
    took: Option<Duration>,
) -> String {
    let mut text = format!(
        "weir at {address}, {}: {} waiting\n",
        plain(&budgets.now_iso),
        counted(budgets.waiting, "request")
    );
    for upstream in budgets.upstreams.iter().filter(|upstream| upstream.state != "up") {
        let since = upstream.down_since_iso.as_deref().map(plain);
        let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
        let (name, state) = (plain(&upstream.upstream), plain(&upstream.state));
        let _ = writeln!(text, "{}", paint::bad(&format!("{name} is {state}{since}")));
    }
    text.push('\n');
    lowest(budgets, &mut text);
    text.push('\n');
    spenders(clients, before, took, &mut text);
    text
}

/// The budgets of which the least is left.
fn lowest(budgets: &Budgets, text: &mut String) {
    let left = |budget: &ResourceBudget| budget.remaining.saturating_sub(budget.reserved);
    let per_mille =
        |budget: &ResourceBudget| u64::from(left(budget)) * 1_000 / u64::from(budget.limit.max(1));
    let mut all: Vec<_> = budgets
        .accounts
        .iter()
        .flat_map(|account| account.resources.iter().map(move |budget| (account, budget)))
        .collect();
    all.sort_by_key(|(_, budget)| per_mille(budget));
    let rest = all.len().saturating_sub(BUDGETS);
    let heading = ["account", "resource", "left", "of", "reset in", "state"];
    let rows = all.into_iter().take(BUDGETS).map(|(account, budget)| {
        let seconds = budget.reset.saturating_sub(budgets.now);
        [
            plain(&account.account),
            plain(&budget.resource),
            match per_mille(budget) {
                0..LOW_PER_MILLE => paint::warning(&left(budget).to_string()),
                _ => left(budget).to_string(),
            },
            budget.limit.to_string(),
            format!("{} min", seconds.div_ceil(60)),
            match account.cooldown_until {
                Some(_) => paint::bad("closed by the upstream"),
                None => "open".to_owned(),
            },
        ]
    });
    table(heading, &(2..5), rows, text);
    if rest > 0 {
        let _ = writeln!(text, "and {}", counted(rest as u64, "further budget"));
    }
}

/// The clients that spend most.
fn spenders(
    clients: &AllClients,
    before: &HashMap<String, Sums>,
    took: Option<Duration>,
    text: &mut String,
) {
    let grown = |client: &ClientUse| {
        let before = before.get(&client.client).copied();
        Sums::of(client).since(before.unwrap_or_default())
    };
    let mut all: Vec<_> = clients.clients.iter().map(|client| (client, grown(client))).collect();
    all.sort_by_key(|(client, sums)| {
        (Reverse(sums.units), Reverse(sums.requests), Reverse(client.units))
    });
    let rest = all.len().saturating_sub(CLIENTS);
    let rate = |count: u64, unit: Duration| {
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with one decimal place")]
        let count = count as f64;
        took.filter(|took| !took.is_zero()).map_or_else(
            || "-".to_owned(),
            |took| format!("{:.1}", count * unit.as_secs_f64() / took.as_secs_f64()),
        )
    };
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let heading =
        ["client", "requests/s", "refused/s", "waiting", "units/min", "points/min", "units in all"];
    let rows = all.into_iter().take(CLIENTS).map(|(client, sums)| {
        [
            plain(&client.client),
            rate(sums.requests, second),
            rate(sums.refused, second),
            client.waiting.to_string(),
            rate(sums.units, minute),
            rate(sums.points, minute),
            client.units.to_string(),
        ]
    });
    table(heading, &(1..7), rows, text);
    if rest > 0 {
        let _ = writeln!(text, "and {}", counted(rest as u64, "further client"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clients(units: u64) -> AllClients {
        let client = |name: &str, units: u64| {
            json!({
                "client": name, "priority": "normal", "weight": 1, "waiting": 2, "requests": units,
                "refused": 0, "refused_by": {}, "units": units, "points": units, "spending": [],
                "waits": { "count": 0, "sum_seconds": 0.0, "p50_seconds": 0.0, "p99_seconds": 0.0 },
            })
        };
        let none = json!({ "requests": 0, "refused": 0, "refused_by": {} });
        serde_json::from_value(json!({
            "clients": [client("docs", 40), client("crawler", units)],
            "without_key": none, "other_spending": [],
        }))
        .unwrap()
    }

    fn budgets() -> Budgets {
        let budget = |resource: &str, remaining: u32| {
            json!({
                "resource": resource, "known": true, "limit": 5_000, "remaining": remaining,
                "reserved": 2, "used": 5_000 - remaining, "reset": 1_600,
                "reset_iso": "1970-01-01T00:26:40Z",
            })
        };
        serde_json::from_value(json!({
            "now": 1_000, "now_iso": "1970-01-01T00:16:40Z", "waiting": 3,
            "upstreams": [{ "upstream": "https://api.example.com", "state": "down",
                "down_since": 900, "down_since_iso": "1970-01-01T00:15:00Z" }],
            "accounts": [{ "account": "bot", "reserve": 0, "cooldown_until": null,
                "cooldown_until_iso": null, "secondary": [], "tokens": [],
                "resources": [budget("core", 4_000), budget("graphql", 100)] }],
        }))
        .unwrap()
    }

    #[test]
    fn the_fastest_spender_and_the_lowest_budget_come_first() {
        let before = clients(100);
        let before = before.clients.iter().map(|one| (one.client.clone(), Sums::of(one)));
        let text = render(
            "127.0.0.1:9090",
            &budgets(),
            &clients(130),
            &before.collect(),
            Some(Duration::from_secs(2)),
        );
        let expected = "weir at 127.0.0.1:9090, 1970-01-01T00:16:40Z: 3 requests waiting\n\
            https://api.example.com is down since 1970-01-01T00:15:00Z\n\
            \n\
            account  resource  left    of  reset in  state\n\
            bot      graphql     98  5000    10 min  open\n\
            bot      core      3998  5000    10 min  open\n\
            \n\
            client   requests/s  refused/s  waiting  units/min  points/min  units in all\n\
            crawler        15.0        0.0        2      900.0       900.0           130\n\
            docs            0.0        0.0        2        0.0         0.0            40\n";
        assert_eq!(paint::bare(&text), expected);
        for painted in [paint::warning("98"), paint::heading("client")] {
            assert!(text.contains(&painted), "{text:?}");
        }
    }

    #[test]
    fn the_first_look_has_no_rates() {
        let text = render("a", &budgets(), &clients(1), &HashMap::new(), None);
        assert!(text.contains("docs              -          -        2"), "{text}");
    }

    #[test]
    fn a_gateway_that_began_anew_counts_from_zero() {
        let sums = |units| Sums { units, ..Sums::default() };
        assert_eq!(sums(5).since(sums(100)).units, 5);
        assert_eq!(sums(105).since(sums(100)).units, 5);
    }
}
