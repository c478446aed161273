//! `weir clients`: what each client asks, waits and spends, from a running gateway. With a name:
//! where that client spends.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::api::{AdminApi, Fault, GatewayOptions, WatchOptions};
use super::plain;
use super::table::table;
use crate::admin::clients::{AllClients, ClientUse};
use crate::cli::counted;

/// Rows of one client's spending; the rest is summed up.
const ROWS_MAX: usize = 40;

#[derive(Args)]
pub struct Clients {
    /// The client whose spending is shown by account and endpoint; all clients without it
    client: Option<String>,
    /// Show who spends this resource, such as graphql
    #[arg(long, value_name = "RESOURCE", conflicts_with = "client")]
    resource: Option<String>,
    #[command(flatten)]
    watch: WatchOptions,
    #[command(flatten)]
    options: GatewayOptions,
}

impl Clients {
    pub fn run(self) -> ExitCode {
        let GatewayOptions { gateway, json } = self.options;
        let (client, resource) = (self.client, self.resource);
        gateway.run_watched("weir clients", self.watch, &async |api| match &resource {
            Some(resource) => fetch_resource(api, resource, json).await,
            None => fetch(api, client.as_deref(), json).await,
        })
    }
}

async fn fetch(api: &AdminApi, client: Option<&str>, json: bool) -> Result<String, Fault> {
    let body = api.get("/api/clients").await?;
    let mismatch = "its answer is not about clients";
    let Some(name) = client else {
        return api.printed(&body, json, mismatch, |all: &AllClients| render(all, &api.address));
    };
    let mut all: AllClients = api.read(&body, mismatch)?;
    all.clients.retain(|client| client.client == name);
    let Some(one) = all.clients.first() else {
        return Err(Fault::Rejected(format!("there is no client named {}", plain(name))));
    };
    if json { Ok(serde_json::json!(one).to_string() + "\n") } else { Ok(render_one(one)) }
}

/// The spending of a client of one resource.
#[derive(Debug, serde::Serialize)]
struct Spender<'a> {
    client: &'a str,
    units: u64,
    points: u64,
}

async fn fetch_resource(api: &AdminApi, resource: &str, json: bool) -> Result<String, Fault> {
    let body = api.get("/api/clients").await?;
    let all: AllClients = api.read(&body, "its answer is not about clients")?;
    let spenders = spenders(&all, resource);
    if json {
        return Ok(
            serde_json::json!({ "resource": resource, "clients": spenders }).to_string() + "\n"
        );
    }
    Ok(render_resource(&spenders, resource))
}

/// Those who have spent of a resource, the largest first.
fn spenders<'a>(all: &'a AllClients, resource: &str) -> Vec<Spender<'a>> {
    let of = |client: &'a ClientUse| {
        let spending = client.spending.iter().filter(|spending| spending.resource == resource);
        let (units, points) = spending.fold((0, 0), |(units, points), spending| {
            (units + spending.units, points + spending.points)
        });
        Spender { client: &client.client, units, points }
    };
    let mut spenders: Vec<_> = all.clients.iter().map(of).collect();
    spenders.retain(|spender| spender.units + spender.points > 0);
    spenders.sort_by_key(|spender| Reverse((spender.units, spender.points)));
    spenders
}

