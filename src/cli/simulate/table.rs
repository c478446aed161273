//! The results of a simulation for people.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

use super::Simulate;
use crate::admin::advice::AdvisedRule;
use crate::cli::admin::advise::subject_of;
use crate::cli::counted;
use crate::simulation::plan::Demanded;
use crate::simulation::report::{AccountReport, ClientReport};
use crate::simulation::rivals::Rival;
use crate::simulation::sizing::{Sizing, TOLERATED};
use crate::simulation::sweep::Sweep;
use crate::simulation::{Plan, Report};

/// A shorter run says nothing about primary budgets, whose window is an hour (SPECIFICATION,
/// "Primary rate limits").
const HOURS_MIN: f64 = 1.0;

/// Most cache rules in the answer about a number of accounts.
const RULES_SHOWN: usize = 3;

/// Formats a run of one or many seeds.
pub fn of_sweep(arguments: &Simulate, plan: &Plan, swept: &Sweep) -> String {
    written(|text| {
        match &plan.demand {
            Demanded::Workload(workload) => {
                writeln!(text, "workload {}: {}", workload.name(), workload.about())?;
            }
            Demanded::Trace(trace) => {
                let (requests, clients) = (trace.requests.len(), trace.clients.len());
                writeln!(text, "{requests} recorded requests of {clients} clients")?;
            }
        }
        let last = arguments.seed.saturating_add(arguments.seeds.get() - 1);
        let seeds = if last == arguments.seed {
            format!("seed {last}")
        } else {
            format!("seeds {} to {last}, all together", arguments.seed)
        };
        size(text, swept.total.hours, plan, &seeds)?;
        report(text, &swept.total)?;
        if let Some(worst) = swept.worst.as_ref().filter(|_| arguments.seeds.get() > 1) {
            let used = worst.report.used("core");
            let used =
                used.map_or_else(String::new, |used| format!(", {} of core used", percent(used)));
            let refusals = worst.report.refusals();
            writeln!(
                text,
                "\nworst seed {}: {refusals} refusals by the upstream{used}",
                worst.seed
            )?;
            writeln!(text, "  again: {}", arguments.command(worst.seed))?;
        }
        if arguments.explain {
            writeln!(text, "\nwhat led to the first refusal by the upstream:")?;
            let explained = swept.worst.as_ref().map_or(&swept.total, |worst| &worst.report);
            for event in &explained.story {
                writeln!(text, "  {event}")?;
            }
            if explained.story.is_empty() {
                writeln!(text, "  there was none")?;
            }
        }
        Ok(())
    })
}

/// Formats the same polls under different gateways' rules.
pub fn of_rivals(arguments: &Simulate, plan: &Plan, rivals: &[Rival]) -> String {
    let Some(ours) = rivals.first().map(Rival::report) else { return String::new() };
    written(|text| {
        let workload = arguments.workload;
        writeln!(text, "workload {}: {}", workload.name(), workload.about())?;
        let seeds = counted(arguments.seeds.get(), "seed");
        size(text, ours.hours, plan, &format!("{seeds} from {} on", arguments.seed))?;
        let head = ["asked", "sent", "304", "spent", "beside Weir", "outdated", "stale", "refused"];
        writeln!(text, "{:<26}{}", "gateway", head.map(|title| format!("{title:>12}")).concat())?;
        for rival in rivals {
            let (report, tally) = (rival.report(), rival.report().tally);
            #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
            let beside = format!("{:.1} x", tally.spent as f64 / ours.tally.spent.max(1) as f64);
            let refused = report.refusals() + report.denied();
            let figures = [report.requests(), tally.sent, tally.not_modified, tally.spent]
                .map(|figure| format!("{figure:>12}"))
                .concat();
            let (name, stale) = (rival.rules.name(), tally.stale);
            let outdated = millis(tally.outdated_millis);
            writeln!(
                text,
                "{name:<26}{figures}{beside:>12}{outdated:>12}{stale:>12}{refused:>12}"
            )?;
        }
        writeln!(text, "\nresources changed {} times", ours.tally.changes)
    })
}

