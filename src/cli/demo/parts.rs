//! The table of several gateways: the part of each budget that each one holds, and their requests.

use std::collections::BTreeMap;

use super::bots::{Bots, Entrance, read};
use super::stage::Stage;
use crate::decision::fleet::Budget;
use crate::state::Away;

/// Width of the first column, and of the others.
const WIDTHS: (usize, usize) = (24, 10);
/// Beginning of the names of budgets among the parts of a record.
const BUDGET: &str = "budget ";

/// A budget, as the gateways share it.
struct SharedBudget {
    /// Account and resource.
    name: String,
    limit: String,
    /// Units left upstream.
    left: String,
    /// Units spent and held, by gateway.
    parts: Vec<String>,
}

/// Prints the table. `refused`: requests that the upstream refused.
pub async fn print(stage: &Stage, bots: &Bots, refused: u64) {
    let gateways: Vec<_> =
        (1..=stage.gateways.len()).map(|number| format!("gateway {number}")).collect();
    print_row("\nbudget, spent/held", &["limit", "left"], &gateways);
    match budgets(stage).await {
        Ok(budgets) => {
            for SharedBudget { name, limit, left, parts } in budgets {
                print_row(&name, &[&limit, &left], &parts);
            }
        }
        Err(Away(reason)) => println!("Redis is out of reach: {reason}"),
    }
    print_row("\nrequests", &["", "all"], &gateways);
    let all = &bots.counters;
    let each = |count: fn(&Entrance) -> u64| {
        bots.entrances.iter().map(|entrance| count(entrance).to_string()).collect::<Vec<_>>()
    };
    let served = read(&all.requests).to_string();
    print_row("served", &["", &served], &each(|entrance| read(&entrance.requests)));
    let free = read(&all.free_reads).to_string();
    print_row(
        "served without spending",
        &["", &free],
        &each(|entrance| read(&entrance.free_reads)),
    );
    print_row("refused by the upstream", &["", &refused.to_string()], &[]);
}

async fn budgets(stage: &Stage) -> Result<Vec<SharedBudget>, Away> {
    let mut budgets = Vec::new();
    let Some(first) = stage.gateways.first().map(|staged| &staged.gateway.env) else {
        return Ok(budgets);
    };
    let Some(replica) = &first.replica else { return Ok(budgets) };
    let ids = stage.gateways.iter().map(|staged| staged.gateway.env.replica.as_ref());
    let ids: Vec<_> = ids.map(|replica| replica.map(|replica| replica.id())).collect();
    for account in &first.config.accounts {
        let (Some(record), _) = replica.home().record(&account.name).await? else { continue };
        let mut by_resource: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for part in record.parts() {
            let Some(resource) = part.limit.strip_prefix(BUDGET) else { continue };
            let cells = by_resource
                .entry(resource.to_owned())
                .or_insert_with(|| vec!["-".to_owned(); ids.len()]);
            let holder = ids.iter().position(|id| *id == Some(part.replica));
            if let Some(cell) = holder.and_then(|holder| cells.get_mut(holder)) {
                *cell = format!("{}/{}", part.in_use, part.held);
            }
        }
        budgets.extend(by_resource.into_iter().map(|(resource, parts)| {
            let seen = record.budget(&resource).and_then(Budget::seen);
            let figure = |units: Option<u32>| units.map_or("?".to_owned(), |it| it.to_string());
            SharedBudget {
                name: format!("{} {resource}", account.name),
                limit: figure(seen.map(|seen| seen.limit)),
                left: figure(seen.map(|seen| seen.remaining)),
                parts,
            }
        }));
    }
    Ok(budgets)
}

fn print_row(name: &str, totals: &[&str; 2], gateways: &[String]) {
    let (first, others) = WIDTHS;
    // A line break before the name takes no width.
    let first = first + name.matches('\n').count();
    let cells = totals.iter().copied().chain(gateways.iter().map(String::as_str));
    let cells: Vec<_> = cells.map(|cell| format!("{cell:>others$}")).collect();
    println!("{name:<first$} {}", cells.join(" "));
}