fn render_resource(spenders: &[Spender<'_>], resource: &str) -> String {
    let units: u64 = spenders.iter().map(|spender| spender.units).sum();
    let mut text =
        format!("{} of {} spent since the start\n\n", counted(units, "unit"), plain(resource));
    let rows = spenders.iter().map(|spender| {
        [
            plain(spender.client),
            spender.units.to_string(),
            share(spender.units, units),
            spender.points.to_string(),
        ]
    });
    table(["client", "units", "share", "points"], &(1..4), rows, &mut text);
    text
}

fn render(all: &AllClients, address: &str) -> String {
    let mut clients: Vec<&ClientUse> = all.clients.iter().collect();
    clients.sort_by_key(|client| (Reverse(client.units), Reverse(client.counts.requests)));
    let units: u64 = clients.iter().map(|client| client.units).sum();
    let mut text = format!(
        "weir at {address}: {}, {} spent since its start\n\n",
        counted(clients.len() as u64, "client"),
        counted(units, "unit")
    );
    let heading =
        ["client", "requests", "refused", "waiting", "p99 wait", "units", "share", "points"];
    let rows = clients.into_iter().map(|client| {
        [
            plain(&client.client),
            client.counts.requests.to_string(),
            client.counts.refused.to_string(),
            client.waiting.to_string(),
            format!("{:.1} s", client.waits.p99_seconds),
            client.units.to_string(),
            share(client.units, units),
            client.points.to_string(),
        ]
    });
    table(heading, &(1..8), rows, &mut text);
    let other: u64 = all.other_spending.iter().map(|spending| spending.units).sum();
    if other > 0 {
        let _ = writeln!(
            text,
            "\nof others, such as clients that have left the config: {}",
            counted(other, "unit")
        );
    }
    if all.without_key.requests > 0 {
        let requests = counted(all.without_key.requests, "request");
        let _ = writeln!(text, "\nwithout an accepted key: {requests}");
    }
    text
}

fn render_one(client: &ClientUse) -> String {
    let mut text = format!(
        "{}: {}, {} refused, {} spent, {} taken\n",
        plain(&client.client),
        counted(client.counts.requests, "request"),
        client.counts.refused,
        counted(client.units, "unit"),
        counted(client.points, "point"),
    );
    for (reason, count) in &client.counts.refused_by {
        let _ = writeln!(text, "  refused by {}: {count}", plain(reason));
    }
    for budget in &client.budgets {
        let _ = writeln!(
            text,
            "  {} budget of {}: {} of {} units used, whole again at {}",
            plain(&budget.mode),
            plain(&budget.resource),
            budget.used,
            budget.limit,
            plain(&budget.reset_iso),
        );
    }
    text.push('\n');
    let heading = ["account", "resource", "endpoint", "units", "share", "points"];
    let shown = client.spending.iter().take(ROWS_MAX);
    let rows = shown.map(|spending| {
        [
            plain(&spending.account),
            plain(&spending.resource),
            plain(&spending.endpoint),
            spending.units.to_string(),
            share(spending.units, client.units),
            spending.points.to_string(),
        ]
    });
    table(heading, &(3..6), rows, &mut text);
    let rest = client.spending.get(ROWS_MAX..).unwrap_or_default();
    if !rest.is_empty() {
        let units: u64 = rest.iter().map(|spending| spending.units).sum();
        let rows = counted(rest.len() as u64, "further row");
        let _ = writeln!(text, "\n{rows} of {} in all: --json has them", counted(units, "unit"));
    }
    text
}

fn share(part: u64, whole: u64) -> String {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    format!("{percent} %")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::paint::bare;
    use super::*;
    use crate::admin::clients::{OwnBudget, RequestCounts, Spending, Waits};

    fn counts(requests: u64) -> RequestCounts {
        RequestCounts { requests, refused: 2, refused_by: BTreeMap::from([("primary".into(), 2)]) }
    }

    fn client(name: &str, rows: &[(&str, u64)]) -> ClientUse {
        let spending = rows.iter().map(|&(endpoint, units)| Spending {
            account: "bot".into(),
            resource: "core".into(),
            endpoint: endpoint.into(),
            units,
            points: 2 * units,
        });
        let spending: Vec<Spending> = spending.collect();
        ClientUse {
            client: name.into(),
            priority: "normal".into(),
            weight: 1,
            waiting: 3,
            counts: counts(50),
            waits: Waits { count: 1, sum_seconds: 1.5, p50_seconds: 1.5, p99_seconds: 1.5 },
            units: spending.iter().map(|spending| spending.units).sum(),
            points: spending.iter().map(|spending| spending.points).sum(),
            budgets: vec![OwnBudget {
                resource: "core".into(),
                mode: "hard".into(),
                limit: 2_000,
                used: 30,
                remaining: 1_970,
                reset: 1_700_000_000,
                reset_iso: "2023-11-14T22:13:20Z".into(),
            }],
            spending,
        }
    }

    #[test]
    fn the_client_that_spends_most_comes_first() {
        let all = AllClients {
            clients: vec![
                client("docs", &[("/a", 10)]),
                client("crawler", &[("/a", 25), ("/b", 5)]),
            ],
            without_key: counts(7),
            other_spending: client("gone", &[("/a", 4)]).spending,
        };
        let expected = "weir at 127.0.0.1:9090: 2 clients, 40 units spent since its start\n\
            \n\
            client   requests  refused  waiting  p99 wait  units  share  points\n\
            crawler        50        2        3     1.5 s     30   75 %      60\n\
            docs           50        2        3     1.5 s     10   25 %      20\n\
            \n\
            of others, such as clients that have left the config: 4 units\n\
            \n\
            without an accepted key: 7 requests\n";
        assert_eq!(bare(&render(&all, "127.0.0.1:9090")), expected);
    }

    #[test]
    fn one_client_shows_where_it_spends() {
        let expected = "crawler: 50 requests, 2 refused, 30 units spent, 60 points taken\n  \
              refused by primary: 2\n  \
              hard budget of core: 30 of 2000 units used, whole again at 2023-11-14T22:13:20Z\n\
            \n\
            account  resource  endpoint  units  share  points\n\
            bot      core      /a           25   83 %      50\n\
            bot      core      /b            5   16 %      10\n";
        assert_eq!(bare(&render_one(&client("crawler", &[("/a", 25), ("/b", 5)]))), expected);
    }

    #[test]
    fn the_largest_spender_of_a_resource_comes_first() {
        let of = |name: &str, units: u64, resource: &str| {
            let mut client = client(name, &[("/a", units)]);
            for spending in &mut client.spending {
                resource.clone_into(&mut spending.resource);
            }
            client
        };
        let all = AllClients {
            clients: vec![
                of("small", 10, "graphql"),
                of("other", 99, "core"),
                of("big", 30, "graphql"),
            ],
            without_key: counts(0),
            other_spending: Vec::new(),
        };
        let text = bare(&render_resource(&spenders(&all, "graphql"), "graphql"));
        let expected = "40 units of graphql spent since the start\n\
            \n\
            client  units  share  points\n\
            big        30   75 %      60\n\
            small      10   25 %      20\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn many_endpoints_are_summed_up() {
        let rows = vec![("/a", 1); ROWS_MAX + 2];
        let text = render_one(&client("crawler", &rows));
        assert!(text.ends_with("\n2 further rows of 2 units in all: --json has them\n"), "{text}");
    }
}