/// Formats the search for the least number of accounts.
pub fn of_sizing(sizing: &Sizing, rules: &[AdvisedRule]) -> String {
    written(|text| {
        let mut tried = sizing.tried.clone();
        tried.sort_by_key(|one| one.accounts);
        for one in &tried {
            let (accounts, refused) =
                (counted(one.accounts.into(), "account"), percent(one.refused));
            writeln!(
                text,
                "with {accounts} {refused} of the requests were refused; half of the others waited up to {}, 99 of 100 up to {}, all up to {}",
                millis(one.p50_millis),
                millis(one.p99_millis),
                millis(one.max_millis)
            )?;
        }
        let most = tried.last().map_or(0, |one| one.accounts);
        let most = counted(most.into(), "account");
        match sizing.enough {
            Some(enough) => {
                let (enough, tolerated) = (counted(enough.into(), "account"), percent(TOLERATED));
                writeln!(text, "{enough} would do: no more than {tolerated} refused")?;
                margin(text, &sizing.report)?;
            }
            None if sizing.is_useless() => {
                writeln!(text, "no number would do: {most} serve no more than half as many")?;
            }
            None => writeln!(
                text,
                "no number up to {most} would do: these bots want more than that gives"
            )?,
        }
        savings(text, rules)?;
        if sizing.report.hours < HOURS_MIN {
            writeln!(
                text,
                "the run is shorter than an hour, in which no primary budget is used up and renewed: ask for more --hours"
            )?;
        }
        writeln!(text)?;
        report(text, &sizing.report)
    })
}

/// Writes the cache rules that save most, each as if it were alone.
fn savings(text: &mut String, rules: &[AdvisedRule]) -> fmt::Result {
    let mut rules: Vec<_> = rules.iter().collect();
    rules.sort_by_key(|rule| Reverse((rule.saved_units, rule.saved_requests)));
    for rule in rules.into_iter().take(RULES_SHOWN) {
        let AdvisedRule { setting, value, saved_requests, requests, saved_units, .. } = rule;
        writeln!(
            text,
            "{setting} = \"{value}\" for {} would save {saved_requests} of {requests} requests upstream and {saved_units} units ({})",
            subject_of(rule),
            rule.risk
        )?;
    }
    Ok(())
}

/// Writes the limit that more demand would meet first, and how much more that is.
fn margin(text: &mut String, report: &Report) -> fmt::Result {
    let Some((account, limit, used)) = report.nearest() else { return Ok(()) };
    let used_text = percent(used);
    if used >= 1.0 {
        return writeln!(text, "there is no margin: {limit} of {account} was used up");
    }
    writeln!(
        text,
        "the next limit is {limit} of {account}, of which {used_text} was used at most: {:.2} times this demand would meet it",
        1.0 / used
    )
}

/// Writes the size of the runs.
fn size(text: &mut String, hours: f64, plan: &Plan, seeds: &str) -> fmt::Result {
    let (bots, accounts) = (plan.bots, plan.settings.accounts.len());
    writeln!(text, "{hours} hours, {bots} bots, {accounts} accounts, {seeds}\n")
}

fn report(text: &mut String, report: &Report) -> fmt::Result {
    writeln!(
        text,
        "{:<20} {:<32} {:>8} {:>10} {:>10} {:>8}",
        "account", "limit", "windows", "most/max", "sum", "used"
    )?;
    report.accounts.iter().try_for_each(|one| account(text, one))?;
    writeln!(
        text,
        "\n{:<20} {:>9} {:>9} {:>9} {:>7} {:>7} {:>9} {:>8} {:>8} {:>8}",
        "client", "asked", "served", "refused", "failed", "unknown", "saved", "p50", "p99", "max"
    )?;
    report.clients.iter().try_for_each(|one| client(text, one))?;
    totals(text, report)
}

