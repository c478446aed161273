//! The results of a simulation for people.

use std::fmt::Write as _;

use super::Simulate;
use crate::simulation::plan::Demanded;
use crate::simulation::report::{AccountReport, ClientReport};
use crate::simulation::rivals::Rival;
use crate::simulation::sizing::{Sizing, TOLERATED};
use crate::simulation::sweep::Sweep;
use crate::simulation::{Plan, Report};

/// A shorter run says nothing about primary budgets, whose window is an hour (SPECIFICATION,
/// "Primary rate limits").
const HOURS_MIN: f64 = 1.0;

/// Formats a run of one or many seeds.
pub fn of_sweep(arguments: &Simulate, plan: &Plan, swept: &Sweep) -> String {
    let mut text = String::new();
    let what = match &plan.demand {
        Demanded::Workload(workload) => {
            format!("workload {}: {}", workload.name(), workload.about())
        }
        Demanded::Trace(trace) => {
            format!("{} recorded requests of {} clients", trace.requests.len(), trace.clients.len())
        }
    };
    let last = arguments.seed.saturating_add(arguments.seeds.get() - 1);
    let seeds = if last == arguments.seed {
        format!("seed {last}")
    } else {
        format!("seeds {} to {last}, all together", arguments.seed)
    };
    line(&mut text, format_args!("{what}"));
    line(
        &mut text,
        format_args!(
            "{} hours, {} bots, {} accounts, {seeds}\n",
            swept.total.hours,
            plan.bots,
            plan.settings.accounts.len()
        ),
    );
    report(&mut text, &swept.total);
    if let Some(worst) = swept.worst.as_ref().filter(|_| arguments.seeds.get() > 1) {
        let used = worst
            .report
            .used("core")
            .map_or_else(String::new, |used| format!(", {} of core used", percent(used)));
        line(
            &mut text,
            format_args!(
                "\nworst seed {}: {} refusals by the upstream{used}",
                worst.seed,
                worst.report.refusals()
            ),
        );
        line(&mut text, format_args!("  again: {}", arguments.command(worst.seed)));
    }
    let story = swept.worst.as_ref().map_or(&swept.total.story, |worst| &worst.report.story);
    if arguments.explain {
        line(&mut text, format_args!("\nwhat led to the first refusal by the upstream:"));
        for event in story {
            line(&mut text, format_args!("  {event}"));
        }
        if story.is_empty() {
            line(&mut text, format_args!("  there was none"));
        }
    }
    text
}

/// Formats the same polls under different gateways' rules.
pub fn of_rivals(arguments: &Simulate, plan: &Plan, rivals: &[Rival]) -> String {
    let mut text = String::new();
    let ours = rivals.first().map_or(0, |rival| rival.report().tally.spent);
    let hours = rivals.first().map_or(0.0, |rival| rival.report().hours);
    line(
        &mut text,
        format_args!("workload {}: {}", arguments.workload.name(), arguments.workload.about()),
    );
    let seeds = format!("{} from {} on", counted(arguments.seeds.get(), "seed"), arguments.seed);
    line(
        &mut text,
        format_args!(
            "{hours} hours, {} bots, {} accounts, {seeds}\n",
            plan.bots,
            plan.settings.accounts.len()
        ),
    );
    let head = ["asked", "sent", "304", "spent", "beside Weir", "stale", "refused"];
    line(
        &mut text,
        format_args!("{:<26}{}", "gateway", head.map(|title| format!("{title:>12}")).concat()),
    );
    for rival in rivals {
        let (report, tally) = (rival.report(), rival.report().tally);
        let asked: u64 = report.clients.iter().map(|client| client.asked).sum();
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let beside = format!("{:.1} x", tally.spent as f64 / ours.max(1) as f64);
        let refused =
            report.refusals() + report.clients.iter().map(ClientReport::turned_away).sum::<u64>();
        let figures = [asked, tally.sent, tally.not_modified, tally.spent]
            .map(|figure| format!("{figure:>12}"))
            .concat();
        line(
            &mut text,
            format_args!(
                "{:<26}{figures}{beside:>12}{:>12}{refused:>12}",
                rival.rules.name(),
                tally.stale
            ),
        );
    }
    line(
        &mut text,
        format_args!(
            "\nresources changed {} times",
            rivals.first().map_or(0, |rival| rival.report().tally.changes)
        ),
    );
    text
}

/// Formats the search for the least number of accounts.
pub fn of_sizing(sizing: &Sizing) -> String {
    let mut text = String::new();
    let mut tried = sizing.tried.clone();
    tried.sort_by_key(|(accounts, _)| *accounts);
    for (accounts, refused) in tried {
        line(
            &mut text,
            format_args!(
                "with {} {} of the requests were refused",
                counted(accounts.into(), "account"),
                percent(refused)
            ),
        );
    }
    let most = counted(
        sizing.tried.iter().map(|(accounts, _)| u64::from(*accounts)).max().unwrap_or(0),
        "account",
    );
    match sizing.enough {
        Some(enough) => {
            line(
                &mut text,
                format_args!(
                    "{} would do: no more than {} refused",
                    counted(enough.into(), "account"),
                    percent(TOLERATED)
                ),
            );
        }
        None if sizing.is_useless() => line(
            &mut text,
            format_args!("no number would do: {most} serve no more than half as many"),
        ),
        None => line(
            &mut text,
            format_args!("no number up to {most} would do: these bots want more than that gives"),
        ),
    }
    if sizing.report.hours < HOURS_MIN {
        line(
            &mut text,
            format_args!(
                "the run is shorter than an hour, in which no primary budget is used up and renewed: ask for more --hours"
            ),
        );
    }
    line(&mut text, format_args!(""));
    report(&mut text, &sizing.report);
    text
}

