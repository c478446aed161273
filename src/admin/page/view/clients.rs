//! Clients: requests, waits and spending since the start, the most units first.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::{Look, more, table, words};
use crate::admin::clients::{AllClients, ClientUse, RequestCounts};

/// Most rows. Our choice: a person reads no more.
const SHOWN_MAX: usize = 30;
/// Most endpoints of a client. `GET /api/clients` has all.
const ENDPOINTS_MAX: usize = 3;

pub fn show(look: &Look) -> Markup {
    let AllClients { mut clients, without_key, .. } = crate::admin::clients::of(&look.gateway);
    let all = clients.len();
    clients.sort_by(|one, other| {
        let use_of = |client: &ClientUse| (client.units, client.points, client.counts.requests);
        use_of(other).cmp(&use_of(one)).then_with(|| one.client.cmp(&other.client))
    });
    let units: u64 = clients.iter().map(|client| client.units).sum();
    clients.truncate(SHOWN_MAX);
    let heads =
        ["Client", "Units", "Points", "Requests", "Refused", "Waiting", "Wait (99 %)", "Spent on"];
    let rows = html! { @for client in &clients { (row(client, units)) } };
    html! {
        (table("clients", "Since the start, the largest spenders first", &heads, &rows))
        (more(all, clients.len(), "clients that spent no more"))
        (keyless(&without_key))
    }
}

fn row(client: &ClientUse, units: u64) -> Markup {
    #[expect(clippy::cast_precision_loss, reason = "it is shown in percent")]
    let share = client.units as f64 / units.max(1) as f64;
    let spent = by_endpoint(client);
    html! {
        tr {
            th scope="row" { (client.client) }
            td.number {
                (words::number(client.units))
                @if client.units > 0 { " " span.dim { (words::percent(share)) } }
            }
            td.number { (words::number(client.points)) }
            td.number { (words::number(client.counts.requests)) }
            td.number { (refused(&client.counts)) }
            td.number { (words::number(client.waiting)) }
            td.number {
                @if client.waits.count > 0 {
                    (words::duration(Duration::from_secs_f64(client.waits.p99_seconds)))
                } @else { "–" }
            }
            td.words {
                @for (index, ((endpoint, resource), (units, _))) in
                    spent.iter().take(ENDPOINTS_MAX).enumerate()
                {
                    @if index > 0 { br; }
                    (endpoint) " " span.dim { (words::number(*units)) " " (resource) }
                }
                @if spent.len() > ENDPOINTS_MAX {
                    br; span.dim { "and " (spent.len() - ENDPOINTS_MAX) " more" }
                }
            }
        }
    }
}

/// An endpoint and the resource that it spends.
type Endpoint<'c> = (&'c str, &'c str);

/// Endpoints with their resource, units and points of all accounts, the most units first.
fn by_endpoint(client: &ClientUse) -> Vec<(Endpoint<'_>, (u64, u64))> {
    let mut sums = BTreeMap::new();
    for spending in &client.spending {
        let key = (&*spending.endpoint, &*spending.resource);
        let sum: &mut (u64, u64) = sums.entry(key).or_default();
        *sum = (sum.0 + spending.units, sum.1 + spending.points);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    sums
}

fn refused(counts: &RequestCounts) -> Markup {
    let most = counts.refused_by.iter().max_by_key(|(_, count)| **count);
    html! {
        (words::number(counts.refused))
        @if let Some((reason, _)) = most { " " span.dim { "mostly " (reason) } }
    }
}

fn keyless(counts: &RequestCounts) -> Markup {
    html! {
        @if counts.requests > 0 {
            p {
                (words::count(counts.requests, "request", "requests"))
                " came without an accepted key. Refused: " (words::number(counts.refused)) "."
            }
        }
    }
}