fn totals(text: &mut String, report: &Report) -> fmt::Result {
    let kinds: Vec<String> =
        report.accounts.iter().flat_map(|one| by_limit(&one.name, &one.refusals)).collect();
    let kinds = match kinds.as_slice() {
        [] => String::new(),
        kinds => format!("   ({}; `fault` is an armed one and not counted)", kinds.join(", ")),
    };
    writeln!(text, "\nrefused by the upstream     {}{kinds}", report.refusals())?;
    writeln!(
        text,
        "sent although told to wait  {}   (by the emulator's books {}, banned {})",
        report.sent_too_early, report.sent_while_limited, report.banned
    )?;
    if report.sent_elsewhere_meanwhile > 0 {
        writeln!(text, "carried by others meanwhile {}", report.sent_elsewhere_meanwhile)?;
    }
    writeln!(text, "answers lost                {}", report.lost)?;
    if report.outside.sent > 0 {
        let (sent, refused) = (report.outside.sent, report.outside.refused);
        writeln!(text, "others on the first account {sent} sent, {refused} refused")?;
    }
    let broken = report.broken.iter().map(|(name, count)| format!("{name}: {count}"));
    writeln!(text, "broken invariants           {}{}", report.broken(), in_brackets(broken))?;
    let reasons = report.clients.iter().flat_map(|one| by_limit(&one.name, &one.refused));
    writeln!(
        text,
        "refused by us               {} of {}, {}{}",
        report.denied(),
        report.requests(),
        percent(report.refused_share()),
        in_brackets(reasons)
    )
}

fn account(text: &mut String, account: &AccountReport) -> fmt::Result {
    let mut name = account.name.as_str();
    for budget in &account.budgets {
        let (resource, windows, used) = (&budget.resource, budget.windows, budget.used);
        let share = percent(budget.share());
        writeln!(text, "{name:<20} {resource:<32} {windows:>8} {:>10} {used:>10} {share:>8}", "")?;
        name = "";
    }
    for limit in &account.limits {
        let most = format!("{}/{}", limit.most, limit.max);
        let (limit, total, used) = (&limit.limit, limit.total, percent(limit.used()));
        writeln!(text, "{name:<20} {limit:<32} {:>8} {most:>10} {total:>10} {used:>8}", "")?;
        name = "";
    }
    Ok(())
}

fn client(text: &mut String, client: &ClientReport) -> fmt::Result {
    let waits =
        [client.waits.percentile(50), client.waits.percentile(99), client.waits.max()].map(millis);
    let [p50, p99, max] = &waits;
    writeln!(
        text,
        "{:<20} {:>9} {:>9} {:>9} {:>7} {:>7} {:>9} {p50:>8} {p99:>8} {max:>8}",
        client.name,
        client.requests,
        client.served,
        client.denied(),
        client.failed,
        client.unknown,
        client.saved()
    )?;
    if client.saved() > 0 {
        let (confirmed, hits, collapsed) = (client.not_modified, client.hits, client.collapsed);
        writeln!(
            text,
            "{:<20}   saved: {confirmed} by 304, {hits} from the store, {collapsed} by another one's fetch",
            ""
        )?;
    }
    Ok(())
}

/// Formats the denials of an account or a client by limit.
fn by_limit<K: Display>(name: &str, counts: &BTreeMap<K, u64>) -> impl Iterator<Item = String> {
    counts.iter().map(move |(limit, count)| format!("{name} {limit}: {count}"))
}

/// Formats details after a figure; nothing when there are none.
fn in_brackets(details: impl Iterator<Item = String>) -> String {
    let details = details.collect::<Vec<_>>().join(", ");
    if details.is_empty() { details } else { format!("   ({details})") }
}

fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn millis(millis: u64) -> String {
    if millis < 10_000 {
        format!("{millis} ms")
    } else {
        format!("{:.0} s", millis as f64 / 1_000.0)
    }
}

fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text);
    text
}