fn report(text: &mut String, report: &Report) {
    line(
        text,
        format_args!(
            "{:<20} {:<32} {:>8} {:>10} {:>10} {:>8}",
            "account", "limit", "windows", "most/max", "sum", "used"
        ),
    );
    report.accounts.iter().for_each(|one| account(text, one));
    line(
        text,
        format_args!(
            "\n{:<20} {:>9} {:>9} {:>9} {:>7} {:>7} {:>9} {:>8} {:>8} {:>8}",
            "client",
            "asked",
            "served",
            "refused",
            "failed",
            "unknown",
            "saved",
            "p50",
            "p99",
            "max"
        ),
    );
    report.clients.iter().for_each(|one| client(text, one));
    line(
        text,
        format_args!("\nrefused by the upstream     {}{}", report.refusals(), by_kind(report)),
    );
    line(
        text,
        format_args!(
            "sent although told to wait  {}   (by the emulator's books {}, banned {})",
            report.sent_while_told, report.sent_while_limited, report.banned
        ),
    );
    if report.sent_elsewhere_meanwhile > 0 {
        line(text, format_args!("carried by others meanwhile {}", report.sent_elsewhere_meanwhile));
    }
    line(text, format_args!("answers lost                {}", report.lost));
    if report.outside.sent > 0 {
        line(
            text,
            format_args!(
                "others on the first account {} sent, {} refused",
                report.outside.sent, report.outside.refused
            ),
        );
    }
    let broken: Vec<String> =
        report.broken.iter().map(|(name, count)| format!("{name}: {count}")).collect();
    line(
        text,
        format_args!(
            "broken invariants           {}{}",
            report.broken(),
            if broken.is_empty() { String::new() } else { format!("   ({})", broken.join(", ")) }
        ),
    );
    let (refused, asked) = (
        report.clients.iter().map(ClientReport::turned_away).sum::<u64>(),
        report.clients.iter().map(|client| client.asked).sum::<u64>(),
    );
    line(
        text,
        format_args!(
            "refused by us               {refused} of {asked}, {}{}",
            percent(report.refused_share()),
            reasons(report)
        ),
    );
}

fn account(text: &mut String, account: &AccountReport) {
    let mut name = account.name.as_str();
    for budget in &account.budgets {
        line(
            text,
            format_args!(
                "{name:<20} {:<32} {:>8} {:>10} {:>10} {:>8}",
                budget.resource,
                budget.windows,
                "",
                budget.used,
                percent(budget.share())
            ),
        );
        name = "";
    }
    for limit in &account.limits {
        let most = format!("{}/{}", limit.most, limit.max);
        line(
            text,
            format_args!(
                "{name:<20} {:<32} {:>8} {most:>10} {:>10} {:>8}",
                limit.limit,
                "",
                limit.total,
                percent(limit.used())
            ),
        );
        name = "";
    }
}

fn client(text: &mut String, client: &ClientReport) {
    let waits =
        [client.waits.percentile(50), client.waits.percentile(99), client.waits.max()].map(millis);
    let [p50, p99, max] = &waits;
    line(
        text,
        format_args!(
            "{:<20} {:>9} {:>9} {:>9} {:>7} {:>7} {:>9} {p50:>8} {p99:>8} {max:>8}",
            client.name,
            client.asked,
            client.served,
            client.turned_away(),
            client.failed,
            client.unknown,
            client.saved()
        ),
    );
    if client.saved() > 0 {
        let (hits, collapsed) = (client.hits, client.collapsed);
        line(
            text,
            format_args!(
                "{:<20}   saved: {} by 304, {hits} from the store, {collapsed} by another one's fetch",
                "", client.not_modified
            ),
        );
    }
}

fn by_kind(report: &Report) -> String {
    let mut kinds: Vec<String> = Vec::new();
    for account in &report.accounts {
        kinds.extend(
            account
                .refusals
                .iter()
                .map(|(limit, count)| format!("{} {limit}: {count}", account.name)),
        );
    }
    if kinds.is_empty() {
        String::new()
    } else {
        format!("   ({}; `fault` is an armed one and not counted)", kinds.join(", "))
    }
}

fn reasons(report: &Report) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for client in &report.clients {
        reasons.extend(
            client.refused.iter().map(|(limit, count)| format!("{} {limit}: {count}", client.name)),
        );
    }
    if reasons.is_empty() { String::new() } else { format!("   ({})", reasons.join(", ")) }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
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

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{what}");
}
